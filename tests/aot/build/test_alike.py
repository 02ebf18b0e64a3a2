"""Variants with the same cubin are compiled once, also without a cache, and each has its own name and record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from tests.aot.artifact.partial_wheels import options_of
from tests.aot.conftest import MANIFEST


@pytest.fixture
def options(project: Path) -> BuildOptions:
    """Half of the variants are for other calls than the others, and else the same."""
    text = MANIFEST[: MANIFEST.index("[[kernel.config]]")]
    for facts in ('n = "<= 1024"', 'n = "> 1024"'):
        text += f"[[kernel.config]]\nwhen = {{ {facts} }}\nBLOCK = 512\n"
    (project / "kernels.toml").write_text(text)
    return replace(options_of(project), kernels=("scale",))


def run(options: BuildOptions) -> BuildResult:
    return build(options, Progress())


def compiled(options: BuildOptions) -> int:
    """How often the compiler was called since this was last asked."""
    log = options.project / "kernels/compiled.log"
    count = len(log.read_text().splitlines()) if log.is_file() else 0
    log.unlink(missing_ok=True)
    return count


def test_variants_for_other_calls_share_a_compilation(options: BuildOptions) -> None:
    result = run(options)
    assert len(result.jobs) == len(result.facts) == 32 and compiled(options) == 16
    assert len(result.compiled) == 32 and result.cached == 16
    for job, facts in zip(result.jobs, result.facts):
        assert (facts["name"], facts["variant"]) == (job.variant.name, str(job.variant))
        stored = json.loads((options.project / "build" / job.record).read_bytes())
        assert set(stored["files"]) == {f"{job.stem}.cubin", f"{job.stem}.ptx"}
    cubins = [(options.project / "build" / f"{job.stem}.cubin").read_bytes() for job in result.jobs]
    assert len(set(cubins)) == 16
    assert run(options).compiled == () and compiled(options) == 0


def test_they_stay_alike_when_something_changes_or_is_lost(options: BuildOptions) -> None:
    first = run(options)
    compiled(options)
    alike = [job for job in first.jobs if job.like]
    (options.project / "build" / f"{alike[0].stem}.cubin").unlink()
    assert run(options).compiled == (alike[0].variant.name,) and compiled(options) == 0
    (options.project / "build" / f"{alike[0].like}.cubin").unlink()
    again = run(options)
    assert compiled(options) == 1 and again.facts == first.facts
    source = options.project / "kernels/scale.py"
    source.write_text(source.read_text().replace("* SCALE", "/ SCALE"))
    changed = run(options)
    assert len(changed.compiled) == 32 and compiled(options) == 16
    assert {fact["sha256"] for fact in changed.facts}.isdisjoint(fact["sha256"] for fact in first.facts)


def test_a_failure_is_said_once(options: BuildOptions) -> None:
    source = options.project / "kernels/scale.py"
    source.write_text(f'MODE = "error"\n{source.read_text()}')
    result = run(replace(options, keep_going=True))
    failed = [failure.variant for failure in result.failures]  # type: ignore[attr-defined]
    alike = {job.variant.name for job in result.jobs if job.like}
    assert len(failed) == 8 and not alike & set(failed) and result.totals.built == 16
