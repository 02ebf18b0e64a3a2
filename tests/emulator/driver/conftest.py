"""A real wheel of five kernels, and worlds in which a fresh copy of it meets a fresh driver."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.emulator.driver import FakeDriver
from tests.manifests import package_table
from tests.zoo.case import KERNELS

ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "kernels/flash_attention.py", KERNELS / "dots.py")
VECTORS = """\
import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(x, out, stride_x, stride_out, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    values = tl.load(x + row * stride_x + columns, mask=inside, other=-float("inf"))
    exponentials = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride_out + columns, exponentials / tl.sum(exponentials, axis=0), mask=inside)


@triton.jit
def scale_late_kernel(x, factors, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    factor = tl.load(factors + offsets)
    tl.extra.cuda.gdc_wait()
    tl.store(out + offsets, factor * tl.load(x + offsets))
"""
MANIFEST = (
    package_table("chain", "sm_80+ptx", "sm_90")
    + """\
[[kernel]]
name = "vector_add"
source = "kernels/vectors.py"
function = "vector_add_kernel"
grid = ["cdiv(n, BLOCK)"]
[kernel.args]
x = "*{dtype}"
y = "*{dtype}"
out = "*{dtype}"
n = "i64"
[kernel.matrix]
dtype = ["fp32", "fp16"]
[[kernel.specialize]]
x = 16
y = 16
out = 16
n = 16
[[kernel.specialize]]
[[kernel.config]]
BLOCK = 256

[[kernel]]
name = "softmax"
source = "kernels/vectors.py"
function = "softmax_kernel"
grid = ["n_rows"]
[kernel.args]
x = "*fp32"
out = "*fp32"
stride_x = "i64"
stride_out = "i64"
n_cols = "i32"
[kernel.grid_args]
n_rows = "i32"
[[kernel.config]]
when = { n_cols = "<= 256" }
BLOCK = 256

[[kernel]]
name = "scale_late"
source = "kernels/vectors.py"
function = "scale_late_kernel"
grid = ["1"]
[kernel.args]
x = "*fp32"
factors = "*fp32"
out = "*fp32"
[[kernel.config]]
BLOCK = 64
launch_pdl = true

[[kernel]]
name = "matmul"
source = "kernels/dots.py"
function = "dot_descriptors"
grid = ["cdiv(M, TILE_M)", "cdiv(N, TILE_N)"]
[kernel.args]
a = "*fp16:16"
b = "*fp16:16"
c = "*fp16:16"
M = "i32"
N = "i32"
K = "i32"
lda = "i32:16"
ldb = "i32:16"
ldc = "i32:16"
[[kernel.config]]
TILE_M = 64
TILE_N = 64
TILE_K = 64

[[kernel]]
name = "attention"
source = "kernels/flash_attention.py"
grid = ["cdiv(n_ctx_q, BLOCK_M) * n_batch * n_heads"]
[kernel.args]
q = "*fp16:16"
k = "*fp16:16"
v = "*fp16:16"
out = "*fp16:16"
lse = "*fp32"
sm_scale = "fp32"
stride_qz = "i32:16"
stride_qh = "i32:16"
stride_qn = "i32:16"
stride_kz = "i32:16"
stride_kh = "i32:16"
stride_kn = "i32:16"
stride_vz = "i32:16"
stride_vh = "i32:16"
stride_vn = "i32:16"
stride_oz = "i32:16"
stride_oh = "i32:16"
stride_on = "i32:16"
n_heads = "i32"
n_kv_heads = "i32"
n_ctx_q = "i32"
n_ctx_k = "i32"
n_batch = "i32"
[kernel.matrix]
HEAD_DIM = [64]
IS_CAUSAL = [true, false]
[[kernel.config]]
BLOCK_M = 64
BLOCK_N = 64
num_stages = 2
"""
)


@dataclass
class Built:
    """A project that was built, and its wheel unpacked."""

    project: Path
    package: Path

    @property
    def builds(self) -> Path:
        """The folder with the cubins and their PTX."""
        return self.project / "build"


@dataclass
class World:
    """A freshly imported package over a fresh driver."""

    package: types.ModuleType
    driver: FakeDriver


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel, by kbuild's own compiler, with cubins that old drivers load, too."""
    project = tmp_path_factory.mktemp("chain")
    (project / "kernels").mkdir()
    for source in SOURCES:
        shutil.copy(source, project / "kernels")
    (project / "kernels/vectors.py").write_text(VECTORS)
    (project / "kernels.toml").write_text(MANIFEST)
    options = BuildOptions(
        project=project, environment=dict(os.environ), compiler="tests.emulator.driver.older_compiler:compile"
    )
    result = build(options, Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(project / "site")
    return Built(project, project / "site/chain")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the fake driver's libraries."""
    return tmp_path_factory.mktemp("libraries")


_numbers = itertools.count()


@pytest.fixture
def world(
    built: Built, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    """Makes a world with these devices and settings; one for each test."""
    name = f"chain_{next(_numbers)}"
    drivers: list[FakeDriver] = []

    def make(*devices: str, **settings: object) -> World:
        settings = {"builds": [built.builds], "folder": libraries} | settings
        drivers.append(FakeDriver(devices or ("sm_90", "sm_80"), **settings).__enter__())  # type: ignore[arg-type]
        shutil.copytree(built.package, tmp_path / name)
        monkeypatch.setenv("KBUILD_LIBCUDA", str(drivers[-1].path))
        monkeypatch.syspath_prepend(str(tmp_path))
        return World(importlib.import_module(name), drivers[-1])

    yield make
    for driver in drivers:
        driver.close()
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
