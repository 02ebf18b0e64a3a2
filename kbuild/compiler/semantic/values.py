"""The values of names while a kernel is read.

Values of run time are `Tensor`s.  Everything else is known while compiling, and is the plain Python value
itself: numbers, strings, None, tuples, dtypes, functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.semantic.types import BlockType, DescriptorDtype, PointerDtype, ScalarType, type_of


class WithFacts:
    """A value with attributes and methods of its own."""

    __slots__ = ()
    methods: ClassVar[str] = ""
    """The table with its methods."""

    def facts(self) -> Mapping[str, Any]:
        """Its attributes."""
        return {}


class RunTime(WithFacts):
    """What exists at run time: one value of the IR, which branches and loops may pass on."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def with_value(self, value: Value) -> RunTime:
        """The same kind of thing as another value of the IR, which has the same type."""
        raise NotImplementedError

    @property
    def form(self) -> Any:
        """What two of them must share to be one variable."""
        raise NotImplementedError

    def taking(self, value: RunTime) -> RunTime:
        """Another value, for a variable that is this: the same kind of thing where it can be that, too."""
        return value


class Tensor(RunTime):
    """A value of run time: a scalar (shape ()), a tensor, or a pointer to a block."""

    __slots__ = ("dtype", "shape")

    def __init__(self, value: Value, dtype: ScalarType, shape: tuple[int, ...] = ()) -> None:
        super().__init__(value)
        self.dtype = dtype
        self.shape = shape

    def with_value(self, value: Value) -> Tensor:
        return Tensor(value, self.dtype, self.shape)

    @property
    def form(self) -> Any:
        return (self.dtype, self.shape, layout_of(self.value.type))

    @property
    def type(self) -> ScalarType | BlockType:
        return type_of(self.dtype, self.shape, layout_of(self.value.type))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def is_block_pointer(self) -> bool:
        return isinstance(self.dtype, PointerDtype) and isinstance(self.dtype.element_ty, BlockType)

    def __str__(self) -> str:
        return str(self.type)


class Structure(WithFacts, tuple):
    """A tuple that is more than its items."""

    materialises: ClassVar[bool] = True
    """Whether numbers among its items become values of run time when it is assigned, as they do elsewhere."""

    def with_items(self, items: tuple[Any, ...]) -> Structure:
        """The same kind of thing with other items."""
        raise NotImplementedError

    @property
    def kind(self) -> Any:
        """What two of them must share besides their items to be one variable."""
        return None

    @property
    def title(self) -> str:
        """What stands before the items in a message."""
        return ""


class NamedTuple(Structure):
    """A tuple whose items also have names."""

    fields: tuple[str, ...]

    @classmethod
    def make(cls, fields: tuple[str, ...], items: tuple[Any, ...]) -> NamedTuple:
        made = cls(items)
        made.fields = fields
        return made

    def facts(self) -> Mapping[str, Any]:
        return dict(zip(self.fields, self))

    def with_items(self, items: tuple[Any, ...]) -> NamedTuple:
        return NamedTuple.make(self.fields, items)


class TensorDescriptor(Structure):
    """A tensor in memory with the block in which it is read and written: its items are base, sizes and
    strides."""

    block: BlockType
    padding: str
    layout: Any
    """The layout of its blocks in shared memory, in kernels whose author chooses that; else None."""

    @classmethod
    def make(
        cls, block: BlockType, padding: str, items: tuple[Any, ...], layout: Any = None
    ) -> TensorDescriptor:
        made = cls(items)
        made.block, made.padding, made.layout = block, padding, layout
        return made

    def with_items(self, items: tuple[Any, ...]) -> TensorDescriptor:
        return TensorDescriptor.make(self.block, self.padding, items, self.layout)

    @property
    def kind(self) -> Any:
        return (self.block, self.padding, self.layout)

    @property
    def methods(self) -> str:  # type: ignore[override]
        """Kernels of Gluon move blocks by functions of the hardware."""
        return "descriptor" if self.layout is None else ""

    def facts(self) -> Mapping[str, Any]:
        known = {
            "dtype": self.block.element_ty,
            "shape": self.sizes,
            "strides": self.strides,
            "block_shape": self.block.shape,
            "block_type": self.block,
            "type": DescriptorDtype(self.block),
        }
        return known if self.layout is None else {**known, "layout": self.layout, "type": self}

    @property
    def rank(self) -> int:
        return len(self.block.shape)

    @property
    def base(self) -> Tensor:
        return self[0]

    @property
    def sizes(self) -> tuple[Any, ...]:
        return tuple(self[1 : 1 + self.rank])

    @property
    def strides(self) -> tuple[Any, ...]:
        return tuple(self[1 + self.rank :])


# Values as lists of IR values, and back: for results of branches and what loops carry.


def flatten(value: Any) -> list[RunTime]:
    """The values of run time inside a value, in order."""
    if isinstance(value, RunTime):
        return [value]
    if isinstance(value, tuple):
        return [inner for item in value for inner in flatten(item)]
    return []


def rebuild(value: Any, parts: list[Value]) -> Any:
    """`value` with its values of run time replaced, taking them from the front of `parts`."""
    if isinstance(value, RunTime):
        return value.with_value(parts.pop(0))
    if isinstance(value, Structure):
        return value.with_items(tuple(rebuild(item, parts) for item in value))
    if isinstance(value, tuple):
        return tuple(rebuild(item, parts) for item in value)
    return value


@dataclass(frozen=True)
class Range:
    """The value of `range`, `tl.range` and `tl.static_range`, for a `for`."""

    start: Any
    stop: Any
    step: Any
    static: bool = False
    hints: tuple[tuple[str, Any], ...] = ()
    """Attributes of the loop operation."""


@dataclass(frozen=True)
class WhileCondition:
    """The value of `tl.condition`, for a `while`."""

    value: Any


@dataclass(frozen=True)
class ClassMarker:
    """A class of `triton.language` as a kernel names it: in annotations, in `isinstance`, and called."""

    name: str

    def __str__(self) -> str:
        return f"tl.{self.name}"


def describe(value: Any) -> str:
    """A value in a message: the type of what exists at run time, the value of what is known."""
    if isinstance(value, Tensor):
        if value.is_block_pointer:
            return f"a block pointer to {value.dtype.element_ty}"  # type: ignore[union-attr]
        return f"a tensor {value.type}" if value.shape else f"a scalar {value.type}"
    if isinstance(value, RunTime):
        return str(value)
    if isinstance(value, TensorDescriptor):
        layout = "" if value.layout is None else f" in {value.layout}"
        return f"a tensor descriptor of blocks {value.block}{layout}"
    if isinstance(value, tuple):
        title = value.title if isinstance(value, Structure) else ""
        return f"{title}({', '.join(describe(item) for item in value)})"
    if isinstance(value, Range):
        return f"range({describe(value.start)}, {describe(value.stop)}, {describe(value.step)})"
    if isinstance(value, WhileCondition):
        return f"tl.condition({describe(value.value)})"
    name = getattr(value, "name", None)
    return str(name) if isinstance(name, str) else repr(value)


def shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
