"""A package with operators, built once, over the fake driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kbuild.emulator.driver import FakeDriver
from tests.aot.op.project import (
    CHOOSE_MANIFEST,
    COST_MANIFEST,
    MANIFEST,
    NORMALISE_MANIFEST,
    built,
    imported,
    write_kernels,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the sources of the project, for manifests that are loaded and not built."""
    write_kernels(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """The project, built."""
    root = tmp_path_factory.mktemp("operators")
    write_kernels(root)
    (root / "kernels.toml").write_text(MANIFEST + CHOOSE_MANIFEST + NORMALISE_MANIFEST + COST_MANIFEST)
    return built(root)


@pytest.fixture(scope="module")
def driver(project) -> Iterator[FakeDriver]:
    """A fake driver with two devices; it ends with the module, for tests of a GPU would find it."""
    with FakeDriver(["sm_90", "sm_90"], builds=[project / "build"]) as driver:
        yield driver


@pytest.fixture(scope="module")
def ops(project, driver, tmp_path_factory, request) -> Iterator[ModuleType]:
    """A copy of the package under a name of its own, as torch keeps operators for as long as the process lives."""
    name = f"operators_of_{request.module.__name__.rpartition('.')[2]}"
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(project / "site/operators_example", site / name)
    with imported(name, site, driver) as module:
        yield module
