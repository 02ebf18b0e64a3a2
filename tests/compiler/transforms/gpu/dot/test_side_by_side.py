"""Dots that share A as one instruction: tiles of widths that no power of two has."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import kbuild
from tests.emulator.artifacts import left_in

HEAD = """
import triton
import triton.language as tl

@triton.constexpr_function
def parts(n):
    return [1 << bit for bit in reversed(range(n.bit_length())) if n >> bit & 1]

@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ALONG_K: tl.constexpr, LEFT: tl.constexpr):
    W: tl.constexpr = parts(BN)
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = ()
    sums = ()
    for p in tl.static_range(len(W)):
        if ALONG_K:
            right += (tl.make_tensor_descriptor(b, [N, K], [K, 1], [W[p], BK]),)
        else:
            right += (tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, W[p]]),)
        sums += (tl.zeros((BM, W[p]), tl.float32),)
    for k in range(0, K, BK):
        x = left.load([0, k])
        if LEFT:
            x = (x + 1).to(x.dtype)
        new = ()
        first = 0
        for p in tl.static_range(len(W)):
            y = right[p].load([first, k]).T if ALONG_K else right[p].load([k, first])
            new += (tl.dot(x, y, sums[p]),)
            first += W[p]
        sums = new
    rows = tl.arange(0, BM)
    first = 0
    for p in tl.static_range(len(W)):
        columns = first + tl.arange(0, W[p])
        tl.store(c + rows[:, None] * BN + columns[None, :], sums[p])
        first += W[p]
"""
SUM = """
import triton
import triton.language as tl

@triton.jit
def total(a, b, d, c, K):
    left = tl.make_tensor_descriptor(a, [64, K], [K, 1], [64, 64])
    one = tl.make_tensor_descriptor(b, [16, K], [K, 1], [16, 64])
    other = tl.make_tensor_descriptor(d, [16, K], [K, 1], [16, 64])
    sums = tl.zeros((64, 16), tl.float32)
    for k in range(0, K, 64):
        x = left.load([0, k])
        sums = tl.dot(x, one.load([0, k]).T, sums)
        sums = tl.dot(x, other.load([0, k]).T, sums)
    tl.store(c + tl.arange(0, 64)[:, None] * 16 + tl.arange(0, 16)[None, :], sums)
"""


def product(
    folder: Path, columns: int, *, along_k: bool = True, computed: bool = False, element: str = "fp16"
) -> kbuild.Artifact:
    """One tile of 64 rows, by a loop along K."""
    (folder / "k.py").write_text(HEAD)
    signature = {"a": f"*{element}:16", "b": f"*{element}:16", "c": "*fp32:16"} | dict.fromkeys(
        "MNK", "i32:16"
    )
    depth = 64 if element == "fp16" else 128
    constexprs = {"BM": 64, "BN": columns, "BK": depth, "ALONG_K": along_k, "LEFT": computed}
    return kbuild.compile(
        f"{folder / 'k.py'}:product", signature=signature, constexprs=constexprs, target="sm_90", stop="ptx"
    )


def widths(artifact: kbuild.Artifact) -> list[int]:
    """Columns of the different instructions."""
    return sorted({int(n) for n in re.findall(r"wgmma\.mma_async\S*\.m64n(\d+)k", artifact.asm["ptx"])})


@pytest.mark.parametrize(
    ("columns", "along_k", "found"),
    [
        (48, True, [48]),
        (176, True, [176]),
        (200, True, [200]),
        (192, True, [64, 128]),  # Reading is not what it waits for.
        (96, True, [96]),
        (96, False, [32, 64]),  # Rows of 32 columns are swizzled in another way.
    ],
)
def test_one_instruction_reads_neighbours(
    columns: int, along_k: bool, found: list[int], tmp_path: Path
) -> None:
    made = product(tmp_path, columns, along_k=along_k)
    assert widths(made) == found
    check(made, columns, along_k)


def check(made: kbuild.Artifact, columns: int, along_k: bool) -> None:
    """Whole numbers over more steps than there are buffers, in the emulator, which sees races."""
    depth = 5 * 64
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (n, depth)).astype(np.float16) for n in (64, columns))
    given = {"a": a, "b": b if along_k else b.T.copy(), "c": np.full((64, columns), np.nan, np.float32)}
    sizes = {"M": 64, "N": columns, "K": depth}
    right = a.astype(np.float32) @ b.T.astype(np.float32)
    np.testing.assert_array_equal(left_in("c", made, given | sizes), right)


def test_eight_bits_are_multiplied_at_once_too(tmp_path: Path) -> None:
    assert widths(product(tmp_path, 144, element="fp8e4nv")) == [144]


def test_operands_in_registers_are_read_only_once_anyway(tmp_path: Path) -> None:
    assert widths(product(tmp_path, 48, computed=True)) == [16, 32]


def test_a_sum_of_two_products_is_not_two_parts_of_one(tmp_path: Path) -> None:
    """Each dot goes on with what the one before has."""
    (tmp_path / "k.py").write_text(SUM)
    signature = dict.fromkeys("abd", "*fp16:16") | {"c": "*fp32:16", "K": "i32:16"}
    made = kbuild.compile(f"{tmp_path / 'k.py'}:total", signature=signature, target="sm_90", stop="ptx")
    assert widths(made) == [16]


def test_buffers_of_the_same_number_are_next_to_each_other(tmp_path: Path) -> None:
    """In the memory that both need, and no more."""
    text = product(tmp_path, 48).asm["ttgir"]
    places = re.findall(r"ttg\.local_alloc \{offset = (\d+), pitch = (\d+)\}", text)
    (first, pitch), (second, other) = ((int(at), int(by)) for at, by in places)
    assert second == first + 32 * 128 and pitch == other == 48 * 128
