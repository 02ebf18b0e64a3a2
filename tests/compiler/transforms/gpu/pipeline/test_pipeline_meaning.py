"""Pipelined loops mean what they did, for every small number of iterations, and their accesses do not race."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.types import shape_of
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal, LocalAlloc, LocalLoad
from kbuild.compiler.ops.tensor import Dot, Load
from kbuild.targets import Target
from kbuild.targets.sm_80 import TARGET as SM_80
from tests.compiler.analysis.races import races
from tests.compiler.transforms.gpu.loops import LOOPS, TURNS, buffers_of, kernel, ops

POSITION = SM_80.gpu_pipeline.index("pipeline")
BEFORE = tuple(name for name in SM_80.gpu_pipeline[:POSITION] if name != "canonicalize_pointers")
AFTER = SM_80.gpu_pipeline[POSITION:]


def compiled(name: str, stages: int, *passes: str, target: Target = SM_80) -> Module:
    module = parse_module(kernel(LOOPS[name], stages))
    run_pipeline(module, target, passes)
    return module


def result(module: Module, iterations: int) -> np.ndarray:
    """What a kernel leaves in `out`, over small whole numbers, in arrays that end where the loop does."""
    generator = np.random.default_rng(iterations)
    size = 31 * 64 + 32 * max(iterations, 1)
    arrays = [generator.integers(-1, 2, size + extra).astype(np.float16) for extra in (0, 31)]
    table = generator.integers(0, max(iterations, 1), iterations).astype(np.int32)
    out = np.full(4096, 7, np.float32)
    interp.run(module, [*arrays, table, out, iterations])
    return out


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", LOOPS)
def test_same_meaning_for_every_trip_count(name: str, stages: int) -> None:
    reference = parse_module(kernel(LOOPS[name], stages))
    pipelined = compiled(name, stages, *BEFORE, "pipeline")
    final = compiled(name, stages, *BEFORE, *AFTER)
    for iterations in range(2 * stages + 1):
        expected = result(reference, iterations)
        np.testing.assert_array_equal(
            result(pipelined, iterations), expected, f"pipeline, {iterations} iterations"
        )
        np.testing.assert_array_equal(
            result(final, iterations), expected, f"all passes, {iterations} iterations"
        )


@pytest.mark.parametrize(
    "name", ["matmul", "masked", "attention", "used_twice", "maximum", "invariant", "nested"]
)
def test_no_races(name: str) -> None:
    module = compiled(name, 3, *BEFORE, *AFTER)
    for iterations in range(7):
        assert not races(module.kernel, n=iterations)


def test_loads_that_hardware_can_copy_become_copies() -> None:
    assert len(ops(compiled("matmul", 3, *BEFORE, "pipeline"), AsyncCopyGlobalToLocal)) == 2 * 3
    strided = compiled("strided", 3, *BEFORE, "pipeline")
    assert len(ops(strided, AsyncCopyGlobalToLocal)) == 3 and len(ops(strided, Load)) == 2


@pytest.mark.parametrize(("iterations", "buffers"), [(2, 2), (8, 4)])
def test_no_more_buffers_than_iterations(iterations: int, buffers: int) -> None:
    times = f"%times: i32 = arith.constant {{value = {iterations}}}"
    text = kernel(times + LOOPS["matmul"].replace("%c0, %n, %c1", "%c0, %times, %c1"), num_stages=4)
    module = parse_module(text)
    run_pipeline(module, SM_80, (*BEFORE, "pipeline"))
    assert set(buffers_of(ops(module, LocalAlloc))) == {buffers}


def test_an_index_is_loaded_before_what_it_points_to() -> None:
    """Pages are copied one iteration early and their numbers loaded two; the body loads its own for another
    use."""
    module = compiled("table", 3, *BEFORE, "pipeline")
    order = [type(op) for op in ops(module, AsyncCopyGlobalToLocal, Load)]
    copies = [AsyncCopyGlobalToLocal] * 2
    assert order == [Load, Load, *copies, Load, *copies, Load]


@pytest.mark.parametrize("tiles, buffers", [(4, 3), (3, 2), (2, 1), (1, None)])
def test_what_every_iteration_loads_stays_if_a_buffer_fits_beside_it(tiles: int, buffers: int | None) -> None:
    """With room for one buffer, the copies of the next iteration wait for the reads of this one."""
    target = dataclasses.replace(
        SM_80, limits=dataclasses.replace(SM_80.limits, shared_bytes=tiles * 32 * 32 * 2)
    )
    module = compiled("invariant", 3, *BEFORE, *AFTER, target=target)
    loop = next(op for op in module.kernel.body if isinstance(op, For))
    rings = buffers_of(op for op in ops(module, LocalAlloc) if op.src is None)
    assert rings == ([buffers] if buffers else [])
    assert any(isinstance(op, Load) for op in loop.body) == (buffers is None)
    reference = parse_module(kernel(LOOPS["invariant"], 3))
    for iterations in range(6):
        np.testing.assert_array_equal(
            result(module, iterations), result(reference, iterations), f"{iterations} iterations"
        )
        assert not races(module.kernel, n=iterations)


def test_dots_are_split_into_steps() -> None:
    module = compiled("attention", 3, *BEFORE, *AFTER)
    assert all(shape_of(dot.a.type)[1] == 16 for dot in ops(module, Dot))
    loop = next(op for op in module.kernel.body if isinstance(op, For))
    assert all(16 in shape_of(load.result.type) for load in loop.body if isinstance(load, LocalLoad))


def test_unknown_instructions_do_not_run_for_iterations_that_do_not_exist() -> None:
    asm = '{asm = "ld.shared.b32 $0, [$1];", constraints = "=r,r,r"}'
    body = LOOPS["used_twice"].replace("arith.muli %i, %c32", f"tt.elementwise_inline_asm %i, %c32 {asm}")
    module = parse_module(kernel(body, 3))
    run_pipeline(module, SM_80, (*BEFORE, "pipeline"))
    assert not ops(module, AsyncCopyGlobalToLocal) and len(ops(module, Load)) == 1


@pytest.mark.parametrize("iterations", range(6))
def test_no_load_comes_before_a_store_to_an_array_of_which_the_loop_takes_turns(iterations: int) -> None:
    reference, final = (parse_module(kernel(TURNS, 3)) for _ in range(2))
    run_pipeline(final, SM_80, SM_80.gpu_pipeline)
    np.testing.assert_array_equal(result(final, iterations), result(reference, iterations))
