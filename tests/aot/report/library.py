"""A small library that tests report on, built by the real compiler, and a large one made up from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbuild import cli
from tests.aot.conftest import KERNEL
from tests.manifests import package_table

MANIFEST = (
    package_table("demo_kernels", "sm_80", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, y" = "*{dtype}:16", n = "i32" }
matrix = { dtype = ["fp16", "fp32"], NEGATE = [false] }
config = [{ BLOCK = 512 }]
[[kernel.exclude]]
arch = "sm_90"

[[kernel]]
name = "multiply"
source = "kernels/multiply.py"
grid = ["1"]
args = { "a, b, c" = "*fp16:16" }
config = [{ SIZE = 64 }]
[[kernel.exclude]]
arch = "sm_80"
"""
)
MULTIPLY = '''\
import triton
import triton.language as tl


@triton.jit
def product(a, b, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    tile = rows[:, None] * SIZE + rows[None, :]
    return tl.dot(tl.load(a + tile), tl.load(b + tile))


@triton.jit
def multiply_kernel(a, b, c, SIZE: tl.constexpr):
    """The product of two square matrices."""
    rows = tl.arange(0, SIZE)
    tl.store(c + rows[:, None] * SIZE + rows[None, :], product(a, b, SIZE).to(tl.float16))
'''
SCALE = "scale.sm_80.{}.NEGATE=0.BLOCK=512,SCALE=2.0.w4s3"
MULTIPLY_NAME = "multiply.sm_90.SIZE=64.w4s3"


@contextmanager
def project(folder: Path) -> Iterator[Path]:
    """The library in a folder, which is the current one meanwhile, with a cache of its own."""
    (folder / "kernels").mkdir()
    (folder / "kernels/scale.py").write_text(KERNEL)
    (folder / "kernels/multiply.py").write_text(MULTIPLY)
    (folder / "kernels.toml").write_text(MANIFEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KBUILD_CACHE_DIR", str(folder / "cache"))
        for name in ("CI", "MAX_JOBS", "KBUILD_PTXAS", "KBUILD_DISABLE_CACHE", "TRITON_DEBUG"):
            patch.delenv(name, raising=False)
        yield folder


def built(folder: Path) -> None:
    """Builds it."""
    assert cli.main(["build", "-q", "-j", "2"]) == 0


def multiplied(summary: dict[str, Any], count: int) -> dict[str, Any]:
    """The summary of a library of so many variants, of 20 kernels: like those of a small one, each a little different,
    with some that spill, fail, or are out of date; the last build made all of them."""
    found = copy.deepcopy(summary)
    models, found["variants"] = found["variants"], []
    found["kernels"] = [dict(summary["kernels"][0], name=f"kernel_{number}") for number in range(20)]
    steps: list[list[Any]] = []
    for number in range(count):
        variant = copy.deepcopy(models[number % len(models)])
        arch, dtype = ("sm_80", "sm_90")[number % 2], ("fp16", "fp32", "bf16")[number % 3]
        variant |= {
            "kernel": f"kernel_{number % 20}",
            "arch": arch,
            "dtype": dtype,
            "seconds": 0.1 + number % 7,
        }
        variant["name"] = f"{variant['kernel']}.{arch}.{dtype}.BLOCK={16 << number % 8},NUMBER={number}.w4s3"
        variant["state"] = {0: "changed", 1: "failed", 2: "new"}.get(number % 50, "same")
        if variant["facts"]:
            variant["facts"]["registers"] = 16 + number % 240
            variant["facts"]["spill_stores"] = 8 * (number % 97 == 0)
        found["variants"].append(variant)
        start = number // 16 * 0.5
        how = "cache" if number % 3 == 0 else "compiled"
        steps.append([variant["name"], "compile", start, start + 0.4, how, number % 16, []])
    end = steps[-1][3]
    steps.append(["demo_kernels", "package", end, end + 1.0, "compiled", 0, []])
    found["builds"] = [
        {
            **summary["builds"][-1],
            "steps": steps,
            "jobs": count,
            "hits": sum(step[4] == "cache" for step in steps),
            "seconds": end + 1.0,
            "path": [*range(0, count, 16), count],
        }
    ]
    return found
