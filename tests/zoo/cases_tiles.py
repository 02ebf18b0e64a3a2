"""Cases for blocks of tensors in plain pointer arithmetic; the sizes cut the blocks at every edge, and rows
lie further apart than they are long."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case

TILE = (64, 32, 32)


def _expected(
    form: str, a: np.ndarray, b: np.ndarray, M: int, N: int, K: int, starts: np.ndarray
) -> np.ndarray:
    """The dot that a form of the kernel computes."""
    left = a[..., :M, :K].astype(np.float64)
    right = b[:K, :N].astype(np.float64)
    if form == "table":
        left = a[int(starts[0]) :][:M, :K].astype(np.float64)
    if form == "diagonal":
        left = np.tril(left)
    if form == "second_half":
        first = K // TILE[2] // 2 * TILE[2]
        left, right = left[..., first:], right[first:]
    return left @ right


def tile_case(form: str, m: int = 77, n: int = 48, k: int = 80) -> Case:
    """The kernel in one form."""
    batch, heads, lda, ldb, ldc = {"heads": 4, "batch": 3}.get(form, 1), 2, 96, 64, 64
    tile_m, tile_n, tile_k = TILE

    def make(rng: np.random.Generator) -> dict:
        a = small_integers(rng, batch, m + 8, lda, low=-2, high=3).astype(np.float16)
        b = small_integers(rng, max(k, 1), ldb, low=-2, high=3).astype(np.float16)
        return {
            "a": a if batch > 1 else a[0],
            "b": b,
            "c": poisoned(max(batch * m, 1), ldc),
            "starts": np.array([5, 5], np.int32),
            "M": m,
            "N": n,
            "K": k,
            "lda": lda,
            "ldb": ldb,
            "ldc": ldc,
            "stride_z": heads * (m + 8) * lda,
            "stride_h": (m + 8) * lda,
            "heads": heads,
        }

    def expect(a, b, c, starts, M, N, K, **_):
        dot = _expected(form, a, b, M, N, K, starts)
        if form == "in_place":
            right = a.astype(np.float64)
            right[:M, :N] = dot
            return {"a": right}
        right = c.astype(np.float64)
        if form == "column_sums":
            rows = np.arange(-(-M // tile_m) * tile_m) % M
            right[0, :N] = dot[rows[:tile_m]].sum(axis=0)
        elif form == "sums":
            right[:1, :N] = dot[:tile_m].sum(axis=0)
        elif form == "above":
            right[3:M, :N] = dot[: M - 3]
            right[:3, :N] = 0
        else:
            right[:, :N] = dot.reshape(-1, N)
        return {"c": right}

    tiles_m = 1 if form in ("column_sums", "sums") else -(-m // tile_m)
    constexprs = {"FORM": form, "TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "LDA": lda}
    grid = (tiles_m, -(-n // tile_n), batch)
    return Case(
        f"tiles_{form}{'' if m and k else '_empty'}", "tiles.py", "dot_tiles", make, expect, constexprs, grid
    )


FORMS = (
    "masked",
    "wrapped",
    "heads",
    "batch",
    "blocks",
    "constant_stride",
    "second_half",
    "above",
    "column_sums",
    "ones",
    "diagonal",
    "table",
    "sums",
)
CASES = [
    *(tile_case(form) for form in FORMS),
    tile_case("masked", k=0),
    tile_case("sums", m=0),
    tile_case("in_place", m=64, n=32, k=64),
]
