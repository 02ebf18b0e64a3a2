"""Operands that are computed from what was loaded: they lie in shared memory as that did in global memory."""

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.interp import decode
from kbuild.compiler.ir.types import F8E5M2
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


@kbuild.jit
def scaled(
    a, sa, b, sb, c, FORM: tl.constexpr, A_ALONG_K: tl.constexpr, B_ALONG_K: tl.constexpr, BYTES: tl.constexpr
):
    """A·B, whose elements have scales, for every 32 along k; A and B are contiguous along k or not."""
    m, n, k, g = tl.arange(0, 64), tl.arange(0, 128), tl.arange(0, BYTES), tl.arange(0, 2)
    left = tl.load(a + (m[:, None] * BYTES + k[None, :] if A_ALONG_K else k[None, :] * 64 + m[:, None]))
    right = tl.load(b + (n[None, :] * BYTES + k[:, None] if B_ALONG_K else k[:, None] * 128 + n[None, :]))
    left_scale = tl.load(sa + m[:, None] * 2 + g[None, :])
    right_scale = tl.load(sb + n[:, None] * 2 + g[None, :])
    total = tl.dot_scaled(left, left_scale, FORM, right, right_scale, FORM)
    tl.store(c + m[:, None] * 128 + n[None, :], total)


@pytest.mark.parametrize("a_along_k", [False, True])
@pytest.mark.parametrize("b_along_k", [False, True])
@pytest.mark.parametrize("form", ["e2m1", "e5m2"])
def test_scaled_operands_are_stored_side_by_side(form: str, a_along_k: bool, b_along_k: bool):
    """In the order of what was loaded, also behind a transpose and where elements were joined; both are in shared memory."""
    size = K // 2 if form == "e2m1" else K
    artifact = kbuild.compile(
        scaled,
        signature={"a": "*u8:16", "sa": "*u8:16", "b": "*u8:16", "sb": "*u8:16", "c": "*fp32:16"},
        constexprs={"FORM": form, "A_ALONG_K": a_along_k, "B_ALONG_K": b_along_k, "BYTES": size},
        target="sm_90",
        num_warps=4,
    )
    text = artifact.asm["ptx"]
    assert "wgmma" in text and "ldmatrix" not in text
    # Alone are the scales, one or two for a thread.
    assert text.count("st.shared.b16") <= 4
    rng = np.random.default_rng(5)
    codes = [rng.integers(0x30, 0x48, (rows, size)).astype(np.uint8) for rows in (64, 128)]
    scales = [rng.integers(125, 130, (rows, 2)).astype(np.uint8) for rows in (64, 128)]
    given = {
        "a": codes[0] if a_along_k else np.ascontiguousarray(codes[0].T),
        "sa": scales[0],
        "b": codes[1] if b_along_k else np.ascontiguousarray(codes[1].T),
        "sb": scales[1],
        "c": np.zeros((64, 128), np.float32),
    }
    c = left_in("c", artifact, given)
    fours = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    left, right = (
        (
            decode(each, F8E5M2).astype(float)
            if form == "e5m2"
            else fours[np.stack([each & 15, each >> 4], axis=-1)].reshape(len(each), K)
        )
        * np.repeat(2.0 ** (scale.astype(int) - 127), 32, 1)
        for each, scale in zip(codes, scales)
    )
    np.testing.assert_allclose(c, left @ right.T, rtol=1e-5)
