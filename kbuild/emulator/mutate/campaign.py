"""Runs the mutants of kernels, and reports which of them nothing found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.program import Program
from kbuild.emulator.mutate.equivalence import Mark, equivalence, fits, stale
from kbuild.emulator.mutate.infection import edges
from kbuild.emulator.mutate.logic import LOGIC
from kbuild.emulator.mutate.mutant import Mutant, Operator, mutants, mutated, spread
from kbuild.emulator.mutate.synchronisation import SYNCHRONISATION
from kbuild.emulator.mutate.trial import ADVERSARIES, TRIALS, Adversary, Subject, TrialCase
from kbuild.errors import shown_path

OPERATORS: tuple[Operator, ...] = (*SYNCHRONISATION, *LOGIC)
CAUGHT, EQUIVALENT, SURVIVED = "caught", "equivalent", "survived"


@dataclass(frozen=True)
class MutantResult:
    """The outcome of a mutant."""

    subject: str
    mutant: Mutant
    state: str
    """`caught`, `equivalent` or `survived`."""
    reason: str = ""
    """What caught it and how, why it is equivalent, or that no case reaches it."""
    place: str = ""
    """The kernel source line, where the PTX has it."""

    def __str__(self) -> str:
        place = f" (from {self.place})" if self.place else ""
        return f"{self.subject}: {self.mutant}{place}" + (f": {self.reason}" if self.reason else "")


def clean(subject: Subject) -> int:
    """Run the unchanged kernel on all cases under all adversaries; returns the number of runs.

    Raises EmulationError for a run that is wrong: mutants of such a kernel show nothing.
    """
    for case in subject.cases:
        for adversary in ADVERSARIES:
            problem = subject.problem(subject.program, case, adversary)
            if problem:
                raise EmulationError(f"{subject.name} itself fails on {case.name} ({adversary}): {problem}")
    return len(subject.cases) * len(ADVERSARIES)


def campaign(
    subject: Subject,
    limit: int | None = None,
    operators: Sequence[Operator] = OPERATORS,
    marks: Iterable[Mark] = (),
) -> Iterator[MutantResult]:
    """Yields the outcomes of the mutants of a kernel, at most `limit` of each kind."""
    marks = tuple(marks)
    for mutant in spread(mutants(subject.program, tuple(operators)), limit):
        loc = subject.program.module.place(mutant.before)
        place = "" if loc is None else f"{shown_path(loc.file)}:{loc.line}"
        state, reason = _outcome(subject, mutant, place, marks)
        if state:
            yield MutantResult(subject.name, mutant, state, reason, place)


def wrong_marks(marks: Iterable[Mark], results: Iterable[MutantResult]) -> list[str]:
    """The errors of marks, given all results."""
    return list(stale(marks, [(r.subject, r.mutant, r.place, r.state == CAUGHT) for r in results]))


def _outcome(subject: Subject, mutant: Mutant, place: str, marks: tuple[Mark, ...]) -> tuple[str, str]:
    """State and reason of a mutant; two empty strings for one that is not valid PTX."""
    program = mutated(subject.program, mutant)
    if program is None:
        return "", ""
    cases = subject.cases_reaching(mutant.before.line)
    line, more = mutant.before.line, TRIALS["more"]
    caught = _caught(subject, program, cases, TRIALS[mutant.group])
    caught = caught or _caught(
        subject, program, ((case, steps) for case, lines, steps in subject.further if line in lines), more
    )
    caught = caught or _caught(subject, program, edges(subject, mutant), more[:1])
    if caught:
        return CAUGHT, caught
    reason = equivalence(subject, mutant) if cases else ""
    reason = reason or next((mark.reason for mark in marks if fits(mark, subject.name, mutant, place)), "")
    if reason:
        return EQUIVALENT, reason
    return SURVIVED, "" if cases else "no case reaches it"


def _caught(
    subject: Subject,
    program: Program,
    cases: Iterable[tuple[TrialCase, int]],
    adversaries: Sequence[Adversary],
) -> str:
    """The problem, the case and the adversary that find a mutant; empty if none does."""
    for case, steps in cases:
        for adversary in adversaries:
            problem = subject.problem(program, case, adversary, subject.steps_allowed(steps))
            if problem:
                return f"{problem} ({case.name}; {adversary})"
    return ""


def table(results: Iterable[MutantResult]) -> str:
    """How many mutants of each kind there were, and how many of those that are not equivalent were caught."""
    results = list(results)
    kinds = sorted({(result.mutant.group, result.mutant.kind) for result in results}, reverse=True)
    rows = [("mutation", "mutants", "equivalent", "caught", "survived", "share")]
    for group in dict.fromkeys(group for group, _ in kinds):
        rows += [
            _row(kind, [r for r in results if r.mutant.kind == kind])
            for found, kind in sorted(kinds)
            if found == group
        ]
        rows.append(_row(f"all of {group}", [result for result in results if result.mutant.group == group]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    )


def _row(name: str, results: Sequence[MutantResult]) -> tuple[str, ...]:
    counts = Counter(result.state for result in results)
    return (
        name,
        str(len(results)),
        *(str(counts[state]) for state in (EQUIVALENT, CAUGHT, SURVIVED)),
        _percent(share(results)),
    )


def share(results: Iterable[MutantResult]) -> float:
    """The caught share of the mutants that are not equivalent; 1 where there are none."""
    counts = Counter(result.state for result in results)
    tried = counts[CAUGHT] + counts[SURVIVED]
    return counts[CAUGHT] / tried if tried else 1.0


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
