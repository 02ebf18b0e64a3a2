"""Cases that change shapes and the places of elements."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case

CASES = [
    Case(
        "transpose",
        "shapes.py",
        "transpose",
        lambda rng: {"x": small_integers(rng, 64, 32), "out": poisoned(32, 64)},
        lambda x, out: {"out": x.T},
        {"M": 64, "N": 32},
    ),
    Case(
        "transpose_fp16",
        "shapes.py",
        "transpose",
        lambda rng: {
            "x": small_integers(rng, 128, 64, dtype=np.float16),
            "out": poisoned(64, 128, dtype=np.float16),
        },
        lambda x, out: {"out": x.T},
        {"M": 128, "N": 64},
        num_warps=8,
    ),
    Case(
        "permute",
        "shapes.py",
        "permute",
        lambda rng: {"x": small_integers(rng, 4, 8, 16), "out": poisoned(16, 4, 8)},
        lambda x, out: {"out": x.transpose(2, 0, 1)},
        {"A": 4, "B": 8, "C": 16},
    ),
    Case(
        "repeat_elements",
        "shapes.py",
        "repeat_elements",
        lambda rng: {
            "x": rng.integers(-99, 99, (32, 32)).astype(np.int32),
            "out": poisoned(32, 32, 32, dtype=np.int32),
        },
        lambda x, out: {"out": np.repeat(x[:, :, None], 32, axis=2)},
        {"M": 32, "N": 32, "K": 32},
        num_warps=1,
    ),
    Case(
        "reshape",
        "shapes.py",
        "reshape",
        lambda rng: {"x": small_integers(rng, 16, 64), "out": poisoned(1024)},
        lambda x, out: {"out": x.ravel() * 2},
        {"M": 16, "N": 64},
    ),
    Case(
        "join_and_split",
        "shapes.py",
        "join_and_split",
        lambda rng: {"x": small_integers(rng, 64), "y": small_integers(rng, 64), "out": poisoned(320)},
        lambda x, y, out: {
            "out": np.concatenate([np.stack([x, y], 1).ravel(), x - y, np.stack([x, y], 1).ravel()])
        },
        {"BLOCK": 64},
    ),
    Case(
        "join_columns",
        "shapes.py",
        "join_columns",
        lambda rng: {"out": poisoned(256, dtype=np.int32), "n": 7},
        lambda out, n: {"out": np.concatenate([np.arange(128) % n, np.arange(128) - n])},
        {"BLOCK": 128},
        num_warps=1,
    ),
    Case(
        "outer",
        "shapes.py",
        "outer",
        lambda rng: {"x": small_integers(rng, 32), "y": small_integers(rng, 64), "out": poisoned(32, 64)},
        lambda x, y, out: {"out": np.outer(x, y) + x[0]},
        {"M": 32, "N": 64},
    ),
    Case(
        "gather",
        "shapes.py",
        "gather",
        lambda rng: {
            "x": small_integers(rng, 16, 32),
            "index": rng.integers(0, 32, (16, 32)).astype(np.int32),
            "out": poisoned(16, 32),
        },
        lambda x, index, out: {"out": np.take_along_axis(x, index, 1)},
        {"M": 16, "N": 32},
    ),
    Case(
        "flip",
        "shapes.py",
        "flip",
        lambda rng: {"x": small_integers(rng, 128), "out": poisoned(128)},
        lambda x, out: {"out": x[::-1]},
        {"BLOCK": 128},
    ),
]
