"""Cases of the shipped attention's backward pass: each of its launches by itself."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned
from zoo.attention.forward import seen, strides_of
from zoo.case import Case, bf16, numbers

ROWS = 128
"""Rows of a head's sums are rounded up to a multiple of it."""
Z = 2
SCALE = 0.125


def _array(values: np.ndarray, dtype: str):
    return bf16(values) if dtype == "bf16" else values.astype(np.float16)


def _empty(dtype: str, *shape: int):
    return _array(poisoned(*shape), dtype)


def _padded(rows: np.ndarray, fill: float) -> np.ndarray:
    """Rows of sums (…, n) in fp32, with what stands behind the last."""
    behind = [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % ROWS)]
    return np.pad(rows, behind, constant_values=fill).astype(np.float32)


def _probabilities(q: np.ndarray, k: np.ndarray, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """p, and the lse of each row, which is minus infinity where a row sees no key."""
    scores = q @ k.swapaxes(2, 3) * SCALE
    if causal:
        scores = np.where(seen(q.shape[2], k.shape[2]), scores, -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return weights / np.where(total > 0, total, 1), lse


def _prepare(name: str, n_ctx: int, head_dim: int, dtype: str, heads: int = 3) -> Case:
    rows = -(-n_ctx // ROWS) * ROWS

    def make(rng):
        shape = (Z, heads, n_ctx, head_dim)
        return {
            "out": _array(rng.normal(size=shape), dtype),
            "dout": _array(rng.normal(size=shape), dtype),
            "lse": rng.normal(size=(Z * heads, n_ctx)).astype(np.float32),
            "log2_sum": poisoned(Z * heads, rows),
            "delta": poisoned(Z * heads, rows),
            "dq_sum": poisoned(Z * heads, rows, head_dim),
            **strides_of(["o", "do"], heads, n_ctx, head_dim),
            "n_heads": heads,
            "n_ctx_q": n_ctx,
        }

    def expect(out, dout, lse, **_):
        delta = (numbers(out) * numbers(dout)).sum(axis=-1).reshape(Z * heads, n_ctx)
        return {
            "log2_sum": _padded(lse * np.log2(np.e), np.inf),
            "delta": _padded(delta, 0.0),
            "dq_sum": np.zeros((Z * heads, rows, head_dim)),
        }

    return Case(
        name,
        "flash_attention_backward.py",
        "flash_attention_backward_prepare_kernel",
        make,
        expect,
        {"HEAD_DIM": head_dim},
        grid=(rows // ROWS * Z * heads,),
        num_warps=8,
        tolerance=1e-4,
    )


def _backward(
    name: str, n_q: int, n_k: int, head_dim: int, causal: bool, dtype: str, group: int = 1, **more: int
) -> Case:
    """`group` heads of q to one of k."""
    heads = 2
    kv_heads = heads // group

    def make(rng):
        def tensor(count, positions):
            return _array(rng.normal(size=(Z, count, positions, head_dim)).astype(np.float32), dtype)

        q, k, v = tensor(heads, n_q), tensor(kv_heads, n_k), tensor(kv_heads, n_k)
        dout = tensor(heads, n_q)
        repeated = [np.repeat(numbers(array), group, axis=1) for array in (k, v)]
        p, lse = _probabilities(numbers(q), repeated[0], causal)
        delta = (p @ repeated[1] * numbers(dout)).sum(axis=-1)
        return {
            "q": q,
            "k": k,
            "v": v,
            "dout": dout,
            "dk": _empty(dtype, Z, kv_heads, n_k, head_dim),
            "dv": _empty(dtype, Z, kv_heads, n_k, head_dim),
            "log2_sum": _padded(lse * np.log2(np.e), np.inf),
            "delta": _padded(delta, 0.0),
            "dq_sum": np.zeros((Z, heads, -(-n_q // ROWS) * ROWS, head_dim), np.float32),
            "sm_scale": SCALE,
            **strides_of(["q", "do"], heads, n_q, head_dim),
            **strides_of(["k", "v", "dk", "dv"], kv_heads, n_k, head_dim),
            "n_heads": heads,
            "n_kv_heads": kv_heads,
            "n_ctx_q": n_q,
            "n_ctx_k": n_k,
            "n_batch": Z,
        }

    def expect(q, k, v, dout, delta, dq_sum, **_):
        q, gradients = numbers(q), numbers(dout)
        keys, values = (np.repeat(numbers(array), group, axis=1) for array in (k, v))
        p, _ = _probabilities(q, keys, causal)
        dp = gradients @ values.swapaxes(2, 3)
        ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))

        def of_group(per_head):
            return per_head.reshape(Z, kv_heads, group, n_k, head_dim).sum(axis=2)

        sums = np.zeros(dq_sum.shape)
        sums[:, :, :n_q] = ds @ keys
        return {
            "dk": of_group(ds.swapaxes(2, 3) @ q) * SCALE,
            "dv": of_group(p.swapaxes(2, 3) @ gradients),
            "dq_sum": sums,
        }

    return Case(
        name,
        "flash_attention_backward.py",
        "flash_attention_backward_kernel",
        make,
        expect,
        {"HEAD_DIM": head_dim, "IS_CAUSAL": causal, "BLOCK_M": 32, "BLOCK_N": 64, **more},
        grid=(-(-n_k // 64) * Z * kv_heads,),
        num_warps=8,
        num_stages=2,
        tolerance=8e-2 if dtype == "bf16" else 1e-2,
    )


def _finish(name: str, n_ctx: int, head_dim: int, dtype: str, heads: int = 3) -> Case:
    rows = -(-n_ctx // ROWS) * ROWS

    def make(rng):
        return {
            "dq_sum": rng.normal(size=(Z, heads, rows, head_dim)).astype(np.float32),
            "dq": _empty(dtype, Z, heads, n_ctx, head_dim),
            "sm_scale": SCALE,
            **strides_of(["dq"], heads, n_ctx, head_dim),
            "n_heads": heads,
            "n_ctx_q": n_ctx,
        }

    def expect(dq_sum, **_):
        return {"dq": dq_sum[:, :, :n_ctx].astype(np.float64) * SCALE}

    return Case(
        name,
        "flash_attention_backward.py",
        "flash_attention_backward_finish_kernel",
        make,
        expect,
        {"HEAD_DIM": head_dim},
        grid=(rows // ROWS * Z * heads,),
        num_warps=8,
        tolerance=2e-2 if dtype == "bf16" else 2e-3,
    )


CASES = [
    _prepare("attention_backward_prepare", 150, 64, "fp16"),
    _backward("attention_backward", 128, 128, 64, False, "fp16"),
    _backward("attention_backward_causal", 150, 150, 128, True, "fp16"),
    _backward("attention_backward_groups", 70, 200, 64, True, "bf16", 2, HEADS_TOGETHER=4),
    _backward("attention_backward_few_keys", 200, 70, 128, True, "bf16", 1, HEADS_TOGETHER=4),
    _backward("attention_backward_ragged", 100, 150, 128, False, "bf16", 2),
    _finish("attention_backward_finish", 150, 64, "bf16"),
]
