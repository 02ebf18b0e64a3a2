"""A build that has nothing to do finds that out without planning, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.build import project as builder
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.build.results import BuildResult
from kbuild.aot.build.unchanged import FILE, Totals, note, noted
from kbuild.aot.shards.shard import Shard
from kbuild.options import DEFAULTS
from tests.aot.artifact.partial_wheels import options_of

VARIANTS = 18


@pytest.fixture
def options(project: Path) -> BuildOptions:
    """A build of the cubins of one kernel, which is quicker than one of a package."""
    return replace(options_of(project), kernels=("scale",))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry whenever a build is planned."""
    found: list[str] = []
    original = builder._plan

    def planned(*arguments: object) -> object:
        found.append("planned")
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builder, "_plan", planned)
    return found


def run(options: BuildOptions) -> BuildResult:
    result = build(options, Progress())
    assert not result.failures
    return result


def settle(options: BuildOptions) -> None:
    """Lets the clock that stamps files tick after the last of them."""
    path = options.project / "build" / FILE
    data = path.read_bytes()
    youngest = max(file.stat().st_ctime_ns for file in path.parents[1].rglob("*") if file.is_file())
    while path.stat().st_ctime_ns - youngest < 50_000_000:
        path.write_bytes(data)


def test_a_build_with_nothing_to_do_is_not_planned(options: BuildOptions, plans: list[str]) -> None:
    first = run(options)
    settle(options)
    plans.clear()
    again = run(options)
    assert plans == [] and again.compiled == ()
    assert again.totals == first.totals == Totals(VARIANTS, VARIANTS, first.totals.size)
    # Whoever wants to know the variants gets them.
    assert (again.jobs, again.facts) == (first.jobs, first.facts) and again.expansion == first.expansion
    assert plans == ["planned"]


def test_a_package_is_put_into_dist_again(project: Path, plans: list[str]) -> None:
    options = options_of(project)
    wheel = run(options).wheel
    assert wheel is not None
    data = wheel.read_bytes()
    settle(options)
    wheel.write_bytes(b"damaged")
    plans.clear()
    assert run(options).wheel == wheel and wheel.read_bytes() == data and plans == []
    wheel.unlink()
    assert (
        run(replace(options, dist=project / "other")).wheel == project / "other" / wheel.name and plans == []
    )


def test_notes_are_said_again(
    options: BuildOptions, plans: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = options.project / "kernels.toml"
    more = '[[kernel]]\nname = "never"\nlike = "scale"\nexclude = [{ arch = ["sm_80", "sm_90"] }]\n'
    manifest.write_text(manifest.read_text() + more)
    options = replace(options, kernels=("scale", "never"))
    said = []
    for _ in range(2):
        run(options)
        said.append(capsys.readouterr().err)
        settle(options)
    assert said == ["note: never is left out: the manifest excludes it everywhere on sm_80, sm_90\n"] * 2
    assert len(plans) == 1


def append(name: str, text: str) -> Callable[[BuildOptions], BuildOptions]:
    def change(options: BuildOptions) -> BuildOptions:
        path = options.project / name
        path.write_text((path.read_text() if path.exists() else "") + text)
        return options

    return change


def remove(pattern: str) -> Callable[[BuildOptions], BuildOptions]:
    def change(options: BuildOptions) -> BuildOptions:
        next(options.project.glob(pattern)).unlink()
        return options

    return change


def flip(options: BuildOptions) -> BuildOptions:
    """Changes a cubin in place, and sets its times back."""
    path = next(options.project.glob("build/sm_80/scale/*.cubin"))
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return options


def ask(**changes: object) -> Callable[[BuildOptions], BuildOptions]:
    return lambda options: replace(options, **changes)  # type: ignore[arg-type]


CHANGES: dict[str, Callable[[BuildOptions], BuildOptions]] = {
    "source": append("kernels/scale.py", "\n@triton.jit\ndef scale_kernel(x): pass\n"),
    "manifest": append("kernels.toml", '[[kernel]]\nname = "twice"\nlike = "scale"\n'),
    "table": append("kernels.tune.toml", "schema = 1\n[[entry]]\nkernel = 3\n"),
    "cubin removed": remove("build/sm_80/scale/*.cubin"),
    "record removed": remove("build/sm_90/scale/*.json"),
    "cubin flipped": flip,
    "architecture": ask(archs=("sm_80",)),
    "shard": ask(shard=Shard.of(1, 2)),
    "options": ask(compile=DEFAULTS.changed({"debug": True})),
    "strict": ask(compile=DEFAULTS.changed({"strict": True})),
    "compiler": ask(compiler="tests.aot.build.fake_compiler:source_digest"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_is_seen(options: BuildOptions, plans: list[str], name: str) -> None:
    run(options)
    settle(options)
    plans.clear()
    changed = CHANGES[name](options)
    try:
        build(changed, Progress())
    except Exception:
        assert name in (
            "table",
            "source",
        )  # The table is wrong, and the kernel lacks what the manifest gives it.
        return
    assert plans == ["planned"]


def test_a_note_no_younger_than_the_files_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "sm_80").mkdir()
    made = tmp_path / "sm_80/a.cubin"
    made.write_bytes(b"1")
    os.utime(tmp_path)
    note(tmp_path, "request", Totals(1, 1, 1))
    (tmp_path / FILE).read_bytes()
    young = made.stat().st_ctime_ns
    if (tmp_path / FILE).stat().st_ctime_ns - young < 20_000_000:
        assert noted(tmp_path, "request") is None
    while (tmp_path / FILE).stat().st_ctime_ns - young < 20_000_000:
        note(tmp_path, "request", Totals(1, 1, 1))
    assert noted(tmp_path, "request") == Totals(1, 1, 1) and noted(tmp_path, "other") is None
    made.write_bytes(b"2")
    assert noted(tmp_path, "request") is None


def test_a_damaged_note_is_none(options: BuildOptions, plans: list[str]) -> None:
    run(options)
    settle(options)
    path = options.project / "build" / FILE
    path.write_text(path.read_text().replace(f'"built": {VARIANTS}', '"built": 3'))
    plans.clear()
    assert run(options).totals.built == VARIANTS and plans == ["planned"]
