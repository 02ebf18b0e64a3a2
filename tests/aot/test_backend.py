"""The PEP 517 hooks, as pip calls them: in the project's directory, with the environment of the process."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kbuild.aot import backend
from kbuild.aot.build import project as builder
from kbuild.aot.build import results
from kbuild.aot.build.progress import Progress
from kbuild.errors import KbuildError
from tests.aot.conftest import KERNEL


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as the current directory, built by the fake compiler, without a cache."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KBUILD_DISABLE_CACHE", "1")
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    return project


def test_wheel(here: Path, tmp_path: Path) -> None:
    assert backend.get_requires_for_build_wheel() == [] == backend.get_requires_for_build_sdist()
    name = backend.build_wheel(str(tmp_path / "out"))
    assert name.startswith("demo_kernels-0.1.0-cp310-abi3-") and (tmp_path / "out" / name).is_file()


def test_jobs_are_those_of_the_environment(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def build(options: builder.BuildOptions, progress: Progress) -> results.BuildResult:
        asked.append(options.jobs)
        return real(options, progress)

    real = builder.build
    monkeypatch.setattr(builder, "build", build)
    for value in ("3", ""):
        monkeypatch.setenv("MAX_JOBS", value)
        backend.build_wheel(str(tmp_path / "out"))
    assert asked == [3, 0]


def test_a_wheel_that_cannot_be_made_raises(here: Path, tmp_path: Path) -> None:
    (here / "kernels/scale.py").write_text('MODE = "error"\n' + KERNEL)
    with pytest.raises(KbuildError, match="NEGATE is not for this kernel"):
        backend.build_wheel(str(tmp_path / "out"))


def test_sdist(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (here / "README.md").write_text("# Demo\n")
    (here / "kernels.tune.toml").write_text("schema = 1\n")
    (here / "shared/deep").mkdir(parents=True)
    (here / "kernels/scale.py").write_text("import numpy, shared.deep.two\nfrom .near import x\n" + KERNEL)
    (here / "kernels/near.py").write_text("from one import y\nfrom . import scale\n")
    (here / "one.py").write_text("import one\n")
    (here / "unused.py").write_text("")
    for name in ("shared/__init__.py", "shared/deep/two.py"):
        (here / name).write_text("from ....far import z\n")
    (here / "kernels/__pycache__").mkdir()
    archives = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        name = backend.build_sdist(str(tmp_path / place))
        assert name == "demo_kernels-0.1.0.tar.gz"
        archives.append((tmp_path / place / name).read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "one/demo_kernels-0.1.0.tar.gz") as archive:
        assert [name.removeprefix("demo_kernels-0.1.0/") for name in archive.getnames()] == [
            "PKG-INFO",
            "README.md",
            "kernels.toml",
            "kernels.tune.toml",
            "kernels/near.py",
            "kernels/scale.py",
            "one.py",
            "shared/__init__.py",
            "shared/deep/two.py",
        ]
