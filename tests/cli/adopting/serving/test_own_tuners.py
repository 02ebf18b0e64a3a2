"""Tuners of libraries, which derive from Triton's and choose by themselves, choose what was captured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.load import load
from kbuild.emulator.driver import FakeDriver
from tests.cli.adopting.conftest import STAND_IN
from tests.cli.adopting.serving.conftest import adopted, taken
from tests.cli.adopting.serving.own_library import OPS, USE
from tests.cli.adopting.serving.tensors import Tensor


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adopted(tmp_path_factory.mktemp("owned") / "owned_kernels", OPS, USE)


@pytest.fixture(scope="module")
def driver(made: Path) -> Iterator[FakeDriver]:
    with FakeDriver(["sm_90"], builds=[made / "build"]) as driver:
        yield driver


@pytest.fixture(params=["before", "after", "absent"])
def served(
    made: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """The library's module, imported before the package is installed, after it, or without Triton."""
    is_absent = request.param == "absent"
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for folder in (made / "site", made) if is_absent else (made / "site", STAND_IN, made):
        monkeypatch.syspath_prepend(str(folder))
    before = taken()
    if is_absent:
        sys.modules["triton"] = None  # type: ignore[assignment]
    if request.param == "before":
        importlib.import_module("owned.ops")
    importlib.import_module("owned_kernels").install(strict=True)
    yield importlib.import_module("owned.ops")
    assert not driver.findings
    taken()
    sys.modules.update(before)


def run(ops: Any, driver: FakeDriver, kernel: str, n: int) -> int:
    """Threads of a block of a launch, whose result is checked."""
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    out = Tensor(driver.empty((n,), np.float32))
    ops.twice(getattr(ops, kernel), Tensor(driver.array(x)), out)
    assert (out.numpy() == x * 2).all()
    return driver.launches[-1].block[0]


def test_what_it_chose_is_imported_as_its_choice(made: Path) -> None:
    (twice,) = [one for one in load(made / "kernels.toml").kernels if one.name == "twice"]
    assert [one.options.num_warps for one in twice.configs] == [2, 8]
    assert dict(twice.seen) == {"n": (640, 6400)}


def test_it_chooses_what_was_captured(served: Any, driver: FakeDriver) -> None:
    before = len(driver.launches)
    for n, warps in ((640, 2), (6400, 8), (320, 2), (12800, 8), (640, 2)):
        assert run(served, driver, "tuned_kernel", n) == 32 * warps
        assert served.tuned_kernel.best_config.num_warps == warps
    assert len(driver.launches) == before + 5  # Nothing was tried.


@pytest.mark.parametrize("kernel", ["kept_kernel", "kept_with_all_kernel"])
def test_what_was_compiled_launches_itself(served: Any, driver: FakeDriver, kernel: str) -> None:
    for n, warps in ((640, 2), (6400, 8), (6400, 8), (640, 2)):
        assert run(served, driver, kernel, n) == 32 * warps


@pytest.mark.parametrize("is_gone", [False, True])
def test_configurations_that_a_library_changes_are_those_that_were_built(
    served: Any, driver: FakeDriver, is_gone: bool
) -> None:
    """Also where it has no such configuration at all, as another version may."""
    tuner = served.slow_kernel
    if is_gone:
        tuner.early_config_prune = None
    for n, block in ((640, 128), (6400, 256), (640, 128)):
        run(served, driver, "slow_kernel", n)
        assert driver.launches[-1].grid[0] == -(-n // block)
        assert tuner.best_config.kwargs == {"BLOCK": block, "FAST": False}
        assert (tuner.best_config in tuner.configs) is not is_gone
