"""Branches that do the same to different things: the things are chosen, and the work is done once.

    Before:  %r: tensor<64xf32> = scf.if %c then_body() {
               %0: tensor<64xf32> = tt.load %a
               scf.yield %0
             } else_body() {
               %1: tensor<64xf32> = tt.load %b
               scf.yield %1
             }
    After:   %s: !tt.ptr<f32> = arith.select %c, %p, %q
             %t: tensor<64x!tt.ptr<f32>> = tt.splat %s
             %r: tensor<64xf32> = tt.load %t

where `%a` and `%b` are splats of `%p` and `%q`.  What memory operations do cannot be shared later than this: the loads of
both branches would be code of their own, whose results meet in registers.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import FloatType, IntType, PointerType
from kbuild.compiler.ops.control import If
from kbuild.compiler.ops.elementwise import Constant, Select
from kbuild.compiler.ops.tensor import AxisAttributes, Broadcast, ExpandDims, Reshape, Splat, Trans
from kbuild.compiler.transforms.common.cse import attributes_key

twins = Rewrites()

_DEEPEST = 16
"""Operations that are followed from what a branch uses to scalars."""
_VIEWS = Splat | Broadcast | ExpandDims | Reshape | Trans | AxisAttributes
"""What addresses are made by, besides arithmetic."""


@twins.on(If)
def branches_that_do_the_same(op: If) -> list[Value] | None:
    """Branches of the same operations, among them one on memory, on values that scalars choose between."""
    first, second = list(op.then_body), list(op.else_body)
    if len(first) != len(second) or not any(one.has(Trait.READS | Trait.WRITES) for one in first):
        return None
    merge = _Merge(op)
    if not all(merge.fits(one, other) for one, other in zip(first, second)):
        return None
    for one in first[:-1]:
        copy = one.clone({operand: merge.value(operand) for operand in one.operands})
        op.parent_block.insert(copy, op)
        merge.made |= dict(zip(one.results, copy.results))
    return [merge.value(value) for value in first[-1].operands]


class _Merge:
    """The values that stand for those of both branches."""

    def __init__(self, op: If) -> None:
        self.op = op
        self.twin: dict[Value, Value] = {}
        """What the second branch has in the place of a value that the first one uses."""
        self.made: dict[Value, Value] = {}

    def fits(self, one: Op, other: Op) -> bool:
        """Whether two operations of the branches are the same, on values that can be merged."""
        if one.region_fields or not _alike(one, other):
            return False
        if not all(map(self.pairs, one.operands, other.operands)):
            return False
        return all(map(self.meet, one.results, other.results))

    def pairs(self, one: Value, other: Value, depth: int = _DEEPEST) -> bool:
        """Whether a value can stand for one of each branch."""
        if one in self.twin:
            return self.twin[one] is other
        if is_within(one.block, self.op.then_body) or is_within(other.block, self.op.else_body):
            return False
        if one is not other and not _scalars(one, other):
            first, second = one.op, other.op
            if depth == 0 or first is None or second is None or one.index != other.index:
                return False
            if not _makes_addresses(first) or not _alike(first, second):
                return False
            if not all(self.pairs(*each, depth - 1) for each in zip(first.operands, second.operands)):
                return False
        return self.meet(one, other)

    def meet(self, one: Value, other: Value) -> bool:
        """Whether this is the one value of the second branch that stands beside a value of the first."""
        return self.twin.setdefault(one, other) is other

    def value(self, one: Value) -> Value:
        """What stands for a value of the first branch and its twin: in front of the branches."""
        if one not in self.made:
            self.made[one] = self._merged(one, self.twin[one])
        return self.made[one]

    def _merged(self, one: Value, other: Value) -> Value:
        if one is other:
            return one
        if _scalars(one, other):
            choice = Select(self.op.condition, one, other)
            choice.loc = self.op.loc
            self.op.parent_block.insert(choice, self.op)
            return choice.result
        assert one.op is not None
        made = one.op.clone({operand: self.value(operand) for operand in one.op.operands})
        self.op.parent_block.insert(made, self.op)
        return made.results[one.index]


def _alike(one: Op, other: Op) -> bool:
    """Whether two operations differ by nothing but their operands."""
    return (
        type(one) is type(other)
        and attributes_key(one) == attributes_key(other)
        and [value.type for value in one.results] == [value.type for value in other.results]
        and [value.type for value in one.operands] == [value.type for value in other.operands]
    )


def _makes_addresses(op: Op) -> bool:
    """Whether an operation is cheap, for the one in front of the branches may have other users."""
    return (
        op.has(Trait.PURE) and not op.region_fields and (op.has(Trait.ELEMENTWISE) or isinstance(op, _VIEWS))
    )


def _scalars(one: Value, other: Value) -> bool:
    """Whether a select may choose: of numbers that are known, one may be what makes accesses wide."""
    return (
        one.type == other.type
        and isinstance(one.type, IntType | FloatType | PointerType)
        and not any(isinstance(value.owner, Constant) for value in (one, other))
    )
