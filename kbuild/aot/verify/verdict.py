"""The outcome of verifying a variant, in plain values for processes and the cache."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbuild.aot.verify.cases import LaunchCase
from kbuild.options import CompileOptions

BOUNDS = {"f64": 1e-12, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}
"""How far a floating-point result may be off, relative to the greater of its size and the mean size of the
array."""
COARSEST = 0.13
"""The tolerance of the 8-bit types: one step of three bits."""

ADVERSE = (
    ("reverse", "late"),
    ("random(1)", "random(1)"),
    ("starve(0)", "late"),
    ("round-robin", "early"),
    ("random(2)", "random(2)"),
)
"""Orders of warps, and when asynchronous operations take effect, that the launches of a variant go through in
turn."""


@dataclass(frozen=True)
class LaunchRun:
    """One launch under one schedule."""

    case: int
    """Number of the launch among those of the variant, from 1."""
    data: str = "whole"
    """What arrays hold: `whole` numbers, `real` ones, or real ones with `special` ones among them."""
    schedule: str = "lockstep"
    """The order of warps."""
    timing: str = "late"
    """When asynchronous operations take effect."""

    def options(self) -> str:
        """The options of `kbuild verify` that choose this run."""
        words = [
            "--case",
            str(self.case),
            "--data",
            self.data,
            "--schedule",
            self.schedule,
            "--timing",
            self.timing,
        ]
        return shlex.join(words)


def runs_of(cases: Sequence[LaunchCase]) -> list[LaunchRun]:
    """Every launch under one of the adverse schedules; the first in lockstep, too, with all kinds of numbers."""
    planned = [
        LaunchRun(number, "whole", *ADVERSE[(number - 1) % len(ADVERSE)])
        for number in range(1, len(cases) + 1)
    ]
    if planned:
        planned += [
            LaunchRun(1),
            LaunchRun(1, "real", "lockstep", "early"),
            LaunchRun(1, "special", "lockstep", "random(1)"),
        ]
    return planned


@dataclass(frozen=True)
class Check:
    """The outcome of one run."""

    run: LaunchRun
    launch: str
    """The launch's scalars."""
    problems: tuple[str, ...] = ()
    """The errors: findings of the emulator, and outputs that differ."""
    exact: bool = False
    """Whether outputs had to be equal, because no result on the way to them needed rounding."""
    error: float = 0.0
    """The largest difference of an output, as a share of what is allowed."""
    steps: int = 0
    """Instructions run, counted once for all warps that ran them together."""
    unfinished: str = ""
    """Why a launch that the manifest does not give was not run to its end; nothing was wrong until then."""
    note: str = ""
    """What is worth knowing of a launch."""


def cause_of(problem: str) -> str:
    """The key shared by problems with one cause: the kind with its lines of the kernel, or the wrong
    array."""
    first, *lines = problem.splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("from ")]
    return (
        "\n".join([first.partition(":")[0], *places]) if places else re.sub(r"[\d.e+-]+|nan|inf", "#", first)
    )


@dataclass(frozen=True)
class Verdict:
    """The outcome of one variant."""

    variant: str
    """The variant's name."""
    kernel: str
    arch: str
    checks: tuple[Check, ...] = ()
    """One for each run."""
    problem: str = ""
    """Why the variant could not be run at all."""
    seconds: float = 0.0
    """Seconds taken; none for a verdict from the cache."""
    cached: bool = False
    """Whether nothing had to be run."""
    unguessed: bool = False
    """Whether a launch was guessed in vain, as it would be for the kernel's other variants."""
    unfinished: str = ""
    """Why a variant with a launch that the manifest does not give was given up."""
    shared: int = 0
    """Runs that were not repeated: another variant with the same code had them."""

    @property
    def state(self) -> str:
        """`ok`, `failed`, or `unfinished`: nothing wrong was seen, and not all was run."""
        if self.problem or any(check.problems for check in self.checks):
            return "failed"
        return "unfinished" if self.unfinished or any(check.unfinished for check in self.checks) else "ok"

    def encode(self) -> dict[str, Any]:
        """The verdict as plain values."""
        values = asdict(self) | {"state": self.state}
        del values["unguessed"]
        return values


def decode_checks(values: Sequence[Mapping[str, Any]]) -> tuple[Check, ...]:
    """The checks of an encoded verdict.  Raises KeyError or TypeError for other values."""
    return tuple(
        Check(**{**value, "run": LaunchRun(**value["run"]), "problems": tuple(value["problems"])})
        for value in values
    )


@dataclass(frozen=True)
class Wanted:
    """Which runs are requested; empty and 0: all."""

    case: int = 0
    """Number of the launch."""
    data: str = ""
    schedule: str = ""
    timing: str = ""

    def of(self, planned: Sequence[LaunchRun]) -> list[LaunchRun]:
        """Those of the planned runs, with the schedule and timing that are asked for."""
        chosen = [run for run in planned if self.case in (0, run.case) and self.data in ("", run.data)]
        if not chosen and self.case and any(run.case == self.case for run in planned):
            chosen = [LaunchRun(self.case, self.data)]  # Not planned, but possible.
        exactly = [
            run for run in chosen if self.schedule in ("", run.schedule) and self.timing in ("", run.timing)
        ]
        if exactly or not (self.schedule or self.timing):
            return exactly
        changed = [
            LaunchRun(run.case, run.data, self.schedule or run.schedule, self.timing or run.timing)
            for run in chosen
        ]
        return list(dict.fromkeys(changed))


EVERYTHING = Wanted()


@dataclass(frozen=True)
class ReferenceTask:
    """What the manifest names for results to be compared with."""

    source: str
    """File and function."""
    is_kernel: bool
    """Whether it is a kernel in Triton's language, rather than a function of numpy."""
    constexprs: tuple[tuple[str, Any], ...]
    """Of a kernel: its own, besides those of the variant."""
    grid: tuple[str, ...]
    """Of a kernel: programs along each axis, as expressions; those of the variant where empty."""
    digest: str
    """Of its sources."""


@dataclass(frozen=True)
class VerifyTask:
    """One variant to verify, as a worker gets it."""

    source: str
    """File and function."""
    name: str
    """The variant's name."""
    kernel: str
    arch: str
    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, Any], ...]
    options: CompileOptions
    """Those of the variant, with lines of the source, and the ptxas that assembles what ships: None for the
    preferred version."""
    cases: tuple[LaunchCase, ...]
    runs: tuple[LaunchRun, ...]
    guessed: bool
    """Whether the launches are a guess, for the manifest has none."""
    source_digest: str
    """Digest of the kernel and all it reaches, which must be unchanged when the verdict is there."""
    lenient: bool = False
    """Whether races are left out that hardware is known to forgive."""
    reference: ReferenceTask | None = None
    """What results are compared with; None for what the kernel itself means."""
    tolerance: float | None = None
    """How far floating-point results may be off; None for what is usual."""
    captured: bool = False
    """Whether its launch was captured."""
    early: tuple[str, ...] = ()
    """Arrays that a launch before this one may still work on, until the kernel has waited for it."""
