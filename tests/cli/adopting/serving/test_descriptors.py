"""Tensor descriptors of the host, and manifests that are written by hand."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.aot.capture.static import static_digest
from kbuild.emulator.driver import FakeDriver
from tests.cli.adopting.serving.conftest import taken
from tests.cli.adopting.serving.tensors import Tensor

OPS = """\
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    out.store([row, 0], x.load([row, 0]) * 2)

def rows(args):
    args["x"].block_shape = args["out"].block_shape = [args["BLOCK"], 64]


tuned = triton.autotune([triton.Config({"BLOCK": size}, pre_hook=rows) for size in (4, 16, 8)], key=[])(double_kernel)


@triton.autotune([triton.Config({"BLOCK": size}, pre_hook=rows) for size in (16, 8)], key=["n"])
@triton.jit
def triple_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    out.store([row, 0], x.load([row, 0]) * 3)
"""

MANIFEST = """\
schema = 1
[package]
name = "described_kernels"
version = "1"
archs = ["sm_90"]

[[kernel]]
name = "double"
source = "described.py"
digest = "DIGEST"
serves = "described:double_kernel"
function = "double_kernel"
grid = ["programs"]
grid_args = { programs = "i32" }
args = { "x, out" = "tensordesc<{dtype}[BLOCK, 64]>" }
matrix = { dtype = ["fp32"], BLOCK = [8, 16] }
config = [{ num_warps = 4 }]
"""

TRIPLE = """
[[kernel]]
name = "triple_SIZE"
source = "described.py"
digest = "DIGEST"
serves = "described:triple_kernel"
function = "triple_kernel"
seen = { n = [SEEN] }
grid = ["programs"]
grid_args = { programs = "i32" }
args = { "x, out" = "tensordesc<fp32[SIZE, 64]>", n = "i32" }
config = [{ BLOCK = SIZE, num_warps = 4 }]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, FakeDriver]]:
    """The library and the package, without Triton, and the driver."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "described.py").write_text(OPS)
    digest = static_digest(folder / "described.py", "double_kernel")
    text = MANIFEST.replace("DIGEST", digest)
    for size, seen in (("16", "32"), ("8", "64")):
        digest = static_digest(folder / "described.py", "triple_kernel")
        text += TRIPLE.replace("DIGEST", digest).replace("SIZE", size).replace("SEEN", seen)
    (folder / "kernels.toml").write_text(text)
    result = build(BuildOptions(project=folder, environment=dict(os.environ), archs=("sm_90",)), Progress())
    assert not result.failures and result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder / "site")
    with FakeDriver(["sm_90"], builds=[folder / "build"]) as driver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBUILD_LIBCUDA", str(driver.path))
        patch.setattr(sys, "dont_write_bytecode", True)
        for path in (folder / "site", folder):
            patch.syspath_prepend(str(path))
        before = taken()
        sys.modules["triton"] = None  # type: ignore[assignment]
        package: Any = importlib.import_module("described_kernels")
        package.install()
        yield importlib.import_module("described"), package, driver
        assert not driver.findings
        taken()
    sys.modules.update(before)


@pytest.mark.parametrize("block", [8, 16])
def test_a_descriptor_stands_for_its_tensor(made: Any, block: int) -> None:
    library, _, driver = made
    descriptor = sys.modules["triton.tools.tensor_descriptor"].__dict__["TensorDescriptor"]
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    out = Tensor(driver.empty(x.shape, np.float32))
    ends = [descriptor.from_tensor(tensor, [block, 64]) for tensor in (Tensor(driver.array(x)), out)]
    library.double_kernel[(32 // block,)](*ends, BLOCK=block)
    assert (out.numpy() == 2 * x).all()


def test_other_blocks_and_parts_of_tensors_are_other_calls(made: Any) -> None:
    library, package, driver = made
    descriptor = sys.modules["triton.tools.tensor_descriptor"].__dict__["TensorDescriptor"]
    x = Tensor(driver.array(np.zeros((32, 64), np.float32)))
    whole = descriptor.from_tensor(x, [8, 64])
    for other, reason in (
        (descriptor.from_tensor(x, [8, 32]), r"blocks of \[8, 32\], and is built with \[8, 64\]"),
        (descriptor(x, [16, 64], [64, 1], [8, 64]), "describes another shape than its tensor has"),
        (descriptor.from_tensor(x, [8, 64], "nan"), "padded with nan, and is built with zero"),
        (x, "x is no tensor descriptor"),
    ):
        with pytest.raises(package.dispatch.NoVariantError, match=reason):
            library.double_kernel[(4,)](other, whole, BLOCK=8)


def test_hooks_of_configurations_set_blocks(made: Any) -> None:
    library, _, driver = made
    descriptor = sys.modules["triton.tools.tensor_descriptor"].__dict__["TensorDescriptor"]
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    out = Tensor(driver.empty(x.shape, np.float32))
    ends = [descriptor.from_tensor(tensor, [1, 1]) for tensor in (Tensor(driver.array(x)), out)]
    seen: list[int] = []
    library.tuned[lambda meta: seen.append(meta["BLOCK"]) or (32 // meta["BLOCK"],)](*ends)
    assert (out.numpy() == 2 * x).all() and seen == [16]
    assert library.tuned.best_config.kwargs == {"BLOCK": 16}


@pytest.mark.parametrize(("n", "block"), [(32, 16), (64, 8), (128, 16)])
def test_among_launches_with_other_blocks_the_size_decides(made: Any, n: int, block: int) -> None:
    library, _, driver = made
    descriptor = sys.modules["triton.tools.tensor_descriptor"].__dict__["TensorDescriptor"]
    x = np.random.default_rng(0).standard_normal((n, 64)).astype(np.float32)
    out = Tensor(driver.empty(x.shape, np.float32))
    ends = [descriptor.from_tensor(tensor, [1, 1]) for tensor in (Tensor(driver.array(x)), out)]
    library.triple_kernel[lambda meta: (n // meta["BLOCK"],)](*ends, n)
    assert (out.numpy() == 3 * x).all() and driver.launches[-1].grid[0] == n // block
    assert ends[0].block_shape == [block, 64] and library.triple_kernel.best_config.kwargs == {"BLOCK": block}
