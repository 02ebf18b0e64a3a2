"""Writes the chosen layouts into the types, and conversions, or second copies of cheap operations, where they
differ."""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.transforms._support.layout_flow import (
    Relaid,
    held_layout,
    operand_layout,
    tensor_operands,
    tensor_type,
)
from kbuild.compiler.transforms.gpu.layout.remove_conversions.assign import Assignment
from kbuild.compiler.transforms.gpu.layout.remove_conversions.cost import (
    conversion_cost,
    loop_weight,
    repeat_cost,
)

_DEEPEST = 64


def materialize(func: Func, assignment: Assignment) -> None:
    """Set the type of every value, and give every operation its operands in the layouts that it needs."""
    for value, layout in assignment.layouts.items():
        value.type = tensor_type(value).with_layout(layout)
    copies = Copies()
    for op in list(func.body.walk()):
        for index, operand in list(tensor_operands(op)):
            wanted = assignment.required(op, index)
            if wanted is not None:
                op.set_operand(index, copies.get(operand, wanted))


class Copies(Relaid):
    """Values in other layouts, by whichever way is cheaper."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[tuple[Value, LinearLayout], tuple[float, bool]] = {}

    def make(self, value: Value, layout: LinearLayout) -> Value:
        return super().make(value, layout) if self.plan(value, layout, 0)[1] else _convert(value, layout)

    def plan(self, value: Value, layout: LinearLayout, depth: int) -> tuple[float, bool]:
        """The cost of `value` in a layout, and whether to repeat the operation that made it."""
        key = value, layout
        if held_layout(value) == layout or key in self.made:
            return 0.0, False
        if key not in self.plans:
            weight = loop_weight(value.block)
            convert = weight * conversion_cost(held_layout(value), layout, bit_width(value.type)), False
            again = self.repeated_cost(value.op, layout, weight, depth) if value.op is not None else None
            self.plans[key] = min(convert, (again, True)) if again is not None else convert
        return self.plans[key]

    def repeated_cost(self, op: Op, layout: LinearLayout, weight: float, depth: int) -> float | None:
        cost = repeat_cost(op, layout)
        if cost is None or depth > _DEEPEST:
            return None
        if sum(op.results[0].users.values()) == 1:
            # An operation that nothing else uses moves to the other layout instead of being made twice.
            cost = max(0.0, cost - (repeat_cost(op, held_layout(op.results[0])) or 0.0))
        cost *= weight
        for index, operand in tensor_operands(op):
            need = operand_layout(op, index, layout)
            if need is None:
                return None
            cost += self.plan(operand, need, depth + 1)[0]
        return cost


def _convert(value: Value, layout: LinearLayout) -> Value:
    converted = ConvertLayout(value, tensor_type(value).with_layout(layout))
    return Builder.after_value(value).add(converted, value.name).result
