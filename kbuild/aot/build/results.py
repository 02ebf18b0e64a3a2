"""What a build came to: which variants were compiled, which failed and why, and the file that it leaves in `dist`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.aot.artifact.platforms import machine_of
from kbuild.aot.build import ninja
from kbuild.aot.build.plan import LAUNCHER, Job
from kbuild.aot.build.serve import LONGEST_COMPILE
from kbuild.aot.build.unchanged import Totals
from kbuild.aot.files import write_files
from kbuild.aot.manifest.expand import Expansion
from kbuild.aot.manifest.model import Manifest
from kbuild.errors import KbuildError, ToolError

if TYPE_CHECKING:
    from kbuild.aot.remote.exchange import Exchanged

_LARGEST_TEXT = 8000
"""Characters of one failure that are shown."""
_MAX_NAMES = 5
"""Variants named of those that fail with the same error."""


class VariantError(ToolError):
    """A variant that could not be compiled."""

    def __init__(self, variant: str, text: str, command: str) -> None:
        super().__init__(f"{variant} failed\n{text}", help=f"this repeats it: {command}")
        self.variant = variant
        self.text = text
        """The output of its compilation."""


@dataclass(frozen=True)
class Details:
    """The variants of a build one by one."""

    jobs: tuple[Job, ...]
    """Everything asked for."""
    expansion: Expansion
    """All variants of the manifest, and what it leaves out."""
    facts: tuple[dict[str, Any], ...] = ()
    """Facts of the variants that are built, in order."""


@dataclass(frozen=True)
class BuildResult:
    """The outcome of a build."""

    compiled: tuple[str, ...]
    """Names of the variants that were compiled now."""
    cached: int
    """Variants that came from the cache."""
    failures: tuple[KbuildError, ...]
    """A VariantError per variant that failed, and another error if the package did."""
    totals: Totals
    """All variants in numbers."""
    details: Callable[[], Details]
    """Gives them one by one, which a build that has nothing to do does not need to know."""
    wheel: Path | None = None
    """The wheel, or the part of a shard, unless something failed or kernels alone were named."""
    exchanged: Exchanged | None = None
    """What came from other machines, and went there."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Everything asked for."""
        return self._details.jobs

    @property
    def expansion(self) -> Expansion:
        """All variants of the manifest, and what it leaves out."""
        return self._details.expansion

    @property
    def facts(self) -> tuple[dict[str, Any], ...]:
        """Facts of the variants that are built, in order."""
        return self._details.facts

    @cached_property
    def _details(self) -> Details:
        return self.details()


def totals_of(details: Details) -> Totals:
    """The numbers of a build."""
    return Totals(
        variants=len(details.jobs),
        built=len(details.facts),
        size=sum(fact["size"] for fact in details.facts),
        warned=sum(bool(warnings_of(fact)) for fact in details.facts),
    )


def warnings_of(fact: Mapping[str, Any]) -> list[str]:
    """The warnings about a cubin."""
    spills = (
        [f"spills {fact['spill_stores']} bytes of registers"]
        if fact["spill_stores"] or fact["spill_loads"]
        else []
    )
    # ptxas reports spills in its own words, with the same numbers.
    return spills + [text for text in fact["warnings"] if not (spills and "spilled" in text)]


def failure_of(failure: ninja.Failure, job: Job | None, manifest: Manifest, is_strict: bool) -> KbuildError:
    """The error of a failed step: which variant, what it said, and the command that repeats it."""
    text = failure.text if len(failure.text) <= _LARGEST_TEXT else failure.text[:_LARGEST_TEXT] + "\n[cut]"
    if failure.code == 128 + signal.SIGALRM:
        text = f"{text}\nit was not done after {LONGEST_COMPILE} seconds".strip()
    elif failure.code >= 126 and "error:" not in text:
        text = f"{text}\nthe compiler was ended by signal {failure.code - 128}, or could not run".strip()
    if job is not None:
        # Only ninja from 1.12 on reports the exit code; a process that was killed has printed nothing.
        text = text or "the compiler ended without a word, as it does when the system runs out of memory"
        return VariantError(job.variant.name, text, job.command() + " --strict" * is_strict)
    what = "compiling its launcher failed" if failure.output == LAUNCHER else "failed"
    text = text or f"the step ended with exit code {failure.code} and said nothing"
    return ToolError(f"the package {manifest.package.name}: {what}\n{text}")


def grouped(failures: Sequence[KbuildError]) -> list[KbuildError]:
    """The failures of a build, with equal failures of several variants reported once."""
    alike: dict[str, list[VariantError]] = {}
    reported: list[KbuildError] = []
    for failure in failures:
        if not isinstance(failure, VariantError):
            reported.append(failure)
        elif failure.text not in alike:
            alike[failure.text] = [failure]
            reported.append(failure)
        else:
            alike[failure.text].append(failure)
    for text, variants in alike.items():
        if len(variants) > 1:
            first, more = variants[0], len(variants) - 1
            names = "\n".join(f"  {one.variant}" for one in variants[1 : 1 + _MAX_NAMES])
            names += f"\n  and {more - _MAX_NAMES} more" if more > _MAX_NAMES else ""
            reported[reported.index(first)] = ToolError(
                f"{first.variant} failed\n{text}\nlikewise:\n{names}", help=first.help
            )
    return reported


def publish(source: Path, dist: Path) -> Path:
    """Puts the wheel into `dist`, in place of those of the same version for this machine; equal bytes are left
    alone, and so are wheels for other machines.  A part is put beside what is there."""
    target = dist / source.name
    name, version, *_ = source.name.split("-")
    write_files({target: source.read_bytes()})
    if target.suffix != ".whl":
        return target
    for other in dist.glob(f"{name}-{version}-*.whl"):
        if other != target and machine_of(_platform(other)) == machine_of(_platform(target)):
            other.unlink()
    return target


def _platform(wheel: Path) -> str:
    return wheel.stem.rpartition("-")[2]
