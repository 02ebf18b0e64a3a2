"""Tensor descriptors: a tensor in memory that is read and written in blocks, by their offsets.

A block that reaches beyond the tensor is padded when read and cut when written.  Variables hold a descriptor's parts; the
operation that describes the tensor stands beside each use.
"""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import DescriptorType, TensorType
from kbuild.compiler.ops.tensor import DescriptorLoad, DescriptorStore, MakeTensorDescriptor
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import Context
from kbuild.compiler.semantic.memory import index_values
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import static_shape
from kbuild.compiler.semantic.types import INT1, INT32, INT64, BlockType, DType, PointerType
from kbuild.compiler.semantic.values import Descriptor, Tensor, describe, shape_text

MIN_ROW_BYTES = 16
PADDINGS = ("", "zero", "nan")


@builtin()
def make_tensor_descriptor(ctx: Context, base, shape, strides, block_shape, padding_option="zero"):
    """A descriptor of the tensor of `shape` and `strides` (the last one is 1) at `base`, for blocks of `block_shape`."""
    if not isinstance(base, Tensor) or not isinstance(base.dtype, PointerType) or base.shape or base.is_block_pointer:
        ctx.error(f"base is {describe(base)}; it must be a pointer to the first element", "base")
    block = static_shape(ctx, block_shape, "block_shape")
    for value, name in ((shape, "shape"), (strides, "strides")):
        if not isinstance(value, tuple) or len(value) != len(block):
            ctx.error(f"{name} is {describe(value)}, block_shape has {len(block)} dimensions", name)
    if strides[-1] != 1 and not isinstance(strides[-1], Tensor):
        ctx.error(f"the last stride is {describe(strides[-1])}; it must be 1", "strides")
    element = base.dtype.element_ty
    assert isinstance(element, DType)
    if block[-1] * element.itemsize < MIN_ROW_BYTES:
        ctx.error(f"a row of the block has {block[-1]} elements of {element}, at least {MIN_ROW_BYTES} bytes are needed",
                  "block_shape")  # fmt: skip
    if element == INT1:
        ctx.error("there are no tensor descriptors of truth values", "base", hint="use a pointer to int8")
    if padding_option not in PADDINGS or (padding_option == "nan" and not element.is_floating()):
        allowed = '"zero", or for floating point "nan"'
        ctx.error(f"padding_option is {describe(padding_option)}; it is {allowed}", "padding_option")
    sizes = tuple(_scalar(ctx, item, "shape", INT32) for item in shape)
    wide = tuple(_scalar(ctx, item, "strides", INT64) for item in strides[:-1])
    return Descriptor.make(BlockType(element, block), padding_option or "zero", (base, *sizes, *wide, ctx.constant(1, INT64)))


def _scalar(ctx: Context, value: Any, name: str, dtype: DType) -> Tensor:
    """A size or stride in the type that descriptors have for it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ctx.constant(value, dtype)
    if not isinstance(value, Tensor) or value.shape or not value.dtype.is_int():
        ctx.error(f"{name} has {describe(value)}; its items are integer scalars", name)
    return cast_to(ctx, value, dtype)


def _described(ctx: Context, descriptor: Descriptor, offsets: Any) -> tuple[Value, tuple[Value, ...]]:
    """The descriptor's value and the offsets in i32."""
    if not isinstance(offsets, tuple) or len(offsets) != descriptor.rank:
        ctx.error(f"offsets is {describe(offsets)}, the block has {descriptor.rank} dimensions", "offsets")
    sizes, strides = (tuple(item.value for item in items) for items in (descriptor.sizes, descriptor.strides))
    block = descriptor.block.ir
    assert isinstance(block, TensorType)
    made = MakeTensorDescriptor(descriptor.base.value, sizes, strides, DescriptorType(block), descriptor.padding)
    return ctx.add(made).result, tuple(item.value for item in index_values(ctx, offsets, "offsets", wide=False))


@builtin("descriptor", "load")
def load_block(ctx: Context, descriptor, offsets):
    """The block at `offsets`; what lies beyond the tensor is zero, or NaN with `padding_option="nan"`."""
    op = DescriptorLoad(*_described(ctx, descriptor, offsets))
    return ctx.tensor(op, descriptor.block.element_ty, descriptor.block.shape)


@builtin("descriptor", "store")
def store_block(ctx: Context, descriptor, offsets, value):
    """Writes the block at `offsets`, converted to the tensor's type, as far as it lies in the tensor."""
    value = to_tensor(ctx, value, "value")
    if value.shape != descriptor.block.shape:
        ctx.error(f"{ctx.name('value')} has shape {shape_text(value.shape)}, the block has shape "
                  f"{shape_text(descriptor.block.shape)}", "value")  # fmt: skip
    value = cast_to(ctx, value, descriptor.block.element_ty)
    described, offsets = _described(ctx, descriptor, offsets)
    ctx.add(DescriptorStore(described, value.value, offsets))


@builtin()
def load_tensor_descriptor(ctx: Context, desc, offsets):
    """The block of a descriptor at `offsets`."""
    return load_block(ctx, _checked(ctx, desc), offsets)


@builtin()
def store_tensor_descriptor(ctx: Context, desc, offsets, value):
    """Writes the block of a descriptor at `offsets`."""
    return store_block(ctx, _checked(ctx, desc), offsets, value)


def _checked(ctx: Context, value: Any) -> Descriptor:
    if not isinstance(value, Descriptor):
        ctx.error(f"{ctx.name('desc')} is {describe(value)}, which is no tensor descriptor", "desc",
                  hint="make one with tl.make_tensor_descriptor")  # fmt: skip
    return value
