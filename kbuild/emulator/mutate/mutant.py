"""Mutants: a kernel with one instruction changed as a mistake would change it.

A program is judged by how many of its mutants a run finds; a mutant that no run finds is a gap in the inputs
or in the emulator, or equivalent to the original.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kbuild.emulator.engine.program import Program, decode
from kbuild.emulator.ptx.model import Instruction, PtxError, RegisterDeclaration

SCRATCH = "%mutant"
"""A 32-bit register that only mutants use."""

Change = tuple[Instruction, ...]
"""The replacement of an instruction; empty where it is removed."""


@dataclass(frozen=True)
class Operator:
    """One kind of mistake."""

    kind: str
    """Its name, such as `drop bar.sync`."""
    group: str
    """`sync` for synchronisation, `logic` for all else."""
    changes: Callable[[Instruction], Iterator[Change]]
    """The changes that it makes of an instruction; none for instructions that it does not apply to."""


@dataclass(frozen=True)
class Mutant:
    """One instruction of a kernel changed."""

    kind: str
    group: str
    index: int
    """Of the instruction, among the statements of the function."""
    before: Instruction
    after: Change
    number: int = 1
    """Which it is, of the mutants of its kind whose instructions are alike and come from one line of the
    kernel's source."""

    def __str__(self) -> str:
        after = " ".join(map(str, self.after)) or "(nothing)"
        return f"{self.kind} at PTX line {self.before.line}: {self.before} → {after}"


def mutants(program: Program, operators: tuple[Operator, ...]) -> list[Mutant]:
    """All mutants of a kernel, in the order of its instructions; those that are not valid PTX are left out."""
    found = []
    alike: Counter[tuple[str, str, int]] = Counter()
    for index, statement in enumerate(program.entry.body or ()):
        if isinstance(statement, Instruction):
            for operator in operators:
                for after in operator.changes(statement):
                    key = operator.kind, plain(statement), statement.source.line if statement.source else 0
                    alike[key] += 1
                    found.append(Mutant(operator.kind, operator.group, index, statement, after, alike[key]))
    return found


def plain(instruction: Instruction) -> str:
    """An instruction, its registers without their numbers."""
    return re.sub(r"(%[a-z]+)\d+", r"\1", str(instruction)).rstrip(";")


def mutated(program: Program, mutant: Mutant) -> Program | None:
    """The program of a mutant; None where the change is not valid PTX."""
    body = list(program.entry.body or ())
    body[mutant.index : mutant.index + 1] = mutant.after
    if any(SCRATCH in str(instruction) for instruction in mutant.after):
        body.insert(0, RegisterDeclaration("b32", SCRATCH))
    try:
        return decode(program.module, replace(program.entry, body=tuple(body)))
    except PtxError:
        return None


def spread(found: list[Mutant], limit: int | None) -> list[Mutant]:
    """At most `limit` mutants of each kind, from all over the kernel, in order."""
    if limit is None:
        return found
    kept: list[Mutant] = []
    for kind in dict.fromkeys(mutant.kind for mutant in found):
        same = [mutant for mutant in found if mutant.kind == kind]
        kept += same if len(same) <= limit else [same[number * len(same) // limit] for number in range(limit)]
    return sorted(kept, key=lambda mutant: mutant.index)
