"""The data of a run, the right results, and when what was found equals them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbuild.aot.verify.cases import LaunchCase
from kbuild.aot.verify.compare import compare, rounding
from kbuild.aot.verify.data import numbers
from kbuild.aot.verify.reference import reference
from kbuild.compiler.interp.loaded import module_of, pointee_of

TEXT = """\
tt.func @f(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) attributes {num_warps = 1} {
  %v: f32 = tt.load %x
  tt.store %y, %v
  tt.return
}
"""


def test_what_the_kernel_does_not_read_is_poisoned() -> None:
    right = reference(module_of(TEXT), LaunchCase((), (("x", 5), ("y", 5)), (1,)), "whole", 0)
    assert (
        right.exact and right.arguments["x"][0] in range(-3, 4) and np.isnan(right.arguments["x"][1:]).all()
    )
    assert np.isnan(right.arguments["y"]).all() and right.expected["y"][0] == right.arguments["x"][0]
    assert right.written["y"].tolist() == [True, False, False, False, False] and not right.written["x"].any()


def test_special_numbers_are_among_the_others() -> None:
    f32 = pointee_of(module_of(TEXT).kernel.arguments[0].type)
    made = numbers("special", f32, 2000, np.random.default_rng(0))
    assert np.isnan(made).any() and np.isinf(made).any() and (np.abs(made[np.isfinite(made)]) < 10).all()


def test_results_that_depend_on_rounding_may_be_off_by_several_times_as_much() -> None:
    f32 = pointee_of(module_of(TEXT).kernel.arguments[0].type)
    wide, written = np.array([1, 1000, np.inf, np.inf], np.float32), np.array([True, True, True, False])
    off = rounding(f32, wide, np.array([1, 1001, -np.inf, 5], np.float32), written)
    assert off == pytest.approx(1e-3)

    def problem(found: Any, rounding: float | None, exact: bool = False) -> str:
        found = np.asarray(found, np.float32)
        return compare(f32, wide, found, np.ones(4, bool), exact, rounding=rounding).problem

    assert problem([1, 1007, -np.inf, np.nan], off) == ""
    assert problem([1, 1009, -np.inf, np.nan], off).startswith("1 of 4 elements differ")
    assert problem([1, 1000, 7, np.inf], off).startswith("1 of 4 elements differ; [2]")
    assert problem([1, 1000, -np.inf, np.inf], off, exact=True) and problem([1, 1000, -np.inf, np.inf], None)


def test_results_are_equal_or_within_bounds() -> None:
    f32 = pointee_of(module_of(TEXT).kernel.arguments[0].type)
    right, all_written = np.array([1, 1000, np.nan, np.inf], np.float32), np.ones(4, bool)

    def problem(found: Any, exact: bool = False, written: np.ndarray = all_written) -> str:
        return compare(f32, right, np.asarray(found, np.float32), written, exact).problem

    assert problem(right * np.float32(1.000001)) == ""
    assert problem(right * np.float32(1.000001), exact=True).startswith("2 of 4 elements differ")
    assert problem([1, 1001, np.nan, np.inf]).startswith(
        "1 of 4 elements differ; [1] is 1001.0, expected 1000.0"
    )
    assert (
        problem([1, 1000, 0, np.inf])
        and problem([1, 1000, np.nan, -np.inf])
        and problem([1, 1000, np.nan, 3e38])
    )
    assert problem(right, written=~all_written) == ""
    assert problem(right + 1, written=~all_written).startswith(
        "2 elements were written that the kernel does not write"
    )
