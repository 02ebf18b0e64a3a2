"""Traces of launches, and undefined values: both expose errors of kernels."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp.memory import Trace
from kbuild.errors import InterpretError


def traced(kernel: object, grid: int, arrays: dict[str, np.ndarray], **constexprs: int) -> Trace:
    trace = Trace()
    interp.run(build_module(kernel, interp.signature_of(arrays), constexprs), arrays, (grid,), trace)
    return trace


@kbuild.jit
def store_values(
    out, STEP: tl.constexpr, STRIDE: tl.constexpr, BY_PROGRAM: tl.constexpr, BY_ELEMENT: tl.constexpr
):
    program, element = tl.program_id(0), tl.arange(0, 2)
    tl.store(out + program * STEP + element * STRIDE, program * BY_PROGRAM + element * BY_ELEMENT + 1)


@pytest.mark.parametrize(
    ("places", "values", "conflict"),
    [
        ((2, 1), (1, 1), False),  # each element has a place of its own
        ((0, 1), (0, 1), False),  # both programs write the same
        ((0, 1), (1, 0), True),
        ((2, 0), (0, 0), False),  # both elements of a store have one place
        ((2, 0), (0, 1), True),
        ((1, 1), (1, 1), False),  # the last of one program is the first of the other
        ((1, 1), (2, 1), True),
    ],
)
def test_two_values_for_one_place_are_a_conflict(
    places: tuple[int, int], values: tuple[int, int], conflict: bool
) -> None:
    constexprs = dict(zip(("STEP", "STRIDE", "BY_PROGRAM", "BY_ELEMENT"), (*places, *values)))
    trace = traced(store_values, 2, {"out": np.zeros(4, np.int32)}, **constexprs)
    assert bool(trace.conflict) == conflict
    if conflict:
        assert (
            "test_traces.py:" in trace.conflict
            and "different values are written to one place" in trace.conflict
        )


@kbuild.jit
def store_again(small, out):
    if tl.program_id(0) == 0:
        tl.store(small + tl.arange(0, 512), 1)
    else:
        tl.store(out + tl.arange(0, 16), 2)
        tl.store(out + tl.arange(0, 16), 3)


def test_a_program_may_change_its_mind_and_arrays_are_apart() -> None:
    arrays = {"small": np.zeros(512, np.int8), "out": np.zeros(16, np.int32)}
    trace = traced(store_again, 2, arrays)
    assert not trace.conflict and trace.written["out"].all() and not trace.read["out"].any()
    assert trace.written["small"].shape == (512,) and trace.written["out"].shape == (64,)


@kbuild.jit
def load_part(x, out):
    tl.store(out + tl.arange(0, 4), tl.load(x + tl.arange(0, 4), mask=tl.arange(0, 4) < 2))


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [("float16", np.nan), ("float32", np.nan), ("float64", np.nan), ("int8", -0x5B), ("int32", -0x5A5A5A5B)],
)
def test_elements_that_a_mask_leaves_out_show(dtype: str, shown: float) -> None:
    out = np.zeros(4, dtype)
    trace = traced(load_part, 1, {"x": np.ones(4, dtype), "out": out})
    np.testing.assert_array_equal(out, np.array([1, 1, shown, shown], dtype))
    assert trace.read["x"].tolist() == [True] * 2 * out.itemsize + [False] * 2 * out.itemsize


@kbuild.jit
def store_number(out):
    tl.store(out + tl.program_id(0) + 8 * tl.program_id(1), tl.num_programs(0) + tl.program_id(1))


def test_some_programs_of_a_grid_run() -> None:
    out = np.zeros(16, np.int32)
    module = build_module(store_number, interp.signature_of({"out": out}), {})
    interp.run(module, {"out": out}, (8, 2), programs=[(1, 0, 0), (7, 1, 0)])
    assert out[1] == 8 and out[15] == 9 and np.count_nonzero(out) == 2


@kbuild.jit
def read_next_row(x, out):
    tl.store(out, tl.load(x + 1000))


def test_the_row_behind_an_array_is_in_no_other() -> None:
    arrays = {"x": np.zeros(10, np.float32), "out": np.zeros(4000, np.float32)}
    module = build_module(read_next_row, interp.signature_of(arrays), {})
    with pytest.raises(InterpretError, match=r"read out of bounds.* x\[1000\], of 10 elements"):
        interp.run(module, arrays, (1,))


@kbuild.jit
def square(x, out):
    places = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    values = tl.load(x + places)
    tl.store(out + places, tl.dot(values, values))


def test_dots_cut_to_tf32_where_that_is_asked_for() -> None:
    x = np.full(256, 1 + 2.0**-12, np.float32)
    found = {}
    for cut in (False, True):
        arrays = {"x": x.copy(), "out": np.zeros(256, np.float32)}
        module = build_module(square, interp.signature_of(arrays), {})
        with interp.tf32_cut() if cut else nullcontext():
            interp.run(module, arrays, (1,))
        found[cut] = float(arrays["out"][0])
    assert found == {False: np.float32(16 * (1 + 2.0**-12) ** 2), True: 16.0}
