"""Cases of the shipped attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zoo.arrays import plain, poisoned
from zoo.case import Case, bf16, numbers


def _attention(
    name: str,
    n_ctx: int,
    head_dim: int,
    causal: bool,
    dtype: str,
    block_m: int,
    block_n: int,
    warps: int,
    stages: int,
    **more: int,
) -> Case:
    z, h, scale = 2, 2, 0.125

    def make(rng):
        def tensor():
            values = rng.normal(size=(z, h, n_ctx, head_dim)).astype(np.float32)
            return bf16(values) if dtype == "bf16" else values.astype(np.float16)

        out = poisoned(z, h, n_ctx, head_dim, dtype=np.float16)
        return {
            "q": tensor(),
            "k": tensor(),
            "v": tensor(),
            "out": bf16(out) if dtype == "bf16" else out,
            "lse": poisoned(z * h, n_ctx),
            "sm_scale": scale,
            "stride_z": h * n_ctx * head_dim,
            "stride_h": n_ctx * head_dim,
            "stride_n": head_dim,
            "n_heads": h,
            "n_ctx": n_ctx,
            "n_batch": z,
        }

    def expect(q, k, v, n_ctx, **_):
        scores = numbers(q) @ numbers(k).swapaxes(2, 3) * scale
        if causal:
            scores = np.where(np.tril(np.ones((n_ctx, n_ctx), bool)), scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        return {
            "out": weights / total @ numbers(v),
            "lse": (top + np.log(total))[..., 0].reshape(z * h, n_ctx),
        }

    return Case(
        name,
        "flash_attention.py",
        "flash_attention_kernel",
        make,
        expect,
        {"HEAD_DIM": head_dim, "IS_CAUSAL": causal, "BLOCK_M": block_m, "BLOCK_N": block_n, **more},
        grid=(3 if more.get("PERSISTENT") else -(-n_ctx // block_m) * z * h,),
        num_warps=warps,
        num_stages=stages,
        tolerance=2e-2 if dtype == "bf16" else 4e-3,
    )


def _attention_steep(name: str, causal: bool) -> Case:
    """Attention whose later keys are much the larger ones to a few rows of some warps: these follow their
    maxima in each block of keys, while other rows, and other warps, do not."""
    case, n_ctx = _attention(name, 192, 64, causal, "fp16", 64, 64, 4, 3), 192

    def make(rng):
        arguments, direction = case.make(rng), np.sign(rng.normal(size=64))
        q, k = (plain(arguments[name]).astype(np.float32) for name in "qk")
        is_steep = np.arange(n_ctx)[:, None] % 48 < 3
        arguments["q"] = np.where(is_steep, 3 * direction, 0.2 * q).astype(np.float16)
        arguments["k"] = (0.2 * k + np.linspace(-1, 1, n_ctx)[:, None] * direction).astype(np.float16)
        return arguments

    return replace(case, make=make)


def _attention_infinite(name: str, causal: bool, **more: int) -> Case:
    """Attention with infinite values in the first key, which every row sees: as many infinities in the
    result, and no NaN."""
    case = _attention(name, 150, 64, causal, "fp16", 128, 128, 8, 2, **more)

    def make(rng):
        arguments = case.make(rng)
        v = plain(arguments["v"])
        v[0, :, 0, 3], v[1, 1, 0, :] = np.inf, -np.inf
        return arguments

    return replace(case, make=make)


CASES = [
    _attention("attention", 128, 64, False, "fp16", 64, 64, 4, 2),
    _attention("attention_causal", 192, 64, True, "fp16", 128, 64, 4, 3),
    _attention("attention_ragged", 100, 64, False, "bf16", 64, 32, 4, 2),
    _attention("attention_causal_ragged", 150, 128, True, "bf16", 64, 64, 4, 2),
    _attention("attention_wide", 256, 128, True, "fp16", 128, 64, 8, 3),
    _attention("attention_persistent", 330, 64, True, "bf16", 128, 64, 8, 2, PERSISTENT=True),
    _attention_infinite("attention_infinite", False),
    _attention_infinite("attention_infinite_persistent", True, PERSISTENT=True),
    _attention_steep("attention_steep", False),
    _attention_steep("attention_causal_steep", True),
]
