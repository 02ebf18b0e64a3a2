"""Dots of f32 that are computed from several of shorter numbers."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Argument, Case


def _parts(name: str, precision: str, bits: int, left: bool, m: int = 64, warps: int = 4) -> Case:
    """Whole numbers of so many bits on one side, which take several parts, times -1, 0 or 1: exact in f32."""

    def inputs(rng: np.random.Generator) -> dict[str, Argument]:
        long, short = (1 << bits), 1
        return {
            "a": small_integers(
                rng, m, 32, low=-(long if left else short), high=(long if left else short) + 1
            ),
            "b": small_integers(
                rng, 32, 64, low=-(short if left else long), high=(short if left else long) + 1
            ),
            "c": poisoned(m, 64),
        }

    return Case(
        name,
        "dots.py",
        "dot_tile",
        inputs,
        lambda a, b, c: {"c": a @ b},
        {"M": m, "N": 64, "K": 32, "PRECISION": precision},
        num_warps=warps,
    )


CASES = [
    _parts("dot_tf32x3_left", "tf32x3", 18, True),
    _parts("dot_tf32x3_right", "tf32x3", 18, False, 32, 2),
    _parts("dot_bf16x3_left", "bf16x3", 15, True),
    _parts("dot_bf16x3_right", "bf16x3", 15, False, 16, 1),
    _parts("dot_bf16x6_left", "bf16x6", 18, True, 128),
    _parts("dot_bf16x6_right", "bf16x6", 18, False),
]
