"""Tensor descriptors: a tensor in memory that is read and written in blocks, by their offsets.

A block that reaches beyond the tensor is padded when read and cut when written.  Variables hold a
descriptor's parts; the operation that describes the tensor stands beside each use.
"""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import DescriptorType, TensorType
from kbuild.compiler.ops.tensor import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    MakeTensorDescriptor,
)
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.memory import check_base, index_values
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import static_shape
from kbuild.compiler.semantic.types import (
    BF16,
    FP16,
    FP32,
    INT1,
    INT32,
    INT64,
    UINT32,
    UINT64,
    BlockType,
    DType,
)
from kbuild.compiler.semantic.values import Tensor, TensorDescriptor, describe, shape_text

MIN_ROW_BYTES = 16
PADDINGS = ("", "zero", "nan")
MIN_GATHERED_ROWS = 8
MIN_GATHERED_BYTES = 32
"""The least size of a row of the block that `gather` and `scatter` move."""
_BITWISE = (INT32, UINT32, INT64, UINT64)
_REDUCED = {
    "add": (INT32, UINT32, UINT64, FP32, FP16, BF16),
    **dict.fromkeys(("min", "max"), (*_BITWISE, FP16, BF16)),
    **dict.fromkeys(("and", "or", "xor"), _BITWISE),
}
"""Types of elements that TMA can combine."""


@builtin()
def make_tensor_descriptor(ctx: BuildContext, base, shape, strides, block_shape, padding_option="zero"):
    """A descriptor of the tensor of `shape` and `strides` (the last one is 1) at `base`, for blocks of
    `block_shape`."""
    check_base(ctx, base)
    block = static_shape(ctx, block_shape, "block_shape")
    for value, name in ((shape, "shape"), (strides, "strides")):
        if not isinstance(value, tuple) or len(value) != len(block):
            ctx.error(f"{name} is {describe(value)}, block_shape has {len(block)} dimensions", name)
    if strides[-1] != 1 and not isinstance(strides[-1], Tensor):
        ctx.error(f"the last stride is {describe(strides[-1])}; it must be 1", "strides")
    element = base.dtype.element_ty
    assert isinstance(element, DType)
    if block[-1] * element.itemsize < MIN_ROW_BYTES:
        ctx.error(
            f"a row of the block has {block[-1]} elements of {element}, at least {MIN_ROW_BYTES} bytes are needed",
            "block_shape",
        )
    if element == INT1:
        ctx.error("tensor descriptors cannot hold truth values", "base", help="use a pointer to int8")
    if padding_option not in PADDINGS or (padding_option == "nan" and not element.is_floating()):
        allowed = '"zero", or for floating point "nan"'
        ctx.error(f"padding_option is {describe(padding_option)}; it is {allowed}", "padding_option")
    sizes = tuple(_scalar(ctx, item, "shape", INT32) for item in shape)
    wide = tuple(_scalar(ctx, item, "strides", INT64) for item in strides[:-1])
    return TensorDescriptor.make(
        BlockType(element, block), padding_option or "zero", (base, *sizes, *wide, ctx.constant(1, INT64))
    )


def _scalar(ctx: BuildContext, value: Any, name: str, dtype: DType) -> Tensor:
    """A size or stride in the type that descriptors have for it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ctx.constant(value, dtype)
    if not isinstance(value, Tensor) or value.shape or not value.dtype.is_int():
        ctx.error(f"{name} has {describe(value)}; its items are integer scalars", name)
    return cast_to(ctx, value, dtype)


def _described(
    ctx: BuildContext, descriptor: TensorDescriptor, offsets: Any
) -> tuple[Value, tuple[Value, ...]]:
    """The descriptor's value and the offsets in i32."""
    if not isinstance(offsets, tuple) or len(offsets) != descriptor.rank:
        ctx.error(f"offsets is {describe(offsets)}, the block has {descriptor.rank} dimensions", "offsets")
    return described_value(ctx, descriptor), tuple(
        item.value for item in index_values(ctx, offsets, "offsets", wide=False)
    )


def described_value(ctx: BuildContext, descriptor: TensorDescriptor) -> Value:
    """The operation that describes the tensor."""
    sizes, strides = (tuple(item.value for item in items) for items in (descriptor.sizes, descriptor.strides))
    block = descriptor.block.ir
    assert isinstance(block, TensorType)
    made = MakeTensorDescriptor(
        descriptor.base.value, sizes, strides, DescriptorType(block), descriptor.padding
    )
    return ctx.add(made).result


@builtin("descriptor", "load")
def load_block(ctx: BuildContext, descriptor, offsets):
    """The block at `offsets`; what lies beyond the tensor is zero, or NaN with `padding_option="nan"`."""
    op = DescriptorLoad(*_described(ctx, descriptor, offsets))
    return ctx.tensor(op, descriptor.block.element_ty, descriptor.block.shape)


@builtin("descriptor", "store")
def store_block(ctx: BuildContext, descriptor, offsets, value):
    """Writes the block at `offsets`, converted to the tensor's type, as far as it lies in the tensor."""
    value = _stored(ctx, descriptor, value, descriptor.block.shape)
    described, offsets = _described(ctx, descriptor, offsets)
    ctx.add(DescriptorStore(described, value.value, offsets))


def _stored(ctx: BuildContext, descriptor: TensorDescriptor, value: Any, shape: tuple[int, ...]) -> Tensor:
    """The value to write, in the tensor's type."""
    value = to_tensor(ctx, value, "value")
    if value.shape != shape:
        ctx.error(
            f"{ctx.name('value')} has shape {shape_text(value.shape)}, the block has shape {shape_text(shape)}",
            "value",
        )
    return cast_to(ctx, value, descriptor.block.element_ty)


def _reduce(ctx: BuildContext, name: str, descriptor: TensorDescriptor, offsets: Any, value: Any) -> None:
    """Combines the block at `offsets` with a value."""
    element = descriptor.block.element_ty
    assert isinstance(element, DType)
    if element not in _REDUCED[name]:
        allowed = ", ".join(map(str, _REDUCED[name]))
        by_pointers = element.itemsize >= INT32.itemsize and name in ("add", "min", "max")
        ctx.error(
            f"atomic_{name} of a tensor descriptor is for {allowed}; the tensor's type is {element}",
            "descriptor",
            help=f"tl.atomic_{name} on a tensor of pointers takes {element} too" if by_pointers else "",
        )
    value = _stored(ctx, descriptor, value, descriptor.block.shape)
    described, offsets = _described(ctx, descriptor, offsets)
    prefix = (
        "f"
        if element.is_floating()
        else "u"
        if name in ("min", "max") and not element.is_int_signed()
        else ""
    )
    ctx.add(DescriptorReduce(described, value.value, offsets, prefix + name))


@builtin("descriptor", "atomic_add")
def add_block(ctx: BuildContext, descriptor, offsets, value):
    """Adds to the block at `offsets`, each element atomically, as far as it lies in the tensor."""
    _reduce(ctx, "add", descriptor, offsets, value)


@builtin("descriptor", "atomic_min")
def min_block(ctx: BuildContext, descriptor, offsets, value):
    """Keeps the lesser of each element of the block at `offsets` and the value's, atomically."""
    _reduce(ctx, "min", descriptor, offsets, value)


@builtin("descriptor", "atomic_max")
def max_block(ctx: BuildContext, descriptor, offsets, value):
    """Keeps the greater of each element of the block at `offsets` and the value's, atomically."""
    _reduce(ctx, "max", descriptor, offsets, value)


@builtin("descriptor", "atomic_and")
def and_block(ctx: BuildContext, descriptor, offsets, value):
    """Bitwise and with the block at `offsets`, each element atomically."""
    _reduce(ctx, "and", descriptor, offsets, value)


@builtin("descriptor", "atomic_or")
def or_block(ctx: BuildContext, descriptor, offsets, value):
    """Bitwise or with the block at `offsets`, each element atomically."""
    _reduce(ctx, "or", descriptor, offsets, value)


@builtin("descriptor", "atomic_xor")
def xor_block(ctx: BuildContext, descriptor, offsets, value):
    """Bitwise exclusive or with the block at `offsets`, each element atomically."""
    _reduce(ctx, "xor", descriptor, offsets, value)


def _rows(
    ctx: BuildContext, descriptor: TensorDescriptor, x_offsets: Any, y_offset: Any
) -> tuple[Tensor, Tensor]:
    """The numbers of the rows that `gather` and `scatter` move, and the column that they start at, in i32."""
    block = descriptor.block
    assert isinstance(block.element_ty, DType)
    if len(block.shape) != 2 or block.shape[0] != 1:
        ctx.error(
            f"the block has shape {shape_text(block.shape)}; gather and scatter move rows of blocks of shape (1, N)",
            "descriptor",
            help="make the descriptor with block_shape=[1, N]",
        )
    if block.shape[1] * block.element_ty.itemsize < MIN_GATHERED_BYTES:
        ctx.error(
            f"a row of the block has {block.shape[1]} elements of {block.element_ty}; gather and scatter need at least "
            f"{MIN_GATHERED_BYTES} bytes",
            "descriptor",
        )
    if not isinstance(x_offsets, Tensor) or len(x_offsets.shape) != 1 or not x_offsets.dtype.is_int():
        ctx.error(
            f"{ctx.name('x_offsets')} is {describe(x_offsets)}; it must be a vector of integers, the rows",
            "x_offsets",
        )
    if x_offsets.shape[0] < MIN_GATHERED_ROWS:
        ctx.error(
            f"{ctx.name('x_offsets')} has {x_offsets.shape[0]} rows; at least {MIN_GATHERED_ROWS} are needed",
            "x_offsets",
        )
    if x_offsets.dtype.primitive_bitwidth > 32:
        ctx.error(
            f"{ctx.name('x_offsets')} is {x_offsets.type}; rows are numbered with 32 bits",
            "x_offsets",
            help="convert it with .to(tl.int32)",
        )
    (column,) = index_values(ctx, (y_offset,), "y_offset", wide=False)
    return cast_to(ctx, x_offsets, INT32), column


@builtin("descriptor", "gather")
def gather_rows(ctx: BuildContext, descriptor, x_offsets, y_offset):
    """Rows `x_offsets` of the tensor, from column `y_offset` on, of a descriptor whose blocks are single
    rows; what lies beyond the tensor is zero, or NaN with `padding_option="nan"`."""
    rows, column = _rows(ctx, descriptor, x_offsets, y_offset)
    op = DescriptorGather(described_value(ctx, descriptor), rows.value, column.value)
    return ctx.tensor(op, descriptor.block.element_ty, (rows.shape[0], descriptor.block.shape[1]))


@builtin("descriptor", "scatter")
def scatter_rows(ctx: BuildContext, descriptor, value, x_offsets, y_offset):
    """Writes the rows of `value` into rows `x_offsets` of the tensor, from column `y_offset` on, as far as
    they lie in it."""
    rows, column = _rows(ctx, descriptor, x_offsets, y_offset)
    value = _stored(ctx, descriptor, value, (rows.shape[0], descriptor.block.shape[1]))
    ctx.add(DescriptorScatter(described_value(ctx, descriptor), value.value, rows.value, column.value))


@builtin()
def load_tensor_descriptor(ctx: BuildContext, desc, offsets):
    """The block of a descriptor at `offsets`."""
    return load_block(ctx, _checked(ctx, desc), offsets)


@builtin()
def store_tensor_descriptor(ctx: BuildContext, desc, offsets, value):
    """Writes the block of a descriptor at `offsets`."""
    return store_block(ctx, _checked(ctx, desc), offsets, value)


def _checked(ctx: BuildContext, value: Any) -> TensorDescriptor:
    if not isinstance(value, TensorDescriptor):
        ctx.error(
            f"{ctx.name('desc')} is {describe(value)}, which is not a tensor descriptor",
            "desc",
            help="make one with tl.make_tensor_descriptor",
        )
    return value
