"""The types of a kernel's arguments, from the text of a signature."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.frontend.argument_tuples import ArgumentTexts
from kbuild.compiler.frontend.layout_text import is_layout_text, layout_of_text
from kbuild.compiler.frontend.sources.aggregates import AggregateClass
from kbuild.compiler.frontend.sources.functions import SourceFunction, Unresolved
from kbuild.compiler.frontend.sources.live import convert_constant
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.types import DescriptorType, PointerType
from kbuild.compiler.layout.gluon import NVMMASharedLayout
from kbuild.compiler.semantic.types import (
    BY_SIGNATURE_NAME,
    BY_TL_NAME,
    INT1,
    INT32,
    INT64,
    BlockType,
    DType,
    PointerDtype,
    ScalarType,
)
from kbuild.compiler.semantic.values import Tensor, TensorDescriptor
from kbuild.errors import Loc, UsageError, nearest

_DESCRIPTOR = re.compile(
    r"tensordesc<(\w+)\[( *\d+ *(?:[,x] *\d+ *)*)\](?::(\w+))?(?:,(.*\)) *)?>(?::(\w*))?"
)
DESCRIPTOR_ALIGNMENT = 16
"""Bytes that divide the base and the strides of a tensor descriptor; its block's rows have at least as many."""
MAX_DESCRIPTOR_RANK = 5


@dataclass(frozen=True)
class ArgumentType:
    """An argument's type: `*fp16:16`, `i32:1`, `fp32`, `tensordesc<fp16[64, 64]>`, `tensordesc<fp16[64,
    64]:nan>`, and for kernels of Gluon `tensordesc<fp16[64, 64],NVMMASharedLayout(128, 16)>`."""

    dtype: ScalarType
    divisibility: int | None = None
    """The known divisor of a pointer's address, in bytes, or of an integer's value."""
    one: bool = False
    """Equal to one: it becomes a constant instead of a parameter."""
    block: BlockType | None = None
    """The block of a tensor descriptor, which is passed as pointer, sizes (i32) and strides but the last
    (i64).  The divisibility is that of the last size: of whole rows."""
    padding: str = "zero"
    """The elements of a tensor descriptor's block beyond the tensor: `zero` or `nan`."""
    layout: NVMMASharedLayout | None = None
    """The layout of a tensor descriptor's blocks in shared memory, where one is given."""

    def parameters(self, name: str) -> list[tuple[str, ScalarType, int | None]]:
        """The parameters that the argument becomes: name, type, divisibility."""
        if self.one:
            return []
        if self.block is None:
            return [(name, self.dtype, self.divisibility)]
        rank = len(self.block.shape)
        sizes = [
            (f"{name}_shape_{axis}", INT32, self.divisibility if axis == rank - 1 else None)
            for axis in range(rank)
        ]
        step = DESCRIPTOR_ALIGNMENT // self.block.element_ty.itemsize  # type: ignore[union-attr]
        strides = [(f"{name}_stride_{axis}", INT64, step) for axis in range(rank - 1)]
        return [(name, self.dtype, DESCRIPTOR_ALIGNMENT), *sizes, *strides]

    def value(self, values: list[Value], one: Tensor | None, explicit_layouts: bool = False) -> Any:
        """The parameter's value in the kernel; takes its values from the front of the list."""
        if self.one:
            return 1
        if self.block is None:
            return Tensor(values.pop(0), self.dtype)
        rank = len(self.block.shape)
        base = Tensor(values.pop(0), self.dtype)
        sizes = [Tensor(values.pop(0), INT32) for _ in range(rank)]
        strides = [Tensor(values.pop(0), INT64) for _ in range(rank - 1)]
        layout = self.layout
        if explicit_layouts and layout is None:
            layout = NVMMASharedLayout.get_default_for(self.block.shape, self.block.element_ty)
        return TensorDescriptor.make(self.block, self.padding, (base, *sizes, *strides, one), layout)


def parse_type(text: str, argument: str, loc: Loc | None = None) -> ArgumentType:
    """A type of a signature; raises `UsageError` naming the argument."""
    descriptor = _DESCRIPTOR.fullmatch(text.strip())
    if descriptor:
        element = _element(descriptor.group(1), text, argument, loc)
        shape = tuple(int(size) for size in re.split("[,x]", descriptor.group(2)))
        _check_block(element, shape, text, argument, loc)
        padding = descriptor.group(3) or "zero"
        _check_padding(padding, element, text, argument, loc)
        layout = _layout(descriptor.group(4), element, shape, argument, loc)
        divisor = _parse_hint(descriptor.group(5) or "", text, argument, loc)
        block = BlockType(element, shape)
        return ArgumentType(PointerDtype(element), divisor, block=block, padding=padding, layout=layout)
    name, _, hint = text.strip().partition(":")
    pointer, const = name.startswith("*"), name.startswith("*k")
    dtype = _element(name[2:] if const else name[1:] if pointer else name, text, argument, loc)
    value = _parse_hint(hint, text, argument, loc) or 0
    one = value == 1 and not pointer
    if value and not pointer and not dtype.is_int():
        raise UsageError(
            f"argument {argument}: {text!r} has a hint, which only pointers and integers can have", loc
        )
    return ArgumentType(PointerDtype(dtype, const) if pointer else dtype, value if value > 1 else None, one)


def _layout(
    text: str | None, element: DType, shape: tuple[int, ...], argument: str, loc: Loc | None
) -> NVMMASharedLayout | None:
    """The layout in a descriptor's type."""
    if text is None:
        return None
    help = "write, for example, tensordesc<fp16[64, 64],NVMMASharedLayout(128, 16)>"
    try:
        layout = layout_of_text(text)
    except Unresolved as error:
        raise UsageError(f"argument {argument}: {error}", loc, help) from None
    if not isinstance(layout, NVMMASharedLayout):
        raise UsageError(
            f"argument {argument}: {layout} is not the layout of a descriptor's blocks", loc, help
        )
    if layout.element_bitwidth != element.bits or layout.rank != len(shape):
        raise UsageError(
            f"argument {argument}: {layout} does not fit blocks {BlockType(element, shape)}",
            loc,
            f"it has element_bitwidth={element.bits}, rank={len(shape)}",
        )
    return layout


def _parse_hint(hint: str, text: str, argument: str, loc: Loc | None) -> int | None:
    if hint and not (hint.isascii() and hint.isdigit() and int(hint)):
        raise UsageError(
            f"argument {argument}: {text!r} has a hint that is not a positive number",
            loc,
            'write, for example, "i32:16"',
        )
    return int(hint) if hint else None


def _check_block(element: DType, shape: tuple[int, ...], text: str, argument: str, loc: Loc | None) -> None:
    """Check what TMA requires of a descriptor's block."""
    if any(size <= 0 or size & (size - 1) for size in shape) or len(shape) > MAX_DESCRIPTOR_RANK:
        raise UsageError(
            f"argument {argument}: {text!r} has no possible block",
            loc,
            f"it has up to {MAX_DESCRIPTOR_RANK} dimensions, whose sizes are powers of two",
        )
    if shape[-1] * element.itemsize < DESCRIPTOR_ALIGNMENT or element == INT1:
        raise UsageError(
            f"argument {argument}: a row of {text!r} has fewer than {DESCRIPTOR_ALIGNMENT} bytes", loc
        )


def _check_padding(padding: str, element: DType, text: str, argument: str, loc: Loc | None) -> None:
    if padding not in ("zero", "nan"):
        raise UsageError(
            f"argument {argument}: {text!r} has the padding {padding!r}", loc, 'it is "zero" or "nan"'
        )
    if padding == "nan" and not element.is_floating():
        raise UsageError(
            f"argument {argument}: {text!r} has no NaN to be padded with",
            loc,
            "NaN is for floating-point types",
        )


def _element(name: str, text: str, argument: str, loc: Loc | None) -> DType:
    dtype = BY_SIGNATURE_NAME.get(name)
    if dtype is None:
        close = nearest(name, BY_SIGNATURE_NAME, 0.4)
        help = (
            f"did you mean {text.replace(name, close)!r}?"
            if close and name
            else ('types are like "*fp16:16", "i32", "i32:1", "fp32"')
        )
        raise UsageError(f"argument {argument}: {text!r} is not a type", loc, help)
    return dtype


def constexpr_value(value: Any, name: str, loc: Loc | None = None) -> Any:
    """A constant given from outside as kernels see it: lists become tuples, "tl.float16" a dtype,
    "gl.BlockedLayout(…)" a layout, functions are found."""
    if isinstance(value, str) and value.startswith("tl.") and value[3:] in BY_TL_NAME:
        return BY_TL_NAME[value[3:]]
    if isinstance(value, SourceFunction | AggregateClass):
        return value
    try:
        if isinstance(value, str) and is_layout_text(value):
            return layout_of_text(value)
        return convert_constant(value)
    except Unresolved as error:
        raise UsageError(
            f"argument {name}: {error}",
            loc,
            "constants are numbers, strings, None, dtypes, layouts and tuples",
        ) from None


def kernel_signature(module: Module) -> tuple[tuple[str, str], ...]:
    """Name and type of each run-time argument of a module's kernel.  For one that was read from text, the types are
    those of its parameters, without signs, and without the arguments that are one."""
    if module.signature:
        return module.signature
    names = {str(dtype.ir): name for name, dtype in reversed(BY_SIGNATURE_NAME.items()) if name[0] != "u"}
    kernel, found = module.kernel, []
    known = [*kernel.argument_hints, *[{}] * (len(kernel.arguments) - len(kernel.argument_hints))]
    for argument, hints in zip(kernel.arguments, known):
        if not isinstance(argument.type, DescriptorType):
            is_pointer = isinstance(argument.type, PointerType)
            element = str(argument.type.pointee if isinstance(argument.type, PointerType) else argument.type)
            name = f"{'*' * is_pointer}{names.get(element, element)}"
            found.append(
                (argument.name, f"{name}:{hints['divisibility']}" if "divisibility" in hints else name)
            )
    return tuple(found)


def argument_types(function: SourceFunction, given: ArgumentTexts) -> dict[str, ArgumentType]:
    """The types of the arguments that are not constants, in order; raises `UsageError` for missing or
    unknown arguments."""
    signature, constexprs, tuples = given.types, given.constants, given.tuples
    names = [name for one in function.parameters for name in given.names_of(one.name)]
    for name in [*signature, *constexprs]:
        if name not in names:
            close = nearest(name, names, 0.5)
            raise UsageError(
                f"kernel {function.name} has no argument {name}",
                function.loc,
                f"did you mean {close}?" if close else f"it has {', '.join(names)}",
            )
        if name in signature and name in constexprs:
            raise UsageError(
                f"argument {name} of kernel {function.name} has a type and a constant value", function.loc
            )
    missing = [
        p.name
        for p in function.parameters
        if p.name not in signature and p.name not in constexprs and p.name not in tuples and not p.default
    ]
    if missing:
        raise UsageError(
            f"kernel {function.name} is missing {'argument' if len(missing) == 1 else 'arguments'} {', '.join(missing)}",
            function.loc,
            "give a tl.constexpr its value, another argument its type",
        )
    return {name: parse_type(signature[name], name, function.loc) for name in names if name in signature}
