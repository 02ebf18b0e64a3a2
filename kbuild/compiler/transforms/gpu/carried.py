"""Values that structured control flow hands on: which of them are one and the same to the code inside and outside.

    %r = scf.for …, init=[%a] body(%i, %x) { … scf.yield %y }      targets: %x, %r      slots: the uses of %a and %y
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ops.control import For, If, While


@dataclass(frozen=True, eq=False)
class CarriedGroup:
    """Values of one type that an operation with regions hands on."""

    targets: tuple[Value, ...]
    """Block arguments and results that take the value."""
    slots: tuple[tuple[Op, int], ...]
    """Operands (operation and place) that give it."""

    def sources(self) -> list[Value]:
        """The values that are given now."""
        return [op.operands[index] for op, index in self.slots]


def carried_groups(op: Op) -> Iterator[CarriedGroup]:
    """The groups of a loop or branch; none for other operations."""
    if isinstance(op, For):
        end = op.body.terminator
        for index, (argument, result) in enumerate(zip(op.carried, op.results)):
            yield CarriedGroup((argument, result), ((op, index + 3), (end, index)))
    elif isinstance(op, If):
        for index, result in enumerate(op.results):
            yield CarriedGroup((result,), ((op.then_body.terminator, index), (op.else_body.terminator, index)))
    elif isinstance(op, While):
        for index, argument in enumerate(op.before.arguments):
            yield CarriedGroup((argument,), ((op, index), (op.after.terminator, index)))
        for index, (argument, result) in enumerate(zip(op.after.arguments, op.results)):
            yield CarriedGroup((argument, result), ((op.before.terminator, index + 1),))
