"""Partitions of warps take turns, hand tiles over by barriers, and a wait that never ends is an error."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.errors import InterpretError

PROGRAM = """\
#row = blocked{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[1], order=[0]}
#line = swizzled{vector=4, perPhase=1, maxPhase=1, order=[0]}
#one = swizzled{vector=1, perPhase=1, maxPhase=1, order=[0]}
tt.func @f(%out: !tt.ptr<i32>, %n: i32) attributes {num_warps = 1, explicit_layouts = true} {
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %on: i1 = arith.constant {value = 1}
  %tile: !ttg.memdesc<128xi32, #line> = ttg.local_alloc
  %full: !ttg.memdesc<1xi64, #one> = ttg.local_alloc
  %free: !ttg.memdesc<1xi64, #one> = ttg.local_alloc
  ttng.init_barrier %full
  ttng.init_barrier %free
  %sum: tensor<128xi32, #row> = ttg.warp_specialize %n default() {
    %zeros: tensor<128xi32, #row> = arith.constant {value = 0}
    %total: tensor<128xi32, #row> = scf.for %c0, %n, %c1, init=[%zeros] body(%i: i32, %so_far: tensor<128xi32, #row>) {
      %phase: i32 = arith.andi %i, %c1
      ttng.wait_barrier %full, %phase
      %v: tensor<128xi32, #row> = ttg.local_load %tile
      ttng.arrive_barrier %free, %on {count = 1}
      %next: tensor<128xi32, #row> = arith.addi %so_far, %v
      scf.yield %next
    }
    ttg.warp_yield %total
  } partitions(%rounds: i32) {
    ttg.warp_partition {num_warps = 1} body(%times: i32) {
      scf.for %c0, %times, %c1 body(%round: i32) {
        %parity: i32 = arith.andi %round, %c1
        %before: i32 = arith.xori %parity, %c1
        ttng.wait_barrier %free, %before
        %numbers: tensor<128xi32, #row> = tt.make_range {start = 0, end = 128}
        %s: tensor<128xi32, #row> = tt.splat %round
        %sent: tensor<128xi32, #row> = arith.addi %numbers, %s
        ttg.local_store %sent, %tile
        ttng.arrive_barrier %full, %on {count = 1}
        scf.yield
      }
      ttg.warp_return
    }
    ttg.warp_return
  }
  %at: tensor<128xi32, #row> = tt.make_range {start = 0, end = 128}
  %outs: tensor<128x!tt.ptr<i32>, #row> = tt.splat %out
  %to: tensor<128x!tt.ptr<i32>, #row> = tt.addptr %outs, %at
  tt.store %to, %sum
  tt.return
}
"""
TAKEN = "      ttng.wait_barrier %full, %phase\n"
READ = "      %v: tensor<128xi32, #row> = ttg.local_load %tile\n"
GIVEN = "      ttng.arrive_barrier %free, %on {count = 1}\n"
FREE = "        ttng.wait_barrier %free, %before\n"
SENT = "        ttng.arrive_barrier %full, %on {count = 1}\n"


def ran(text: str, rounds: int = 4) -> np.ndarray:
    out = np.full(128, 7, np.int32)
    interp.run(parse_module(text), [out, rounds])
    return out


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_tiles_are_handed_over(rounds: int) -> None:
    expected = rounds * np.arange(128) + rounds * (rounds - 1) // 2
    np.testing.assert_array_equal(ran(PROGRAM, rounds), expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (GIVEN, "", "a wait that never ends: no warp can go on, they are at ttng.wait_barrier"),
        (SENT, "", "a wait that never ends: no warp can go on, they are at ttng.wait_barrier"),
        ("ttng.init_barrier %full", "ttng.init_barrier %full {arrivals = 2}", "a wait that never ends"),
        (SENT, 2 * SENT, "a wait that never ends"),
        (SENT, SENT.replace("count = 1", "count = 2"), "2 where 1 of 1 are missing"),
        (FREE, "", "a wait that never ends"),
        ("  ttng.init_barrier %free\n", "", "ttng.wait_barrier of a barrier that was not made"),
    ],
    ids=["none given", "none sent", "too few", "twice", "two at once", "not waited for", "no barrier"],
)
def test_an_error_in_the_steps_is_an_error(old: str, new: str, message: str) -> None:
    assert old in PROGRAM
    with pytest.raises(InterpretError, match=message):
        ran(PROGRAM.replace(old, new, 1))


def test_what_is_read_too_early_is_not_what_is_sent() -> None:
    early = PROGRAM.replace(TAKEN + READ, READ + TAKEN)
    assert (ran(early) != ran(PROGRAM)).any()


def test_a_partition_that_raises_ends_the_program() -> None:
    """Also while the default one waits for it."""
    beyond = "        %far: !tt.ptr<i32> = tt.addptr %out, %times\n        tt.store %far, %times\n"
    with pytest.raises(InterpretError, match="write out of bounds"):
        ran(PROGRAM.replace(FREE, beyond + FREE), 1 << 20)


def test_a_partition_waits_for_its_own_copies_only() -> None:
    """A group that another one committed does not land by its wait."""
    lines = """\
        %from: tensor<128x!tt.ptr<i32>, #row> = tt.splat %out
        ttg.async_copy_global_to_local %from, %tile
        ttg.async_commit_group
"""
    stored = "        ttg.local_store %sent, %tile\n"
    assert stored in PROGRAM
    own = PROGRAM.replace(stored, lines + "        ttg.async_wait {num = 0}\n")
    np.testing.assert_array_equal(ran(own, 1), np.full(128, 7))
    others = PROGRAM.replace(stored, lines).replace(READ, "      ttg.async_wait {num = 0}\n" + READ)
    assert (ran(others, 1) != 7).all()


def test_a_barrier_counts_copies_of_threads() -> None:
    text = PROGRAM.replace(SENT, "        ttng.async_copy_mbarrier_arrive %full {no_increment = true}\n")
    text = text.replace("ttng.init_barrier %full", "ttng.init_barrier %full {arrivals = 32}")
    copied = """\
        %from: tensor<128x!tt.ptr<i32>, #row> = tt.splat %out
        ttg.async_copy_global_to_local %from, %tile
"""
    text = text.replace("        ttg.local_store %sent, %tile\n", copied)
    np.testing.assert_array_equal(ran(text, 3), np.full(128, 21))
    with pytest.raises(InterpretError, match="a wait that never ends"):
        ran(text.replace("arrivals = 32", "arrivals = 64"))


def test_a_buffer_that_is_not_there_is_an_error_where_it_is_used() -> None:
    text = PROGRAM.replace("%tile: !ttg.memdesc<128xi32, #line>", "%tiles: !ttg.memdesc<2 x 128xi32, #line>")
    chosen = "  %tile: !ttg.memdesc<128xi32, #line> = ttg.memdesc_index %tiles, %n\n"
    text = text.replace("  ttng.init_barrier %full\n", chosen + "  ttng.init_barrier %full\n")
    ran(text, 1)
    assert (ran(text, 0) == 0).all(), "it is not used"
    with pytest.raises(InterpretError, match="buffer 3 of 2"):
        ran(text, 3)
