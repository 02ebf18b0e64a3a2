"""Dots of computed operands whose tiles have no room in shared memory side by side: the one that is made first goes to
registers, and copies for later iterations get what is left."""

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.interp import decode
from kbuild.compiler.ir.types import F8E5M2
from kbuild.targets import find_target
from tests.emulator.artifacts import left_in

ROUNDS = 2


@kbuild.jit
def sums(a, b, scales, c, rounds, STEP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    total = tl.zeros((M, N), tl.float32)
    for number in tl.range(0, rounds, num_stages=2):
        left = tl.load(a + number * STEP + m[:, None] * K + k[None, :])
        right = tl.load(b + number * STEP + k[:, None] * N + n[None, :])
        rows = tl.load(scales + m[:, None] + group[None, :])
        columns = tl.load(scales + n[:, None] + group[None, :])
        total = tl.dot_scaled(left, rows, "e5m2", right, columns, "e5m2", total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def factors(scales, count, groups):
    places = np.arange(count)[:, None] + np.arange(groups)[None, :]
    return np.repeat(2.0 ** (scales[places].astype(int) - 127), 32, axis=1)


@pytest.mark.parametrize("step", [0, 16])
@pytest.mark.parametrize(("arch", "m", "n", "k"), [("sm_80", 64, 128, 512), ("sm_89", 128, 128, 256)])
def test_operands_of_which_one_alone_has_room(arch, m, n, k, step):
    """With a step, the loads of A, which are aligned, can be copied early: beside the tile of B one is too many."""
    limit = find_target(arch).limits.shared_bytes
    assert 2 * n * k <= limit < 2 * (m + n) * k
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0x38, 0x44, size + step).astype(np.uint8) for size in (m * k, k * n))
    a |= rng.integers(0, 2, a.size).astype(np.uint8) << 7
    scales = rng.integers(126, 129, n + k // 32).astype(np.uint8)
    artifact = kbuild.compile(
        sums,
        signature={"a": "*fp8e5:16", "b": "*fp8e5", "scales": "*u8", "c": "*fp32:16", "rounds": "i32"},
        constexprs={"M": m, "N": n, "K": k, "STEP": step},
        target=arch,
        num_warps=8,
    )
    assert artifact.metadata.shared <= limit
    given = {"a": a, "b": b, "scales": scales, "c": np.zeros((m, n), np.float32), "rounds": ROUNDS}
    expected = np.zeros((m, n))
    for number in range(ROUNDS):
        left, right = (decode(codes[number * step :], F8E5M2).astype(float) for codes in (a, b))
        left = left[: m * k].reshape(m, k) * factors(scales, m, k // 32)
        expected += left @ (right[: k * n].reshape(k, n) * factors(scales, n, k // 32).T)
    np.testing.assert_array_equal(left_in("c", artifact, given), expected)
