"""Values that structured control flow passes on: which of them are the same value to the code inside and
outside, and which are used.

    %r = scf.for …, init=[%a] body(%i, %x) { … scf.yield %y }      targets: %x, %r      slots: the uses of %a and %y
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.control import For, If, While, Yield


@dataclass(frozen=True, eq=False)
class CarriedGroup:
    """Values of one type that an operation with regions passes on."""

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
            yield CarriedGroup(
                (result,), ((op.then_body.terminator, index), (op.else_body.terminator, index))
            )
    elif isinstance(op, While):
        for index, argument in enumerate(op.before.arguments):
            yield CarriedGroup((argument,), ((op, index), (op.after.terminator, index)))
        for index, (argument, result) in enumerate(zip(op.after.arguments, op.results)):
            yield CarriedGroup((argument, result), ((op.before.terminator, index + 1),))


def group_of(value: Value) -> CarriedGroup | None:
    """The group of a block argument or result that control flow passes on; None for other values."""
    owner = value.op or value.block.parent
    groups = carried_groups(owner) if owner is not None else ()
    return next((group for group in groups if value in group.targets), None)


def passed_on(value: Value, user: Op) -> list[Value]:
    """The block arguments and results to which control flow passes a value that an operation uses."""
    uses = {(user, index) for index, operand in enumerate(user.operands) if operand is value}
    around = [user.parent_op] if user.has(Trait.TERMINATOR) and user.parent_op is not None else []
    groups = (group for op in (user, *around) for group in carried_groups(op))
    return [target for group in groups if not uses.isdisjoint(group.slots) for target in group.targets]


def live_values(func: Func) -> set[Value]:
    """The values of a function on which an effect, its control flow or what it returns depends."""
    groups: dict[Value, CarriedGroup] = {}
    work: list[Value] = []
    for op in func.body.walk():
        carried = [*carried_groups(op)]
        groups.update((target, group) for group in carried for target in group.targets)
        work.extend(_needed(op))
    live: set[Value] = set()
    while work:
        value = work.pop()
        if value in live:
            continue
        live.add(value)
        if value in groups:
            work.extend((*groups[value].targets, *groups[value].sources()))
        elif value.op is not None:
            work.extend(value.op.operands)
    return live


def _needed(op: Op) -> Sequence[Value]:
    """The operands that an operation needs whatever uses its results."""
    if isinstance(op, For):
        return op.lower, op.upper, op.step
    if isinstance(op, If):
        return (op.condition,)
    if isinstance(op, Yield) and isinstance(op.parent_op, For | If):
        return ()
    may_go = op.has(Trait.PURE) or op.has(Trait.READS)
    return op.operands if op.has(Trait.WRITES) or not may_go else ()
