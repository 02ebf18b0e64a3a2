"""A kernel in CUDA C++ that takes tensor maps, from its manifest to launches of its wheel on the fake driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from kbuild.cli import main
from tests.aot.cuda.test_package import built
from tests.compiler.cuda.test_zoo import KERNELS
from tests.examples.conftest import installed
from tests.manifests import package_table

HOPPER = (
    package_table("hopper_kernels", "sm_90")
    + """\
[[kernel]]
name = "matmul"
source = "kernels/hopper.cu"
function = "gemm"
block = [128]
grid = ["cdiv(b_shape_0, 64)", "cdiv(a_shape_0, 64)"]
args = { "a, b" = "tensordesc<fp16[64, 64]:nan:swizzle128>", c = "*fp32:16", "N, K" = "i32" }
[kernel.verify]
reference = "reference.py:matmul"
sizes = { a = "a_shape_0 * a_stride_0", b = "b_shape_0 * b_stride_0", c = "a_shape_0 * N" }
values = [{ N = 128, K = 64, "a_shape_0, a_shape_1" = 64, a_stride_0 = 72, b_shape_0 = 128, b_shape_1 = 64, b_stride_0 = 64 }]
"""
)


def test_tensor_maps_are_made_of_the_tensors_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    shutil.copy(KERNELS / "hopper.cu", tmp_path / "kernels")
    (tmp_path / "kernels.toml").write_text(HOPPER)
    (tmp_path / "reference.py").write_text(
        "def matmul(a, b, c, N, K, a_stride_0):\n"
        "    c[:] = (a.reshape(-1, a_stride_0)[:, :K] @ b.reshape(N, K).T).ravel()\n"
    )
    assert main(["verify", "-C", str(tmp_path), "--no-cache", "-j", "1"]) == 0
    wheel = built(tmp_path).wheel
    assert wheel is not None
    random = np.random.default_rng(1)
    a, b = (
        random.integers(-3, 4, (64, 128)).astype(np.float16),
        random.integers(-3, 4, (64, 128)).astype(np.float16),
    )
    with installed(wheel, tmp_path, "hopper_kernels") as (module, driver):
        c = driver.empty((64, 64), np.float32)
        module.matmul(driver.array(a), driver.array(b), c, 64, 128)
        np.testing.assert_array_equal(c.copy_to_host(), a.astype(float) @ b.T.astype(float))
