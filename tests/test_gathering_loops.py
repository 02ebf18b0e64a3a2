"""Pipelined loops whose loads need other loads, for their addresses or for what stands in where they are masked.

Random programs found each of these kernels when the pipeline broke on it.
"""

from __future__ import annotations

import pytest
from random_programs.arrays import Argument
from random_programs.compare import Checker, Kernel
from random_programs.types import FLOATS, INTEGERS

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


@pytest.mark.parametrize("iterations", [0, 1, 5])
@pytest.mark.parametrize("body", [
    WHAT_STANDS_IN_IS_A_SUM, ONLY_ADDRESSES_NEED_THE_TABLE, A_FLAG_IS_A_MASK_AND_A_NUMBER,
])  # fmt: skip
def test_loops_of_loads_behind_loads(body: str, iterations: int) -> None:
    arguments = (
        Argument("n", TYPES["i32"], value=iterations),
        Argument("x", TYPES["fp16"], 4096, low=-4, high=4),
        Argument("table", TYPES["i32"], 4096, high=31),
        Argument("flags", TYPES["i16"], 4096, low=-8, high=8),
        Argument("bytes", TYPES["u8"], 4096, high=2),
        Argument("out", TYPES["fp32"], 256, is_output=True),
    )
    assert Checker().check(Kernel(HEAD + body, arguments, num_warps=1)) is None
