"""Rules on elementwise operations: constants are computed, and what changes nothing goes.

A constant here is a scalar or a tensor filled with one number; both fold alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from kbuild.compiler.ir.core import Op, Value, registered_ops
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I1, FloatType, IntType, bit_width, element_of
from kbuild.compiler.ops.elementwise import (
    AddF,
    AddI,
    AddPtr,
    AndI,
    Binary,
    Bitcast,
    Cast,
    CmpI,
    Compare,
    Constant,
    DivF,
    DivSI,
    DivUI,
    Elementwise,
    ExtF,
    ExtSI,
    ExtUI,
    MaxSI,
    MaxUI,
    MinSI,
    MinUI,
    MulF,
    MulI,
    Number,
    OrI,
    PowF,
    RemSI,
    RemUI,
    Select,
    ShLI,
    ShRSI,
    ShRUI,
    SIToFP,
    SubF,
    SubI,
    TruncF,
    TruncI,
    UIToFP,
    XOrI,
    round_float,
    unsigned,
)
from kbuild.compiler.ops.tensor import Splat

folding = Rewrites()

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_UNSIGNED: dict[type[Op], Callable[[int, int], int]] = {
    DivUI: operator.floordiv,
    RemUI: operator.mod,
    MaxUI: max,
    MinUI: min,
}


def constant_of(value: Value) -> Number | None:
    """The number that a value is, or of which a tensor is full; None when unknown."""
    op = value.owner
    return op.value if isinstance(op, Constant) else None


def is_constant(value: Value, number: Number) -> bool:
    op = value.owner
    return isinstance(op, Constant) and op.value == number


@folding.on(*(cls for cls in registered_ops().values() if issubclass(cls, Elementwise)))
def fold_constants(op: Elementwise) -> Constant | None:
    """An operation on constants is a constant."""
    values: list[Any] = []
    for operand in op.operands:
        if not isinstance(operand.owner, Constant):
            return None
        values.append(operand.owner.value)
    try:
        result = fold(op, values)
    except (OverflowError, ValueError, ZeroDivisionError):
        return None
    return None if result is None else Constant.of(result, op.results[0].type)


def fold(op: Elementwise, values: list[Any]) -> Number | None:
    """The number that an operation makes of numbers; None when it is better left to the machine."""
    if isinstance(op, Compare):
        return compare(op.predicate, values[0], values[1], bit_width(op.lhs.type))
    if isinstance(op, Select):
        return values[1] if values[0] else values[2]
    if isinstance(op, Cast):
        return _fold_cast(op, values[0])
    if type(op) in _UNSIGNED:
        bits = bit_width(op.operands[0].type)
        return _UNSIGNED[type(op)](unsigned(values[0], bits), unsigned(values[1], bits))
    if isinstance(op, ShLI | ShRSI | ShRUI):
        return _fold_shift(op, values[0], values[1])
    return None if op.fold is None else op.fold(*values)


def compare(predicate: str, a: Any, b: Any, bits: int) -> bool:
    """A comparison of integers (signed, kept so) or floats, by the predicate's name."""
    if isinstance(a, float) or isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return predicate[0] == "u"
    elif predicate[0] == "u":
        a, b = unsigned(a, bits), unsigned(b, bits)
    elif bits == 1:
        a, b = -int(a), -int(b)
    return _COMPARISONS[predicate[-2:]](a, b)


def _fold_cast(op: Cast, value: Any) -> Number | None:
    bits = bit_width(op.src.type)
    if isinstance(op, ExtSI | SIToFP):
        return -int(value) if bits == 1 else value
    if isinstance(op, ExtUI | UIToFP):
        return unsigned(int(value), bits)
    if isinstance(op, TruncI | ExtF):
        return value
    if isinstance(op, TruncF) and op.rounding == "rtne":
        element = element_of(op.type)
        assert isinstance(element, FloatType)
        return round_float(value, element)
    return None


def _fold_shift(op: Binary, value: int, amount: int) -> int | None:
    bits = bit_width(op.lhs.type)
    if not 0 <= amount < bits:
        return None
    if isinstance(op, ShLI):
        return value << amount
    return (value if isinstance(op, ShRSI) else unsigned(value, bits)) >> amount


# What changes nothing


@folding.on(
    *(cls for cls in registered_ops().values() if issubclass(cls, Binary) and cls.traits & Trait.COMMUTES)
)
def constant_to_the_right(op: Binary) -> Op | None:
    """c ∘ x = x ∘ c"""
    if isinstance(op.lhs.owner, Constant) and not isinstance(op.rhs.owner, Constant):
        return type(op)(op.rhs, op.lhs)
    return None


@folding.on(AddI, SubI, OrI, XOrI, ShLI, ShRSI, ShRUI)
def zero_is_neutral(op: Binary) -> Value | None:
    """x + 0 = x, and so for -, |, ^, << and >>"""
    return op.lhs if is_constant(op.rhs, 0) else None


@folding.on(MulI, DivSI, DivUI, MulF, DivF)
def one_is_neutral(op: Binary) -> Value | None:
    """x * 1 = x / 1 = x"""
    return op.lhs if is_constant(op.rhs, 1) and element_of(op.lhs.type) != I1 else None


@folding.on(MulI, AndI)
def zero_absorbs(op: Binary) -> Value | None:
    """x * 0 = x & 0 = 0"""
    return op.rhs if is_constant(op.rhs, 0) else None


@folding.on(RemSI, RemUI)
def remainder_by_one(op: Binary) -> Constant | None:
    """x % 1 = 0"""
    return Constant.of(0, op.lhs.type) if is_constant(op.rhs, 1) else None


@folding.on(AndI, OrI)
def all_ones(op: Binary) -> Value | None:
    """x & ~0 = x, x | ~0 = ~0; of truth values, too"""
    if not is_constant(op.rhs, True if element_of(op.rhs.type) == I1 else -1):
        return None
    return op.lhs if isinstance(op, AndI) else op.rhs


@folding.on(AndI, OrI, MaxSI, MinSI, MaxUI, MinUI)
def same_operands(op: Binary) -> Value | None:
    """x & x = x, and so for |, max and min"""
    return op.lhs if op.lhs is op.rhs else None


@folding.on(SubI, XOrI)
def difference_of_same(op: Binary) -> Constant | None:
    """x - x = x ^ x = 0"""
    return Constant.of(0, op.lhs.type) if op.lhs is op.rhs else None


@folding.on(AddF, SubF)
def float_zero(op: Binary) -> Value | None:
    """x + -0.0 = x - 0.0 = x; x + 0.0 is left, because it makes 0.0 of -0.0"""
    zero = constant_of(op.rhs)
    if zero != 0 or zero is None:
        return None
    return op.lhs if (math.copysign(1, zero) < 0) == isinstance(op, AddF) else None


@folding.on(AddI, MulI)
def combine_constants(op: Binary) -> Op | None:
    """(x + a) + b = x + (a + b), and so for *"""
    inner, outer = op.lhs.owner, constant_of(op.rhs)
    if outer is None or type(inner) is not type(op):
        return None
    assert isinstance(inner, Binary)
    first = constant_of(inner.rhs)
    if first is None:
        return None
    assert op.fold is not None
    return type(op)(inner.lhs, Constant.of(op.fold(first, outer), op.lhs.type).result)


@folding.on(AddI)
def quotient_and_remainder(op: AddI) -> Value | None:
    """(x / d) * d + x % d = x, as where an index is taken apart for an axis of one element"""
    for whole, rest in ((op.lhs.owner, op.rhs.owner), (op.rhs.owner, op.lhs.owner)):
        if isinstance(whole, MulI) and isinstance(rest, RemSI | RemUI):
            divide, x, d = (DivSI if isinstance(rest, RemSI) else DivUI), rest.lhs, rest.rhs
            for quotient, factor in ((whole.lhs.owner, whole.rhs), (whole.rhs.owner, whole.lhs)):
                if isinstance(quotient, divide) and factor is d and quotient.lhs is x and quotient.rhs is d:
                    return x
    return None


@folding.on(PowF)
def power_by_products(op: PowF) -> Value | Op | None:
    """x^1 = x, x^2 = x * x, x^3 = x^2 * x, x^4 = x^2 * x^2: no further from the power than the function, 1.5 units of the
    last place, and one instruction or two instead of fifty"""
    power, x = constant_of(op.rhs), op.lhs
    if power == 1:
        return x
    if power not in (2, 3, 4):
        return None
    square = MulF(x, x)
    return square if power == 2 else MulF(square.result, x if power == 3 else square.result)


# Choice and comparison


@folding.on(Select)
def select_of_known(op: Select) -> Value | Op | None:
    """select(c, x, x) = x; select(true, x, y) = x; select(c, true, false) = c"""
    if op.true_value is op.false_value:
        return op.true_value
    condition = constant_of(op.condition)
    if condition is not None:
        return op.true_value if condition else op.false_value
    if (
        element_of(op.true_value.type) == I1
        and is_constant(op.true_value, True)
        and is_constant(op.false_value, False)
    ):
        return op.condition
    return None


@folding.on(CmpI)
def compare_same(op: CmpI) -> Constant | None:
    """x == x, x <= x, x >= x hold; x != x, x < x, x > x do not"""
    holds = op.predicate == "eq" or op.predicate[-2:] in ("le", "ge")
    return Constant.of(holds, op.results[0].type) if op.lhs is op.rhs else None


# Conversions


@folding.on(ExtSI, ExtUI, TruncI, ExtF, TruncF, Bitcast)
def cast_to_same(op: Cast) -> Value | None:
    """A conversion to the operand's own type changes nothing."""
    return op.src if op.src.type == op.type else None


@folding.on(ExtSI, ExtUI, ExtF, Bitcast)
def cast_of_cast(op: Cast) -> Op | None:
    """Two extensions of a kind are one; of bit casts, the last counts."""
    inner = op.src.owner
    return type(op)(inner.src, op.type) if type(inner) is type(op) and isinstance(inner, Cast) else None


@folding.on(TruncI)
def truncation_of_extension(op: TruncI) -> Value | Op | None:
    """A truncation of an extension is a shorter extension, the value itself, or a truncation of the value."""
    inner = op.src.owner
    if isinstance(inner, TruncI):
        return TruncI(inner.src, op.type)
    if not isinstance(inner, ExtSI | ExtUI):
        return None
    change = bit_width(op.type) - bit_width(inner.src.type)
    if change == 0:
        return inner.src
    return type(inner)(inner.src, op.type) if change > 0 else TruncI(inner.src, op.type)


@folding.on(TruncF)
def truncation_of_exact_extension(op: TruncF) -> Value | None:
    """truncf(extf(x)) = x, back to x's type"""
    inner = op.src.owner
    return inner.src if isinstance(inner, ExtF) and inner.src.type == op.type else None


# Pointers


@folding.on(AddPtr)
def pointer_moved_by_zero(op: AddPtr) -> Value | None:
    """addptr(p, 0) = p"""
    offset = op.offset.owner
    if isinstance(offset, Splat):
        offset = offset.src.owner
    return op.ptr if isinstance(offset, Constant) and offset.value == 0 else None


@folding.on(AddPtr)
def pointer_moved_by_constants(op: AddPtr) -> Op | None:
    """addptr(addptr(p, a), b) = addptr(p, a + b) for constants whose sum fits"""
    inner, second = op.ptr.owner, constant_of(op.offset)
    if second is None or not isinstance(inner, AddPtr):
        return None
    first = constant_of(inner.offset)
    element = element_of(op.offset.type)
    assert isinstance(element, IntType)
    if first is None or inner.offset.type != op.offset.type or not -(1 << 31) <= first + second < 1 << 31:
        return None
    return AddPtr(inner.ptr, Constant.of(first + second, op.offset.type).result)
