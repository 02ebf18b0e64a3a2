"""Cases with dots: one or several, in loops, of descriptors and by a warp of its own for the copies."""

from __future__ import annotations

import numpy as np
from zoo.arrays import operand, poisoned, small_integers
from zoo.case import Case, numbers


def _tile(
    name: str,
    dtype: str,
    m: int,
    n: int,
    k: int,
    warps: int = 4,
    precision: str = "tf32",
    archs=("sm_80", "sm_90"),
) -> Case:
    out_type = {"int8": np.int32, "float64": np.float64}.get(dtype, np.float32)
    return Case(
        name,
        "dots.py",
        "dot_tile",
        lambda rng: {
            "a": operand(rng, dtype, m, k),
            "b": operand(rng, dtype, k, n),
            "c": poisoned(m, n, dtype=out_type),
        },
        lambda a, b, c: {"c": numbers(a) @ numbers(b)},
        {"M": m, "N": n, "K": k, "PRECISION": precision},
        num_warps=warps,
        archs=archs,
    )


def _chain(name: str, dtype: str) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_chain",
        lambda rng: {
            "a": operand(rng, dtype, 64, 32),
            "b": operand(rng, dtype, 32, 64),
            "c": operand(rng, dtype, 64, 32),
            "out": poisoned(64, 32, dtype=np.float64 if dtype == "float64" else np.float32),
        },
        lambda a, b, c, out: {"out": numbers(a) @ numbers(b) @ numbers(c)},
        {"M": 64, "N": 64, "K": 32},
    )


def _batch(name: str, dtype: str, b: int, m: int, n: int, k: int, warps: int = 4) -> Case:
    out_type = np.float64 if dtype == "float64" else np.float32
    return Case(
        name,
        "dots.py",
        "dot_batch",
        lambda rng: {
            "a": operand(rng, dtype, b, m, k),
            "b": operand(rng, dtype, b, k, n),
            "c": poisoned(b, m, n, dtype=out_type),
        },
        lambda a, b, c: {"c": numbers(a) @ numbers(b)},
        {"B": b, "M": m, "N": n, "K": k},
        num_warps=warps,
    )


def _transposed(name: str, dtype: str) -> Case:
    out_type = np.float64 if dtype == "float64" else np.float32
    return Case(
        name,
        "dots.py",
        "dot_transposed",
        lambda rng: {
            "a": operand(rng, dtype, 32, 64),
            "b": operand(rng, dtype, 64, 32),
            "c": poisoned(64, 64, dtype=out_type),
        },
        lambda a, b, c: {"c": numbers(a).T @ numbers(b).T},
        {"M": 64, "N": 64, "K": 32},
    )


def _add_rows(name: str, dtype: str, m: int, n: int, k: int) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_add_rows",
        lambda rng: {
            "a": operand(rng, dtype, m, k),
            "b": operand(rng, dtype, n, k),
            "rows": small_integers(rng, m),
            "c": poisoned(m, n),
            "ldb": k,
        },
        lambda a, b, rows, **_: {"c": numbers(a) @ numbers(b).T + rows[:, None]},
        {"M": m, "N": n, "K": k},
    )


def _two_dots_add_rows(name: str, dtype: str, m: int, n: int, k: int) -> Case:
    def expect(a, b, rows, **_):
        dot = numbers(a) @ numbers(b).T
        return {"c": dot + rows[:m, None], "d": dot.T + rows[m:, None]}

    return Case(
        name,
        "dots.py",
        "two_dots_add_rows",
        lambda rng: {
            "a": operand(rng, dtype, m, k),
            "b": operand(rng, dtype, n, k),
            "rows": small_integers(rng, m + n),
            "c": poisoned(m, n),
            "d": poisoned(n, m),
            "ldb": k,
        },
        expect,
        {"M": m, "N": n, "K": k},
    )


def _kept(name: str, dtype: str, m: int, n: int, block_k: int, k: int) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_kept",
        lambda rng: {
            "a": operand(rng, dtype, block_k, m),
            "b": operand(rng, dtype, n, k),
            "c": poisoned(m, n),
            "K": k,
            "ldb": k,
        },
        lambda a, b, **_: {"c": numbers(a).T @ numbers(b).reshape(n, -1, block_k).sum(axis=1).T},
        {"M": m, "N": n, "BLOCK_K": block_k},
    )


def _loop(
    name: str, dtype: str, m: int, n: int, block_k: int, k: int, warps: int = 4, stages: int = 3, pad: int = 0
) -> Case:
    out_type = np.float64 if dtype == "float64" else np.float32

    def make(rng):
        return {
            "a": operand(rng, dtype, m, max(k + pad, 1)),
            "b": operand(rng, dtype, max(k, 1), n),
            "c": poisoned(m, n, dtype=out_type),
            "K": k,
            "lda": max(k + pad, 1),
            "ldb": n,
            "ldc": n,
        }

    return Case(
        name,
        "dots.py",
        "dot_loop",
        make,
        lambda a, b, c, K, lda, ldb, ldc: {"c": numbers(a)[:, :K] @ numbers(b)[:K]},
        {"M": m, "N": n, "BLOCK_K": block_k},
        num_warps=warps,
        num_stages=stages,
    )


def _block_pointers(name: str, m: int, n: int, k: int) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_block_pointers",
        lambda rng: {
            "a": operand(rng, "float16", m, k),
            "b": operand(rng, "float16", k, n),
            "c": poisoned(m, n, dtype=np.float16),
            "M": m,
            "N": n,
            "K": k,
        },
        lambda a, b, **_: {"c": numbers(a) @ numbers(b)},
        {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32},
        grid=(-(-m // 64), -(-n // 64)),
    )


def _descriptors(name: str, m: int, n: int, k: int, pitch: int, tile: tuple[int, int, int]) -> Case:
    """A dot of matrices whose rows lie further apart than they are long; what lies between is not
    touched."""
    tile_m, tile_n, tile_k = tile

    def expect(a, b, c, N, K, **_):
        right = c.astype(np.float64)
        right[:, :N] = numbers(a)[:, :K] @ numbers(b)[:, :K].T
        return {"c": right}

    return Case(
        name,
        "dots.py",
        "dot_descriptors",
        lambda rng: {
            "a": operand(rng, "float16", m, pitch),
            "b": operand(rng, "float16", n, pitch),
            "c": poisoned(m, pitch, dtype=np.float16),
            "M": m,
            "N": n,
            "K": k,
            "lda": pitch,
            "ldb": pitch,
            "ldc": pitch,
        },
        expect,
        {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k},
        grid=(-(-m // tile_m), -(-n // tile_n)),
    )


def _from(name: str, first: int) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_from",
        lambda rng: {
            "a": operand(rng, "float16", 64, 104),
            "b": operand(rng, "float16", 64, 104),
            "c": poisoned(64, 64, dtype=np.float16),
            "M": 64,
            "N": 64,
            "K": 100,
            "ld": 104,
            "first": first,
        },
        lambda a, b, K, **_: {"c": numbers(a)[:, first:K] @ numbers(b)[:, first:K].T},
        {"TILE": 64, "TILE_K": 32},
        num_warps=8,
    )


def _batched(name: str, m: int, n: int, k: int, warps: int) -> Case:
    return Case(
        name,
        "dots.py",
        "dot_batched",
        lambda rng: {
            "a": operand(rng, "float16", 2, m, k),
            "b": operand(rng, "float16", 2, k, n),
            "c": poisoned(2, m, n, dtype=np.float16),
            "M": m,
            "N": n,
            "K": k,
            "size_a": m * k,
            "size_b": k * n,
            "ld_a": k,
            "ld_b": n,
        },
        lambda a, b, **_: {"c": numbers(a) @ numbers(b)},
        {"TILE": 64, "TILE_K": 64},
        grid=(-(-m // 64), -(-n // 64), 2),
        num_warps=warps,
    )


def _specialized(
    name: str, m: int, n: int, k: int, tile: tuple[int, int, int], programs: int, warps: int, stages: int
) -> Case:
    """A dot by a grid of fewer programs than tiles, or more; a thread of its own does the copies."""
    tile_m, tile_n, tile_k = tile
    return Case(
        name,
        "dots.py",
        "dot_specialized",
        lambda rng: {
            "a": operand(rng, "float16", m, 8 * -(-k // 8)),
            "b": operand(rng, "float16", k, n),
            "c": poisoned(m, n, dtype=np.float16),
            "M": m,
            "N": n,
            "K": k,
            "lda": 8 * -(-k // 8),
            "ldb": n,
            "ldc": n,
        },
        lambda a, b, K, **_: {"c": numbers(a)[:, :K] @ numbers(b)},
        {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k},
        grid=(programs,),
        num_warps=warps,
        num_stages=stages,
    )


def _attention_specialized(rows: int, head: int) -> Case:
    def expect(q, k, v, **_):
        weights = np.exp2(numbers(q) @ numbers(k).T)
        return {"out": weights / weights.sum(axis=1, keepdims=True) @ numbers(v)}

    return Case(
        "attention_specialized",
        "dots.py",
        "attention_specialized",
        lambda rng: {
            **{name: operand(rng, "float16", rows, head) for name in "qkv"},
            "out": poisoned(rows, head, dtype=np.float16),
            "rows": rows,
            "pitch": head,
        },
        expect,
        {"TILE": 64, "HEAD": head},
        grid=(rows // 64,),
        num_stages=2,
        tolerance=2e-3,
    )


def _shift(name: str, dtype: str, rows: int, columns: int, pitch: int, up: int, left: int, tile: int) -> Case:
    def expect(x, out, **_):
        padded = np.zeros((rows + 2 * tile, columns + 2 * tile))
        padded[tile : tile + rows, tile : tile + columns] = numbers(x)[:, :columns]
        right = out.astype(np.float64)
        right[:, :columns] = padded[tile + up : tile + up + rows, tile + left : tile + left + columns] + 1
        return {"out": right}

    return Case(
        name,
        "dots.py",
        "descriptor_shift",
        lambda rng: {
            "x": small_integers(rng, rows, pitch).astype(dtype),
            "out": poisoned(rows, pitch, dtype=np.dtype(dtype)),
            "rows": rows,
            "columns": columns,
            "pitch": pitch,
            "up": up,
            "left": left,
        },
        expect,
        {"TILE": tile},
    )


CASES = [
    _tile("dot_fp16", "float16", 64, 64, 32),
    _tile("dot_bf16", "bf16", 32, 64, 64, 8),
    _tile("dot_tf32", "float32", 64, 32, 32),
    _tile("dot_int8", "int8", 32, 32, 64),
    _tile("dot_fp16_small", "float16", 16, 16, 16, 1),
    _tile("dot_fp16_wide", "float16", 16, 256, 64, 8),
    _tile("dot_fp16_tall", "float16", 256, 16, 16, 4),
    _tile("dot_ieee", "float32", 32, 32, 16, precision="ieee"),
    _tile("dot_tf32x3", "float32", 32, 32, 16, precision="tf32x3"),
    _tile("dot_ieee_long", "float32", 64, 64, 64, 2, "ieee"),
    _tile("dot_ieee_of_eight", "float32", 64, 64, 8, precision="ieee"),
    _tile("dot_ieee_of_one", "float32", 32, 64, 1, precision="ieee"),
    _tile("dot_fp64_of_two", "float64", 32, 32, 2),
    _tile("dot_fp64", "float64", 64, 32, 64),
    _tile("dot_int8_flat", "int8", 8, 64, 64, 1),
    _tile("dot_fp8", "fp8e4nv", 32, 32, 64),
    _tile("dot_fp8_e5m2", "fp8e5", 64, 32, 32),
    _tile("dot_e4b15", "fp8e4b15", 32, 64, 16),
    _add_rows("dot_add_rows", "float16", 64, 64, 64),
    _add_rows("dot_add_rows_tf32", "float32", 64, 16, 64),
    _add_rows("dot_add_rows_bf16", "bf16", 128, 32, 64),
    _two_dots_add_rows("two_dots_add_rows", "float16", 64, 64, 64),
    _transposed("dot_transposed", "float16"),
    _transposed("dot_transposed_fp64", "float64"),
    _kept("dot_kept_fp8", "fp8e5", 64, 16, 32, 160),
    _kept("dot_kept_fp16", "float16", 64, 32, 32, 160),
    *(
        _loop(f"dot_loop_{k}_stages{stages}", "float16", 64, 64, 32, k, stages=stages)
        for stages in (1, 2, 3, 4)
        for k in (0, 32, 64, 100, 256)
    ),
    _loop("dot_loop_fp64", "float64", 32, 32, 16, 70),
    _loop("dot_loop_fp64_long", "float64", 32, 64, 32, 70, 2),
    _loop("dot_loop_tf32", "float32", 64, 32, 32, 160),
    _loop("dot_loop_e4b15", "fp8e4b15", 64, 64, 32, 160),
    _loop("dot_loop_bf16_8warps", "bf16", 128, 128, 64, 320, 8, 4),
    _loop("dot_loop_unaligned", "float16", 32, 64, 32, 70, pad=1),
    _loop("dot_loop_int_rows", "float16", 16, 64, 64, 256, 4, 4),
    Case(
        "dot_and_sum_loop",
        "dots.py",
        "dot_and_sum_loop",
        lambda rng: {
            "a": operand(rng, "float16", 64, 256),
            "b": operand(rng, "float16", 256, 64),
            "c": poisoned(64, 64),
            "sums": poisoned(64),
            "K": 256,
            "lda": 256,
            "ldb": 64,
            "ldc": 64,
        },
        lambda a, b, **_: {"c": numbers(a) @ numbers(b), "sums": numbers(a).sum(axis=1)},
        {"M": 64, "N": 64, "BLOCK_K": 32},
    ),
    _chain("dot_chain", "float16"),
    _chain("dot_chain_fp64", "float64"),
    _batch("dot_batch", "float16", 4, 16, 32, 16),
    _batch("dot_batch_fp64", "float64", 4, 32, 16, 16, 1),
    _block_pointers("block_pointers", 128, 128, 64),
    _block_pointers("block_pointers_ragged", 100, 90, 50),
    _descriptors("descriptors", 128, 64, 224, 224, (64, 64, 32)),
    _descriptors("descriptors_ragged", 100, 83, 141, 168, (64, 64, 32)),
    _descriptors("descriptors_odd", 33, 31, 129, 136, (32, 32, 64)),
    _specialized("specialized", 128, 192, 160, (64, 64, 64), 2, 4, 3),
    _specialized("specialized_ragged", 100, 88, 77, (64, 64, 32), 5, 4, 2),
    _specialized("specialized_two_groups", 192, 128, 256, (128, 64, 64), 1, 8, 3),
    _batched("dot_batched", 72, 64, 208, 4),
    _batched("dot_batched_by_2_warps", 64, 80, 144, 2),
    _from("dot_from_4", 4),
    _from("dot_from_16", 16),
    Case(
        "dot_of_grids",
        "dots.py",
        "dot_of_grids",
        lambda rng: {
            "a": operand(rng, "float16", 2, 4, 16, 16),
            "b": operand(rng, "float16", 2, 4, 16, 8),
            "c": poisoned(2, 4, 16, 8),
        },
        lambda a, b, c: {"c": numbers(a) @ numbers(b)},
        {"M": 16, "N": 8, "K": 16},
    ),
    Case(
        "two_dots_of_types",
        "dots.py",
        "two_dots_of_types",
        lambda rng: {
            "a": operand(rng, "float16", 64, 64),
            "b": operand(rng, "float16", 32, 64),
            "words": operand(rng, "int8", 64, 64),
            "counts": operand(rng, "int8", 32, 64),
            "c": poisoned(64, 32),
            "d": poisoned(64, 32, dtype=np.int32),
        },
        lambda a, b, words, counts, **_: {
            "c": numbers(a) @ numbers(b).T,
            "d": numbers(words) @ numbers(counts).T,
        },
        {"M": 64, "N": 32, "K": 64},
    ),
    Case(
        "dot_of_written",
        "dots.py",
        "dot_of_written",
        lambda rng: {
            "a": operand(rng, "float16", 64, 192),
            "b": operand(rng, "float16", 192, 64),
            "scratch": poisoned(64, 192, dtype=np.float16),
            "c": poisoned(64, 64, dtype=np.float16),
            "M": 64,
            "N": 64,
            "K": 192,
        },
        lambda a, b, **_: {"scratch": 2 * numbers(a), "c": 2 * numbers(a) @ numbers(b)},
        {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64},
    ),
    Case(
        "dot_of_chosen",
        "dots.py",
        "dot_of_chosen",
        lambda rng: {
            "a": operand(rng, "bf16", 32, 32),
            "b": operand(rng, "bf16", 32, 32),
            "out": poisoned(32, 32),
            "n": 300,
        },
        lambda a, b, n, **_: {
            "out": numbers(a).reshape(32, 32)
            @ np.where(np.arange(1024) > n, numbers(b).ravel(), 1).reshape(32, 32)
        },
        {"N": 32},
        num_warps=1,
    ),
    Case(
        "dot_and_sum_specialized",
        "dots.py",
        "dot_and_sum_specialized",
        lambda rng: {
            "a": operand(rng, "float16", 64, 320),
            "b": operand(rng, "float16", 320, 64),
            "c": poisoned(64, 64, dtype=np.float16),
            "sums": poisoned(64),
            "M": 64,
            "N": 64,
            "K": 320,
        },
        lambda a, b, **_: {"c": numbers(a) @ numbers(b), "sums": numbers(a).sum(axis=1)},
        {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64},
    ),
    _attention_specialized(192, 64),
    _shift("descriptor_shift", "float32", 40, 50, 52, -3, 5, 16),
    _shift("descriptor_shift_fp16", "float16", 21, 37, 40, 2, -8, 16),
    _shift("descriptor_shift_int8", "int8", 33, 45, 48, 0, -16, 32),
]
