"""The projects of examples/, each built in a copy and imported over a fake driver."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.emulator.driver import FakeDriver
from tests.launcher.conftest import fake_driver  # noqa: F401  a fixture

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def copy_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project in a folder of its own name, without what a build has left there."""
    ignored = shutil.ignore_patterns("build", "dist", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path_factory.mktemp("examples") / name, ignore=ignored))


def built(project: Path) -> Path:
    """The project's wheel for sm_90, compiled without a cache."""
    options = BuildOptions(project=project, environment=dict(os.environ), archs=("sm_90",))
    result = build(options, Progress())
    assert not result.failures and result.wheel is not None
    return result.wheel


@contextmanager
def installed(wheel: Path, project: Path, name: str) -> Iterator[tuple[ModuleType, FakeDriver]]:
    """The package of a wheel, and the driver that it runs on."""
    site = project / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    with FakeDriver(["sm_90"], builds=[project / "build"]) as driver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUILD_LIBCUDA", str(driver.path))
        patch.syspath_prepend(str(site))
        yield importlib.import_module(name), driver
        assert not driver.findings
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
