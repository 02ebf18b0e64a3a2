"""Stores of what warpgroups' dots compute, and of zeros in its place, to memory that is contiguous along rows or along
columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kbuild

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, ALONG_ROWS: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, 64)
    if K == 0:
        zeros = tl.zeros((BM, BN), c.dtype.element_ty)
        if ALONG_ROWS:
            places = c + rows[:, None] * stride + columns[None, :]
        else:
            places = c + rows[:, None] + columns[None, :] * stride
        tl.store(places, zeros, mask=(rows[:, None] < M) & (columns[None, :] < N))
        return
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, 64):
        x = tl.load(a + rows[:, None] * K + k + depth[None, :])
        y = tl.load(b + columns[None, :] * K + k + depth[:, None])
        sums = tl.dot(x, y, sums)
    if ALONG_ROWS:
        places = c + rows[:, None] * stride + columns[None, :]
    else:
        places = c + rows[:, None] + columns[None, :] * stride
    tl.store(places, sums.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))
"""


@pytest.mark.parametrize("element", ["fp16", "fp32"])
@pytest.mark.parametrize("shape", [(128, 128), (64, 64)])
@pytest.mark.parametrize("along_rows", [True, False])
def test_threads_store_sixteen_bytes(
    along_rows: bool, shape: tuple[int, int], element: str, tmp_path: Path
) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": f"*{element}:16"}
    signature |= dict.fromkeys(("M", "N", "K", "stride"), "i32:16")
    made = kbuild.compile(
        f"{tmp_path / 'k.py'}:product",
        signature=signature,
        constexprs={"BM": shape[0], "BN": shape[1], "ALONG_ROWS": along_rows},
        target="sm_90",
        num_warps=4,
        stop="ptx",
    )
    assert "wgmma" in made.asm["ptx"]
    stores = re.findall(r"st\.global\S*", made.asm["ptx"])
    assert stores and all(".v4.b32" in store for store in stores), set(stores)


def test_a_sum_with_what_memory_has_is_where_it_is_stored(tmp_path: Path) -> None:
    """Sums of 16 rows, whose columns a warp has few of, are moved to be stored: then what is added to them need not move."""
    source = SOURCE.replace(
        "tl.store(places, sums.to(c.dtype.element_ty),",
        "old = tl.load(places)\n    tl.store(places, sums.to(old.dtype) + old,",
    )
    (tmp_path / "k.py").write_text(source)
    signature = dict.fromkeys("abc", "*fp16:16") | dict.fromkeys(("M", "N", "K", "stride"), "i32:16")
    made = kbuild.compile(
        f"{tmp_path / 'k.py'}:product",
        signature=signature,
        constexprs={"BM": 16, "BN": 256, "ALONG_ROWS": True},
        target="sm_90",
        num_warps=4,
        stop="ptx",
    )
    assert "ttng.warp_group_dot" in made.asm["ttgir"]
    moved = re.findall(r"tensor<16x256xf16, \S+> = ttg.convert_layout", made.asm["ttgir"])
    assert len(moved) == 1, moved
