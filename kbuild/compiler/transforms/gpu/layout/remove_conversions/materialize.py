"""Writes the chosen layouts into the types, and conversions, or second copies of cheap operations, where they
differ."""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
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
        if not self.plan(value, layout, 0)[1]:
            return _convert(value, layout)
        loop = _carrying(value)
        return super().make(value, layout) if loop is None else self.carry(loop, value, layout)

    def carry(self, loop: For, value: Value, layout: LinearLayout) -> Value:
        """A value that a loop carries, carried in another layout, too."""
        number, place = value.index - 1, len(loop.yielded)
        (copy,) = add_carried(loop, [self.get(loop.init[number], layout)], [value.name])
        yield_more(loop, [copy])  # Further ones may follow before the next value is there.
        self.made[value, layout] = copy
        end = loop.body.terminator
        end.set_operand(place, self.get(loop.yielded[number], layout))
        return copy

    def plan(self, value: Value, layout: LinearLayout, depth: int) -> tuple[float, bool]:
        """The cost of `value` in a layout, and whether to repeat the operation that made it."""
        key = value, layout
        if held_layout(value) == layout or key in self.made:
            return 0.0, False
        if key not in self.plans:
            weight = loop_weight(value.block)
            convert = weight * conversion_cost(held_layout(value), layout, bit_width(value.type)), False
            loop = _carrying(value)
            if loop is not None:
                again = self.carried_cost(loop, value, layout, depth)
            else:
                again = self.repeated_cost(value.op, layout, weight, depth) if value.op is not None else None
            self.plans[key] = min(convert, (again, True)) if again is not None else convert
        return self.plans[key]

    def carried_cost(self, loop: For, value: Value, layout: LinearLayout, depth: int) -> float | None:
        """The cost of carrying a value in another layout, too: that of what it starts from and becomes, and its
        registers."""
        if depth > _DEEPEST:
            return None
        before = dict(self.plans)
        self.plans[value, layout] = 0.0, True  # As far as the next value is computed of this one.
        sources = loop.init[value.index - 1], loop.yielded[value.index - 1]
        cost = sum(self.plan(source, layout, depth + 1)[0] for source in sources)
        self.plans = before
        words = max(1.0, layout.size("register") * bit_width(value.type) / 32)
        return cost + loop_weight(loop.body) * words

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


def _carrying(value: Value) -> For | None:
    """The loop that carries a value from one iteration to the next."""
    loop = value.block.parent if value.op is None and value.block is not None else None
    return loop if isinstance(loop, For) and value.index > 0 else None


def _convert(value: Value, layout: LinearLayout) -> Value:
    converted = ConvertLayout(value, tensor_type(value).with_layout(layout))
    return Builder.after_value(value).add(converted, value.name).result
