"""Beside cubins that run on Hopper alone a build makes PTX that newer GPUs run, where the manifest asks for PTX."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from tests.aot.build.test_build import compiled
from tests.aot.conftest import KERNEL

ROOT = Path(__file__).parents[3]
VARIANTS = 3 * 4
"""Of `scale` on sm_90."""


@pytest.fixture
def options(project: Path) -> BuildOptions:
    """A build of `scale` for sm_90, with PTX, by the fake compiler."""
    write(project, "accelerated")
    text = (project / "kernels.toml").read_text()
    (project / "kernels.toml").write_text(text.replace('["sm_80", "sm_90"]', '["sm_90+ptx"]'))
    (project / "cache").mkdir(mode=0o700)
    return BuildOptions(
        project=project,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cache=project / "cache",
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )


def write(project: Path, mode: str) -> None:
    (project / "kernels/scale.py").write_text(f'MODE = "{mode}"\n{KERNEL}')


def run(options: BuildOptions) -> BuildResult:
    result = build(options, Progress())
    assert not result.failures and result.wheel is not None
    return result


def portable(project: Path) -> list[Path]:
    return sorted((project / "build/sm_90/scale").glob("*.portable.ptx"))


def targets(project: Path) -> str:
    """The package's table of what its code runs on."""
    text = (project / "build/package/demo_kernels/_table.py").read_text()
    return text[text.index("TARGETS") :].split("\n\n")[0]


def test_it_is_compiled_beside_the_cubin_and_shipped(options: BuildOptions) -> None:
    result = run(options)
    assert len(compiled(options)) == 2 * VARIANTS and len(portable(options.project)) == VARIANTS
    assert all("('portable', True)" in file.read_text() for file in portable(options.project))
    assert [fact["arch"] for fact in result.facts] == ["sm_90a"] * VARIANTS
    assert [fact["portable"]["arch"] for fact in result.facts] == ["sm_90"] * VARIANTS
    assert not any(fact["warnings"] for fact in result.facts)
    shown = targets(options.project)
    assert "sm_90a" in shown and "sm_90+ptx" in shown and "sm_90a+ptx" not in shown


def test_it_is_made_again_where_it_is_lost_and_kept_where_it_is_not(options: BuildOptions) -> None:
    run(options)
    before = [file.read_bytes() for file in portable(options.project)]
    compiled(options)
    assert run(options).compiled == () and compiled(options) == []
    portable(options.project)[0].unlink()
    assert len(run(options).compiled) == 1 and compiled(options) == [], "from the cache"
    portable(options.project)[0].write_text("")
    assert len(run(replace(options, cache=None)).compiled) == 1 and len(compiled(options)) == 2
    assert [file.read_bytes() for file in portable(options.project)] == before


def test_cubins_are_not_compiled_again_for_it(options: BuildOptions) -> None:
    text = (options.project / "kernels.toml").read_text()
    (options.project / "kernels.toml").write_text(text.replace("sm_90+ptx", "sm_90"))
    run(options)
    assert len(compiled(options)) == VARIANTS and not portable(options.project)
    assert "ptx" not in targets(options.project)
    (options.project / "kernels.toml").write_text(text)
    run(options)
    assert len(compiled(options)) == VARIANTS == len(portable(options.project))


def test_code_that_newer_gpus_run_anyway_is_compiled_once(options: BuildOptions) -> None:
    write(options.project, "plain")
    result = run(options)
    assert len(compiled(options)) == VARIANTS and not portable(options.project)
    assert not any("portable" in fact for fact in result.facts)
    assert "sm_90+ptx" in targets(options.project)


def test_where_there_is_none_the_build_says_so(options: BuildOptions) -> None:
    write(options.project, "unportable")
    result = run(options)
    warned = [fact for fact in result.facts if fact["warnings"]]
    assert len(warned) == 4 and all("NEGATE=1" in fact["name"] for fact in warned)
    (text,) = warned[0]["warnings"]
    assert text.startswith("it has no PTX for newer GPUs: kernels/scale.py:6:5: error: NEGATE is of Hopper")
    assert len(portable(options.project)) == VARIANTS - 4
    assert "sm_90a+ptx" not in targets(options.project)
