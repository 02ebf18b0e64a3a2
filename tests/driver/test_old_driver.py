"""A package on a machine whose driver is older than its code: what it needs and what there is are both named."""

from __future__ import annotations

import importlib
import os
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

from kbuild.aot.build import Options, build
from kbuild.aot.progress import Progress
from kbuild.emulator.driver import Result, StandIn
from tests.driver.conftest import VECTORS
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
Launch = Callable[[str], None]


def built(folder: Path, name: str, compiler: str, package_keys: str = "") -> Path:
    """The folder of a project, built by a compiler whose kernels do nothing, with its package in `site`."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels/vectors.py").write_text(VECTORS)
    (folder / "kernels.toml").write_text(package_table(name, "sm_90").rstrip("\n") + f"\n{package_keys}\n{KERNEL}")
    compilers = {"compiler": f"tests.driver.noop_compiler:{compiler}", "source_digest": "tests.aot.fake_compiler:source_digest"}
    result = build(Options(project=folder, environment=dict(os.environ), **compilers), Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder / "site")
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], types.ModuleType]]:
    """Makes a package, of a name of its own, by one of the compilers."""
    names: list[str] = []

    def make(compiler: str, package_keys: str = "") -> types.ModuleType:
        names.append(f"late_{len(names)}_{tmp_path.name.replace('-', '_')}")
        folder = built(tmp_path / names[-1], names[-1], compiler, package_keys)
        monkeypatch.syspath_prepend(str(folder / "site"))
        return importlib.import_module(names[-1])

    yield make
    for module in [module for module in sys.modules if module.split(".")[0] in names]:
        del sys.modules[module]


def launch(package: types.ModuleType, version: str, libraries: Path, monkeypatch: pytest.MonkeyPatch, fail: int = 0) -> None:
    """A launch on a machine with a driver for that version of CUDA."""
    builds = Path(str(package.__file__)).parents[2] / "build"
    with StandIn(["sm_90"], builds=[builds], folder=libraries, version=version) as driver:
        monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
        if fail:
            driver.fail_next("cuModuleLoadDataEx", Result(fail))
        x = driver.array(numpy.ones(256, "f4"))
        package.vector_add(x, x, x, 256)


def test_an_older_driver_is_told_with_what_the_package_needs(
    package: Callable[..., types.ModuleType], libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = package("compile_by_ptxas_13")
    assert late.MIN_DRIVER == 580
    with pytest.raises(late.DriverError) as caught:
        launch(late, "12.2", libraries, monkeypatch)
    assert (caught.value.name, caught.value.driver_version) == ("CUDA_ERROR_INVALID_IMAGE", "12.2")
    assert (
        f"the code of {late.__name__} needs a driver 580 or newer (CUDA 13.0), and this machine has 535 (CUDA 12.2): update the "
        f"driver, or install a build of {late.__name__} for older ones"
    ) in str(caught.value)


@pytest.mark.parametrize("compiler, version", [("compile_by_ptxas_13", "13.0"), ("compile", "12.2"), ("compile", "12.0")])
def test_a_driver_that_is_new_enough(
    package: Callable[..., types.ModuleType], libraries: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, version: str
) -> None:
    launch(package(compiler), version, libraries, monkeypatch)


def test_other_errors_of_old_drivers_are_not_taken_for_this_one(
    package: Callable[..., types.ModuleType], libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = package("compile_by_ptxas_13")
    with pytest.raises(late.DriverError) as caught:
        launch(late, "12.2", libraries, monkeypatch, fail=Result.CUDA_ERROR_OUT_OF_MEMORY)
    assert "OUT_OF_MEMORY" in str(caught.value) and "580" not in str(caught.value)


def test_the_manifest_may_ask_for_a_later_driver_than_the_code_does(
    package: Callable[..., types.ModuleType], libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package("compile", "min_driver = 550").MIN_DRIVER == 550
