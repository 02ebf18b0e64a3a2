"""Tiles that threads fill themselves, as of unaligned rows: dots of warpgroups read one of three while the
next is filled."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import LocalAlloc, LocalStore, MemDescTrans
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Barrier
from kbuild.targets import Target
from kbuild.targets.sm_80 import TARGET as SM_80
from kbuild.targets.sm_90 import TARGET as SM_90
from tests.compiler.analysis.races import races
from tests.compiler.transforms.gpu.dot.test_overlap_wgmma import PASSES, enlarged, result
from tests.compiler.transforms.gpu.loops import buffers_of, ops

NAMES = ("matmul", "masked", "table", "used_twice", "nested")


def unaligned(name: str, target: Target = SM_90) -> Module:
    """A loop whose arrays begin anywhere, so that its elements are loaded one by one."""
    module = parse_module(print_module(enlarged(name, 2)).replace(" {divisibility = 16}", ""))
    run_pipeline(module, target, PASSES)
    return module


def buffers(module: Module) -> list[int | None]:
    return buffers_of(ops(module, LocalAlloc))


@pytest.mark.parametrize("name", NAMES)
def test_same_meaning_and_no_races_for_every_trip_count(name: str) -> None:
    reference, final = enlarged(name, 2), unaligned(name)
    for iterations in range(6):
        np.testing.assert_array_equal(
            result(final, iterations), result(reference, iterations), f"{iterations} iterations"
        )
        assert not races(final.kernel, n=iterations)


def test_the_dot_is_in_flight_while_the_next_tiles_are_filled_after_one_barrier() -> None:
    module = unaligned("matmul")
    (loop,) = ops(module, For)
    order = (LocalStore, FenceAsyncShared, Barrier, WarpGroupDot, WarpGroupDotWait)
    assert [type(op) for op in loop.body if isinstance(op, order)] == [LocalStore, *order]
    assert [wait.pendings for wait in loop.body if isinstance(wait, WarpGroupDotWait)] == [1]
    assert buffers(module) == [3, 3]


def test_the_keys_of_attention_whose_dot_ends_in_its_iteration_keep_one_tile() -> None:
    module = unaligned("attention")
    first, second = ops(module, WarpGroupDot)
    tiles = [op for op in second.parent_block if isinstance(op, LocalAlloc)]
    assert isinstance(first.b.op, MemDescTrans)
    assert [tile.result for tile in tiles] == [first.b.op.src]
    assert buffers(module) == [None, 3, None]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("table", SM_90),  # something is added to its sum in every iteration
        (
            "matmul",
            dataclasses.replace(
                SM_90, limits=dataclasses.replace(SM_90.limits, shared_bytes=4 * 48 * 1024 - 1)
            ),
        ),  # two tiles of 8 KB, thrice
        ("matmul", SM_80),  # dots of single warps end before the next instruction
    ],
)
def test_one_tile_where_nothing_can_be_in_flight_or_memory_is_short(name: str, target: Target) -> None:
    assert 3 not in buffers(unaligned(name, target))
