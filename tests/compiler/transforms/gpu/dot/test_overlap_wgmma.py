"""Dots of warpgroups in loops: they mean what they did, race with nothing, and are in flight as long as
they may be."""

from __future__ import annotations

import numpy as np
import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import AsyncCommitGroup, AsyncCopyGlobalToLocal, LocalAlloc
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Barrier
from kbuild.targets.sm_90 import TARGET as SM_90
from tests.compiler.analysis.races import races
from tests.compiler.transforms.gpu.loops import LOOPS, buffers_of, kernel, ops

PASSES = tuple(name for name in SM_90.gpu_pipeline if name != "canonicalize_pointers")
NAMES = ("matmul", "chained", "masked", "attention", "used_twice", "restarted", "nested", "table")
_ORDERED = AsyncCopyGlobalToLocal | WarpGroupDot | WarpGroupDotWait
ENLARGED = (
    ("{value = 64}", "{value = 128}"),
    ("{value = 32}", "{value = 64}"),
    ("32x32x", "64x64x"),
    ("tensor<32x", "tensor<64x"),
    ("tensor<1x32x", "tensor<1x64x"),
    ("end = 32", "end = 64"),
)


def enlarged(name: str, stages: int) -> Module:
    """A loop of `loops` with tiles of 64 x 64 at rows of 128."""
    text = kernel(LOOPS[name], stages)
    for old, new in ENLARGED:
        text = text.replace(old, new)
    return parse_module(text)


def compiled(name: str, stages: int, passes: tuple[str, ...] = PASSES) -> Module:
    module = enlarged(name, stages)
    run_pipeline(module, SM_90, passes)
    assert ops(module, WarpGroupDot)
    return module


def result(module: Module, iterations: int) -> np.ndarray:
    generator = np.random.default_rng(iterations)
    size = 63 * 128 + 64 * max(iterations, 1)
    arrays = [generator.integers(-1, 2, size + extra).astype(np.float16) for extra in (0, 63)]
    table = generator.integers(0, max(iterations, 1), iterations).astype(np.int32)
    out = np.full(64 * 128, 7, np.float32)
    interp.run(module, [*arrays, table, out, iterations])
    return out


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_same_meaning_for_every_trip_count(name: str, stages: int) -> None:
    reference, final = enlarged(name, stages), compiled(name, stages)
    for iterations in range(stages + 3):
        np.testing.assert_array_equal(
            result(final, iterations), result(reference, iterations), f"{iterations} iterations"
        )


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_no_races(name: str, stages: int) -> None:
    module = compiled(name, stages)
    for iterations in range(stages + 3):
        assert not races(module.kernel, n=iterations)


@pytest.mark.parametrize(("stages", "buffers"), [(2, 3), (3, 3), (4, 4)])
def test_copies_are_issued_under_a_sum_in_place_once_the_previous_one_has_ended(
    stages: int, buffers: int
) -> None:
    module = compiled("matmul", stages)
    loop = next(op for op in ops(module, For))
    inside = [
        type(op)
        for op in loop.body
        if isinstance(op, FenceAsyncShared | Barrier | WarpGroupDot | WarpGroupDotWait | AsyncCommitGroup)
    ]
    assert inside == [
        FenceAsyncShared,
        Barrier,
        WarpGroupDot,
        WarpGroupDotWait,
        Barrier,
        AsyncCommitGroup,
    ]
    waits = ops(module, WarpGroupDotWait)
    assert [(wait.pendings, len(wait.values)) for wait in waits] == [(1, 0), (0, 1)]
    assert set(buffers_of(ops(module, LocalAlloc))) == {buffers}


def test_all_dots_of_a_sum_run_under_the_copies_of_the_next_iterations() -> None:
    module = compiled("chained", 3)
    first, second = ops(module, WarpGroupDot)
    body = [
        op for op in second.parent_block if isinstance(op, WarpGroupDot | WarpGroupDotWait | AsyncCommitGroup)
    ]
    assert body[:2] == [first, second] and isinstance(body[2], WarpGroupDotWait) and body[2].pendings == 2
    assert set(buffers_of(ops(module, LocalAlloc))) == {3}


def test_dots_of_attention_read_registers_and_the_second_runs_into_the_next_iteration() -> None:
    module = compiled("attention", 3)
    first, second = ops(module, WarpGroupDot)
    assert isinstance(first.a.type, TensorType) and isinstance(second.a.type, TensorType)
    waits = [op for op in second.parent_block if isinstance(op, WarpGroupDotWait)]
    assert len(waits) == 1 and waits[0].pendings == 0 and len(waits[0].values) == 2
    order = list(second.parent_block)
    assert order.index(first) < order.index(waits[0]) < order.index(second)


@pytest.mark.parametrize("name", ["matmul", "attention"])
def test_the_interpreter_shows_a_missing_wait(name: str) -> None:
    module = compiled(name, 3)
    for wait in ops(module, WarpGroupDotWait):
        if wait.values:
            wait.pendings = 2
    assert np.isnan(result(module, 4)).any()


def test_a_dot_that_is_read_in_its_iteration_runs_under_the_copies_of_later_ones() -> None:
    module = compiled("used_twice", 3)
    (dot,) = ops(module, WarpGroupDot)
    inside = [type(op) for op in dot.parent_block if isinstance(op, _ORDERED)]
    assert inside == [WarpGroupDot, AsyncCopyGlobalToLocal, WarpGroupDotWait]


def test_a_sum_that_is_stored_in_some_iterations_stays_in_flight_in_the_others() -> None:
    module = compiled("restarted", 3)
    (dot,) = ops(module, WarpGroupDot)
    waits = [(wait.parent_block is dot.parent_block, wait.pendings) for wait in ops(module, WarpGroupDotWait)]
    assert waits == [(True, 1), (False, 0), (False, 0)], "under the copies, in the branch, after the loop"
    assert dot.use_acc is not None
