"""Cases of reductions and scans, sorting and counting."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case


def varied(rng: np.random.Generator, m: int, n: int, axis: int) -> np.ndarray:
    """Whole numbers to be reduced along an axis: every second vector has many equal ones, the others hardly
    any."""
    ties = np.arange(n)[None, :] % 2 if axis == 0 else np.arange(m)[:, None] % 2
    return np.where(ties, small_integers(rng, m, n), small_integers(rng, m, n, low=-900, high=900)).astype(
        np.float32
    )


def _recurrence(a, b, out):
    state, states = 0.0, []
    for left, right in zip(a.astype(np.float64), b.astype(np.float64)):
        state = state * left + right
        states.append(state)
    return {"out": np.array(states)}


def _scan(x, axis, reverse):
    turned = np.flip(x, axis) if reverse else x
    total = np.cumsum(turned.astype(np.float64), axis=axis)
    return np.flip(total, axis) if reverse else total


def _softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _matrix_case(name: str, m: int, n: int, axis: int, warps: int) -> Case:
    def expect(x, sums, maxima, places):
        return {"sums": x.sum(axis=axis), "maxima": x.max(axis=axis), "places": x.argmin(axis=axis)}

    size = n if axis == 0 else m
    return Case(
        name,
        "reductions.py",
        "reduce_matrix",
        lambda rng: {
            "x": varied(rng, m, n, axis),
            "sums": poisoned(size),
            "maxima": poisoned(size),
            "places": poisoned(size, dtype=np.int32),
        },
        expect,
        {"M": m, "N": n, "AXIS": axis},
        num_warps=warps,
    )


def _scan_case(name: str, m: int, n: int, axis: int, reverse: bool, warps: int = 4) -> Case:
    return Case(
        name,
        "reductions.py",
        "scan_matrix",
        lambda rng: {"x": small_integers(rng, m, n), "out": poisoned(m, n)},
        lambda x, out: {"out": _scan(x, axis, reverse)},
        {"M": m, "N": n, "AXIS": axis, "REVERSE": reverse},
        num_warps=warps,
    )


CASES = [
    _matrix_case("reduce_rows", 32, 64, 1, 4),
    _matrix_case("reduce_columns", 32, 64, 0, 4),
    _matrix_case("reduce_tall", 256, 4, 1, 8),
    _matrix_case("reduce_across_warps", 4, 512, 1, 8),
    _matrix_case("reduce_one_warp", 16, 16, 0, 1),
    _matrix_case("reduce_over_16_warps", 4, 2048, 1, 16),
    _matrix_case("reduce_over_32_warps", 2, 4096, 1, 32),
    _matrix_case("reduce_columns_over_warps", 512, 8, 0, 32),
    Case(
        "reduce_all",
        "reductions.py",
        "reduce_all",
        lambda rng: {"x": varied(rng, 64, 32, 0), "out": poisoned(3)},
        lambda x, out: {"out": [x.sum(), x.max(), x.min()]},
        {"M": 64, "N": 32},
    ),
    Case(
        "largest_with_index",
        "reductions.py",
        "largest_with_index",
        lambda rng: {
            "x": rng.permutation(1000).astype(np.float32),
            "values_out": poisoned(1),
            "index_out": poisoned(1, dtype=np.int32),
            "n": 1000,
        },
        lambda x, values_out, index_out, n: {"values_out": [x.max()], "index_out": [x.argmax()]},
        {"BLOCK": 1024},
    ),
    Case(
        "reduce_pairs",
        "reductions.py",
        "reduce_pairs",
        lambda rng: {"x": small_integers(rng, 512), "out": poisoned(2)},
        lambda x, out: {"out": [x.sum(), (x > 0).sum()]},
        {"BLOCK": 512},
    ),
    _scan_case("scan_rows", 8, 64, 1, False),
    _scan_case("scan_columns", 64, 8, 0, False),
    _scan_case("scan_reverse", 16, 32, 1, True),
    _scan_case("scan_across_warps", 1, 1024, 1, False, 8),
    _scan_case("scan_columns_reverse", 128, 4, 0, True, 2),
    _scan_case("scan_lanes", 1, 128, 1, False),
    _scan_case("scan_lanes_reverse", 2, 64, 1, True),
    Case(
        "sums_of_products",
        "reductions.py",
        "sums_of_products",
        lambda rng: {
            "a": small_integers(rng, 16, 32),
            "b": small_integers(rng, 32, 16),
            "rows": poisoned(16, 16),
            "columns": poisoned(16, 16),
        },
        lambda a, b, rows, columns: {"rows": a @ b, "columns": (a @ b).T},
        {"M": 16, "K": 32, "N": 16},
    ),
    Case(
        "vector_times_rows",
        "reductions.py",
        "vector_times_rows",
        lambda rng: {
            "x": small_integers(rng, 256, dtype=np.float16),
            "y": small_integers(rng, 64, 256, dtype=np.float16),
            "out": poisoned(64),
            "n": 61,
        },
        lambda x, y, out, n: {"out": np.where(np.arange(64) < n, y.astype(np.float64) @ x, 0)},
        {"M": 64, "N": 256},
        num_warps=1,
    ),
    Case(
        "sum_in_loop_of_large_blocks",
        "reductions.py",
        "sum_in_loop",
        lambda rng: {"x": small_integers(rng, 5000), "out": poisoned(1), "n": 5000},
        lambda x, out, n: {"out": [x[:n].sum()]},
        {"BLOCK": 2048},
    ),
    Case(
        "scan_recurrence",
        "reductions.py",
        "scan_recurrence",
        lambda rng: {
            "a": rng.choice([0.0, 1.0, -1.0], 256).astype(np.float32),
            "b": small_integers(rng, 256),
            "out": poisoned(256),
        },
        _recurrence,
        {"BLOCK": 256},
    ),
    *(
        Case(
            f"sum_in_loop_{n}",
            "reductions.py",
            "sum_in_loop",
            lambda rng, n=n: {"x": small_integers(rng, max(n, 1)), "out": poisoned(1), "n": n},
            lambda x, out, n: {"out": [x[:n].sum()]},
            {"BLOCK": 128},
        )
        for n in (0, 1, 128, 700)
    ),
    Case(
        "softmax_rows",
        "reductions.py",
        "softmax_rows",
        lambda rng: {"x": (600 * rng.normal(size=(32, 128))).astype(np.float32), "out": poisoned(32, 128)},
        lambda x, out: {"out": _softmax(x)},
        {"M": 32, "N": 128},
        tolerance=1e-6,
    ),
    *(
        Case(
            f"sort_{direction}",
            "reductions.py",
            "sort_vector",
            lambda rng: {"x": rng.permutation(256).astype(np.float32), "out": poisoned(256)},
            lambda x, out, down=down: {"out": np.sort(x)[::-1] if down else np.sort(x)},
            {"BLOCK": 256, "DESCENDING": down},
        )
        for direction, down in (("up", False), ("down", True))
    ),
    Case(
        "count_values",
        "reductions.py",
        "count_values",
        lambda rng: {"x": rng.integers(0, 16, 512).astype(np.int32), "out": poisoned(16, dtype=np.int32)},
        lambda x, out: {"out": np.bincount(x, minlength=16)},
        {"BLOCK": 512, "BINS": 16},
    ),
    Case(
        "helpers_of_torch",
        "reductions.py",
        "helpers_of_torch",
        lambda rng: {
            "x": small_integers(rng, 4, 32),
            "sorted": poisoned(4, 32),
            "places": poisoned(4, 32, dtype=np.int32),
            "moments": poisoned(2, 4),
        },
        lambda x, **_: {
            "sorted": -np.sort(-x),
            "places": np.argsort(-x, axis=1, kind="stable"),
            "moments": np.stack([x.mean(1), x.var(1)]),
        },
        {"ROWS": 4, "COLUMNS": 32},
        tolerance=1e-5,
    ),
]
