"""Reductions and scans, with the functions of `tl` and with combine functions of the program's own."""

from __future__ import annotations

import math

from random_programs.generator import Generator, number, producer
from random_programs.memory import row_major
from random_programs.nodes import Expr, Helper, Line
from random_programs.types import (
    BF16,
    F32,
    F64,
    I32,
    I64,
    INTEGERS,
    U32,
    U64,
    WHOLE,
    DType,
    Type,
    full,
    result,
)

Shape = tuple[int, ...]
COMBINES = {
    "add": "a + b",
    "mul": "a * b",
    "xor": "a ^ b",
    "and": "a & b",
    "or": "a | b",
    "max": "tl.where(a > b, a, b)",
    "min": "tl.minimum(a, b)",
    "gcd_mask": "(a | b) & 255",
    "first": "a",
    "last": "b",
    "filled": "tl.where(b != 0, b, a)",
}
"""Associative functions of two numbers; `first`, `last` and `filled`, the last one that is not zero, do not
commute."""


def combine(g: Generator, name: str) -> str:
    """The name of the helper that combines two numbers."""
    function = f"combine_{name}"
    if not any(helper.name == function for helper in g.helpers):
        ab = Type(I32)
        g.helpers.append(Helper(function, (("a", ab), ("b", ab)), [], Line(COMBINES[name])))
    return function


PAIRS = {
    "best": (
        "tl.where((a > c) | ((a == c) & (b < d)), a, c)",
        "tl.where((a > c) | ((a == c) & (b < d)), b, d)",
    ),
    "segments": ("tl.where(d != 0, c, a ^ c)", "b | d"),
    "affine": ("a * c", "b * c + d"),
    "both": ("tl.maximum(a, c)", "b ^ d"),
}
"""Associative functions of two pairs (a, b) and (c, d); the second and the third do not commute."""


def combine_pairs(g: Generator, name: str) -> str:
    """The name of the helper that combines two pairs."""
    function = f"combine_{name}"
    if not any(helper.name == function for helper in g.helpers):
        first, second = PAIRS[name]
        g.helpers.append(
            Helper(function, tuple((letter, Type(I32)) for letter in "abcd"), [], Line(f"{first}, {second}"))
        )
    return function


@producer(0.7)
def of_pairs(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """One half of what tuples are reduced to, or scanned."""
    if dtype not in (I32, I64, U32, U64) or len(shape) > 3:
        return None
    scans = len(shape) > 0 and g.chance(0.5)
    axis, _, before = (g.random.randrange(len(shape)), 0, shape) if scans else _inner(g, shape, 128)
    name = g.pick(*PAIRS)
    a, b = (g.expression(dtype, before, depth) for _ in range(2))
    if name == "segments" and before:
        b = _sparse(g, b)
    if name == "both" and dtype not in (I32, I64):
        return None
    verb, end = ("associative_scan", g.pick("", ", reverse=True")) if scans else ("reduce", "")
    halves = g.unpacked(
        [full(dtype, shape)] * 2, f"tl.{verb}((", a, ", ", b, f"), {axis}, {combine_pairs(g, name)}{end})"
    )
    return g.pick(*halves)


def _sparse(g: Generator, a: Expr) -> Expr:
    """Zeros, but for few elements: which of them is the last shows in what order they were taken."""
    numbers = row_major(a.type.shape)
    low, high = min(a.type.low, 0), max(a.type.high, 0)
    zero = number(0, a.type.dtype)
    return Expr(
        a.type.ranged(low, high), f"tl.where({numbers} % {g.pick(3, 5, 7, 11)} == 0, ", a, f", {zero})"
    )


def _inner(g: Generator, shape: Shape, most: int = 256) -> tuple[int, int, Shape]:
    """An axis to reduce, its size, and the shape with it."""
    axis = g.random.randint(0, len(shape))
    room = max(2 * g.most // max(math.prod(shape), 1), 1)
    size = g.pick(*(1 << n for n in range(9) if 1 << n <= min(room, most)))
    return axis, size, (*shape[:axis], size, *shape[axis:])


def _summed(dtype: DType) -> DType:
    """The type of a sum: narrow integers are summed in 32 bits."""
    if dtype.is_float or dtype.bits >= 32:
        return dtype
    return I32 if dtype.is_signed else U32


@producer(3)
def reduced(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """One axis less."""
    if dtype.is_fp8 or dtype.is_bool or len(shape) > 3:
        return None
    axis, size, before = _inner(g, shape)
    form = g.pick("sum", "sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce", "keep")
    if form.startswith("arg"):
        if dtype != I32:
            return None
        source = g.number_dtype()
        a = g.expression(source, before, depth)
        return (
            Expr(Type(I32, shape, 0, size - 1), f"tl.{form}(", a, f", {axis})") if a.type.is_whole else None
        )
    source, back = dtype, ".to(tl.bfloat16)" if dtype == BF16 else ""
    if form == "sum" and dtype in (I32, U32) and g.chance(0.4):
        source = g.pick(*(kind for kind in INTEGERS if _summed(kind) == dtype))
    a = g.expression(source, before, depth)
    if form in ("max", "min"):
        back = f".to(tl.{dtype.name})" if dtype.bits < 32 else ""  # They are computed, and given, in 32 bits.
        return Expr(a.type.shaped(*shape), f"tl.{form}(", a, f", {axis}){back}")
    if not a.type.is_whole:
        return None
    if form == "xor_sum":
        return (
            None
            if dtype.is_float or dtype.bits < 32
            else Expr(full(dtype, shape), "tl.xor_sum(", a, f", {axis})")
        )
    if form == "reduce":
        return _custom(g, a, axis, shape, dtype)
    if dtype.bits < 32 and not dtype.is_float and _summed(source) != dtype:
        return None
    found = result(dtype, shape, a.type.low * size, a.type.high * size)
    if found is None or max(abs(a.type.low), abs(a.type.high)) * size > max(
        dtype.limit, 1 << 62 if not dtype.is_float else 0
    ):
        found = None if dtype.is_float else full(dtype, shape)
    return found and Expr(found, "tl.sum(", a, f", {axis}){back}")


def _custom(g: Generator, a: Expr, axis: int, shape: Shape, dtype: DType) -> Expr | None:
    """A reduction by a function of the program's own."""
    names = ["add", "max", "min", "first", "last", "filled"] if dtype.is_float else list(COMBINES)
    if dtype.bits == 8:
        names.remove("gcd_mask") if "gcd_mask" in names else None
    if dtype == BF16:
        names = ["max", "first", "last", "filled"]  # The others give fp32.
    name = g.pick(*names, "filled")
    if name == "filled" and a.type.within(-100, 100):
        a = _sparse(g, a)
    if name in ("max", "min", "first", "last", "filled"):
        found: Type | None = a.type.shaped(*shape)
    elif name == "add":
        size = a.type.shape[axis]
        found = result(dtype, shape, a.type.low * size, a.type.high * size)
    else:
        found = full(dtype, shape)
    return found and Expr(found, "tl.reduce(", a, f", {axis}, {combine(g, name)})")


@producer(1.5)
def scanned(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Running sums, products and others."""
    if not shape or dtype.is_fp8 or dtype.is_bool or (dtype.bits < 32 and not dtype.is_float):
        return None
    axis = g.random.randrange(len(shape))
    a = g.expression(dtype, shape, depth)
    if not a.type.is_whole:
        return None
    reverse = g.pick("", "", ", reverse=True")
    size = shape[axis]
    form = g.pick("cumsum", "cumprod", "associative_scan", "associative_scan")
    if form == "cumprod":
        if dtype.is_float:
            return None
        return Expr(full(dtype, shape), "tl.cumprod(", a, f", {axis}{reverse})")
    if form == "cumsum":
        most = max(abs(a.type.low), abs(a.type.high)) * size
        found = result(dtype, shape, min(a.type.low, 0) * size, max(a.type.high, 0) * size)
        if dtype.is_float and (dtype not in (F32, F64) or most > dtype.limit):
            return None
        return found and Expr(found, "tl.cumsum(", a, f", {axis}{reverse})")
    name = g.pick(
        "max",
        "min" if dtype != BF16 else "max",
        "first",
        "filled",
        *(() if dtype.is_float else ("add", "xor", "or", "mul")),
    )
    found = a.type if name in ("max", "min", "first", "filled") else full(dtype, shape)
    return Expr(found, "tl.associative_scan(", a, f", {axis}, {combine(g, name)}{reverse})")


__all__ = ["I64", "U64", "WHOLE"]
