"""Runs of a kernel that may find a mistake: its cases, under schedules and timings that expose missing
order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from math import prod
from typing import Any, TypeVar

import numpy as np

from kbuild.emulator.engine.launch import Argument, Report, run
from kbuild.emulator.engine.program import Program, Step
from kbuild.emulator.isa.table import Effects

Judge = Callable[[list[np.ndarray | None]], str]
"""Describes the error in the outputs of a launch; empty where they are correct."""


@dataclass(frozen=True)
class TrialCase:
    """One launch of a kernel."""

    name: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, ...]
    judge: Judge
    only: tuple[tuple[int, int, int], ...] = ()
    """The programs that run; all where it is empty."""


@dataclass(frozen=True)
class Adversary:
    """An order of warps and a timing of asynchronous operations."""

    schedule: str
    timing: str
    races: bool = False
    """Whether the race detector watches."""

    def __str__(self) -> str:
        return f"{self.schedule}, {self.timing}" + ", races" * self.races


RACES = Adversary("round-robin", "late", True)
ADVERSARIES = (
    Adversary("lockstep", "late"),
    RACES,
    Adversary("reverse", "early"),
    Adversary("random(1)", "random(1)"),
    Adversary("starve(0)", "late"),
    Adversary("random(2)", "late", True),
    Adversary("starve(1)", "random(2)"),
)
"""The runs that the unchanged kernel has to pass."""
TRIALS = {
    "logic": ADVERSARIES[:2],
    "sync": (RACES, *(adversary for adversary in ADVERSARIES if adversary != RACES)),
    "more": ADVERSARIES[:2],
}
"""The runs of a mutant until one finds it, by its group; and on further launches."""


Found = TypeVar("Found")
Vary = Callable[[int, int], Iterator[TrialCase]]
"""Launches in which an integer argument that was the first number is the second."""


class _Remembered(Iterable[Found]):
    """The items of an iterator, for repeated iteration."""

    def __init__(self, given: Iterator[Found]) -> None:
        self._given = given
        self._found: list[Found] = []

    def __iter__(self) -> Iterator[Found]:
        for place in count():
            if place == len(self._found):
                following = next(self._given, None)
                if following is None:
                    return
                self._found.append(following)
            yield self._found[place]


def _no_more() -> Iterator[TrialCase]:
    return iter(())


def _no_others(old: int, new: int) -> Iterator[TrialCase]:
    return iter(())


@dataclass(frozen=True, eq=False)
class Subject:
    """A kernel with the cases that it is tried on."""

    name: str
    program: Program
    block: int | Sequence[int]
    """Warps of a block, or its threads along each axis."""
    shared_bytes: int
    cases: tuple[TrialCase, ...]
    more: Callable[[], Iterator[TrialCase]] = _no_more
    """Further launches for mutants that these do not find; those that the kernel itself does not pass are
    left out."""
    vary: Vary = _no_others
    """Launches at the edge of a comparison."""
    checks: str = "strict"
    """The rules of the race detector: `strict`, or `lenient` for code that omits what hardware does not need."""

    @cached_property
    def reached(self) -> list[tuple[frozenset[int], int]]:
        """For each case the PTX lines that it executes, and its steps in lockstep."""
        found = []
        for case in self.cases:
            lines: set[int] = set()
            report = self.launch(_marking(self.program, lines), case, ADVERSARIES[0])
            found.append((frozenset(lines), report.steps))
        return found

    @cached_property
    def further(self) -> Iterable[tuple[TrialCase, frozenset[int], int]]:
        """The launches of `more` that the kernel passes, with what they reach, and their steps; each is made
        on demand."""
        return _Remembered(found for case in self.more() if (found := self.passed(case)) is not None)

    def passed(self, case: TrialCase) -> tuple[TrialCase, frozenset[int], int] | None:
        """A case with the lines that it reaches and its steps; None if the kernel itself does not pass it."""
        lines: set[int] = set()
        report = self.launch(_marking(self.program, lines), case, ADVERSARIES[0])
        if report.findings or case.judge(report.outputs) or self.problem(self.program, case, RACES):
            return None
        return case, frozenset(lines), report.steps

    def launch(
        self,
        program: Program,
        case: TrialCase,
        adversary: Adversary,
        step_budget: int = 10_000_000,
        observers: Sequence[Any] = (),
    ) -> Report:
        """Run one case, with all checks of the emulator."""
        with np.errstate(all="ignore"):
            return run(
                program,
                None,
                case.grid,
                self.block,
                self.shared_bytes,
                case.arguments,
                schedule=adversary.schedule,
                timing=adversary.timing,
                step_budget=step_budget,
                observers=observers,
                checks=self.checks if adversary.races else "",
                only=case.only,
            )

    def problem(
        self, program: Program, case: TrialCase, adversary: Adversary, step_budget: int = 10_000_000
    ) -> str:
        """The error that a run shows: the kind of a finding, or `wrong output`; empty where it is correct."""
        report = self.launch(program, case, adversary, step_budget)
        if report.findings:
            return report.findings[0].kind
        return "wrong output" if case.judge(report.outputs) else ""

    def cases_reaching(self, line: int) -> list[tuple[TrialCase, int]]:
        """The cases that execute a PTX line, the shortest first, with their steps in lockstep."""
        found = [(case, steps) for case, (lines, steps) in zip(self.cases, self.reached) if line in lines]
        return sorted(found, key=lambda entry: entry[1])

    def steps_allowed(self, steps: int) -> int:
        """The step budget of a mutant whose original takes so many steps in lockstep: enough for every warp
        on its own."""
        warps = self.block if isinstance(self.block, int) else -(-prod(self.block) // 32)
        return 3 * steps * warps + 20_000


def _marking(program: Program, lines: set[int]) -> Program:
    """A program that notes the PTX lines of the blocks that it enters."""

    def marker(entered: Sequence[int]) -> Callable[..., Any]:
        def mark(where: Any = True) -> None:
            if where is True or where.any():
                lines.update(entered)

        return mark

    blocks = []
    for block in program.blocks:
        entered = [step.instruction.line for step in block.steps]
        if block.branch is not None:
            entered.append(block.branch.line)
        if not entered:
            blocks.append(block)
            continue
        instruction = block.steps[0].instruction if block.steps else block.branch
        assert instruction is not None
        step = Step(marker(entered), (), False, None, False, instruction, Effects())
        blocks.append(replace(block, steps=(step, *block.steps)))
    return replace(program, blocks=tuple(blocks))
