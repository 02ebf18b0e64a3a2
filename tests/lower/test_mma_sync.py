"""Which instruction of a warp's tensor cores a dot becomes."""

from __future__ import annotations

import re

import pytest
from zoo.case import KERNELS

import kbuild


@pytest.mark.parametrize("arch, shape, instruction, count", [
    ("sm_90", (32, 64, 32), "m16n8k16", 2 * 8 * 2), ("sm_90", (8, 32, 16), "m8n8k4", 4 * 4),
    ("sm_80", (32, 64, 32), "m8n8k4", 4 * 8 * 8),
])  # fmt: skip
def test_doubles_take_the_largest_instruction_that_fits(arch, shape, instruction, count):
    signature = dict.fromkeys("abc", "*fp64:16")
    sizes = dict(zip("MNK", shape), PRECISION="ieee")
    source = f"{KERNELS}/products.py:dot_tile"
    made = kbuild.compile(source, signature=signature, constexprs=sizes, target=arch, num_warps=1, stop="ptx")
    found = re.findall(r"mma\.sync\.aligned\.(\w+)\.row\.col\.f64\.f64\.f64\.f64", made.asm["ptx"])
    assert found == [instruction] * count and "fma.rn.f64" not in made.asm["ptx"]
