"""Cases in Gluon: copies, barriers, tensor cores and partitions that the author places himself."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned, small_integers
from zoo.case import Case


def matmul_case(
    name: str,
    file: str,
    function: str,
    size: tuple[int, int, int],
    blocks: tuple[int, int, int],
    tiles: int,
    num_warps: int = 4,
    archs: tuple[str, ...] = ("sm_90",),
) -> Case:
    """A matrix multiplication of fp16 by a kernel of either file."""
    m, n, k = size

    def make(rng: np.random.Generator) -> dict:
        a, b = (small_integers(rng, *shape, low=-2, high=3).astype(np.float16) for shape in ((m, k), (k, n)))
        return {"a": a, "b": b, "c": poisoned(m, n), "M": m, "N": n, "K": k}

    return Case(
        name,
        file,
        function,
        make,
        lambda a, b, **_: {"c": a.astype(np.float64) @ b.astype(np.float64)},
        {"BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "BLOCK_K": blocks[2], "TILES": tiles},
        grid=(-(-m // blocks[0]), -(-n // blocks[1])),
        num_warps=num_warps,
        archs=archs,
    )


def _copy_case(counts: bool) -> Case:
    block, blocks = 256, 2
    return Case(
        f"gluon_copy_by_barrier_{'counted' if counts else 'incremented'}",
        "gluon_ampere.py",
        "copy_by_barrier",
        lambda rng: {"x": small_integers(rng, block * blocks), "y": poisoned(block * blocks)},
        lambda x, **_: {"y": x},
        {"BLOCK": block, "COUNTS": counts, "BLOCKS": blocks},
    )


def _row_sums(x: np.ndarray, factors: np.ndarray, **_: object) -> dict:
    return {"y": np.broadcast_to(x.sum(axis=1, keepdims=True) * factors[0], x.shape)}


def _rounds_case(rounds: int) -> Case:
    block, programs = 128, 2

    def results(x: np.ndarray, factors: np.ndarray, y: np.ndarray, **_: object) -> dict:
        blocks = x.reshape(-1, block) * factors[:, None]
        total = blocks[:rounds].sum(axis=0) + (blocks[0] if rounds > 2 else 0)
        return {"y": np.concatenate([total] * programs + [y[programs * block :]])}

    return Case(
        f"gluon_partitions_{rounds}_times",
        HOPPER,
        "partitions_in_loops",
        lambda rng: {
            "x": small_integers(rng, 4 * block),
            "factors": small_integers(rng, 4, low=1),
            "y": poisoned((programs + 1) * block),
            "rounds": rounds,
            "programs": programs,
        },
        results,
        {"BLOCK": block},
        grid=(programs + 1,),
        archs=("sm_90",),
    )


HOPPER, AMPERE = "gluon_hopper.py", "gluon_ampere.py"
CASES = (
    matmul_case("gluon_pipelined", HOPPER, "pipelined_matmul", (128, 136, 208), (64, 64, 64), 3),
    matmul_case("gluon_pipelined_groups", HOPPER, "pipelined_matmul", (128, 64, 192), (128, 64, 32), 2, 8),
    matmul_case("gluon_pipelined_short", HOPPER, "pipelined_matmul", (64, 64, 40), (64, 64, 64), 4),
    matmul_case("gluon_specialised", HOPPER, "specialised_matmul", (128, 136, 208), (64, 64, 64), 2),
    matmul_case(
        "gluon_specialised_groups", HOPPER, "specialised_matmul", (128, 64, 192), (128, 64, 32), 3, 8
    ),
    Case(
        "gluon_partitions_with_tensors",
        HOPPER,
        "partitions_with_tensors",
        lambda rng: {
            "x": small_integers(rng, 32, 64),
            "y": poisoned(32, 64),
            "factors": small_integers(rng, 1, low=1),
        },
        _row_sums,
        {"ROWS": 32, "COLUMNS": 64},
        archs=("sm_90",),
    ),
    _rounds_case(0),
    _rounds_case(3),
    matmul_case(
        "gluon_async", AMPERE, "async_matmul", (128, 64, 144), (64, 64, 32), 3, archs=("sm_80", "sm_90")
    ),
    _copy_case(counts=True),
    _copy_case(counts=False),
)
