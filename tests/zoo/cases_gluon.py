"""Cases in Gluon: layouts, copies, barriers, tensor cores and partitions that the author places himself."""

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


def _layout_case(name: str, arrays: dict, expect, constexprs: dict | None = None, **scalars: int) -> Case:
    """A kernel of `gluon_layouts.py` over squares of 32 small numbers, and with other arrays where they are given."""

    def make(rng: np.random.Generator) -> dict:
        return {name: value(rng) for name, value in arrays.items()} | scalars

    function = name.partition("/")[0]
    return Case(
        f"gluon_{name.replace('/', '_')}",
        "gluon_layouts.py",
        function,
        make,
        expect,
        {"N": 32, **(constexprs or {})},
    )


def _square(rng: np.random.Generator) -> np.ndarray:
    return small_integers(rng, 32, 32).astype(np.float32)


def _out(*shape: int, dtype: str = "float32"):
    return lambda rng: poisoned(*shape, dtype=dtype)


def _swapped(x: np.ndarray, **_: object) -> dict:
    return {"y": x.reshape(-1, 2)[:, ::-1].reshape(32, 32)}


def _row_facts(x: np.ndarray, above: int, **_: object) -> dict:
    sums = x.sum(axis=1) * (above > 0) + (np.arange(32) < above)
    return {"sums": sums, "places": x.argmax(axis=1), "running": np.cumsum(x, axis=1)}


def _counts(x: np.ndarray, total: np.ndarray, **_: object) -> dict:
    found = np.bincount(x[x >= 0], minlength=16)
    return {"y": found[np.arange(16) ^ 1], "total": total + [found.sum(), 0]}


SHARED = {
    "plain": "gl.SwizzledSharedLayout(1, 1, 1, [1, 0])",
    "swizzled": "gl.SwizzledSharedLayout(4, 1, 8, [1, 0])",
    "tma": "gl.NVMMASharedLayout(128, 32)",
    "padded": "gl.PaddedSharedLayout.with_identity_for([[32, 4], [256, 8]], [32, 32], [1, 0])",
}
LAYOUT_CASES = (
    _layout_case("transpose", {"x": _square, "y": _out(32, 32)}, lambda x, **_: {"y": x.T}),
    _layout_case("transpose_coalesced", {"x": _square, "y": _out(32, 32)}, lambda x, **_: {"y": x.T}),
    *(
        _layout_case(
            f"row_facts/{above}",
            {"x": _square, "sums": _out(32), "places": _out(32, dtype="int32"), "running": _out(32, 32)},
            _row_facts,
            above=above,
        )
        for above in (0, 5)
    ),
    _layout_case("swap_pairs", {"x": _square, "y": _out(32, 32)}, _swapped),
    *(
        _layout_case(
            f"views/{name}",
            {"x": lambda rng: small_integers(rng, 3, 32, 32).astype(np.float32), "y": _out(16, 32)},
            lambda x, **_: {"y": x[2, :, 16:].T},
            {"COUNT": 3, "layout": layout},
        )
        for name, layout in SHARED.items()
    ),
    _layout_case(
        "reinterpreted",
        {"x": lambda rng: rng.integers(-(2**31), 2**31, 32, "int32"), "y": _out(64, dtype="int16")},
        lambda x, **_: {"y": x.view("int16")},
    ),
    _layout_case(
        "matmul_fma", {"a": _square, "b": _square, "c": _out(32, 32)}, lambda a, b, **_: {"c": a @ b}
    ),
    _layout_case(
        "delayed",
        {"x": lambda rng: rng.integers(0, 99, (5, 128), "int32"), "y": _out(5, 128, dtype="int32")},
        lambda x, **_: {"y": np.concatenate([np.zeros((3, 128)), x[:2]])},
        {"COUNT": 3, "N": 128},
        steps=5,
    ),
    _layout_case(
        "counts",
        {
            "x": lambda rng: rng.integers(-4, 16, 256, "int32"),
            "y": _out(16, dtype="int32"),
            "total": lambda rng: np.zeros(2, "int32"),
        },
        _counts,
        {"N": 256, "BINS": 16},
    ),
)


def _beside_tiles_case(name: str, arch: str, tiles: int, layouts: tuple[str, str]) -> Case:
    """Squares of 64 KB, beside tiles of 16 KB that leave 3 KB."""
    size = 128
    return Case(
        f"gluon_beside_tiles_{name}_{arch}",
        "gluon_layouts.py",
        "beside_tiles",
        lambda rng: {
            "x": small_integers(rng, size, size),
            "line": small_integers(rng, 4096),
            "y": poisoned(size, size),
            "sums": poisoned(size),
            "running": poisoned(size, size),
            "total": poisoned(4096),
        },
        lambda x, line, **_: {
            "y": x,
            "sums": x.sum(axis=0),
            "running": np.cumsum(x, axis=0),
            "total": tiles * line + tiles * (tiles - 1) // 2,
        },
        {"N": size, "COUNT": tiles, "SIZE": 4096, "layout": layouts[0], "other": layouts[1]},
        num_warps=8,
        archs=(arch,),
    )


ROUNDS = {
    "in_common": (
        "gl.BlockedLayout([1, 4], [1, 32], [8, 1], [1, 0])",
        "gl.BlockedLayout([4, 1], [8, 4], [1, 8], [0, 1])",
    ),
    "in_turns": (
        "gl.BlockedLayout([1, 64], [32, 1], [4, 2], [1, 0])",
        "gl.BlockedLayout([64, 1], [1, 32], [2, 4], [0, 1])",
    ),
}
"""Layouts with registers in common, by which the rounds are divided, and layouts without."""
ROUND_CASES = tuple(
    _beside_tiles_case(name, arch, tiles, layouts)
    for name, layouts in ROUNDS.items()
    for arch, tiles in (("sm_80", 10), ("sm_90", 14))
)
CASES = (*CASES, *LAYOUT_CASES, *ROUND_CASES)
