"""Where builtins make operations, and how they point at the author's arguments when something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol, TypeVar

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.types import Type, layout_of
from kbuild.compiler.layout import LinearLayout, PendingLayout
from kbuild.compiler.ops.elementwise import Constant, Number
from kbuild.compiler.semantic.types import DType, ScalarType, type_of
from kbuild.compiler.semantic.values import Tensor
from kbuild.errors import CompileError, Loc

AnyOp = TypeVar("AnyOp", bound=Op)


class Frontend(Protocol):
    """What builtins need from the reader of the kernel."""

    def call(self, function: Any, args: list[Any]) -> Any:
        """The result of a function of the author's, its operations put at the builder's place."""

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name` as a kernel means it; raises `CompileError` when there is none."""

    def argument_loc(self, name: str) -> Loc | None:
        """Where the argument for a parameter of the running builtin is written."""
        ...

    def argument_text(self, name: str) -> str:
        """How the argument is written; "" when unknown."""
        ...

    def compared(self, name: str) -> tuple[Any, Any] | None:
        """The two sides of the argument, where it is written as a comparison of them."""
        ...


class BuildContext:
    """The operations of one function that is being built."""

    def __init__(
        self,
        builder: Builder,
        frontend: Frontend,
        num_warps: int,
        debug: bool = False,
        explicit_layouts: bool = False,
    ) -> None:
        self.builder = builder
        self.frontend = frontend
        self.num_warps = num_warps
        self.debug = debug
        """Whether assertions are compiled in, the author's and those against overflow of integers; never in
        the functions of reductions and scans, which idle lanes apply to anything."""
        self.explicit_layouts = explicit_layouts
        """Whether the author chooses the layouts: a kernel of Gluon."""
        self.capability: int | None = None
        """The compute capability that is compiled for, as 90; None where that is not known."""
        self.notes: list[str] = []
        """What `tl.static_print` printed."""

    @contextmanager
    def without_assertions(self) -> Iterator[None]:
        """While this lasts, assertions are left out."""
        saved, self.debug = self.debug, False
        try:
            yield
        finally:
            self.debug = saved

    def add(self, op: AnyOp) -> AnyOp:
        return self.builder.add(op)

    def tensor(self, op: Op, dtype: ScalarType, shape: tuple[int, ...] = ()) -> Tensor:
        """Insert an operation; its only result, as a value of the author's types."""
        return Tensor(self.builder.add(op).result, dtype, shape)

    def ir_type(self, dtype: ScalarType, shape: tuple[int, ...], place: LinearLayout | None = None) -> Type:
        """The type of a value in the layout `place`; where authors choose layouts and none is given, it is to
        be found out."""
        if shape and place is None and self.explicit_layouts:
            place = PendingLayout.of(shape, "auto")
        return type_of(dtype, shape, place).ir

    def constant(
        self,
        value: Number,
        dtype: DType,
        shape: tuple[int, ...] = (),
        place: LinearLayout | None = None,
    ) -> Tensor:
        """A number, or a tensor filled with it, in the layout `place`."""
        return self.tensor(Constant.of(value, self.ir_type(dtype, shape, place)), dtype, shape)

    def constant_like(self, value: Number, dtype: DType, like: Tensor) -> Tensor:
        """A number in the shape and layout of a value."""
        return self.constant(value, dtype, like.shape, layout_of(like.value.type))

    def error(self, message: str, at: str = "", help: str = "") -> NoReturn:
        """Report an error of the author, pointing at one argument (`at`) or at the whole call."""
        loc = self.frontend.argument_loc(at) if at else None
        raise CompileError(self.in_dialect(message), loc or self.builder.loc, self.in_dialect(help))

    def in_dialect(self, text: str) -> str:
        """A message with the names by which this kernel's author knows the language."""
        if not self.explicit_layouts:
            return text
        return re.sub(r"\btl\.", "gl.", text).replace("@triton.jit", "@gluon.jit")

    def name(self, parameter: str) -> str:
        """An argument as the message names it: its parameter, with its text where that says more."""
        text = self.frontend.argument_text(parameter)
        return f"{parameter} `{text}`" if text and text != parameter else parameter
