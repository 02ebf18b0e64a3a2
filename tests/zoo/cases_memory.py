"""Cases of loads that a mask cuts within a vector, of all kinds of atomics, of neighbours too, and of
accumulators that are stored turned around."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case, bf16, numbers


def _cut_case(dtype: type, size: int, n: int) -> Case:
    return Case(
        f"cut_with_others_{np.dtype(dtype).name}_{n}",
        "elementwise.py",
        "cut_with_others",
        lambda rng: {
            "x": np.arange(1, size + 1).astype(dtype),
            "filler": -np.arange(1, size + 1).astype(dtype),
            "out": poisoned(size, dtype=dtype),
            "n": n,
        },
        lambda x, filler, out, n: {"out": np.where(np.arange(size) < n, x, filler)},
        {"BLOCK": size},
        num_warps=1,
    )


def _atomics(x, memory, before):
    after = memory.copy()
    after[0], after[1] = np.maximum(memory[0], x), np.minimum(memory[1], x)
    after[2], after[3] = memory[2] + x, x
    if x.dtype.kind != "f":
        after[4], after[5], after[6] = memory[4] & x, memory[5] | x, memory[6] ^ x
    return {"memory": after, "before": memory}


def _atomic_case(dtype: type) -> Case:
    """Numbers of both signs, or above and below the half of the range; float rows for bits are left as they
    are."""
    rows = 4 if np.dtype(dtype).kind == "f" else 7

    def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
        return small_integers(rng, *shape, dtype=np.int64, low=-100, high=100).astype(dtype)

    return Case(
        f"all_atomics_{np.dtype(dtype).name}",
        "control.py",
        "all_atomics",
        lambda rng: {
            "x": numbers(rng, 128),
            "memory": numbers(rng, rows, 128),
            "before": poisoned(rows, 128, dtype=dtype),
        },
        _atomics,
        {"BLOCK": 128},
    )


def _half_atomics(x, sums, before, extremes):
    x, sums, before, extremes = (numbers(array) for array in (x, sums, before, extremes))
    after, places, old = sums.copy(), np.arange(len(x)), before.copy()
    np.add.at(after, places[:-5] & 3, x[:-5])
    old[places != 7] = sums[4:][places != 7]
    after[4:][places != 7] += x[places != 7]
    above, below = np.maximum(extremes[0], x), np.minimum(extremes[1], x)
    above[-8:] = extremes[0][-8:]
    return {"sums": after, "before": old, "extremes": np.stack([above, below])}


def _half_case(kind: str) -> Case:
    make = bf16 if kind == "bf16" else lambda values: values.astype(np.float16)
    return Case(
        f"atomics_of_halves_{kind}",
        "control.py",
        "atomics_of_halves",
        lambda rng: {
            "x": make(small_integers(rng, 128, low=-3, high=4)),
            "sums": make(small_integers(rng, 132)),
            "before": make(np.full(128, 77)),
            "extremes": make(small_integers(rng, 2, 128, low=-3, high=4)),
        },
        _half_atomics,
        {"BLOCK": 128},
    )


def _atomic_rows(x, rows, sums, memory, before, n):
    x, sums, memory, before = (numbers(array).copy() for array in (x, sums, memory, before))
    before[:n] = memory[:n]
    memory[:n] += x[:n]
    np.add.at(sums, rows[:n], x[:n])
    return {"sums": sums, "memory": memory, "before": before}


def _rows_case(kind: str) -> Case:
    make = {"fp32": lambda values: values, "fp16": lambda values: values.astype(np.float16), "bf16": bf16}[
        kind
    ]
    return Case(
        f"atomic_rows_{kind}",
        "control.py",
        "atomic_rows",
        lambda rng: {
            "x": make(small_integers(rng, 8, 32, low=-3, high=4)),
            "rows": rng.integers(0, 4, 8, dtype=np.int64),
            "sums": make(small_integers(rng, 4, 32)),
            "memory": make(small_integers(rng, 8, 32)),
            "before": make(np.full((8, 32), 77, np.float32)),
            "n": 7,
        },
        _atomic_rows,
        {"M": 8, "N": 32},
        num_warps=1,
    )


def _handed_case(dtype: type) -> Case:
    return Case(
        f"handed_over_{np.dtype(dtype).name}",
        "control.py",
        "handed_over",
        lambda rng: {
            "x": small_integers(rng, 128),
            "passed": poisoned(128),
            "flags": np.zeros(128, dtype),
            "out": poisoned(128),
        },
        lambda x, passed, flags, out: {"passed": 2 * x, "flags": np.ones(128, dtype), "out": 2 * x},
        {"N": 128},
        grid=(2,),
        num_warps=1,
    )


CASES = [
    _cut_case(np.float32, 128, 101),
    _cut_case(np.float16, 256, 99),
    # Several vectors of a thread, of which one may be cut.
    _cut_case(np.float32, 2048, 1801),
    _cut_case(np.float16, 2048, 1357),
    *(_atomic_case(dtype) for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32)),
    *(_half_case(kind) for kind in ("bf16", "fp16")),
    *(_rows_case(kind) for kind in ("fp32", "fp16", "bf16")),
    *(_handed_case(dtype) for dtype in (np.float32, np.int32)),
    Case(
        "dot_stored_turned",
        "dots.py",
        "dot_stored_turned",
        lambda rng: {
            "a": small_integers(rng, 64, 32, low=-2, high=3).astype(np.float16),
            "b": small_integers(rng, 32, 64, low=-2, high=3).astype(np.float16),
            "out": poisoned(64, 64, dtype=np.float16),
        },
        lambda a, b, out: {"out": (a.astype(np.float64) @ b.astype(np.float64)).T},
        {"M": 64, "N": 64, "K": 32},
    ),
]
