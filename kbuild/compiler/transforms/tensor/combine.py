"""Algebra on tensor operations that saves one of them: the sum after a dot becomes its accumulator, the
choice of loaded elements becomes the load's `other`.

    Before:  %0: tensor<64x64xf32> = tt.dot %a, %b, %zeros
             %1: tensor<64x64xf32> = arith.addf %0, %acc
    After:   %1: tensor<64x64xf32> = tt.dot %a, %b, %acc
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import I64, element_of
from kbuild.compiler.ops.elementwise import AddF, AddI, AddPtr, Select
from kbuild.compiler.ops.tensor import Dot, Load
from kbuild.compiler.transforms.common.canonicalize.fold import is_constant
from kbuild.targets import Target

combination = Rewrites()


@tensor_pass
def combine(module: Module, target: Target) -> None:
    for function in module.functions.values():
        combination.apply(function)


@combination.on(AddF, AddI)
def sum_into_dot(op: AddF | AddI) -> Dot | None:
    """dot(a, b, 0) + d = dot(a, b, d), when nothing else uses the dot"""
    for summand, addend in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        dot = summand.owner
        if (
            not isinstance(dot, Dot)
            or not is_constant(dot.c, 0)
            or len(summand.users) != 1
            or dot.parent is not op.parent
        ):
            continue
        if addend is not summand and not dot.max_num_imprecise_acc:
            return Dot(dot.a, dot.b, addend, dot.input_precision, dot.max_num_imprecise_acc, dot.atom)
    return None


@combination.on(AddPtr)
def offsets_first(op: AddPtr) -> Op | None:
    """addptr(addptr(p, a), b) = addptr(p, a + b), where offsets have 64 bits and cannot overflow"""
    inner = op.ptr.owner
    if (
        not isinstance(inner, AddPtr)
        or element_of(op.offset.type) != I64
        or inner.offset.type != op.offset.type
    ):
        return None
    return AddPtr(inner.ptr, AddI(inner.offset, op.offset).result)


@combination.on(Select)
def choice_after_load(op: Select) -> Op | Value | None:
    """select(m, load(p, m, _), other) = load(p, m, other), when nothing else uses the load"""
    load = op.true_value.owner
    if (
        not isinstance(load, Load)
        or load.mask is not op.condition
        or load.volatile
        or len(op.true_value.users) != 1
    ):
        return None
    if load.parent is not op.parent or not _defined_before(op.false_value, load):
        return None
    load.other = op.false_value
    return load.results[0]


def _defined_before(value: Value, op: Op) -> bool:
    """Whether a value that some later operation of op's block uses is there already at op."""
    owner = value.owner
    if not isinstance(owner, Op) or owner.parent is not op.parent:
        return True
    before = op.prev
    while before is not None:
        if before is owner:
            return True
        before = before.prev
    return False
