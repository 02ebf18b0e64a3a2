"""A package with operators, built once, over the fake driver."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.emulator.driver import FakeDriver
from tests.aot.op.project import MANIFEST, SCALE

KERNELS = Path(__file__).resolve().parents[3] / "kernels"


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """The project, built."""
    root = tmp_path_factory.mktemp("operators")
    (root / "kernels").mkdir()
    for name in ("vector_add", "sum", "layer_norm"):
        shutil.copy(KERNELS / f"{name}.py", root / "kernels")
    (root / "kernels" / "scale.py").write_text(SCALE)
    (root / "kernels.toml").write_text(MANIFEST)
    result = build(BuildOptions(project=root, environment=dict(os.environ)), Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(root / "site")
    return root


@pytest.fixture(scope="session")
def driver(project, tmp_path_factory) -> Iterator[FakeDriver]:
    """A fake driver with one device."""
    with FakeDriver(["sm_90"], builds=[project / "build"]) as driver:
        yield driver


@pytest.fixture(scope="session")
def ops(project, driver) -> Iterator[ModuleType]:
    """The package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUILD_LIBCUDA", str(driver.path))
        patch.syspath_prepend(str(project / "site"))
        yield importlib.import_module("operators_example")
    for name in [name for name in sys.modules if name.partition(".")[0] == "operators_example"]:
        del sys.modules[name]
