"""`kbuild.load` of kernels in CUDA C++, on the fake driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import kbuild
from emulated.kernels import compiled
from kbuild.emulator.driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

KERNELS = Path(__file__).parents[2] / "compiler/cuda/kernels"


@on_fake_gpu()
def test_blocks_of_three_axes_and_arguments_of_all_kinds(driver: FakeDriver) -> None:
    x = np.arange(700, dtype=np.float32)
    kernel = kbuild.load(compiled(driver, "cube", KERNELS / "stencil.cu", block="8x4x4"))
    out = driver.empty(700, np.float32)
    kernel[2, 2, 3](driver.array(x), out, 10, 7, 10)
    assert driver.launches[-1].block == (8, 4, 4)
    assert out.copy_to_host().reshape(10, 7, 10)[5, 3, 5] == 0  # The second difference of a plane.


@on_fake_gpu()
def test_tensor_maps_are_made_of_arrays(driver: FakeDriver) -> None:
    signature = {"x": "tensordesc<fp32[32, 64]>", "y": "*fp32", "rows": "i32", "columns": "i32"}
    kernel = kbuild.load(compiled(driver, "copy", KERNELS / "hopper.cu", block="128", signature=signature))
    x, y = np.arange(5000, dtype=np.float32).reshape(50, 100), driver.empty(5000, np.float32)
    kernel[2, 2](driver.array(x), y, 50, 100)
    np.testing.assert_array_equal(y.copy_to_host().reshape(50, 100), x)
