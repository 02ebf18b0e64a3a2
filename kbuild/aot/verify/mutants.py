"""Mutants of a manifest's variants: their PTX with one instruction changed, run on the launches of `kbuild
verify`.

Mutants that these do not find are tried on further launches: other data, each integer at the eighths of its
value, and the edges of comparisons.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kbuild.aot.build.plan import constexprs_of
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Kernel, Manifest, below
from kbuild.aot.verify.cases import LaunchCase as Launch
from kbuild.aot.verify.cases import case_of, cases
from kbuild.aot.verify.check import parameters_of
from kbuild.aot.verify.compare import compare
from kbuild.aot.verify.data import WIDE
from kbuild.aot.verify.oracle import oracle_of, types_of_artifact
from kbuild.aot.verify.pool import say
from kbuild.aot.verify.reference import Reference
from kbuild.aot.verify.reference_task import reference_task
from kbuild.compiler import driver
from kbuild.compiler.interp.loaded import Type, pointee_of
from kbuild.emulator import Program, Report, load
from kbuild.emulator.mutate import (
    OPERATORS,
    Mark,
    MutantResult,
    Subject,
    TrialCase,
    campaign,
    clean,
    read_marks,
    share,
    table,
    wrong_marks,
)
from kbuild.emulator.mutate.mutant import mutants, spread
from kbuild.emulator.mutate.trial import Adversary
from kbuild.errors import KbuildError, UsageError

DATA = ("whole", "real")
"""The data of each launch: sums of the first are exact, and hardly two numbers of the second are the same."""
MAX_SMALLER, MAX_VARIED = 64, 2
"""Launches with smaller integers, and at each edge of a comparison, that are tried at most."""


@dataclass(frozen=True)
class _Judge:
    """Whether a launch did what the interpreter does."""

    types: Mapping[str, Type]
    right: Reference

    def __call__(self, outputs: Sequence[np.ndarray | None]) -> str:
        for name, output in zip(self.types, outputs):
            if output is not None:
                element = pointee_of(self.types[name])
                found = compare(
                    element, self.right.expected[name], output, self.right.written[name], self.right.exact
                )
                if found.problem:
                    return f"{name}: {found.problem}"
        return ""


@dataclass(frozen=True, eq=False)
class _Subject(Subject):
    """A subject that reports each run before it starts."""

    at: list[str] = field(default_factory=lambda: [""])

    def launch(
        self,
        program: Program,
        case: TrialCase,
        adversary: Adversary,
        step_budget: int = 10_000_000,
        observers: Sequence[Any] = (),
    ) -> Report:
        say(self.at[0])
        return super().launch(program, case, adversary, step_budget, observers)


@dataclass(frozen=True)
class MutantsOutcome:
    """The outcome of the mutants of one variant."""

    variant: str
    results: tuple[MutantResult, ...] = ()
    cases: int = 0
    clean: int = 0
    """Runs of the unchanged kernel, all of which were right."""
    problem: str = ""
    """Why the variant could not be tried."""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The outcome in a line."""
        if self.problem:
            return f"{self.variant}: {self.problem}"
        counts = Counter(result.state for result in self.results)
        states = ", ".join(f"{counts[state]} {state}" for state in ("caught", "equivalent", "survived"))
        return f"{self.variant}: {self.cases} launches, {len(self.results)} mutants: {states}; {self.seconds:.0f} s"

    def encode(self) -> list[dict[str, str]]:
        """The results as JSON has them."""
        return [
            {
                "variant": result.subject,
                "group": result.mutant.group,
                "kind": result.mutant.kind,
                "state": result.state,
                "mutant": str(result.mutant),
                "place": result.place,
                "reason": result.reason,
            }
            for result in self.results
        ]


@dataclass(frozen=True)
class Findings:
    """The outcome of all variants."""

    text: str
    """The survivors, and the table of kinds."""
    problems: tuple[str, ...]
    """Why it is not good enough."""


NEEDED = {"sync": 0.95, "logic": 0.90}
"""The part of the mutants of each group that has to be caught."""


def tried(
    project: Path,
    manifest: Manifest,
    variant: Variant,
    limit: int | None,
    group: str,
    marks: Sequence[Mark],
    ptxas: str | None = None,
) -> MutantsOutcome:
    """Try the mutants of a variant, at most `limit` of each kind; those of `sync`, of `logic` or of `all`.
    The PTX is that for a ptxas, or for the version that is preferred."""
    started = time.monotonic()
    operators = [operator for operator in OPERATORS if group in ("all", operator.group)]
    results: list[MutantResult] = []
    try:
        made = subject(project, manifest, variant, ptxas)
        made.at[0] = f"{variant.name}: unchanged, on {len(made.cases)} launches"
        runs = clean(made)
        count = len(list(spread(mutants(made.program, tuple(operators)), limit)))
        made.at[0] = f"{variant.name}: mutant 1 of {count}"
        for result in campaign(made, limit, operators, marks):
            results.append(result)
            made.at[0] = f"{variant.name}: mutant {len(results) + 1} of {count}"
    except KbuildError as error:
        return MutantsOutcome(variant.name, problem=str(error))
    return MutantsOutcome(variant.name, tuple(results), len(made.cases), runs, "", time.monotonic() - started)


def marks_of(path: Path) -> tuple[Mark, ...]:
    """The marks of a file.  Raises UsageError if it cannot be read."""
    try:
        return read_marks(path.read_text(encoding="utf-8"), path.as_posix())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def verdict(outcomes: Sequence[MutantsOutcome], marks: Sequence[Mark]) -> Findings:
    """All outcomes together."""
    results = [result for outcome in outcomes for result in outcome.results]
    lines = [str(result) for result in results if result.state == "survived"]
    problems = [f"{outcome.variant}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    problems += wrong_marks(marks, results)
    for group, needed in NEEDED.items():
        caught = share([result for result in results if result.mutant.group == group])
        if caught < needed:
            problems.append(
                f"{100 * caught:.1f} % of the mutants of {group} are caught; {100 * needed:.0f} % have to be"
            )
    return Findings("\n".join([*lines, table(results)]), tuple(problems))


def subject(project: Path, manifest: Manifest, variant: Variant, ptxas: str | None = None) -> _Subject:
    """A variant with the launches that verify it.  Raises UsageError where there are none, KbuildError as the
    compiler does."""
    kernel = manifest.kernel(variant.kernel)
    launches = cases(kernel, variant)
    if not launches:
        raise UsageError(f"{variant.name} has no launches", help="add one to [kernel.verify]")
    artifact = driver.compile(
        str(project / kernel.source) + f":{kernel.function}",
        signature=dict(variant.signature),
        constexprs=dict(constexprs_of(kernel, variant)),
        target=variant.arch,
        options=replace(
            variant.options, lineinfo=True, ptxas=ptxas, include=below(variant.options.include, project)
        ),
        stop="ptx",
    )
    signature, values = dict(variant.signature), dict(constexprs_of(kernel, variant))
    types = types_of_artifact(artifact, signature)
    oracle = oracle_of(artifact, types, signature, values, reference_task(project, kernel))

    def case(launch: Launch, data: str) -> TrialCase:
        say(f"{variant.name}: what {launch} has to give")
        right = oracle(launch, data, zlib.crc32(f"{variant.kernel} {launch}".encode()))
        arguments: tuple[Any, ...] = tuple(parameters_of(artifact, types, right.arguments))
        judge = _Judge(types, right)
        return TrialCase(f"{launch}; {data} numbers", arguments, launch.grid, judge, right.programs)

    def made_if_possible(launch: Launch, kinds: Sequence[str]) -> Iterator[TrialCase]:
        with suppress(KbuildError):  # A launch that the kernel is not meant for.
            for data in kinds:
                yield case(launch, data)

    def made() -> Iterator[TrialCase]:
        for launch in launches:
            for data in DATA:
                yield case(launch, data)

    def more() -> Iterator[TrialCase]:
        for launch in launches:
            yield from made_if_possible(launch, [WIDE])
        for smaller in dict.fromkeys(islice(_smaller(kernel, variant, launches), MAX_SMALLER)):
            yield from made_if_possible(smaller, DATA[:1])

    def vary(old: int, new: int) -> Iterator[TrialCase]:
        changed = dict.fromkeys(
            found for launch in launches for found in _changed(kernel, variant, launch, old, new)
        )
        for launch in islice(changed, MAX_VARIED):
            yield from made_if_possible(launch, DATA[1:])

    facts = artifact.metadata
    program = load(artifact.asm["ptx"], facts.name)
    return _Subject(variant.name, program, facts.block, facts.shared, tuple(made()), more, vary)


def _smaller(kernel: Kernel, variant: Variant, launches: Sequence[Launch]) -> Iterator[Launch]:
    """The launches with each integer at the eighths of what it is: every register of a tile gets an edge."""
    for launch in launches:
        for name, value in launch.scalars:
            if isinstance(value, int) and value > 1:
                for part in range(8):
                    yield from _with(kernel, variant, launch, {name: value * part // 8})


def _changed(kernel: Kernel, variant: Variant, launch: Launch, old: int, new: int) -> Iterator[Launch]:
    """The launch with one, or all, of the integers that are `old` made `new`."""
    names = [name for name, value in launch.scalars if value == old]
    for changed in [*([name] for name in names), names]:
        if changed and new >= 0:
            yield from _with(kernel, variant, launch, dict.fromkeys(changed, new))


def _with(kernel: Kernel, variant: Variant, launch: Launch, values: Mapping[str, int]) -> Iterator[Launch]:
    """The launch with other values, if the variant takes it."""
    found = case_of(kernel, variant, {**dict(launch.scalars), **values})
    if found is not None:
        yield found
