"""Cases of the shipped layer norm's backward pass."""

from __future__ import annotations

import numpy as np
from zoo.arrays import poisoned
from zoo.case import Case


def _inputs(rng, n_rows: int, n_cols: int, element: np.dtype) -> dict:
    """What both kernels read."""
    x = rng.normal(size=(n_rows, n_cols)).astype(element)
    wide = x.astype(np.float64)
    return {
        "dy": rng.normal(size=(n_rows, n_cols)).astype(element),
        "x": x,
        "weight": rng.normal(size=n_cols).astype(element),
        "mean": wide.mean(axis=1).astype(np.float32),
        "rstd": (1 / np.sqrt(wide.var(axis=1) + 1e-5)).astype(np.float32),
    }


def _outputs(n_rows: int, n_cols: int, element: np.dtype, programs: int) -> dict:
    """What both write, and the arguments behind."""
    return {
        "dx": poisoned(n_rows, n_cols, dtype=element),
        "partial_dweight": poisoned(programs, n_cols),
        "partial_dbias": poisoned(programs, n_cols),
        "stride_dy": n_cols,
        "stride_x": n_cols,
        "stride_dx": n_cols,
        "n_rows": n_rows,
        "n_cols": n_cols,
    }


def _means(dy, x, weight, mean, rstd) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x̂, and the means of g and g·x̂ of each row, in float64."""
    dy, x, weight, mean, rstd = (array.astype(np.float64) for array in (dy, x, weight, mean, rstd))
    normal = (x - mean[:, None]) * rstd[:, None]
    return normal, (dy * weight).mean(axis=1), (dy * weight * normal).mean(axis=1)


def _backward(
    name: str, n_rows: int, n_cols: int, block: int, dtype: str, programs: int, by_columns: bool = False
) -> Case:
    element = np.dtype(dtype)

    def make(rng):
        inputs = _inputs(rng, n_rows, n_cols, element)
        if by_columns:
            _, first, second = _means(**inputs)
            inputs |= {"mean_of_g": first.astype(np.float32), "mean_of_gx": second.astype(np.float32)}
        return inputs | _outputs(n_rows, n_cols, element, programs)

    def expect(dy, x, weight, mean, rstd, **_):
        normal, first, second = _means(dy, x, weight, mean, rstd)
        dy, weight, rstd = (array.astype(np.float64) for array in (dy, weight, rstd))
        return {
            "dx": (dy * weight - first[:, None] - normal * second[:, None]) * rstd[:, None],
            "partial_dweight": np.array([(dy * normal)[p::programs].sum(axis=0) for p in range(programs)]),
            "partial_dbias": np.array([dy[p::programs].sum(axis=0) for p in range(programs)]),
        }

    return Case(
        name,
        "layer_norm.py",
        "layer_norm_backward_columns_kernel" if by_columns else "layer_norm_backward_kernel",
        make,
        expect,
        {"BLOCK": block},
        grid=(-(-n_cols // block), programs) if by_columns else (programs,),
        num_warps=4,
        tolerance=4e-3 if element.itemsize == 2 else 1e-4,
    )


def _weights(name: str, count: int, n_cols: int) -> Case:
    def make(rng):
        return {
            "partial_dweight": rng.normal(size=(count, n_cols)).astype(np.float32),
            "partial_dbias": rng.normal(size=(count, n_cols)).astype(np.float32),
            "dweight": poisoned(n_cols, dtype=np.float16),
            "dbias": poisoned(n_cols, dtype=np.float16),
            "count": count,
            "n_cols": n_cols,
        }

    def expect(partial_dweight, partial_dbias, **_):
        return {
            "dweight": partial_dweight.astype(np.float64).sum(axis=0),
            "dbias": partial_dbias.astype(np.float64).sum(axis=0),
        }

    return Case(
        name,
        "layer_norm.py",
        "layer_norm_backward_weights_kernel",
        make,
        expect,
        {"BLOCK_M": 64, "BLOCK_N": 32},
        grid=(-(-n_cols // 32),),
        tolerance=2e-2,
    )


CASES = [
    _backward("layer_norm_backward", 7, 200, 256, "float16", 3),
    _backward("layer_norm_backward_idle_programs", 2, 512, 512, "float32", 3),
    _backward("layer_norm_backward_columns", 5, 1000, 256, "float32", 2, by_columns=True),
    _weights("layer_norm_backward_weights", 130, 100),
]
