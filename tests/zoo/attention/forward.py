"""Cases of the shipped attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zoo.arrays import plain, poisoned
from zoo.case import Case, bf16, numbers


def strides_of(arrays: str | list[str], heads: int, positions: int, head_dim: int) -> dict[str, int]:
    """The strides of arrays that lie one batch, head and position after the other."""
    sizes = {"z": heads * positions * head_dim, "h": positions * head_dim, "n": head_dim}
    return {f"stride_{array}{axis}": size for array in arrays for axis, size in sizes.items()}


def seen(queries: int, keys: int) -> np.ndarray:
    """Which keys each query sees under a causal mask: the last one sees all."""
    return np.tri(queries, keys, keys - queries, dtype=bool)


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
    n_ctx_k: int = 0,
    group: int = 1,
    **more: int,
) -> Case:
    """As many keys as queries unless `n_ctx_k` says otherwise, and `group` heads of q to one of k."""
    z, h, scale = 2, 2, 0.125
    n_ctx_k = n_ctx_k or n_ctx

    def make(rng):
        def tensor(heads, positions):
            values = rng.normal(size=(z, heads, positions, head_dim)).astype(np.float32)
            return bf16(values) if dtype == "bf16" else values.astype(np.float16)

        out = poisoned(z, h, n_ctx, head_dim, dtype=np.float16)
        return {
            "q": tensor(h, n_ctx),
            "k": tensor(h // group, n_ctx_k),
            "v": tensor(h // group, n_ctx_k),
            "out": bf16(out) if dtype == "bf16" else out,
            "lse": poisoned(z * h, n_ctx),
            "sm_scale": scale,
            **strides_of("qo", h, n_ctx, head_dim),
            **strides_of("kv", h // group, n_ctx_k, head_dim),
            "n_heads": h,
            "n_kv_heads": h // group,
            "n_ctx_q": n_ctx,
            "n_ctx_k": n_ctx_k,
            "n_batch": z,
        }

    def expect(q, k, v, **_):
        k, v = (np.repeat(numbers(array), group, axis=1) for array in (k, v))
        scores = numbers(q) @ k.swapaxes(2, 3) * scale
        if causal:
            scores = np.where(seen(n_ctx, n_ctx_k), scores, -np.inf)
        top = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (top + np.log(total))[..., 0].reshape(z * h, n_ctx)
        return {"out": weights / np.where(total > 0, total, 1) @ v, "lse": lse}

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
    _attention("attention_one_query", 1, 64, True, "fp16", 64, 64, 4, 3, n_ctx_k=150, group=2),
    _attention("attention_few_queries", 70, 128, True, "bf16", 128, 64, 8, 2, 200, 2, PERSISTENT=True),
    _attention("attention_few_keys", 200, 64, True, "fp16", 64, 64, 4, 2, n_ctx_k=70),
    _attention("attention_few_keys_persistent", 300, 128, True, "fp16", 128, 64, 8, 2, 90, PERSISTENT=True),
    _attention_infinite("attention_infinite", False),
    _attention_infinite("attention_infinite_persistent", True, PERSISTENT=True),
    _attention_steep("attention_steep", False),
    _attention_steep("attention_causal_steep", True),
]
