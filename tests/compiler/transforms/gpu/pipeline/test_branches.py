"""Loops that are over tiles and steps at once: the next tile is found in a branch, early enough for its loads."""

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from tests.emulator.artifacts import left_in

BLOCK, STEP, PROGRAMS = 64, 32, 3


@kbuild.jit
def product(a, b, c, M, N, K, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """A·B by a few programs, each of which goes through all steps of all its tiles in one loop."""
    steps, across = tl.cdiv(K, STEP), tl.cdiv(N, BLOCK)
    tiles = tl.cdiv(M, BLOCK) * across
    tile = tl.program_id(0) - tl.num_programs(0)
    own = tl.cdiv(tiles - tl.program_id(0), tl.num_programs(0))
    step, row, column = -1, 0, 0
    rows, columns, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(steps * own):
        step = tl.where(step == steps - 1, 0, step + 1)
        if step == 0:
            tile += tl.num_programs(0)
            row, column = tile // across * BLOCK, tile % across * BLOCK
            rows = (row + tl.arange(0, BLOCK)) % M
            columns = (column + tl.arange(0, BLOCK)) % N
            columns = tl.max_contiguous(tl.multiple_of(columns, 16), 16)
        place = step * STEP + k
        left = tl.load(a + rows[:, None] * K + place[None, :], mask=place[None, :] < K, other=0.0)
        right = tl.load(b + place[:, None] * N + columns[None, :], mask=place[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
        if step == steps - 1:
            at_m, at_n = row + tl.arange(0, BLOCK)[:, None], column + tl.arange(0, BLOCK)[None, :]
            tl.store(c + at_m * N + at_n, total, mask=(at_m < M) & (at_n < N))
            total = tl.zeros((BLOCK, BLOCK), tl.float32)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (128, 128, 128),  # 4 tiles of 3 programs
        (80, 192, 48),  # Edges; the last step is half a step.
        (64, 64, 96),  # One tile: two programs have none.
    ],
)
def test_loads_of_the_next_tile_are_issued_early(arch: str, m: int, n: int, k: int):
    artifact = kbuild.compile(
        product,
        signature={**dict.fromkeys("ab", "*fp16:16"), "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")},
        constexprs={"BLOCK": BLOCK, "STEP": STEP},
        target=arch,
        num_warps=4,
        num_stages=3,
    )
    loop = artifact.asm["ttgir"].split("scf.for")[1]
    assert loop.count("ttg.async_copy_global_to_local") == 2
    rng = np.random.default_rng(m + n)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    given = {"a": a, "b": b, "c": np.full((m, n), np.nan, np.float32), "M": m, "N": n, "K": k}
    c = left_in("c", artifact, given, grid=(PROGRAMS,))
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-3, atol=1e-2)
