"""Expressions that move elements: other shapes, other orders."""

from __future__ import annotations

import math

from random_programs.generator import Generator, producer, tuple_text
from random_programs.nodes import Expr
from random_programs.types import F16, F32, I8, I16, I32, I64, U8, U32, DType, Type, union

Shape = tuple[int, ...]


@producer(1.5)
def expand_dims(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """A dimension of size one more."""
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    if not axes or len(shape) < 2:
        return None
    axis = g.pick(*axes)
    a = g.expression(dtype, shape[:axis] + shape[axis + 1 :], depth)
    if g.chance(0.5):
        index = ", ".join("None" if number == axis else ":" for number in range(len(shape)))
        return Expr(a.type.shaped(*shape), a, f"[{index}]")
    return Expr(a.type.shaped(*shape), "tl.expand_dims(", a, f", {axis})")


@producer(1.5)
def permute(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """The dimensions in another order."""
    if len(shape) < 2:
        return None
    order = g.random.sample(range(len(shape)), len(shape))
    before = [0] * len(shape)
    for axis, source in enumerate(order):
        before[source] = shape[axis]
    a = g.expression(dtype, tuple(before), depth)
    if len(shape) == 2 and order == [1, 0] and g.chance(0.6):
        return Expr(a.type.shaped(*shape), g.pick("tl.trans(", "tl.trans("), a, ")")
    return Expr(
        a.type.shaped(*shape), g.pick("tl.permute(", "tl.trans("), a, f", {', '.join(map(str, order))})"
    )


@producer(1.5)
def reshape(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """The same elements, in row-major order, in another shape."""
    if not shape:
        return None
    left, before = math.prod(shape), []
    for _ in range(g.pick(0, 1, 2)):
        before.append(g.pick(*(1 << n for n in range(left.bit_length()))))
        left //= before[-1]
    before.append(left)
    if tuple(before) == shape:
        return None
    a = g.expression(dtype, tuple(before), depth)
    return Expr(a.type.shaped(*shape), "tl.reshape(", a, f", {tuple_text(shape)})")


@producer(1)
def join(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Two tensors side by side, or in turn."""
    if not shape:
        return None
    *outer, last = shape
    if last < 2:
        return None
    if last == 2 and outer:
        a, b = (g.expression(dtype, tuple(outer), depth) for _ in range(2))
        return Expr(union(a.type, b.type).shaped(*shape), "tl.join(", a, ", ", b, ")")
    half = (*outer, last // 2)
    a, b = (g.expression(dtype, half, depth) for _ in range(2))
    return Expr(union(a.type, b.type).shaped(*shape), "tl.interleave(", a, ", ", b, ")")


@producer(1)
def split(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """One half of a tensor whose last dimension has size two."""
    if not shape or math.prod(shape) > g.most:
        return None
    a = g.expression(dtype, (*shape, 2), depth)
    halves = g.unpacked([a.type.shaped(*shape)] * 2, "tl.split(", a, ")")
    return g.pick(*halves)


@producer(0.5)
def cat(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Two vectors in one, whose order is open: sorted, for that reason."""
    if len(shape) != 1 or not 4 <= shape[0] <= 512 or dtype not in (I8, I32, I64, F32, F16, U32):
        return None
    a, b = (g.expression(dtype, (shape[0] // 2,), depth) for _ in range(2))
    if not (a.type.is_whole and b.type.is_whole):
        return None
    return Expr(union(a.type, b.type).shaped(*shape), "tl.sort(tl.cat(", a, ", ", b, ", can_reorder=True))")


@producer(0.7)
def ordered(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """tl.sort, tl.flip."""
    if not shape or shape[-1] < 2 or dtype.is_fp8:
        return None
    a = g.expression(dtype, shape, depth)
    if (
        g.chance(0.5)
        or dtype.is_bool
        or not a.type.is_whole
        or math.prod(shape) > 256
        or shape[-1] > 64
        or dtype.bits == 64
    ):
        axis = g.random.randrange(len(shape))
        return Expr(a.type, "tl.flip(", a, f", {axis})") if shape[axis] > 1 else None
    return Expr(a.type, "tl.sort(", a, g.pick(")", ", descending=True)", f", {len(shape) - 1})"))


@producer(1)
def gather(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Elements that are picked by computed places along an axis."""
    if not shape or dtype.is_bool:
        return None
    axis = g.random.randrange(len(shape))
    size = g.pick(
        *(
            1 << n
            for n in range(8)
            if (1 << n) * math.prod(shape) // shape[axis] <= max(g.most, math.prod(shape))
        )
    )
    a = g.expression(dtype, (*shape[:axis], size, *shape[axis + 1 :]), depth)
    places = g.whole(g.pick(I32, I32, I64, I16) if size <= 128 else I32, shape, 0, size - 1, depth)
    return Expr(a.type.shaped(*shape), "tl.gather(", a, ", ", places, f", {axis})")


@producer(1.5)
def histogram(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """How often each number occurs."""
    if dtype != I32 or len(shape) != 1 or not 2 <= shape[0] <= 256:
        return None
    count = g.pick(32, 64, 128, 512)
    numbers = g.whole(I32, (count,), 0, shape[0] - 1, depth)
    if g.chance(0.3):
        mask = g.comparison((count,), 1)
        return Expr(Type(I32, shape, 0, count), "tl.histogram(", numbers, f", {shape[0]}, ", mask, ")")
    return Expr(Type(I32, shape, 0, count), "tl.histogram(", numbers, f", {shape[0]})")


__all__ = ["F32", "U8"]
