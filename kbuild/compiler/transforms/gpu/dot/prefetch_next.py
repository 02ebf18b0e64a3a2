"""Loads the fragments of a loop's first dot in the previous iteration.

Before:                                           After:
    scf.for … (%slot) {                               ttg.async_wait {num = 1},  %first = ttg.local_load (buffer %slot)
      ttg.async_wait {num = 1}                        scf.for … (%slot, %a0 = %first) {
      issue copies                                      issue copies
      %a0 = ttg.local_load (buffer %slot)               %a1 = ttg.local_load (buffer %slot)
      %a1 = ttg.local_load (buffer %slot)               %d0 = tt.dot %a0, …
      %d0 = tt.dot %a0, …                               ttg.async_wait {num = 1}
      %d1 = tt.dot %a1, …                               %next = ttg.local_load (buffer %slot + 1)
    }                                                   %d1 = tt.dot %a1, …
                                                        scf.yield …, %next
                                                      }

The wait comes after the iteration's own copies now, and is for the buffer after the present one, so its
number is the same.  All loads from the present buffer come before the wait, and the barrier that goes with it
lets the next iteration write that buffer: it stays the only one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.slots import SlotNumbers
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import AsyncWait, LocalLoad, MemDescIndex, MemDescSubslice, MemDescTrans
from kbuild.compiler.ops.tensor import Dot, Reshape, Split, Trans
from kbuild.compiler.transforms._support.carried import add_carried, yield_more


def carry_first_step(loop: For) -> None:
    """Change a loop as above, if it waits once, with copies of a later iteration allowed to be on their way."""
    waits = [op for op in loop.body.walk() if isinstance(op, AsyncWait)]
    if len(waits) != 1 or waits[0].parent is not loop.body or waits[0].num < 1:
        return
    loads = _ring_loads(loop)
    slots = {_index(load).index for load in loads}
    dots = [op for op in loop.body if isinstance(op, Dot) and any(load in loads for load in _sources(op))]
    if len(slots) != 1 or not dots:
        return
    slot = slots.pop()
    carried = [load for load in _sources(dots[0]) if load in loads and _is_carried(load, dots[0])]
    following = _following(loop, slot)
    if carried and following is not None and _is_ordered(loop, waits[0], loads, dots, following):
        _rotate(loop, waits[0], carried, dots[-1], (slot, following))


def _sources(dot: Dot) -> list[LocalLoad]:
    """The loads that the operands of a dot come from, as they are or cut into parts."""
    found = []
    for operand in (dot.a, dot.b):
        while isinstance(operand.op, Reshape | Trans | Split):
            operand = operand.op.src
        if isinstance(operand.op, LocalLoad):
            found.append(operand.op)
    return found


def _is_carried(load: LocalLoad, dot: Dot) -> bool:
    """Whether a load is for one dot alone, or cut into parts for several."""
    users = list(load.result.users)
    return users == [dot] or all(isinstance(user, Reshape) for user in users)


def _ring_loads(loop: For) -> list[LocalLoad]:
    """The loads of a loop from buffers that a counter of the loop chooses."""
    numbers = SlotNumbers()
    found = []
    for op in loop.body.walk():
        if isinstance(op, LocalLoad):
            root = _chain(op)[-1]
            number = numbers.of(root.index) if isinstance(root, MemDescIndex) else None
            if number is not None and number.loop is loop:
                found.append(op)
    return found


def _chain(load: LocalLoad) -> list[Op]:
    """A load and the views that it reads through, the choice of the buffer last."""
    chain: list[Op] = [load]
    op = load.src.op
    while isinstance(op, MemDescSubslice | MemDescTrans):
        chain.append(op)
        op = op.src.op
    return [*chain, op] if op is not None else chain


def _index(load: LocalLoad) -> MemDescIndex:
    root = _chain(load)[-1]
    assert isinstance(root, MemDescIndex)
    return root


def _following(loop: For, slot: Value) -> Value | None:
    """The number of the next iteration's buffer."""
    return (
        loop.yielded[slot.index - 1] if slot.block is loop.body and slot.op is None and slot.index else None
    )


def _is_ordered(
    loop: For, wait: AsyncWait, loads: Sequence[Op], dots: Sequence[Dot], following: Value
) -> bool:
    """Whether wait, loads and the number of the next buffer come in this order before the last dot."""
    order = {op: number for number, op in enumerate(loop.body)}
    last = order[dots[-1]]
    if any(load not in order or not order[wait] < order[load] < last for load in loads):
        return False
    return following.op is not None and following.op in order and order[following.op] < last


def _rotate(
    loop: For, wait: AsyncWait, carried: Sequence[LocalLoad], last: Dot, slots: tuple[Value, Value]
) -> None:
    slot, following = slots
    before = Builder.before(loop)
    before.add(AsyncWait(wait.num))
    first = [_repeat(load, before, slot, loop.init[slot.index - 1]) for load in carried]
    arguments = add_carried(loop, first, [load.result.name for load in carried])
    wait.move_before(last)
    builder = Builder.before(last)
    yield_more(loop, [_repeat(load, builder, slot, following) for load in carried])
    for load, argument in zip(carried, arguments):
        load.replace_by(argument)


def _repeat(load: LocalLoad, builder: Builder, slot: Value, other: Value) -> Value:
    """The same load from another buffer."""
    mapping = {slot: other}
    for op in reversed(_chain(load)):
        builder.add(op.clone(mapping))
    return mapping[load.result]
