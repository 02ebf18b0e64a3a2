"""Cases of control flow, atomics and the order of memory accesses."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case


def _collatz(x, out, n):
    def steps(value: int) -> int:
        count = 0
        while value != 1:
            value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
        return count

    expected = out.copy()
    expected[:n] = [steps(int(v)) for v in x[:n]]
    return {"out": expected}


def _nested(x, out, rows, columns):
    total = np.zeros(out.size)
    for row, line in enumerate(x.reshape(rows, columns)):
        padded = np.zeros(-(-columns // out.size) * out.size)
        padded[:columns] = line
        total += padded.reshape(-1, out.size).sum(axis=0) * (-1 if row % 2 else 1)
    return {"out": total}


def _backwards(x, out, n):
    total = 0.0
    for place in range(n - 1, -1, -1):
        total = total * 2 + float(x[place])
    return {"out": np.array([total])}


def _mapped(x, limits, **_):
    steps, rest = np.zeros(x.shape, np.int64), np.zeros(x.shape)
    for place, number in np.ndenumerate(x):
        n, count = int(number), 0
        while n > 1 and count < limits[place[0]]:
            n, count = 3 * n + 1 if n % 2 else n // 2, count + 1
        steps[place], rest[place] = count, n / 2
    pairs = np.sort(x.reshape(len(x), -1, 2))
    pairs[1::2] = pairs[1::2, :, ::-1]
    return {"steps": steps + steps.max(axis=1, keepdims=True), "rest": rest, "sorted": pairs.reshape(x.shape)}


CASES = [
    Case(
        "collatz",
        "control.py",
        "collatz_steps",
        lambda rng: {
            "x": rng.integers(1, 100, 20).astype(np.int32),
            "out": poisoned(24, dtype=np.int32),
            "n": 20,
        },
        _collatz,
        grid=(24,),
        num_warps=1,
    ),
    Case(
        "nested_loops",
        "control.py",
        "nested_loops",
        lambda rng: {"x": small_integers(rng, 5 * 300), "out": poisoned(128), "rows": 5, "columns": 300},
        _nested,
        {"BLOCK": 128},
    ),
    Case(
        "backwards",
        "control.py",
        "backwards",
        lambda rng: {"x": small_integers(rng, 10), "out": poisoned(1), "n": 10},
        _backwards,
        num_warps=1,
    ),
    Case(
        "helper_returns_early",
        "control.py",
        "helper_returns_early",
        lambda rng: {"x": small_integers(rng, 30), "out": poisoned(30), "limit": 5.0},
        lambda x, out, limit: {"out": np.where(x < 0, 0, np.minimum(x, limit))},
        grid=(30,),
        num_warps=1,
    ),
    Case(
        "cleared_histogram",
        "control.py",
        "cleared_histogram",
        lambda rng: {
            "x": rng.integers(0, 16, 1000).astype(np.int32),
            "counts": np.full(64, 7, np.int32),
            "total": np.zeros(4, np.int32),
            "n": 1000,
        },
        lambda x, counts, total, n: {
            "counts": np.concatenate(
                [np.bincount(x[start : start + 256], minlength=16) for start in range(0, n, 256)]
            ),
            "total": np.array([256, 256, 256, 232]),
        },
        {"BINS": 16, "BLOCK": 256},
        grid=(4,),
    ),
    Case(
        "atomic_histogram",
        "control.py",
        "atomic_histogram",
        lambda rng: {
            "x": rng.integers(0, 10, 1000).astype(np.int32),
            "counts": np.zeros(10, np.int32),
            "largest": np.zeros(1, np.int32),
            "total": np.zeros(1, np.float32),
            "n": 1000,
        },
        lambda x, counts, largest, total, n: {
            "counts": np.bincount(x, minlength=10),
            "largest": [x.max()],
            "total": [x.sum()],
        },
        {"BLOCK": 256},
        grid=(4,),
    ),
    Case(
        "count_calls",
        "control.py",
        "count_calls",
        lambda rng: {"counter": np.full(1, 7, np.int32), "out": poisoned(256, dtype=np.int32)},
        lambda counter, out: {"counter": counter + 1, "out": np.arange(256) * 7 + 8},
        {"BLOCK": 256},
    ),
    Case(
        "update_few",
        "control.py",
        "update_few",
        lambda rng: {"x": small_integers(rng, 32, dtype=np.int32), "out": poisoned(32, dtype=np.int32)},
        lambda x, out: {"x": x + 1, "out": 2 * x + 1},
        {"BLOCK": 32},
    ),
    Case(
        "between_launches",
        "control.py",
        "between_launches",
        lambda rng: {
            "x": small_integers(rng, 4, 256),
            "factor": small_integers(rng, 256),
            "out": poisoned(256),
        },
        lambda x, factor, out: {"out": factor * x.sum(axis=0)},
        {"ROWS": 4, "BLOCK": 256},
    ),
    Case(
        "last_one_adds",
        "control.py",
        "last_one_adds",
        lambda rng: {
            "x": small_integers(rng, 6, 256),
            "parts": poisoned(6, 256),
            "counter": np.zeros(1, np.int32),
            "out": poisoned(256),
        },
        lambda x, **_: {"parts": 2 * x, "counter": [6], "out": 2 * x.sum(axis=0)},
        {"PARTS": 6, "BLOCK": 256},
        grid=(6,),
    ),
    Case(
        "locked_sum",
        "control.py",
        "locked_sum",
        lambda rng: {
            "x": small_integers(rng, 16),
            "lock": np.zeros(1, np.int32),
            "total": np.zeros(1, np.float32),
        },
        lambda x, lock, total: {"total": [x.sum()], "lock": [0]},
        grid=(16,),
        num_warps=1,
    ),
    Case(
        "map_elementwise",
        "control.py",
        "mapped",
        lambda rng: {
            "x": rng.integers(1, 200, (4, 64), dtype=np.int32),
            "limits": np.array([0, 7, 20, 200], np.int32),
            "steps": poisoned(4, 64, dtype=np.int32),
            "rest": poisoned(4, 64),
            "sorted": poisoned(4, 64, dtype=np.int32),
        },
        _mapped,
        {"ROWS": 4, "COLUMNS": 64},
    ),
]
