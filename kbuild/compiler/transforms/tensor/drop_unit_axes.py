"""Has loops load the matrices that they multiply as matrices, where the blocks of tensors have leading axes
one thick: TMA copies matrices into the tiles that dots read.

    Before:  %x: tensor<1x64x64xf16> = tt.load %p, mask=%m, desc=%d, indices=[%b, %i, %j]
             %y: tensor<64x64xf16> = tt.reshape %x
    After:   %q: tensor<64x64x!tt.ptr<f16>> = tt.reshape %p
             %n: tensor<64x64xi1> = tt.reshape %m
             %y: tensor<64x64xf16> = tt.load %q, mask=%n, desc=%d, indices=[%b, %i, %j], axes=[1, 2]
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.types import TensorType, shape_of
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Load, Reshape
from kbuild.targets import Target


@tensor_pass
def drop_unit_axes(module: Module, target: Target) -> None:
    """Load blocks of descriptors in the shape of matrices, if all their uses are matrices."""
    for func in module.functions.values():
        for op in list(func.body.walk()):
            if isinstance(op, Load) and isinstance(op.parent_op, For) and _is_matrix(op):
                _reshape(op)


def _is_matrix(load: Load) -> bool:
    """Whether all users reshape a block, whose outer axes are one thick, to a matrix."""
    type_ = load.result.type
    if load.desc is None or load.axes or not isinstance(type_, TensorType) or type_.rank < 3:
        return False
    *outer, rows, columns = type_.shape
    return all(size == 1 for size in outer) and all(
        isinstance(user, Reshape) and shape_of(user.type) == (rows, columns) for user in load.result.users
    )


def _reshape(load: Load) -> None:
    type_, builder = load.result.type, Builder.before(load)
    assert isinstance(type_, TensorType)

    def as_matrix(value: Value | None) -> Value | None:
        if value is None or not isinstance(value.type, TensorType):
            return value
        return builder.add(Reshape(value, value.type.with_shape(type_.shape[-2:], None))).result

    copy = load.clone()
    for value in dict.fromkeys((load.ptr, load.mask, load.other)):
        matrix = as_matrix(value)
        if value is not None and matrix is not None:
            copy.replace_operand(value, matrix)
    assert isinstance(copy, Load)
    copy.axes = (type_.rank - 2, type_.rank - 1)
    copy.result.type = type_.with_shape(type_.shape[-2:], None)
    builder.add(copy)
    for user in list(load.result.users):
        user.results[0].replace_by(copy.result)
        user.erase()
    load.erase()
