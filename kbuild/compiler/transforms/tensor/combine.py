"""Algebra on tensor operations that saves one of them: the sum after a product becomes its accumulator, the choice of
loaded elements becomes the load's `other`, zeros that both operands of a product have are not multiplied.

    Before:  %0: tensor<64x64xf32> = tt.dot %a, %b, %zeros
             %1: tensor<64x64xf32> = arith.addf %0, %acc
    After:   %1: tensor<64x64xf32> = tt.dot %a, %b, %acc
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import I64, TensorType, bit_width, element_of, shape_of
from kbuild.compiler.ops.elementwise import AddF, AddI, AddPtr, CmpI, Select
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Load, MakeRange
from kbuild.compiler.targets import Target
from kbuild.compiler.transforms.common.fold import constant_of, is_constant

combination = Rewrites()
_STEP_BITS = 256
"""What tensor cores multiply of a row at once."""


@tensor_pass
def combine(module: Module, target: Target) -> None:
    for function in module.functions.values():
        combination.apply(function)


@combination.on(AddF, AddI)
def sum_into_dot(op: AddF | AddI) -> Dot | None:
    """dot(a, b, 0) + d = dot(a, b, d), when nothing else wants the product"""
    for product, addend in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        dot = product.owner
        if not isinstance(dot, Dot) or not is_constant(dot.c, 0) or len(product.users) != 1 or dot.parent is not op.parent:
            continue
        if addend is not product and not dot.max_num_imprecise_acc:
            return Dot(dot.a, dot.b, addend, dot.input_precision, dot.max_num_imprecise_acc, dot.atom, dot.depth)
    return None


@combination.on(Dot)
def product_of_the_first(op: Dot) -> Dot | None:
    """dot(select(column < n, a, 0), select(row < n, b, 0), c) = dot(a, b, c) of the first n columns and rows"""
    a, b = _first(op.a, 1), _first(op.b, 0)
    if a is None or b is None or a.length != b.length or op.depth:
        return None
    if op.input_precision == "tf32x3" or op.max_num_imprecise_acc:
        return None
    assert isinstance(op.a.type, TensorType)
    if not 0 < a.length < op.a.type.shape[1] or a.length * bit_width(op.a.type) % _STEP_BITS:
        return None
    return Dot(a.source, b.source, op.c, op.input_precision, op.max_num_imprecise_acc, op.atom, a.length)


class _First(NamedTuple):
    """The first elements of `source` along an axis, and zeros after them."""

    source: Value
    length: int


def _first(value: Value, axis: int) -> _First | None:
    choice = value.owner
    if not isinstance(choice, Select) or not is_constant(choice.false_value, 0) or len(shape_of(value.type)) != 2:
        return None
    condition, axis = _unrepeated(choice.condition, axis)
    below = condition.owner
    if not isinstance(below, CmpI) or below.predicate != "slt":
        return None
    place, count = _unrepeated(below.lhs, axis)[0].owner, constant_of(below.rhs)
    if not isinstance(place, MakeRange) or place.start != 0 or not isinstance(count, int):
        return None
    return _First(choice.true_value, count)


def _unrepeated(value: Value, axis: int) -> tuple[Value, int]:
    """What is repeated along other axes than one, and which that is there."""
    while isinstance(op := value.owner, Broadcast | ExpandDims):
        if isinstance(op, ExpandDims):
            if op.axis == axis:
                break
            axis -= op.axis < axis
        elif shape_of(op.src.type)[axis] != shape_of(op.type)[axis]:
            break
        value = op.src
    return value, axis


@combination.on(AddPtr)
def offsets_first(op: AddPtr) -> Op | None:
    """addptr(addptr(p, a), b) = addptr(p, a + b), where offsets have 64 bits and cannot overflow"""
    inner = op.ptr.owner
    if not isinstance(inner, AddPtr) or element_of(op.offset.type) != I64 or inner.offset.type != op.offset.type:
        return None
    return AddPtr(inner.ptr, AddI(inner.offset, op.offset).result)


@combination.on(Select)
def choice_after_load(op: Select) -> Op | Value | None:
    """select(m, load(p, m, _), other) = load(p, m, other), when nothing else wants the load"""
    load = op.true_value.owner
    if not isinstance(load, Load) or load.mask is not op.condition or load.volatile or len(op.true_value.users) != 1:
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
