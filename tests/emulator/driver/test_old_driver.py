"""A package on a machine whose driver is older than its code: the required and the present version are both named."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import shutil
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.emulator.driver import DriverResult, FakeDriver
from tests.emulator.driver.conftest import VECTORS
from tests.manifests import package_table

KERNEL = """\
[[kernel]]
name = "vector_add"
source = "kernels/vectors.py"
grid = ["cdiv(n, BLOCK)"]
function = "vector_add_kernel"
args = { x = "*fp32", y = "*fp32", out = "*fp32", n = "i64" }
[[kernel.config]]
BLOCK = 256
"""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a project, built once by one of the compilers whose kernels do nothing, with its package
    in `site`."""

    @functools.cache
    def built(compiler: str) -> Path:
        folder = tmp_path_factory.mktemp(compiler)
        (folder / "kernels").mkdir()
        (folder / "kernels/vectors.py").write_text(VECTORS)
        (folder / "kernels.toml").write_text(package_table("late", "sm_90") + KERNEL)
        options = BuildOptions(
            project=folder,
            environment=dict(os.environ),
            compiler=f"tests.emulator.driver.noop_compiler:{compiler}",
            source_digest="tests.aot.build.fake_compiler:source_digest",
        )
        result = build(options, Progress())
        assert not result.failures and result.wheel is not None
        with zipfile.ZipFile(result.wheel) as archive:
            archive.extractall(folder / "site")
        return folder

    return built


@pytest.fixture
def machine(
    builds: Callable[[str], Path], libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], tuple[types.ModuleType, FakeDriver]]]:
    """Makes a fresh import of a package, by one of the compilers, over a driver for a version of CUDA."""
    drivers: list[FakeDriver] = []
    name = f"late_{next(_numbers)}"

    def make(compiler: str, version: str) -> tuple[types.ModuleType, FakeDriver]:
        folder = builds(compiler)
        drivers.append(
            FakeDriver(["sm_90"], builds=[folder / "build"], folder=libraries, version=version).__enter__()
        )
        shutil.copytree(folder / "site/late", tmp_path / name)
        monkeypatch.setenv("KBUILD_LIBCUDA", str(drivers[-1].path))
        monkeypatch.syspath_prepend(str(tmp_path))
        return importlib.import_module(name), drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


def launch(package: types.ModuleType, driver: FakeDriver) -> None:
    x = driver.array(numpy.ones(256, "f4"))
    package.launch.vector_add(x, x, x, 256)


Machine = Callable[[str, str], tuple[types.ModuleType, FakeDriver]]


def test_an_older_driver_is_reported_with_what_the_package_needs(machine: Machine) -> None:
    late, driver = machine("compile_by_ptxas_13", "12.2")
    assert late.MIN_DRIVER == 580
    with pytest.raises(late.DriverError) as caught:
        launch(late, driver)
    assert (caught.value.name, caught.value.driver_version) == ("CUDA_ERROR_INVALID_IMAGE", "12.2")
    advice = (
        "the code of late needs a driver 580 or newer (CUDA 13.0), and this machine has 535 (CUDA 12.2): update the "
        "driver, or install a build of late for older ones"
    )
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    "compiler, version, needed",
    [
        ("compile_by_ptxas_13", "13.0", 580),
        ("compile", "12.2", 525),
        ("compile", "12.0", 525),
    ],
)
def test_a_driver_that_is_new_enough(machine: Machine, compiler: str, version: str, needed: int) -> None:
    late, driver = machine(compiler, version)
    launch(late, driver)
    assert needed == late.MIN_DRIVER


def test_other_errors_of_old_drivers_are_not_taken_for_this_one(machine: Machine) -> None:
    late, driver = machine("compile_by_ptxas_13", "12.2")
    driver.fail_next("cuModuleLoadDataEx", DriverResult.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(late.DriverError) as caught:
        launch(late, driver)
    assert "OUT_OF_MEMORY" in str(caught.value) and "580" not in str(caught.value)
