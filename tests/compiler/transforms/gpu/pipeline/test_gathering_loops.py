"""Pipelined loops whose loads need other loads, for their addresses or for what stands in where they are
masked.

Random programs found these kernels, or the like of them, when the pipeline broke on them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from random_programs.arrays import Argument
from random_programs.compare import Checker, Kernel
from random_programs.types import FLOATS, INTEGERS

import kbuild

TYPES = {dtype.signature: dtype for dtype in (*INTEGERS, *FLOATS)}
HEAD = """
import triton
import triton.language as tl


@triton.jit
def kernel(n, x, table, flags, bytes, out):
    o = tl.arange(0, 16)
"""

WHAT_STANDS_IN_IS_A_SUM = """
    total = tl.zeros((16, 16), tl.float32)
    for i in tl.range(n, num_stages=2):
        inside = tl.broadcast_to(i + o[:, None], (16, 16)) < 18
        other = tl.sum(tl.load(x + o)).to(tl.float16)
        a = tl.load(x + (i + o[:, None]) * 16 + o[None, :], mask=inside, other=other)
        total = tl.dot(a, tl.full((16, 16), 1, tl.float16), total)
    tl.store(out + o[:, None] * 16 + o[None, :], total)
"""
ONLY_ADDRESSES_NEED_THE_TABLE = """
    total = tl.zeros((16,), tl.int32)
    for i in tl.range(n, num_stages=4):
        other = tl.load(bytes + o, mask=o < i, other=0) & 1
        wanted = tl.load(bytes + n + o, mask=o < 9, other=other) == 1
        total += tl.load(table + (tl.load(table + o // 4) & 31) * 4 + o % 4, mask=wanted, other=-4)
    tl.store(out + o, total)
"""
A_FLAG_IS_A_MASK_AND_A_NUMBER = """
    total = tl.zeros((16,), tl.float32)
    for i in tl.range(n, num_stages=4):
        flag = tl.load(flags + i * 16 + o)
        total += tl.load(table + i * 16 + o, mask=flag > 0, other=0) * flag
    tl.store(out + o, total)
"""
A_COUNT_IS_A_MASK = """
    total = tl.zeros((32,), tl.int32)
    p = tl.arange(0, 32)
    for i in tl.range(n, num_stages=3):
        counts = tl.histogram(tl.load(table + i * 32 + p), 32)
        total += tl.load(table + i * 32 + p, mask=counts > 1, other=-4)
    tl.store(out + p, total)
"""
PLACES_ARE_GATHERED = """
    total = tl.zeros((16,), tl.int32)
    for i in tl.range(n, num_stages=3):
        total += tl.load(table + tl.gather(o * i, tl.load(bytes + i * 16 + o).to(tl.int32), 0))
    tl.store(out + o, total)
"""
A_DESCRIPTOR_NEEDS_A_STRIDE = """
    total = tl.zeros((16,), tl.int32)
    for i in tl.range(n, num_stages=3):
        number = tl.load(bytes + i).to(tl.int64)
        rows = tl.make_tensor_descriptor(table, [4, 16], [tl.where(number <= 2, number * 16, 3), 1], [4, 16])
        total += tl.sum(tl.load(flags + rows.load([0, 0])), 0)
    tl.store(out + o, total)
"""
NOTHING_IS_RIGHT_BEFORE_THE_LOOP = """
    total = tl.zeros((16,), tl.int32)
    wrong = tl.where(n > 0, 0, 99)
    for i in tl.range(n):
        rows = tl.make_tensor_descriptor(table, [4, 16], [(16 + wrong).to(tl.int64), 1], [4, 16])
        total += tl.gather(o, o + wrong, 0) + tl.histogram(o + wrong, 16) + tl.sum(rows.load([i, 0]), 0)
    tl.store(out + o, total)
"""


@pytest.mark.parametrize("iterations", [0, 1, 5])
@pytest.mark.parametrize(
    "body",
    [
        WHAT_STANDS_IN_IS_A_SUM,
        ONLY_ADDRESSES_NEED_THE_TABLE,
        A_FLAG_IS_A_MASK_AND_A_NUMBER,
        A_COUNT_IS_A_MASK,
        PLACES_ARE_GATHERED,
        A_DESCRIPTOR_NEEDS_A_STRIDE,
        NOTHING_IS_RIGHT_BEFORE_THE_LOOP,
    ],
)
def test_loops_of_loads_behind_loads(body: str, iterations: int) -> None:
    arguments = (
        Argument("n", TYPES["i32"], value=iterations),
        Argument("x", TYPES["fp16"], 4096, low=-4, high=4),
        Argument("table", TYPES["i32"], 4096, high=31),
        Argument("flags", TYPES["i16"], 4096, low=-8, high=8),
        Argument("bytes", TYPES["u8"], 4096, high=2),
        Argument("out", TYPES["fp32"], 256, is_output=True),
    )
    assert Checker(every_pass=True).check(Kernel(HEAD + body, arguments, num_warps=1)) is None


def test_what_a_descriptor_asks_of_its_stride_keeps_no_load_from_going_early(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(HEAD + A_DESCRIPTOR_NEEDS_A_STRIDE)
    signature = {
        "n": "i32",
        "x": "*fp16:16",
        "table": "*i32:16",
        "flags": "*i16:16",
        "bytes": "*u8:16",
        "out": "*fp32:16",
    }
    artifact = kbuild.compile(
        f"{file}:kernel", signature=signature, target="sm_90", num_warps=1, stop="ttgir"
    )
    before, _ = artifact.asm["ttgir"].split("scf.for")
    assert re.search(r": tensor<4x16xi16.*> = tt.load", before)
