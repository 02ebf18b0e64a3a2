"""A tile is copied in and out by tensor maps: with a mistake in the order of the steps the interpreter says
so, or NaN shows."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.errors import InterpretError

MAP = '!tt.tensordesc<tensor<4x8xf32>> {tensor_map = "#0 6,8 8"}'
STORED = MAP.replace("#0", "#1")
PROGRAM = f"""\
#rows = blocked{{sizePerThread=[1,1], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
#tile = swizzled{{vector=4, perPhase=1, maxPhase=1, order=[1,0]}}
#line = swizzled{{vector=1, perPhase=1, maxPhase=1, order=[0]}}
tt.func @f(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %on: i1, %map: {MAP}, %to: {STORED}) attributes {{num_warps = 4}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c4: i32 = arith.constant {{value = 4}}
  %s: !ttg.memdesc<4x8xf32, #tile> = ttg.local_alloc
  %full: !ttg.memdesc<1xi64, #line> = ttg.local_alloc
  ttng.init_barrier %full
  ttng.barrier_expect %full, %on {{bytes = 128}}
  ttng.async_tma_copy_global_to_local %map, %s, %full, %on, indices=[%c4, %c0]
  ttng.wait_barrier %full, %c0, tiles=[%s]
  %v: tensor<4x8xf32, #rows> = ttg.local_load %s
  %sum: tensor<4x8xf32, #rows> = arith.addf %v, %v
  ttg.local_store %sum, %s
  ttng.async_tma_copy_local_to_global %to, %s, %on, indices=[%c0, %c0]
  ttng.tma_store_wait %s
  ttng.inval_barrier %full
  ttg.local_dealloc %s
  tt.return
}}
"""
WAIT = "  ttng.wait_barrier %full, %c0, tiles=[%s]\n"
EXPECT = "  ttng.barrier_expect %full, %on {bytes = 128}\n"
COPY = "  ttng.async_tma_copy_global_to_local %map, %s, %full, %on, indices=[%c4, %c0]\n"
DONE = "  ttng.tma_store_wait %s\n"
END = "  ttng.inval_barrier %full\n"


def ran(text: str, on: int = 1) -> np.ndarray:
    x, out = np.arange(48, dtype=np.float32).reshape(6, 8), np.full((6, 8), -1, np.float32)
    interp.run(parse_module(text), [x, out, on])
    return out


def test_rows_beyond_the_tensor_are_zeros_and_others_stay() -> None:
    out = ran(PROGRAM)
    np.testing.assert_array_equal(out[:2], 2 * np.arange(32, 48).reshape(2, 8))
    assert not out[2:4].any() and (out[4:] == -1).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  ttng.init_barrier %full\n", "", "ttng.barrier_expect of a barrier that was not made"),
        (EXPECT, 2 * EXPECT, "a barrier is used again before its phase was waited for"),
        ("bytes = 128", "bytes = 64", "a wait that never ends: the bytes expected are not those copied"),
        (COPY, "", "a wait that never ends"),
        (EXPECT, "", "a wait that never ends"),
        (WAIT, "", "a barrier ends before the copies that it counts"),
        (COPY + WAIT, END, "a barrier ends before the copies that it counts"),
        (
            DONE,
            "  ttg.local_store %v, %s\n" + DONE,
            "a tile is overwritten before TMA has read it",
        ),
        (DONE, "", "a program ends while TMA reads its shared memory"),
    ],
    ids=[
        "no barrier",
        "twice expected",
        "fewer bytes",
        "no copy",
        "nothing expected",
        "no wait",
        "ended",
        "written",
        "left",
    ],
)
def test_an_error_in_the_steps_is_an_error(old: str, new: str, message: str) -> None:
    assert old in PROGRAM
    with pytest.raises(InterpretError, match=message):
        ran(PROGRAM.replace(old, new, 1))


def test_what_is_read_before_the_wait_is_nan() -> None:
    """Also where the tile held something before."""
    late = PROGRAM.replace(WAIT, "").replace("  ttg.local_store", WAIT + "  ttg.local_store")
    filled = "  %zeros: tensor<4x8xf32, #rows> = arith.constant {value = 0.0}\n  ttg.local_store %zeros, %s\n"
    assert np.isnan(ran(late.replace(COPY, filled + COPY))[:4]).all()


def test_what_is_read_of_memory_given_back_is_nan() -> None:
    early = "  ttg.local_dealloc %s\n"
    text = PROGRAM.replace(early, "").replace("  %v: tensor", early + "  %v: tensor")
    assert np.isnan(ran(text)[:4]).all()


def test_nothing_is_copied_where_the_predicate_does_not_hold() -> None:
    assert (ran(PROGRAM.replace(WAIT, ""), on=0) == -1).all()
