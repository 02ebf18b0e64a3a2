"""The meaning of elementwise operations: the numpy function that their class names, or one of the table here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kbuild.compiler.interp.formats import (
    Array,
    decode,
    encode,
    memory_dtype,
    round_away,
    round_to,
    value_dtype,
    widened,
)
from kbuild.compiler.interp.machine import Machine, means
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.types import (
    FloatType,
    IntType,
    PointerType,
    bit_width,
    element_of,
    shape_of,
)
from kbuild.compiler.ops.elementwise import Bitcast, Constant, Elementwise, Select, TruncF

_TABLE: dict[str, Callable[..., Array]] = {}
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "fma")
"""Functions that are computed without rounding where values are wide."""
_EXACT = (Bitcast, Select, TruncF)
"""Operations whose function returns numbers of the result's type: rounding those would turn f8's infinities
into finite numbers."""


def _named(function: Callable[..., Array]) -> Callable[..., Array]:
    _TABLE[function.__name__.strip("_")] = function
    return function


def function_of(op: type[Elementwise]) -> Callable[..., Array] | None:
    """The function of (op, *operands) for a class; None when neither the table nor numpy has the name."""
    if op.numpy in _TABLE:
        return _TABLE[op.numpy]
    function = getattr(np, op.numpy, None)
    return None if function is None else lambda _, *operands: function(*operands)


@means(Elementwise)
def elementwise(machine: Machine, op: Elementwise) -> Array:
    function = function_of(type(op))
    assert function is not None, f"{op.op_name} names {op.numpy!r}, which does not exist"
    operands = [machine[operand] for operand in op.operands]
    type_ = element_of(op.results[0].type)
    if op.numpy in _ARITHMETIC:
        operands = [widened(operand) for operand in operands]
    result = np.asarray(function(op, *operands))
    if isinstance(type_, FloatType) and not isinstance(op, _EXACT):
        return round_to(result, type_)
    return result.astype(value_dtype(type_), copy=False)


@means(Constant)
def constant(machine: Machine, op: Constant) -> Array:
    if isinstance(element_of(op.type), FloatType):
        return decode(encode(np.full(shape_of(op.type), op.value, np.float64), op.type), op.type)
    return np.full(shape_of(op.type), op.value, value_dtype(op.type))


def _unsigned(values: Array) -> Array:
    """The same bits as unsigned numbers."""
    values = np.asarray(values)
    return values.astype(np.uint8) if values.dtype == np.bool_ else values.view(f"u{values.dtype.itemsize}")


def _signed(values: Array) -> Array:
    """Signed numbers: a true `i1` is -1."""
    values = np.asarray(values)
    return -values.astype(np.int8) if values.dtype == np.bool_ else values


def _bits(values: Array) -> int:
    return np.asarray(values).dtype.itemsize * 8


# Integers


@_named
def subtract(op: Op, a: Array, b: Array) -> Array:
    return np.not_equal(a, b) if np.asarray(a).dtype == np.bool_ else np.subtract(a, b)


@_named
def add(op: Op, a: Array, b: Array) -> Array:
    return np.not_equal(a, b) if np.asarray(a).dtype == np.bool_ else np.add(a, b)


@_named
def divsi(op: Op, a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    inexact = np.multiply(quotient, b) != a
    return np.where(b == 0, 0, quotient + (inexact & ((np.asarray(a) < 0) != (np.asarray(b) < 0))))


@_named
def remsi(op: Op, a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.fmod(a, b))


@_named
def divui(op: Op, a: Array, b: Array) -> Array:
    return np.floor_divide(_unsigned(a), _unsigned(b))


@_named
def remui(op: Op, a: Array, b: Array) -> Array:
    return np.remainder(_unsigned(a), _unsigned(b))


@_named
def left_shift(op: Op, a: Array, b: Array) -> Array:
    return np.where(_unsigned(b) < _bits(a), np.left_shift(a, b), 0)


@_named
def right_shift(op: Op, a: Array, b: Array) -> Array:
    return np.right_shift(a, np.minimum(_unsigned(b), _bits(a) - 1).astype(np.asarray(a).dtype))


@_named
def shrui(op: Op, a: Array, b: Array) -> Array:
    return np.where(_unsigned(b) < _bits(a), np.right_shift(_unsigned(a), _unsigned(b)), 0)


@_named
def maxui(op: Op, a: Array, b: Array) -> Array:
    return np.maximum(_unsigned(a), _unsigned(b))


@_named
def minui(op: Op, a: Array, b: Array) -> Array:
    return np.minimum(_unsigned(a), _unsigned(b))


@_named
def mulhiui(op: Op, a: Array, b: Array) -> Array:
    a, b = _unsigned(a), _unsigned(b)
    wide = np.uint64 if _bits(a) <= 32 else object
    product = np.asarray(np.multiply(a.astype(wide), b.astype(wide)), wide)
    return np.asarray(product // wide(1 << _bits(a)) if wide is np.uint64 else product // (1 << 64)).astype(
        a.dtype
    )


@_named
def bitwise_count(op: Op, a: Array) -> Array:
    return sum((_unsigned(a) >> np.asarray(_unsigned(a)).dtype.type(bit)) & 1 for bit in range(_bits(a)))


@_named
def ctlz(op: Op, a: Array) -> Array:
    bits = _unsigned(a)
    return sum((bits >> bits.dtype.type(bit)) == 0 for bit in range(_bits(a)))


_PREDICATES = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@_named
def cmpi(op: Any, a: Array, b: Array) -> Array:
    convert = _unsigned if op.predicate[0] == "u" else _signed
    return _PREDICATES[op.predicate[-2:]](convert(a), convert(b))


@_named
def cmpf(op: Any, a: Array, b: Array) -> Array:
    unordered = np.isnan(a) | np.isnan(b)
    holds = _PREDICATES[op.predicate[-2:]](a, b)
    return holds | unordered if op.predicate[0] == "u" else holds & ~unordered


# Floating point


@_named
def fma(op: Op, a: Array, b: Array, c: Array) -> Array:
    """a·b + c, rounded once: float64 holds the products of all narrower types exactly, and the rounding error
    of the sum is added to it.

    Dekker, "A floating-point technique for extending the available precision" (1971); for narrower types the
    sum is rounded to odd, with which rounding again is as good as rounding once (Boldo and Melquiond 2008).
    """
    a, b, c = (np.asarray(value, np.float64) for value in (a, b, c))
    is_double = bit_width(element_of(op.results[0].type)) == 64
    product = a * b
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    if is_double:
        high_a, high_b = (value * 134217729.0 - (value * 134217729.0 - value) for value in (a, b))
        low_a, low_b = a - high_a, b - high_b
        lost = lost + (((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b)
    lost = np.where(np.isfinite(lost), lost, 0.0)
    if is_double:
        return np.where(lost != 0, total + lost, total)  # Zero keeps its sign.
    is_even = np.asarray(total).view(np.int64) & 1 == 0
    return np.where(is_even & (lost != 0), np.nextafter(total, np.copysign(np.inf, lost)), total)


def _extreme(name: str, is_least: bool) -> None:
    choose = getattr(np, name)

    def function(op: Op, a: Array, b: Array) -> Array:
        found = choose(a, b)
        if np.asarray(found).dtype.kind != "f":
            return found
        # Of two zeros numpy returns either, depending on the processor; in PTX -0 is less than +0.
        return np.where(a == b, np.where(np.signbit(b) == is_least, b, a), found)

    _TABLE[name] = function


for _name, _is_least in (("fmin", True), ("minimum", True), ("fmax", False), ("maximum", False)):
    _extreme(_name, _is_least)


@_named
def clampf(op: Any, a: Array, b: Array, c: Array) -> Array:
    held = np.fmin(np.fmax(a, b), c)
    return np.where(np.isnan(a), np.nan, held) if op.propagate_nan else held


@_named
def rsqrt(op: Op, a: Array) -> Array:
    return 1 / np.sqrt(a)


@_named
def erf(op: Op, a: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(a)


@_named
def round_half_away(op: Op, a: Array) -> Array:
    whole = np.trunc(a)  # A sum with a half would be rounded, and that of the number below it is one.
    return whole + np.copysign(np.abs(a - whole) >= 0.5, a)


# Conversions


@_named
def extsi(op: Op, a: Array) -> Array:
    return _signed(a)


@_named
def sitofp(op: Op, a: Array) -> Array:
    return _signed(a).astype(np.float64 if _bits(a) < 64 else np.longdouble)


@_named
def extui(op: Op, a: Array) -> Array:
    return _unsigned(a)


@_named
def uitofp(op: Op, a: Array) -> Array:
    return _unsigned(a).astype(np.float64 if _bits(a) < 64 else np.longdouble)


@_named
def trunci(op: Any, a: Array) -> Array:
    return np.bitwise_and(a, 1) != 0 if element_of(op.type) == IntType(1) else a


@_named
def fptosi(op: Any, a: Array) -> Array:
    bits = max(bit_width(op.type), 16)
    whole = _saturate(a, op, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return whole.astype(f"i{bits // 8}").astype(value_dtype(op.type))


@_named
def fptoui(op: Any, a: Array) -> Array:
    bits = max(bit_width(op.type), 16)
    return (
        _saturate(a, op, 0, (1 << bits) - 1)
        .astype(f"u{bits // 8}")
        .astype(f"u{max(bit_width(op.type), 8) // 8}")
    )


def _saturate(values: Array, op: Any, low: int, high: int) -> Array:
    """Whole numbers toward zero within bounds, as Python integers; NaN gives 0, or the top bit alone where
    source or result have 64 bits (PTX ISA, cvt)."""
    wide = np.trunc(np.asarray(values, np.float64))
    top_bit = low or (high + 1) // 2
    missing = top_bit if 64 in (bit_width(op.src.type), bit_width(op.type)) else 0

    def single(number: float) -> int:
        return (
            missing
            if math.isnan(number)
            else low
            if number <= low
            else high
            if number >= high
            else int(number)
        )

    return np.vectorize(single, otypes=[object])(wide)


@_named
def extf(op: Op, a: Array) -> Array:
    return a


@_named
def truncf(op: Any, a: Array) -> Array:
    element = element_of(op.type)
    if op.rounding == "rna" and isinstance(element, FloatType):
        return round_away(a, element)
    return round_to(a, op.type, toward_zero=op.rounding == "rtz")


@_named
def bitcast(op: Any, a: Array) -> Array:
    source, destination = element_of(op.src.type), element_of(op.type)
    if isinstance(source, PointerType) or isinstance(destination, PointerType):
        return a
    return decode(
        np.ascontiguousarray(encode(a, source)).view(memory_dtype(destination)), destination
    ).reshape(np.shape(a))


@_named
def int_to_ptr(op: Op, a: Array) -> Array:
    return a


@_named
def ptr_to_int(op: Op, a: Array) -> Array:
    return a


@_named
def addptr(op: Any, pointer: Array, offset: Array) -> Array:
    element = element_of(op.ptr.type)
    assert isinstance(element, PointerType)
    size = max(bit_width(element.pointee), 8) // 8
    return np.add(pointer, np.asarray(offset, np.int64) * size)
