"""Dots that read one operand from registers, in loops: whether the next operand is loaded while they run."""

import re

import pytest

import kbuild
import kbuild.language as tl


@kbuild.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    """A·B by tf32: B, which has its columns side by side, has to come from registers."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + m[:, None] * K + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * N + n[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@pytest.mark.parametrize(
    ("step", "is_early"),
    [
        (32, True),  # 128 sums and twice 32 words of B
        (64, False),  # 128 and twice 64
    ],
)
def test_operands_are_loaded_early_where_two_have_room(step: int, is_early: bool):
    artifact = kbuild.compile(
        product,
        signature={"a": "*fp32:16", "b": "*fp32:16", "c": "*fp32:16", "K": "i32:16"},
        constexprs={"M": 128, "N": 256, "STEP": step},
        target="sm_90",
        num_warps=8,
        num_stages=3,
    )
    (loop,) = re.findall(r"scf\.for .*?scf\.yield", artifact.asm["ttgir"], re.DOTALL)
    places = [loop.index(op) for op in ("local_load", "warp_group_dot_wait", "warp_group_dot ")]
    assert (places == sorted(places)) == is_early
    assert artifact.metadata.spill_stores in (0, None)
