"""Kernels of these tests, compiled and known to the fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kbuild
from kbuild.emulator.driver import FakeDriver

SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


@triton.jit
def first(pair, flag, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(pair[0] + offsets * pair[1], offsets + flag)


@triton.jit
def nested(pair, flag, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if pair[2] is None:
        tl.store(pair[0] + offsets * pair[1][0], offsets + pair[1][1] + flag)


@triton.jit
def transposed(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = x.load([tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS])
    out.store([tl.program_id(1) * COLUMNS, tl.program_id(0) * ROWS], tile.trans())
"""


def compiled(driver: FakeDriver, name: str, source: str | Path = "", **how: Any) -> kbuild.Artifact:
    """A kernel of `SOURCE`, or of a file, as `kbuild.compile` makes it; the driver knows its PTX."""
    if not source:
        source = Path("kernels.py")
        source.write_text(SOURCE)
    artifact = kbuild.compile(f"{source}:{name}", **how)
    if "cubin" in artifact.asm:
        driver.register(artifact.asm["cubin"], artifact.asm["ptx"])
    return artifact


def scale(driver: FakeDriver, element: str = "fp32", n: str = "i32", **how: Any) -> kbuild.Artifact:
    """`scale` for arrays of a type."""
    signature = {"x": f"*{element}:16", "out": f"*{element}:16", "factor": "fp32", "n": n}
    return compiled(driver, "scale", signature=signature, constexprs={"BLOCK": 64}, **how)
