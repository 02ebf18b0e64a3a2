"""Instructions of a block that do the same to different registers, done as one.

Unrolled code repeats itself: sixty conversions, sixteen MMAs, each a call of numpy for 32 lanes.  Here
those that depend on none in between become one step on blocks of registers.  An instruction may move
forwards, to join others like it, past those that touch none of its registers and neither wait nor start
an operation; nothing moves backwards.  Instructions that may fault keep their order.

    cvt %h1, %f1        cvt {%h1, %h2, %h3}, {%f1, %f2, %f3}
    st  [%p], %h1       st  [%p], %h1
    cvt %h2, %f2        add %q, %h2, %h3
    cvt %h3, %f3
    add %q, %h2, %h3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbuild.emulator.engine.program import Program, Step
from kbuild.emulator.engine.registers import BlockSlot, RegisterSlot

_FEWEST = 3
"""Instructions that are worth a step of their own."""
_PLAIN = ("mov", "cvta", "ld", "st", "ldmatrix", "stmatrix", "movmatrix", "mma", "shfl", "vote", "elect")
"""Opcodes, beside those that only compute, that have no later effects, and touch no other registers
than they name."""
_FAULTLESS = ("mov", "cvta")
"""Those of them that cannot fault."""
_Row = tuple[int, int]


def fused(program: Program, number: int) -> tuple[Step, ...]:
    """The steps of a block, like ones together."""
    steps = program.blocks[number].steps
    if len(steps) < _FEWEST:
        return steps
    units = _Units(program)
    for step in steps:
        units.add(step)
    found: list[Step] = []
    for unit in units.units:
        found += [_together(program, unit)] if len(unit) >= _FEWEST else unit
    return tuple(found)


class _Units:
    """Steps in the order in which they will run, those of one unit as one."""

    def __init__(self, program: Program) -> None:
        self.slots = program.rows.slots
        self.units: list[list[Step]] = []
        self._written: dict[_Row, int] = {}
        """The last unit that writes each row, and the last one that reads it."""
        self._read: dict[_Row, int] = {}
        self._first = 0
        """The first unit that others may still join."""
        self._last_doubtful = -1
        """The last unit that may fault."""
        self._open: dict[tuple, int] = {}
        """The last unit of each kind."""

    def add(self, step: Step) -> None:
        """Put a step where it can run first."""
        pure = step.is_pure
        if not pure and step.instruction.opcode not in _PLAIN:
            self.units.append([step])
            self._first = len(self.units)
            return
        kind = self._kind(step)
        reads, writes = self._rows(step, 0 if kind is None else step.several.results)  # type: ignore[union-attr]
        doubtful = not pure and step.instruction.opcode not in _FAULTLESS
        unit = None if kind is None else self._open.get(kind)
        if (
            unit is None
            or not self._may_join(unit, reads, writes)
            or (doubtful and unit < self._last_doubtful)
        ):
            unit = len(self.units)
            self.units.append([])
            if kind is not None:
                self._open[kind] = unit
        self.units[unit].append(step)
        for row in reads:
            self._read[row] = max(self._read.get(row, -1), unit)
        for row in writes:
            self._written[row] = unit
        if doubtful:
            self._last_doubtful = unit

    def _may_join(self, unit: int, reads: Iterable[_Row], writes: Iterable[_Row]) -> bool:
        """Whether a step can run with a unit: what it depends on runs before, what must not see its results
        not after."""
        if unit < self._first:
            return False
        written, read = self._written, self._read
        return all(written.get(row, -1) < unit for row in reads) and all(
            written.get(row, -1) < unit and read.get(row, -1) <= unit for row in writes
        )

    def _kind(self, step: Step) -> tuple | None:
        """The key shared by steps that can run together; None for a step that cannot run with another."""
        several = step.several
        if several is None or several.of is not step.function or step.guard is not None:
            return None
        kinds: list[tuple] = []
        for number in step.slots:
            slot = self.slots[number]
            if isinstance(slot, BlockSlot):
                kinds.append((slot.width, len(slot.rows)))
            elif slot.parts == 1 and slot.width in (0, slot.dtype.itemsize):
                kinds.append((slot.width, slot.dtype.char))
            else:
                return None
        return step.instruction.opcode, step.instruction.modifiers, several.key, tuple(kinds)

    def _rows(self, step: Step, results: int) -> tuple[list[_Row], list[_Row]]:
        """The rows that a step reads and those that it writes; where its results are not known (0), all are
        both."""
        places = [self._rows_of(number) for number in step.slots]
        guard = [] if step.guard is None else self._rows_of(step.guard)
        count = len(places) - results if results else 0
        reads = [row for rows in (places[:count] if results else places) for row in rows]
        return reads + guard, [row for rows in places[count:] for row in rows]

    def _rows_of(self, number: int) -> list[_Row]:
        slot = self.slots[number]
        return [(slot.width, row) for row in (slot.rows if isinstance(slot, BlockSlot) else (slot.row,))]


def _together(program: Program, members: Sequence[Step]) -> Step:
    """One step for several."""
    first = members[0]
    assert first.several is not None
    slots = program.rows.slots
    numbers = tuple(
        program.rows.number(_side_by_side([slots[number] for number in numbers]))
        for numbers in zip(*(member.slots for member in members))
    )
    return Step(
        first.several.function,
        numbers,
        False,
        None,
        False,
        first.instruction,
        first.effects,
        members=tuple(members),
    )


def _side_by_side(slots: Sequence[RegisterSlot | BlockSlot]) -> BlockSlot:
    """One slot for several of a kind; of blocks, all first registers come first."""
    first = slots[0]
    if isinstance(first, BlockSlot):
        blocks = [slot.rows for slot in slots if isinstance(slot, BlockSlot)]
        return BlockSlot(first.width, tuple(row for rows in zip(*blocks) for row in rows), first.dtype)
    return BlockSlot(
        first.width, tuple(slot.row for slot in slots if isinstance(slot, RegisterSlot)), first.dtype
    )
