"""A small project on disk, which the tests change as they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manifests import package_table

MANIFEST = (
    package_table("demo_kernels", "sm_80", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
[kernel.args]
x = "*{dtype}:16"
y = "*{dtype}:16"
n = "i32:16?"
[kernel.matrix]
dtype = ["fp16", "fp32"]
NEGATE = [false, true]
[[kernel.config]]
when = { arch = "sm_80" }
BLOCK = 512
[[kernel.config]]
when = { n = "<= 1024" }
BLOCK = 1024
num_warps = 8
[[kernel.config]]
BLOCK = 2048
num_warps = 8
num_stages = 2
[[kernel.exclude]]
dtype = "fp32"
NEGATE = true
"""
)

KERNEL = '''\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr, NEGATE: tl.constexpr, SCALE: tl.constexpr = 2.0):
    """Multiplies n elements by a constant."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * SCALE
    tl.store(y + offsets, -value if NEGATE else value, mask=mask)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of a project with one kernel, `scale`."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/scale.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path
