"""Whether a changed instruction ever gives a different result: both are executed side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kbuild.emulator.engine.program import Step, decode, decode_step
from kbuild.emulator.isa.table import form_of
from kbuild.emulator.mutate.mutant import Mutant
from kbuild.emulator.mutate.trial import ADVERSARIES, Subject, TrialCase
from kbuild.emulator.ptx.model import Pair, PtxError, Sink

_MANY = 64


@dataclass
class Comparison:
    """The results of executing an instruction and its change side by side."""

    executions: int = 0
    """By threads."""
    differs: bool = False
    values: set[int] = field(default_factory=set)
    """Some of the results."""

    @property
    def varied(self) -> bool:
        """Whether the instruction had many different results, so that equal ones are not an accident."""
        return len(self.values) >= _MANY // 4


def compared(subject: Subject, mutant: Mutant) -> Comparison | None:
    """The comparison over all cases; None for instructions that do more than compute."""
    if len(mutant.after) != 1 or mutant.after[0].guard != mutant.before.guard:
        return None
    if not form_of(mutant.before).row.operands or {"cc"} & set(mutant.before.modifiers):
        return None
    found = Comparison()
    for case, _ in subject.cases_reaching(mutant.before.line):
        program = decode(subject.program.module, subject.program.entry)
        try:
            other = decode_step(program, mutant.after[0])
        except PtxError:
            return None
        blocks = []
        for block in program.blocks:
            steps = [_both(step, other, found) if _is_it(step, mutant) else step for step in block.steps]
            blocks.append(replace(block, steps=tuple(steps)))
        subject.launch(replace(program, blocks=tuple(blocks)), case, ADVERSARIES[0])
        if found.differs:
            break
    return found


_PAIRS = 24
"""The most pairs of numbers seen by a comparison that are tried."""


def edges(subject: Subject, mutant: Mutant) -> Iterator[tuple[TrialCase, int]]:
    """Launches, with their steps, in which a comparison of integers that a mutant changes sees two equal
    numbers.

    Where one side is the same for all threads, and so perhaps an argument, it is set to the value of the other
    side.
    """
    if mutant.before.opcode != "setp" or form_of(mutant.before).dtype.kind not in "iu":
        return
    seen: dict[tuple[int, int], None] = {}
    for case, _ in subject.cases_reaching(mutant.before.line):
        program = decode(subject.program.module, subject.program.entry)
        blocks = []
        for block in program.blocks:
            steps = [_watched(step, seen) if _is_it(step, mutant) else step for step in block.steps]
            blocks.append(replace(block, steps=tuple(steps)))
        subject.launch(replace(program, blocks=tuple(blocks)), case, ADVERSARIES[0])
    for old, new in list(seen)[:_PAIRS]:
        for case in subject.vary(old, new):
            passed = subject.passed(case)
            if passed is not None:
                yield case, passed[2]


def _watched(step: Step, seen: dict[tuple[int, int], None]) -> Step:
    """A comparison that notes which numbers the uniform side and the other side had."""
    original: Callable[..., Any] = step.function

    def function(*lanes: np.ndarray, where: Any = True) -> Any:
        left, right = (lane if where is True else lane[where] for lane in lanes[:2])
        for uniform, other in ((right, left), (left, right)):
            if len(uniform) and (uniform == uniform[0]).all():
                values = np.unique(other)
                for value in {int(values[0]), int(values[len(values) // 2]), int(values[-1])}:
                    seen[int(uniform[0]), value] = None
        return original(*lanes, where=where)

    return replace(step, function=function)


def _is_it(step: Step, mutant: Mutant) -> bool:
    return step.instruction.line == mutant.before.line and step.instruction == mutant.before


def _results(step: Step) -> int:
    """The number of a step's lanes, at their end, that are results."""
    target = step.instruction.operands[0]
    parts = (target.first, target.second) if isinstance(target, Pair) else (target,)
    return sum(not isinstance(part, Sink) for part in parts)


def _both(step: Step, other: Step, found: Comparison) -> Step:
    """A step that executes the change, notes its results, and then executes the original."""
    count, results = len(step.slots), _results(step)
    original: Callable[..., Any] = step.function

    def function(*lanes: np.ndarray, where: Any = True) -> Any:
        mine, others = lanes[:count], lanes[count:]
        before = [lane.copy() for lane in mine[-results:]]
        other.function(*others, where=where)
        changed = [lane.copy() for lane in others[-results:]]
        for lane, value in zip(mine[-results:], before):
            np.copyto(lane, value)
        result = original(*mine, where=where)
        for lane, value in zip(mine[-results:], changed):
            right, wrong = (lane, value) if where is True else (lane[where], value[where])
            found.executions += len(right)
            found.differs |= right.tobytes() != wrong.tobytes()
            if len(found.values) < _MANY:
                found.values.update(np.unique(right).view(f"u{right.itemsize}").tolist()[:_MANY])
        return result

    return replace(step, function=function, slots=(*step.slots, *other.slots))
