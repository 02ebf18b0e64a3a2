"""Taking values apart: the frame of passes that replace one value by several, through loops and branches.

A pass says of which types the parts of a value are (`part_types`) and what operations on such values become
(`operation`); this class rebuilds the control flow that carries, chooses or yields them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.types import Type
from kbuild.compiler.ops.control import Condition, For, If, While, Yield
from kbuild.compiler.ops.elementwise import Select


class Splitting:
    """Visits operations in order.  What still uses a value that was split must be dead at the end."""

    def __init__(self) -> None:
        self.parts: dict[Value, Sequence[Value]] = {}
        """The parts of block arguments and results of control flow."""

    def part_types(self, value: Value) -> Sequence[Type] | None:
        """The types into which a value is split; None for one that stays whole."""
        raise NotImplementedError

    def operation(self, op: Op) -> None:
        """Rewrite an operation other than control flow."""
        raise NotImplementedError

    def parts_as(self, value: Value, types: Sequence[Type], build: Builder) -> Sequence[Value]:
        """The parts of a value in the given types, which are those of the place that it goes to."""
        return self.parts[value]

    def chosen_parts(self, op: Select) -> Sequence[Value]:
        """The parts of a choice by a scalar: the same, or chosen alike."""
        build, pairs = Builder.before(op), zip(self.parts[op.true_value], self.parts[op.false_value])
        return [a if a is b else build.add(Select(op.condition, a, b)).result for a, b in pairs]

    def whole(self, value: Value) -> Value:
        """A value for a place that is not split."""
        return value

    def visit(self, block: Block) -> None:
        for op in block:
            match op:
                case For():
                    self._for(op)
                case If():
                    self._if(op)
                case While():
                    self._while(op)
                case Yield() | Condition():
                    """Its values are rewritten with the operation that it belongs to."""
                case _:
                    self.operation(op)

    def _for(self, op: For) -> None:
        places = [self.part_types(argument) for argument in op.carried]
        op.init = self._spread(op.init, places, Builder.before(op))
        op.body.arguments = _renumbered([op.induction, *self._split(op.carried, places, op.body)])
        self.visit(op.body)
        self._yield(op.body, places)
        op.results = _renumbered(self._split(op.results, places, op))

    def _if(self, op: If) -> None:
        places = [self.part_types(result) for result in op.results]
        for block in (op.then_body, op.else_body):
            self.visit(block)
            self._yield(block, places)
        op.results = _renumbered(self._split(op.results, places, op))

    def _while(self, op: While) -> None:
        before = [self.part_types(argument) for argument in op.before.arguments]
        after = [self.part_types(argument) for argument in op.after.arguments]
        op.init = self._spread(op.init, before, Builder.before(op))
        op.before.arguments = _renumbered(self._split(op.before.arguments, before, op.before))
        self.visit(op.before)
        test = op.before.terminator
        assert isinstance(test, Condition)
        test.values = self._spread(test.values, after, Builder.before(test))
        op.after.arguments = _renumbered(self._split(op.after.arguments, after, op.after))
        self.visit(op.after)
        self._yield(op.after, before)
        op.results = _renumbered(self._split(op.results, after, op))

    def _yield(self, block: Block, places: Sequence[Sequence[Type] | None]) -> None:
        terminator = block.terminator
        assert isinstance(terminator, Yield)
        terminator.values = self._spread(terminator.values, places, Builder.before(terminator))

    def _spread(
        self, values: Iterable[Value], places: Sequence[Sequence[Type] | None], build: Builder
    ) -> tuple[Value, ...]:
        """Values for places that were split."""
        spread: list[Value] = []
        for value, types in zip(values, places, strict=True):
            spread.extend([self.whole(value)] if types is None else self.parts_as(value, types, build))
        return tuple(spread)

    def _split(
        self, values: Iterable[Value], places: Sequence[Sequence[Type] | None], owner: Op | Block
    ) -> list[Value]:
        """New arguments or results in the place of those that are split."""
        split: list[Value] = []
        for value, types in zip(values, places, strict=True):
            if types is None:
                split.append(value)
            else:
                self.parts[value] = [Value(type_, owner, 0, value.name) for type_ in types]
                split.extend(self.parts[value])
        return split


def _renumbered(values: list[Value]) -> list[Value]:
    for index, value in enumerate(values):
        value.index = index
    return values
