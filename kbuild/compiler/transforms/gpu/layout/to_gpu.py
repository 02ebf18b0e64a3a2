"""Gives every tensor a layout, the same for all of one shape, and converts where an operation has a rule of
its own.

This starts ttgir.  The layouts are only defaults; `coalesce` and `accelerate_matmul` choose better ones
where it counts, and `remove_conversions` spreads those.

Before:
    %1: tensor<64xi32> = tt.make_range {start = 0, end = 64}
    %2: tensor<64x1xi32> = tt.expand_dims %1 {axis = 1}

After:
    %1: tensor<64xi32, #blocked> = tt.make_range {start = 0, end = 64}
    %2: tensor<64x1xi32, #linear> = tt.expand_dims %1 {axis = 1}
    %3: tensor<64x1xi32, #blocked1> = ttg.convert_layout %2
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.layout import LinearLayout, default_blocked, fma_operand
from kbuild.compiler.ops.tensor import Broadcast, Cat, Dot, ExpandDims, Join, Reduce, Reshape, Split, Trans
from kbuild.compiler.transforms._support.layout_flow import (
    converted,
    held_layout,
    operand_layout,
    result_layout,
    tensor_type,
)

_DERIVED = (ExpandDims, Trans, Reshape, Join, Split, Cat, Reduce)
"""The layout of their results follows from that of their operands."""


@gpu_pass
def to_gpu(module: Module, target: object) -> None:
    """Attach the default layout to every tensor type."""
    for func in module.functions.values():
        _Typing(func).block(func.body)


class _Typing:
    def __init__(self, func: Func) -> None:
        self.num_warps: int = func.attrs["num_warps"]
        self.defaults: dict[tuple[int, ...], LinearLayout] = {}

    def default(self, shape: tuple[int, ...]) -> LinearLayout:
        if shape not in self.defaults:
            self.defaults[shape] = default_blocked(shape, self.num_warps)
        return self.defaults[shape]

    def attach(self, value: Value) -> None:
        if isinstance(value.type, TensorType) and value.type.layout is None:
            value.type = value.type.with_layout(self.default(value.type.shape))

    def block(self, block: Block) -> None:
        for argument in block.arguments:
            self.attach(argument)
        for op in block:
            for region in op.regions:
                self.block(region)
            if isinstance(op, _DERIVED):
                self.derive(op)
                continue
            for result in op.results:
                self.attach(result)
            self.fit_operands(op)

    def fit_operands(self, op: Op) -> None:
        """Convert the operands of an operation that needs them in another layout than the default."""
        if isinstance(op, Broadcast):
            self.fit(op, 0, operand_layout(op, 0, self.default(tensor_type(op.result).shape)))
        elif isinstance(op, Dot):
            result = self.default(tensor_type(op.result).shape)
            self.fit(op, 0, fma_operand(result, 0, tensor_type(op.a).shape[-1]))
            self.fit(op, 1, fma_operand(result, 1, tensor_type(op.a).shape[-1]))

    def fit(self, op: Op, index: int, layout: LinearLayout | None) -> None:
        assert layout is not None
        op.set_operand(index, converted(Builder.before(op), op.operands[index], layout))

    def derive(self, op: Op) -> None:
        """Give the results the layout that follows from the operands, and their users the default."""
        if isinstance(op, Split):
            self.fit(op, 0, operand_layout(op, 0, self.default(tensor_type(op.results[0]).shape)))
        layout = result_layout(op, 0, held_layout(op.operands[0]))
        builder = Builder.after(op)
        for result in op.results:
            if not isinstance(result.type, TensorType):
                continue
            result.type = result.type.with_layout(layout)
            users = list(result.users)
            default = converted(builder, result, self.default(result.type.shape))
            for user in users if default is not result else ():
                user.replace_operand(result, default)
