"""Which buffer of an allocation a value numbers.

A buffer number is a constant, or a counter that a loop carries around from a constant start: `next = i + 1;
next < n ? next : 0`. A counter's value in iteration t is (offset + t) mod n, so two of one loop differ
whenever their offsets do, and going around the back edge lowers all offsets by one.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AddI, CmpI, Constant, Select


class BufferSlot(NamedTuple):
    """The number of a buffer: `offset`, or (start + offset + iteration) mod `modulus` in a loop."""

    offset: int
    loop: For | None = None
    modulus: int = 0
    start: Value | None = None
    """The counter's start where that is not a constant, as when an outer loop carries it; None for 0."""

    def may_equal(self, other: BufferSlot) -> bool:
        """Whether two numbers may be the same, in one iteration."""
        return self.offset == other.offset or self[1:] != other[1:]

    def around(self, loop: For) -> BufferSlot:
        """The same buffer as the next iteration of a loop numbers it."""
        return self if self.loop is not loop else self._replace(offset=(self.offset - 1) % self.modulus)


class SlotNumbers:
    """The slots of the values that number buffers, as far as they are known."""

    def __init__(self) -> None:
        self.known: dict[Value, BufferSlot | None] = {}

    def of(self, value: Value) -> BufferSlot | None:
        """The slot that a value numbers; None when it is neither constant nor a counter."""
        if value not in self.known:
            self.known[value] = self._constant(value) or self._counter(value) or self._neighbour(value)
        return self.known[value]

    def _constant(self, value: Value) -> BufferSlot | None:
        number = _constant(value)
        return None if number is None else BufferSlot(number)

    def _counter(self, value: Value) -> BufferSlot | None:
        """A value that a loop carries, and that yields its own successor."""
        loop = value.owner.parent if isinstance(value.owner, Block) else None
        if not isinstance(loop, For) or value.index == 0:
            return None
        init = loop.init[value.index - 1]
        start, step = _constant(init), _match_successor(loop.yielded[value.index - 1])
        if step is None or step[0] is not value or not 0 <= (start or 0) < step[1]:
            return None
        return BufferSlot(start, loop, step[1]) if start is not None else BufferSlot(0, loop, step[1], init)

    def _neighbour(self, value: Value) -> BufferSlot | None:
        """The successor or predecessor of a counter."""
        for step, distance in ((_match_successor(value), 1), (_match_predecessor(value), -1)):
            slot = self.of(step[0]) if step is not None else None
            if step is not None and slot is not None and slot.modulus == step[1]:
                return slot._replace(offset=(slot.offset + distance) % slot.modulus)
        return None


def _constant(value: Value) -> int | None:
    return int(value.op.value) if isinstance(value.op, Constant) else None


def _match_successor(value: Value) -> tuple[Value, int] | None:
    """(x, n) when `value` is x + 1, or 0 if that is n."""
    op = value.op
    if not isinstance(op, Select) or not isinstance(op.condition.op, CmpI):
        return None
    test = op.condition.op
    if test.predicate in ("slt", "ult", "ne"):
        following, zero = op.true_value, op.false_value
    elif test.predicate in ("eq", "sge", "uge"):
        following, zero = op.false_value, op.true_value
    else:
        return None
    modulus = _constant(test.rhs)
    increment = following.op
    if (
        modulus is None
        or test.lhs is not following
        or _constant(zero) != 0
        or not isinstance(increment, AddI)
    ):
        return None
    if _constant(increment.rhs) == 1:
        return increment.lhs, modulus
    return (increment.rhs, modulus) if _constant(increment.lhs) == 1 else None


def _match_predecessor(value: Value) -> tuple[Value, int] | None:
    """(x, n) when `value` is n - 1 if x is 0, and x - 1 otherwise."""
    op = value.op
    if (
        not isinstance(op, Select)
        or not isinstance(op.condition.op, CmpI)
        or op.condition.op.predicate != "eq"
    ):
        return None
    test, last, decrement = op.condition.op, _constant(op.true_value), op.false_value.op
    if last is None or _constant(test.rhs) != 0 or not isinstance(decrement, AddI):
        return None
    return (test.lhs, last + 1) if decrement.lhs is test.lhs and _constant(decrement.rhs) == -1 else None
