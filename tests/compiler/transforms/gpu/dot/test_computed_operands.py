"""Operands that are computed from what was loaded: they lie in shared memory as that did in global memory."""

import numpy as np

import kbuild
import kbuild.language as tl
from tests.emulator.artifacts import left_in

M, N, K = 64, 128, 64


@kbuild.jit
def dequantized(a, packed, scales, c, steps, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    """A·B where a word of `packed` has eight numbers of four bits, one below the other in B."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        left = tl.load(a + m[:, None] * steps * STEP + step * STEP + k[None, :])
        words = tl.load(packed + (step * STEP // 8 + k[:, None] // 8) * N + n[None, :])
        scale = tl.load(scales + n)
        right = ((words >> (k % 8 * 4)[:, None]) & 0xF) * scale[None, :]
        total += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n[None, :], total)


def test_numbers_of_four_bits_are_stored_side_by_side():
    """Row by row as their words were loaded, not element by element down the columns."""
    artifact = kbuild.compile(
        dequantized,
        signature={
            "a": "*fp16:16",
            "packed": "*i32:16",
            "scales": "*fp16:16",
            "c": "*fp32:16",
            "steps": "i32",
        },
        constexprs={"M": M, "N": N, "STEP": 32},
        target="sm_90",
        num_warps=4,
    )
    assert "wgmma" in artifact.asm["ptx"] and "st.shared.b16" not in artifact.asm["ptx"]
    rng = np.random.default_rng(5)
    a, scales = rng.standard_normal((M, K)).astype(np.float16), rng.random(N).astype(np.float16)
    digits = rng.integers(0, 16, (K, N))
    shifted = np.stack([digits[i::8].astype(np.uint32) << np.uint32(4 * i) for i in range(8)])
    packed = shifted.sum(axis=0, dtype=np.uint32).view(np.int32)
    given = {"a": a, "packed": packed, "scales": scales, "c": np.zeros((M, N), np.float32), "steps": K // 32}
    c = left_in("c", artifact, given)
    right = a.astype(float) @ (digits.astype(np.float16) * scales).astype(float)
    np.testing.assert_allclose(c, right, rtol=1e-3, atol=1e-2)
