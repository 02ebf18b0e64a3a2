"""The package of examples/adopt beside its library, on the fake driver and with the stand-in of Triton."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbuild import cli
from kbuild.emulator.driver import FakeDriver
from tests.aot.op.project import built, built_wheel
from tests.cli.adopting.conftest import STAND_IN
from tests.cli.adopting.serving.calls import Calls
from tests.cli.adopting.serving.tensors import torch_over

ROOT = Path(__file__).resolve().parents[4]
MODULES = (
    "adopt",
    "other",
    "tiny_ops",
    "triton",
    "torch",
    "tuned",
    "tuned_kernels",
    "described",
    "described_kernels",
    "owned",
    "owned_kernels",
)


def adopted(folder: Path, ops: str, use: str) -> Path:
    """A project that was captured, imported and built, with the wheel unpacked in `site`: `folder` is called as its library
    is, with `_kernels` behind."""
    library = folder / folder.name.removesuffix("_kernels")
    library.mkdir(parents=True)
    (library / "__init__.py").touch()
    (library / "ops.py").write_text(ops)
    (folder / "use.py").write_text(use)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(folder)]))
        patch.setenv("STAND_IN_GPU", "1")
        assert cli.main(["capture", "-q", "--", sys.executable, "use.py"]) == 0
        assert cli.main(["import", "-q", "capture.jsonl"]) == 0
    return built(folder, "sm_90")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, built."""
    folder = tmp_path_factory.mktemp("serving") / "adopt"
    shutil.copytree(ROOT / "examples/adopt", folder, ignore=shutil.ignore_patterns("build", "dist"))
    shutil.move(built_wheel(folder, "sm_90"), folder / "wheel.zip")
    return folder


@pytest.fixture(scope="module")
def site(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed wheel; its own one for each module, since a process loads an extension once, with one driver."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(project / "wheel.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def driver(project: Path) -> Iterator[FakeDriver]:
    """With a device besides that has no code."""
    with FakeDriver(["sm_90", "sm_80"], builds=[project / "build"]) as driver:
        yield driver


class World:
    """What a process has that imports the library and the package."""

    def __init__(self, driver: FakeDriver, project: Path, folder: Path) -> None:
        self.driver = driver
        self.project = project
        self.folder = folder
        """The folder with a copy of the library, which a test may change before it is imported."""

    @property
    def torch(self) -> Any:
        return sys.modules["torch"]

    @property
    def package(self) -> Any:
        return importlib.import_module("adopt")

    @property
    def library(self) -> Any:
        return importlib.import_module("tiny_ops")

    def module(self, name: str) -> Any:
        return importlib.import_module(name)

    def launched(self) -> list[str]:
        """The entries of all launches since the last time."""
        found = [launch.entry for launch in self.driver.launches[self._seen :]]
        self._seen = len(self.driver.launches)
        return found

    _seen = 0

    def compiled(self) -> int:
        return compiled()


class _Forbidding(importlib.abc.MetaPathFinder):
    """Fails whatever imports Triton."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition(".")[0] == "triton":
            raise ImportError(f"{fullname} is forbidden")


def compiled() -> int:
    """How many kernels Triton's stand-in has compiled."""
    return sys.modules["triton.compiler"].__dict__["count"]


@pytest.fixture
def world(
    project: Path,
    site: Path,
    driver: FakeDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[World]:
    """A world with Triton's stand-in; as a parameter, one where it is `absent`, or where importing it is `forbidden`."""
    way = getattr(request, "param", "")
    shutil.copytree(project / "tiny_ops", tmp_path / "tiny_ops", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    monkeypatch.setenv("STAND_IN_GPU", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for folder in (site, STAND_IN, tmp_path) if not way else (site, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    before = taken()
    if way == "forbidden":
        sys.meta_path.insert(0, _Forbidding())
    elif way == "absent":
        sys.modules["triton"] = None  # type: ignore[assignment]
    sys.modules["torch"] = torch_over(driver)
    world = World(driver, project, tmp_path)
    world._seen = len(driver.launches)
    yield world
    assert not driver.findings
    taken()
    sys.modules.update(before)


@pytest.fixture
def calls(world: World) -> Calls:
    """Calls of the library's kernels with the package installed."""
    made = Calls(world)
    made.package.install(strict=True)
    return made


def taken() -> dict[str, ModuleType]:
    """Takes out the modules that tests import of their own, and says which they were."""
    names = [name for name in sys.modules if name.partition(".")[0] in MODULES]
    return {name: sys.modules.pop(name) for name in names}
