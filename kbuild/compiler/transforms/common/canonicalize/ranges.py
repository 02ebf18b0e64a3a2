"""Comparisons whose outcome follows from how small and how large their operands may be.

    scf.for %c0, %c128, %c1 … body(%i: i32)               0 … 127
    arith.muli %i, %c16                                    0 … 2032
    arith.addi of its splat and tt.make_range 0 … 16       0 … 2047
    arith.cmpi, with 2048 {predicate = "slt"}              true

So masks go that keep blocks within a size that their loop does not exceed.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.analysis.signs import MOVED
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import IntType, element_of
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import (
    AddI,
    AndI,
    CmpI,
    Constant,
    DivSI,
    MaxSI,
    MinSI,
    MulI,
    RemSI,
    Select,
    SubI,
)
from kbuild.compiler.ops.tensor import (
    GetNumPrograms,
    GetProgramId,
    MakeRange,
)
from kbuild.compiler.transforms._support.loops import trip_count

ranges = Rewrites()

_DEEPEST = 16
"""Operations that are followed from a comparison."""
_MOST = (1 << 31) - 1


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
    if isinstance(op, MOVED):
        return limits_of(op.operands[0], depth - 1)
    if isinstance(op, Select):
        return _joined(limits_of(op.true_value, depth - 1), limits_of(op.false_value, depth - 1))
    found = _combined(op, depth - 1)
    fits = found is not None and -(1 << type_.bits - 1) <= found.low <= found.high < 1 << type_.bits - 1
    return found if fits else None


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
        case RemSI() if a.low >= 0 and b.low > 0:
            return Limits(0, min(a.high, b.high - 1))
    return None
