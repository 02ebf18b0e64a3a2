"""Cases of offsets of 32 bits that wrap around."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned
from zoo.case import Argument, Case

_SMALLEST = -(1 << 31)


def _near(table: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The elements at places of 32 bits that have wrapped around."""
    place = (place - _SMALLEST) % (1 << 32) + _SMALLEST
    return np.where((place >= 0) & (place < 64), table[np.clip(place, 0, 63)], -1)


def _constant_case(way: str) -> Case:
    last = 2 if way in ("branch", "for", "while", "counter") else 0
    return Case(
        f"constants_passed_on_by_{way}",
        "wrapping.py",
        "constants_passed_on",
        lambda rng: {
            "table": rng.standard_normal(64),
            "keys": (_SMALLEST + rng.permutation(16)).astype(np.int32),
            "out": poisoned(16, dtype=np.float64),
            "n": 3,
        },
        lambda table, keys, out, n: {"out": table[keys.astype(np.int64) - _SMALLEST + last]},
        {"WAY": way},
        num_warps=1,
    )


def _products(table: np.ndarray, keys: np.ndarray, factor: int, count: int) -> dict[str, np.ndarray]:
    key = keys.astype(np.int64)
    shifted = (key - 6) << count
    rows = [(key - 6) * factor, shifted + 1, (key + 10) * factor + 2, (key - 6) << (count + 32), shifted + 3]
    rows[3] = np.where(rows[3] == 0, 0, -1)
    return {"out": np.stack([_near(table, row) for row in rows])}


def _product_case(name: str, factor: int, count: int) -> Case:
    return Case(
        f"products_that_wrap_{name}",
        "wrapping.py",
        "products_that_wrap",
        lambda rng: {
            "table": rng.standard_normal(64),
            "keys": (rng.integers(-6, 6, 16) * 4 + 6).astype(np.int32),
            "out": poisoned(5, 16, dtype=np.float64),
        },
        lambda table, keys, out: _products(table, keys, factor, count),
        {"FACTOR": factor, "COUNT": count},
        num_warps=1,
    )


def _numbers_from_memory(rng: np.random.Generator) -> dict[str, Argument]:
    near = rng.permutation(64)[:16]
    smallest = np.concatenate([[_SMALLEST] * 16, _SMALLEST + near])
    wide = np.concatenate([[(1 << 31) - 8] * 16, (1 << 33) - (1 << 31) - 8 + near])
    return {
        "table": rng.standard_normal(64),
        "keys": smallest.astype(np.int32),
        "wide": wide.astype(np.int64),
        "fractions": smallest.astype(np.float64),
        "out": poisoned(4, 16, dtype=np.float64),
    }


def _sums_from_memory(table, keys, wide, fractions, out):
    key, first = keys[16:].astype(np.int64), int(keys[0])
    rows = [
        key + first,
        (key - 5) * first,
        wide[16:] - wide[0],
        fractions[16:].astype(np.int64) + int(fractions[0]),
    ]
    return {"out": np.stack([_near(table, row) for row in rows])}


CASES = [
    *(
        _constant_case(way)
        for way in ("split", "join", "gather", "branch", "for", "while", "counter", "conversion")
    ),
    _product_case("shifted", 1 << 29, 29),
    _product_case("negative", -(1 << 31), 31),
    _product_case("odd", -(1 << 30) - 64, 30),
    Case(
        "sums_from_memory",
        "wrapping.py",
        "sums_from_memory",
        _numbers_from_memory,
        _sums_from_memory,
        num_warps=1,
    ),
]
