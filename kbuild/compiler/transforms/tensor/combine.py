"""Algebra on tensor operations that saves one of them: the sum after a dot becomes its accumulator, the
choice of loaded elements becomes the load's `other`, a sum of products in three dimensions a dot.

    Before:  %0: tensor<64x64xf32> = tt.dot %a, %b, %zeros
             %1: tensor<64x64xf32> = arith.addf %0, %acc
    After:   %1: tensor<64x64xf32> = tt.dot %a, %b, %acc
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import F32, I64, TensorType, element_of
from kbuild.compiler.ops.elementwise import AddF, AddI, AddPtr, Constant, MulF, Select
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Load, Reduce, Trans
from kbuild.compiler.transforms.common.canonicalize.fold import is_constant
from kbuild.targets import Target

combination = Rewrites()
contraction = Rewrites()
"""Where a product and the sum that it enters may be rounded once."""
_SMALLEST = 16
"""The least size of each dimension for which a sum of products becomes a dot: tl.dot takes no less."""


@tensor_pass
def combine(module: Module, target: Target) -> None:
    for function in module.functions.values():
        fuses = function.attrs.get("enable_fp_fusion", True)
        (combination + contraction if fuses else combination).apply(function)


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


@contraction.on(Reduce)
def sum_of_products(op: Reduce) -> Dot | None:
    """sum(a[:, :, None] · b[None, :, :], 1) = dot(a, b), and likewise along other axes: the products of f32 are summed
    by as many fused multiplications, without a tensor of all of them"""
    product = op.srcs[0].owner
    if (
        not isinstance(product, MulF)
        or len(op.srcs) != 1
        or not _is_sum(op)
        or len(product.result.users) != 1
    ):
        return None
    factors = _factors(product)
    if factors is None or sorted((*factors, op.axis)) != [0, 1, 2] or element_of(product.result.type) != F32:
        return None
    # The rows of the result are those of the factor that is repeated along the columns.
    row, column = sorted(factors)
    rows, columns = factors[column], factors[row]
    if min(*_shape(rows), *_shape(columns)) < _SMALLEST:
        return None
    builder = Builder.before(op)
    if op.axis < row:
        rows = builder.add(Trans(rows, (1, 0))).result
    if op.axis > column:
        columns = builder.add(Trans(columns, (1, 0))).result
    zeros = builder.add(Constant.of(0.0, op.results[0].type)).result
    return Dot(rows, columns, zeros, "ieee")


def _is_sum(op: Reduce) -> bool:
    add = op.combine.first
    return (
        isinstance(add, AddF)
        and len(op.combine) == 2
        and {*add.operands} == {*op.combine.arguments}
        and op.combine.terminator.operands == add.results
    )


def _factors(product: MulF) -> dict[int, Value] | None:
    """The matrices that a product of three dimensions repeats, each by the axis along which it does."""
    found: dict[int, Value] = {}
    for operand in product.operands:
        repeated = operand.owner
        expanded = repeated.src.owner if isinstance(repeated, Broadcast) else None
        if not isinstance(expanded, ExpandDims) or len(_shape(expanded.src)) != 2:
            return None
        if any(a != b for a, b in zip(_shape(expanded.result), _shape(operand)) if a != 1):
            return None
        found[expanded.axis] = expanded.src
    return found if len(found) == 2 else None


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape


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
