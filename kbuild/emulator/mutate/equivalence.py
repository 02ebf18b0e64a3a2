"""Mutants equivalent to their original: proven by a rule, or marked by hand with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.memory import Space
from kbuild.emulator.engine.program import Program
from kbuild.emulator.mutate.alone import Alone
from kbuild.emulator.mutate.barriers import orders_nothing
from kbuild.emulator.mutate.conflicts import ctas_conflict, threads_conflict
from kbuild.emulator.mutate.coordinates import computes_from, fixed_registers, registers
from kbuild.emulator.mutate.infection import compared
from kbuild.emulator.mutate.mutant import Mutant, mutated, plain
from kbuild.emulator.mutate.trial import ADVERSARIES, Subject, TrialCase
from kbuild.emulator.ptx.model import Immediate, Instruction, Operand

_SAME_OPERANDS = ("min → max", "max → min", "selp swapped")
"""Changes whose result is the same only where two operands are."""


def equivalence(subject: Subject, mutant: Mutant) -> str:
    """Why a mutant that no run found is equivalent to its original; empty where no rule applies."""
    if "wait_group" in mutant.kind or "commit_group" in mutant.kind:
        return _same_waits(subject, mutant)
    if mutant.kind in ("drop bar.sync", "drop bar.warp.sync") and orders_nothing(subject.program, mutant):
        return "nothing between it and the barriers next to it needs an order"
    if mutant.kind == "drop mbarrier.arrive" and _nobody_waits(subject, mutant):
        return "no thread waits for the phase that it arrives in, or for a later one"
    cases = [case for case, _ in subject.cases_reaching(mutant.before.line)]
    if mutant.kind == "drop bar.warp.sync" and not any(threads_conflict(subject, case) for case in cases):
        return "no two threads of a CTA touch the same bytes, but by atomic operations"
    if mutant.kind == "weaken order of atomics" and not any(ctas_conflict(subject, case) for case in cases):
        return "no two CTAs touch the same bytes, but by atomic operations"
    if mutant.group == "logic":
        return _same_results(subject, mutant)
    return ""


def _same_results(subject: Subject, mutant: Mutant) -> str:
    """An instruction that computes from the thread's place alone has met all its operands once it has been
    executed; one whose operands are equal whatever the data is computes with two copies of one element.
    """
    if mutant.kind in ("add → sub", "sub → add") and any(
        _is_zero(operand) for operand in mutant.before.operands[1:]
    ):
        return "zero is added or subtracted"
    if mutant.kind == "shfl of another lane" and Alone(subject.program).is_uniform(mutant.before.operands[1]):
        return "all lanes of a warp hold the same number"
    fixed = fixed_registers(subject.program)
    by_place = computes_from(mutant.before, fixed)
    if _chooses_threads(subject.program, mutant, fixed) and _same_stores(subject, mutant):
        return "it chooses among threads that store the same to the same place"
    found = compared(subject, mutant)
    if found is None or found.differs or not found.executions:
        return ""
    if by_place:
        return "it depends on the thread's place alone, and no thread sees a difference"
    if mutant.kind in _SAME_OPERANDS and found.varied:
        return f"both operands are copies of one element ({found.executions} times the same)"
    return ""


def _chooses_threads(program: Program, mutant: Mutant, fixed: frozenset[str]) -> bool:
    """Whether the change concerns which threads execute instructions, by their place alone: a guard, or a
    comparison for guards."""
    guard = mutant.before.guard
    if mutant.kind == "predicate negated" and guard is not None:
        return guard.register.name in fixed
    if mutant.before.opcode != "setp" or not computes_from(mutant.before, fixed):
        return False
    return _only_guards(program, set(registers(mutant.before.operands[0])))


def _only_guards(program: Program, made: set[str]) -> bool:
    """Whether predicates, and those computed from them, only decide whether instructions are executed."""
    found, before = set(made), -1
    while len(found) != before:
        before = len(found)
        for statement in program.flat.statements:
            if isinstance(statement, Instruction) and statement.opcode != "bra":
                results = 1 if statement.opcode == "setp" or statement.modifiers[-1:] == ("pred",) else 0
                if any(
                    name in found for operand in statement.operands[results:] for name in registers(operand)
                ):
                    if not (results and statement.opcode in ("and", "or", "not", "xor")):
                        return False
                    found |= set(registers(statement.operands[0]))
    return True


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Immediate) and operand.value in (0, 1 << 31 if operand.is_float else 0)


class _Stores:
    """What each instruction stores, and where, whichever thread does it."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str, tuple[int, ...]], set[bytes]] = {}

    def accessed(
        self,
        kind: str,
        space: Space,
        offsets: np.ndarray,
        size: int,
        lanes: np.ndarray,
        data: np.ndarray | None,
        site: Any,
    ) -> None:
        if data is None or kind == "load":
            return
        place = site[0].cta.index if space.name == "shared" else ()
        both = np.concatenate(
            [offsets.astype(np.int64).view(np.uint8).reshape(-1, 8), data.reshape(-1, size)], axis=1
        )
        found = self.found.setdefault((site[1].line, space.name, place), set())
        found.update(row.tobytes() for row in both)


def _same_stores(subject: Subject, mutant: Mutant) -> bool:
    """Whether original and mutant store the same in all cases; atomic operations and copies count as
    different."""
    program = mutated(subject.program, mutant)
    if program is None:
        return False
    for case, steps in subject.cases_reaching(mutant.before.line):
        before, after = _Stores(), _Stores()
        subject.launch(subject.program, case, ADVERSARIES[1], observers=[before])
        subject.launch(program, case, ADVERSARIES[1], subject.steps_allowed(steps), observers=[after])
        if before.found != after.found or not before.found:
            return False
    return True


Waits = dict[int, list[tuple[int, int, int]]]
"""The waits of warps, in order: the lines of wait and operation, and how many threads waited."""


class _Awaited:
    """Notes the operations that waits wait for: the waits of one PTX line, or all."""

    def __init__(self, line: int | None) -> None:
        self.line = line
        self.found: Waits = {}

    def accessed(self, *_: Any) -> None:
        """Ignores accesses."""

    def awaited(self, operation: Any, threads: np.ndarray, only_reads: bool, site: Any) -> None:
        if self.line in (None, site[1].line):
            self.found.setdefault(site[0].first, []).append(
                (site[1].line, operation.site[1].line, len(threads))
            )


def _same_waits(subject: Subject, mutant: Mutant) -> str:
    """The operations under way at a wait depend on trip counts alone; the cases cover those."""
    waits = "wait_group" in mutant.kind
    other = None if waits and not mutant.after else mutated(subject.program, mutant)
    line = mutant.before.line if waits else None
    for case, steps in subject.cases_reaching(mutant.before.line):
        before = _awaited(subject, subject.program, case, line, steps)
        if before != ({} if other is None else _awaited(subject, other, case, line, steps)):
            return ""
    if not waits:
        return "all waits wait for the same operations without it"
    return (
        "it waits for no operation that is under way" if other is None else "it waits for the same operations"
    )


def _awaited(subject: Subject, program: Program, case: TrialCase, line: int | None, steps: int) -> Waits:
    observer = _Awaited(line)
    subject.launch(program, case, ADVERSARIES[1], subject.steps_allowed(steps), observers=[observer])
    return observer.found


class _Phases:
    """Notes in which phases of mbarriers a PTX line arrives, and the last phase of each that a thread has
    waited for."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.arrivals: set[tuple[tuple[int, int], int]] = set()
        self.last: dict[tuple[int, int], int] = {}
        self._spaces: dict[int, Space] = {}
        """Kept, so that no two have one identity."""

    def accessed(self, *_: Any) -> None:
        """Ignores accesses."""

    def arrived(self, barrier: tuple[Space, int], phase: int, site: Any, operation: Any) -> None:
        self._spaces[id(barrier[0])] = barrier[0]
        if operation is None and site[1].line == self.line:
            self.arrivals.add(((id(barrier[0]), barrier[1]), phase))

    def passed(self, barrier: tuple[Space, int], phase: int, site: Any) -> None:
        key = (id(barrier[0]), barrier[1])
        self.last[key] = max(phase, self.last.get(key, -1))


def _nobody_waits(subject: Subject, mutant: Mutant) -> bool:
    """The phases waited for depend on trip counts alone; the cases cover those."""
    for case, _ in subject.cases_reaching(mutant.before.line):
        seen = _Phases(mutant.before.line)
        subject.launch(subject.program, case, ADVERSARIES[1], observers=[seen])
        if any(phase <= seen.last.get(barrier, -1) for barrier, phase in seen.arrivals) or not seen.arrivals:
            return False
    return True


@dataclass(frozen=True)
class Mark:
    """Mutants that a person has found equivalent to the original."""

    subject: str
    """Pattern of subjects' names, as of files."""
    kind: str
    text: str
    """The original instruction, its registers without their numbers; followed by ` #2` for the second such
    instruction alone."""
    place: str
    """File name and line of the kernel source."""
    reason: str


def read_marks(text: str, file: str) -> tuple[Mark, ...]:
    """The marks of a file: `subject | kind | instruction | place | reason`, one a line; `#` begins a comment.

    Raises EmulationError for a line with other parts.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|")]
            if len(parts) != 5 or not all(parts):
                raise EmulationError(
                    f"{file}:{number}: expected subject | kind | instruction | place | reason, found {line!r}"
                )
            found.append(Mark(*parts))
    return tuple(found)


def fits(mark: Mark, subject: str, mutant: Mutant, place: str) -> bool:
    """Whether a mark names a mutant."""
    return (
        fnmatchcase(subject, mark.subject)
        and mark.kind == mutant.kind
        and mark.text in (plain(mutant.before), f"{plain(mutant.before)} #{mutant.number}")
        and place.rsplit("/", 1)[-1] == mark.place
    )


def stale(marks: Iterable[Mark], seen: Iterable[tuple[str, Mutant, str, bool]]) -> Iterator[str]:
    """The errors of marks, given subject, mutant, place and whether it was caught, of all mutants tried.

    A mark whose subject was tried must match a mutant, and not one that was caught.
    """
    seen = list(seen)
    for mark in marks:
        tried = [entry for entry in seen if fnmatchcase(entry[0], mark.subject)]
        fitting = [entry for entry in tried if fits(mark, *entry[:3])]
        if tried and not fitting:
            yield f"no mutant is {mark.subject} | {mark.kind} | {mark.text} | {mark.place}"
        yield from (
            f"marked as equivalent, but caught: {entry[0]}: {entry[1]}" for entry in fitting if entry[3]
        )
