"""A large accumulator added to an array by vector atomics: 256 KB, for which sm_90 has no room at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import kbuild
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.targets import find_target
from tests.emulator.artifacts import left_in

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def add_product(a, b, c, K, SIZE: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns, steps = tl.arange(0, SIZE), tl.arange(0, SIZE), tl.arange(0, BLOCK_K)
    left = a + rows[:, None] * K + steps[None, :]
    right = b + steps[:, None] * SIZE + columns[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for _ in range(0, K, BLOCK_K):
        total += tl.dot(tl.load(left), tl.load(right))
        left += BLOCK_K
        right += BLOCK_K * SIZE
    tl.atomic_add(c + rows[:, None] * SIZE + columns[None, :], total)
"""
SIZE, K = 256, 64


def test_an_accumulator_goes_to_atomics_in_rounds(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    artifact = kbuild.compile(
        f"{path}:add_product",
        signature={"a": "*fp32:16", "b": "*fp32:16", "c": "*fp32:16", "K": "i32:16"},
        constexprs={"SIZE": SIZE, "BLOCK_K": 32},
        target="sm_90",
        stop="ptx",
    )
    about, body = artifact.metadata, parse_module(artifact.asm["ttgir"]).kernel.body
    bounds = [
        op.max_scratch for op in body.walk() if isinstance(op, ConvertLayout) and op.scratch is not None
    ]
    assert bounds == [SIZE * SIZE * 4 // 2] and about.shared <= find_target("sm_90").limits.shared_bytes
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-3, 4, s).astype(np.float32) for s in ((SIZE, K), (K, SIZE), (SIZE, SIZE)))
    found = left_in("c", artifact, {"a": a, "b": b, "c": c, "K": K}, schedule="reverse")
    np.testing.assert_array_equal(found, c + a @ b)
