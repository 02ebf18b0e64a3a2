"""A wheel for `sm_90+ptx` runs on newer devices, whose drivers compile PTX that has nothing of Hopper's own."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.emulator.driver import FakeDriver
from tests.manifests import package_table
from tests.zoo.case import KERNELS

ROOT = Path(__file__).parents[3]
DEVICES = ("sm_90", "sm_100", "sm_120")
MANIFEST = (
    package_table("newer", "sm_90+ptx")
    + """\
[[kernel]]
name = "matmul"
source = "kernels/dots.py"
function = "dot_descriptors"
grid = ["cdiv(M, 2 * TILE_M) * 2", "cdiv(N, TILE_N)"]
args = { "a, b, c" = "*fp16:16", "M, N, K" = "i32", "lda, ldb, ldc" = "i32:16" }
[[kernel.config]]
TILE_M = 64
TILE_N = 64
TILE_K = 64
cluster_size = 2

[[kernel]]
name = "copy"
source = "kernels/copies.py"
function = "copy_kernel"
grid = ["1"]
args = { "x, out" = "*fp32" }
[[kernel.config]]
BLOCK = 64
"""
)
COPY = """
import triton
import triton.language as tl

@triton.jit
def copy_kernel(x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, built, with its wheel unpacked in `site`."""
    project = tmp_path_factory.mktemp("newer")
    (project / "kernels").mkdir()
    shutil.copy(KERNELS / "dots.py", project / "kernels")
    (project / "kernels/copies.py").write_text(COPY)
    (project / "kernels.toml").write_text(MANIFEST)
    compiler = "tests.emulator.driver.older_compiler:compile"
    result = build(BuildOptions(project=project, environment=dict(os.environ), compiler=compiler), Progress())
    assert not result.failures and result.wheel is not None
    assert not any(fact["warnings"] for fact in result.facts)
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(project / "site")
    return project


@pytest.fixture
def driver(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    with FakeDriver(DEVICES, builds=[project / "build"], folder=project) as driver:
        monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
        monkeypatch.syspath_prepend(str(project / "site"))
        yield driver
    for module in [module for module in sys.modules if module.split(".")[0] == "newer"]:
        del sys.modules[module]


def test_each_device_computes_the_same(driver: FakeDriver) -> None:
    package = importlib.import_module("newer")
    random = numpy.random.default_rng(0)
    left, right = (random.integers(-3, 4, (80, 80)).astype("f2") for _ in "ab")
    for device in range(len(DEVICES)):
        a, b = (driver.array(values, device) for values in (left, right))
        c = driver.empty((80, 80), "f2", device)
        package.launch.matmul(a, b, c, 80, 80, 80, 80, 80, 80)
        assert c.copy_to_host().tolist() == (left @ right.T).tolist()
        x = driver.array(numpy.arange(64, dtype="f4"), device)
        package.copy(x, x)
        assert x.copy_to_host().tolist() == list(range(64))


def test_code_for_hopper_alone_is_taken_where_it_runs(
    driver: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The PTX is a row of its own: it has no clusters."""
    package = importlib.import_module("newer")
    meta = "TILE_M=64 TILE_N=64 TILE_K=64 num_warps=4 num_stages=3"
    rows = {"sm_90a": f"sm_90a {meta} cluster_size=2", "sm_90+ptx": f"sm_90+ptx {meta}"}
    for arch, taken in zip(DEVICES, ("sm_90a", "sm_90+ptx", "sm_90+ptx")):
        package.explain("matmul", 16, 16, 16, 80, 80, 80, 80, 80, 80, arch=arch)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in lines if line.endswith(": taken")] == [
            f"{rows[taken]} a,b,c,lda,ldb,ldc:16: taken"
        ]
