"""Computes before elements are repeated: an elementwise operation on splats works on the scalars, one on
broadcasts of one shape works on the small tensors.

    Before:  %0: tensor<64xi32> = tt.splat %a
             %1: tensor<64xi32> = tt.splat %b
             %2: tensor<64xi32> = arith.addi %0, %1
    After:   %0: i32 = arith.addi %a, %b
             %2: tensor<64xi32> = tt.splat %0
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module, Op, Value, registered_ops
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import TensorType, Type
from kbuild.compiler.ops.elementwise import Constant, Elementwise
from kbuild.compiler.ops.tensor import Broadcast, Splat
from kbuild.targets import Target

reordering = Rewrites()


@tensor_pass
def reorder_broadcast(module: Module, target: Target) -> None:
    for function in module.functions.values():
        reordering.apply(function)


def rebuild(op: Elementwise, operands: list[Value], result: Type) -> Elementwise:
    """The same operation on operands of another shape."""
    copy = op.clone()
    for index, operand in enumerate(operands):
        copy.set_operand(index, operand)
    copy.results[0].type = result
    return copy


_ELEMENTWISE = [cls for cls in registered_ops().values() if issubclass(cls, Elementwise)]


@reordering.on(*_ELEMENTWISE)
def splats(op: Elementwise) -> Op | None:
    """f(splat(a), splat(b)) = splat(f(a, b)); constants are splats, too"""
    type_ = op.results[0].type
    if not isinstance(type_, TensorType):
        return None
    scalars: list[Value] = []
    for operand in op.operands:
        inner = operand.owner
        if isinstance(inner, Splat):
            scalars.append(inner.src)
        elif isinstance(inner, Constant):
            scalars.append(Constant(inner.value, _element(operand)).result)
        else:
            return None
    return Splat(rebuild(op, scalars, type_.element).result, type_)


@reordering.on(*_ELEMENTWISE)
def broadcasts(op: Elementwise) -> Op | None:
    """f(broadcast(x), broadcast(y)) = broadcast(f(x, y)) for x and y of one shape; splats take any shape"""
    type_ = op.results[0].type
    small = next(
        (operand.owner.src.type for operand in op.operands if isinstance(operand.owner, Broadcast)), None
    )
    if small is None or not isinstance(type_, TensorType):
        return None
    assert isinstance(small, TensorType)
    inners = [operand.owner for operand in op.operands]
    shapes = [TensorType(small.shape, _element(operand), small.layout) for operand in op.operands]
    if not all(
        isinstance(inner, Splat | Constant) or (isinstance(inner, Broadcast) and inner.src.type == shape)
        for inner, shape in zip(inners, shapes)
    ):
        return None
    operands: list[Value] = []
    for inner, shape in zip(inners, shapes):
        match inner:
            case Broadcast():
                operands.append(inner.src)
            case Splat():
                operands.append(Splat(inner.src, shape).result)
            case Constant():
                operands.append(Constant(inner.value, shape).result)
    result = TensorType(small.shape, type_.element, small.layout)
    return Broadcast(rebuild(op, operands, result).result, type_)


def _element(value: Value) -> Type:
    assert isinstance(value.type, TensorType)
    return value.type.element
