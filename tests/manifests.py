"""What manifests of tests begin with, and a kernel that several are of."""

from __future__ import annotations

import json

COPY_KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places, mask=places < n), mask=places < n)
"""
"""Its file is `scale.py`."""


def package_table(name: str, *archs: str, version: str = "1.0") -> str:
    """The table of a package, with an empty line after it."""
    return f'schema = 1\n[package]\nname = "{name}"\nversion = "{version}"\narchs = {json.dumps(archs)}\n\n'
