"""Comparisons and divisions of integers, by how small and how large their operands may be.

A comparison may hold for all of them:

    scf.for %c0, %c128, %c1 … body(%i: i32)               0 … 127
    arith.muli %i, %c16                                    0 … 2032
    arith.addi of its splat and tt.make_range 0 … 16       0 … 2047
    arith.cmpi, with 2048 {predicate = "slt"}              true

So masks go that keep blocks within a size that their loop does not exceed.  And what fits 32 bits is divided there,
which takes a third of the instructions:

    arith.extsi of %n: i32                                 -2³¹ … 2³¹ - 1
    arith.divsi of i64, tt.get_program_id by it            arith.extsi of an arith.divsi of i32
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.analysis.signs import MOVED
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import I32, IntType, bit_width, element_of, like
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import (
    AddI,
    AndI,
    CmpI,
    Constant,
    DivSI,
    ExtSI,
    ExtUI,
    MaxSI,
    MinSI,
    MulI,
    RemSI,
    Select,
    SubI,
    TruncI,
)
from kbuild.compiler.ops.tensor import (
    GetNumPrograms,
    GetProgramId,
    MakeRange,
)
from kbuild.compiler.transforms._support.loops import trip_count

ranges = Rewrites()

_DEEPEST = 16
"""Operations that are followed from a comparison or a division."""
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


class Limits(NamedTuple):
    """The least and the largest number that a value, or an element of it, may be."""

    low: int
    high: int


@ranges.on(CmpI)
def compare_range(op: CmpI) -> Constant | None:
    """A comparison of numbers of known ranges may hold, or fail, for all of them."""
    left = limits_of(op.lhs)
    right = limits_of(op.rhs) if left is not None else None
    if left is None or right is None:
        return None
    if op.predicate[0] == "u" and min(left.low, right.low) < 0:
        return None
    holds = _outcome(op.predicate[-2:], left, right)
    return Constant.of(holds, op.results[0].type) if holds is not None else None


@ranges.on(DivSI, RemSI)
def divide_in_32_bits(op: DivSI | RemSI) -> ExtSI | None:
    """Operands that fit 32 bits have a quotient and a remainder that do, but for that of the least number by -1."""
    if bit_width(op.lhs.type) <= I32.bits:
        return None
    dividend = limits_of(op.lhs)
    divisor = limits_of(op.rhs) if dividend is not None else None
    if dividend is None or divisor is None or not (_fits(dividend, I32) and _fits(divisor, I32)):
        return None
    if dividend.low == _LEAST and divisor.low <= -1 <= divisor.high:
        return None
    narrow = [TruncI(operand, like(operand.type, I32)).result for operand in (op.lhs, op.rhs)]
    return ExtSI(type(op)(*narrow).result, op.lhs.type)


def _outcome(predicate: str, left: Limits, right: Limits) -> bool | None:
    """Whether a comparison holds for all numbers within the limits, or for none; None where that depends."""
    if predicate in ("eq", "ne"):
        apart = left.high < right.low or right.high < left.low
        same = left.low == left.high == right.low == right.high
        return (predicate == "eq") == same if apart or same else None
    if predicate in ("gt", "ge"):
        left, right = right, left
    strict = predicate in ("lt", "gt")
    if left.high < right.low or (not strict and left.high == right.low):
        return True
    return False if left.low > right.high or (strict and left.low == right.high) else None


def limits_of(value: Value, depth: int = _DEEPEST) -> Limits | None:
    """What is known of the size of an integer, or of the elements of a tensor of them; None for nothing."""
    type_, op = element_of(value.type), value.op
    if not isinstance(type_, IntType) or type_.bits == 1 or not depth:
        return None
    if op is None:
        return _of_induction(value)
    match op:
        case Constant():
            return Limits(int(op.value), int(op.value))
        case MakeRange():
            return Limits(op.start, op.end - 1)
        case GetProgramId():
            return Limits(0, _MOST - 1)
        case GetNumPrograms():
            return Limits(1, _MOST)
        case ExtSI():
            return limits_of(op.src, depth - 1) or _of_bits(bit_width(op.src.type), True)
        case ExtUI():
            found = limits_of(op.src, depth - 1)
            return found if found is not None and found.low >= 0 else _of_bits(bit_width(op.src.type), False)
    if isinstance(op, MOVED):
        return limits_of(op.operands[0], depth - 1)
    if isinstance(op, Select):
        return _joined(limits_of(op.true_value, depth - 1), limits_of(op.false_value, depth - 1))
    found = _combined(op, depth - 1)
    return found if found is not None and _fits(found, type_) else None


def _of_bits(bits: int, signed: bool) -> Limits:
    """Those of all integers of so many bits."""
    return Limits(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else Limits(0, (1 << bits) - 1)


def _fits(limits: Limits, type_: IntType) -> bool:
    """Whether a signed type has all numbers within the limits."""
    whole = _of_bits(type_.bits, True)
    return whole.low <= limits.low and limits.high <= whole.high


def _of_induction(value: Value) -> Limits | None:
    loop = value.block.parent
    if not isinstance(loop, For) or value is not loop.induction:
        return None
    trips = trip_count(loop)
    if not trips:
        return None
    lower, step = (limits_of(bound) for bound in (loop.lower, loop.step))
    assert lower is not None and step is not None
    return Limits(lower.low, lower.low + (trips - 1) * step.low)


def _joined(first: Limits | None, second: Limits | None) -> Limits | None:
    if first is None or second is None:
        return None
    return Limits(min(first.low, second.low), max(first.high, second.high))


def _combined(op: Op, depth: int) -> Limits | None:
    """The limits of what an operation computes of two numbers, were the type wide enough."""
    if not isinstance(op, AddI | SubI | MulI | AndI | MinSI | MaxSI | DivSI | RemSI):
        return None
    a = limits_of(op.lhs, depth)
    b = limits_of(op.rhs, depth) if a is not None else None
    if b is None and isinstance(op, DivSI | RemSI):
        b = _of_bits(bit_width(op.rhs.type), True)
    if a is None or b is None:
        return None
    match op:
        case AddI():
            return Limits(a.low + b.low, a.high + b.high)
        case SubI():
            return Limits(a.low - b.high, a.high - b.low)
        case MulI():
            ends = [x * y for x in a for y in b]
            return Limits(min(ends), max(ends))
        case MinSI():
            return Limits(min(a.low, b.low), min(a.high, b.high))
        case MaxSI():
            return Limits(max(a.low, b.low), max(a.high, b.high))
        case AndI() if a.low >= 0 and b.low >= 0:
            return Limits(0, min(a.high, b.high))
        case DivSI() if a.low >= 0 and b.low > 0:
            return Limits(a.low // b.high, a.high // b.low)
        case DivSI():
            largest = max(-a.low, a.high)
            return Limits(-largest, largest)
        case RemSI():
            largest = max(-b.low, b.high, 1) - 1
            return Limits(max(min(a.low, 0), -largest), min(max(a.high, 0), largest))
    return None
