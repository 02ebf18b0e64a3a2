"""Blocks of a tensor in memory as tensors of coordinates and pointers: what block pointers and descriptors
become."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I32, I64, IntType, TensorType, bit_width
from kbuild.compiler.ops.elementwise import AddI, AddPtr, ExtSI, MulI
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, MakeRange, Splat


def extended(build: Builder, value: Value) -> Value:
    """An integer in 64 bits."""
    if bit_width(value.type) == 64:
        return value
    type_ = value.type.with_element(I64) if isinstance(value.type, TensorType) else I64
    return build.add(ExtSI(value, type_)).result


def coordinates(build: Builder, block: TensorType, axis: int, offset: Value) -> Value:
    """The tensor's coordinates along an axis, in the offset's type and the block's rank, of size one along
    other axes."""
    size = block.shape[axis]
    steps = build.add(MakeRange(0, size, TensorType((size,), I32))).result
    if bit_width(offset.type) == 64:
        steps = extended(build, steps)
    start = build.add(Splat(offset, steps.type)).result
    found = build.add(AddI(start, steps)).result
    for other in range(block.rank):
        if other != axis:
            found = build.add(ExpandDims(found, other)).result
    return found


def addresses(
    build: Builder, block: TensorType, base: Value, strides: Sequence[Value], indices: Sequence[Value]
) -> Value:
    """The block's pointers, from its i64 coordinates along each axis and the i64 strides."""
    total: Value | None = None
    for index, stride in zip(indices, strides):
        offset = build.add(MulI(index, build.add(Splat(stride, index.type)).result)).result
        over_block = spread(build, offset, block, I64)
        total = over_block if total is None else build.add(AddI(total, over_block)).result
    pointers = build.add(Splat(base, block.with_element(base.type))).result
    return pointers if total is None else build.add(AddPtr(pointers, total)).result


def spread(build: Builder, value: Value, block: TensorType, element: IntType) -> Value:
    """A value of size one along some axes in the block's shape."""
    type_ = block.with_element(element)
    return value if value.type == type_ else build.add(Broadcast(value, type_)).result
