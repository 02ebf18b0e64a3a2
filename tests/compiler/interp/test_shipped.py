"""The kernels of kernels/ on numpy arrays: how near their results are where no instruction approximates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module

KERNELS = Path(__file__).parents[3] / "kernels"


def softmax(x: np.ndarray) -> np.ndarray:
    """The rows of x, of at most 256 fp32 elements, by the shipped kernel."""
    rows, columns = x.shape
    signature = {"x": "*fp32", "out": "*fp32", "stride_x": "i64", "stride_out": "i64", "n_cols": "i32"}
    module = build_module(f"{KERNELS}/softmax.py:softmax_kernel", signature, {"BLOCK": 256})
    out = np.full_like(x, np.nan)
    interp.run(
        module, {"x": x, "out": out, "stride_x": columns, "stride_out": columns, "n_cols": columns}, (rows,)
    )
    return out


@pytest.mark.parametrize("center", [0.0, -300.0, 1e6, -1e9, 1e30])
def test_softmax_of_fp32_rounds_nothing_but_its_last_steps(center: float) -> None:
    """Neither x - max nor its multiple is rounded, which would cost 2^-24 times as much as they are large."""
    x = (center + 4.0 * np.random.default_rng(0).standard_normal((3, 200))).astype(np.float32)
    x[1, 1:] = -np.inf
    x[2, ::3] = -1e35
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    right = exponentials / exponentials.sum(axis=1, keepdims=True)
    found = softmax(x)
    normal = right > 2.0**-126
    assert np.all(np.abs(found - right)[normal] <= 3.5 * 2.0**-24 * right[normal])
    assert np.all(found[~normal] <= 2.0**-126)


def test_softmax_of_one_number_is_one() -> None:
    x = np.array([[0.1], [-7.3], [1e-30]], dtype=np.float32)
    assert np.array_equal(softmax(x), np.ones_like(x))


def test_softmax_of_rows_with_nan_or_without_any_number_is_nan() -> None:
    x = np.array([[1.0, np.nan, 2.0], [-np.inf] * 3, [np.inf, 1.0, 2.0]], dtype=np.float32)
    assert np.isnan(softmax(x)).all()
