"""Cases of the shipped softmax and layer norm of short rows, of long ones, and of long ones in parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from zoo.arrays import poisoned
from zoo.case import Case

EPS = 1e-5
APART = {"LEAST": 64, "APART": True}
"""Of the short rows: whole programs without masks for rows, and columns that all rows have."""


def _softmax(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def _special_rows(rng: np.random.Generator, n_rows: int, n_cols: int, element: type) -> np.ndarray:
    """Rows of softmax: far from zero; with the largest number last; begun by minus infinity; of nothing else; with
    plus infinity; with NaN; and others."""
    x = rng.normal(size=(n_rows, n_cols)).astype(element)
    x[0] += 1000
    x[1, -1] = 60
    x[2, : n_cols // 2] = -np.inf
    x[3] = -np.inf
    x[4, n_cols // 3] = np.inf
    x[5, n_cols // 2] = np.nan
    return x


def _softmax_case(
    name: str,
    function: str,
    n_cols: int,
    constexprs: Mapping[str, int],
    element: type,
    *,
    out_stride: int = 0,
) -> Case:
    n_rows, short, out_stride = 11, "ROWS" in constexprs, out_stride or n_cols

    def make(rng):
        x = _special_rows(rng, n_rows, n_cols, element)
        strides = {"stride_x": n_cols, "stride_out": out_stride, "n_cols": n_cols}
        rows = {"n_rows": n_rows} if short else {}
        return {"x": x, "out": poisoned(n_rows, out_stride, dtype=element), **strides, **rows}

    return Case(
        name,
        "softmax.py",
        function,
        make,
        lambda x, out, **_: {"out": np.concatenate([_softmax(x), out[:, n_cols:]], axis=1)},
        constexprs,
        grid=(-(-n_rows // constexprs.get("ROWS", 1)),),
        tolerance=2e-3 if element is np.float16 else 2e-6,
    )


def _parts_of(row: np.ndarray, index: int, block: int, parts: int) -> list[np.ndarray]:
    """The elements that each part of a dense row of fp32 has: every so many blocks between its edges, which the
    first part has, too."""
    head = -(index * len(row)) % 4
    end = len(row) - (len(row) - head) % 4
    own = [
        [row[i : min(end, i + block)] for i in range(head + p * block, end, parts * block)]
        for p in range(parts)
    ]
    own[0] += [row[:head], row[end:]]
    return [np.concatenate([row[:0], *each]).astype(np.float64) for each in own]


def _softmax_parts(name: str, n_cols: int, block: int, parts: int) -> Case:
    """What each part of a row contributes: its maximum, and the sum."""
    n_rows = 6

    def make(rng):
        x = _special_rows(rng, n_rows, n_cols, np.float32)
        x[2:4] = rng.normal(size=(2, n_cols))  # Of minus infinity alone a part has the least finite number.
        sums = {"tops": poisoned(n_rows, parts), "totals": poisoned(n_rows, parts)}
        return {"x": x, **sums, "stride_x": n_cols, "n_cols": n_cols}

    def expect(x, **_):
        own = [_parts_of(row, index, block, parts) for index, row in enumerate(x)]
        tops = [[np.fmax.reduce(part) for part in row] for row in own]
        with np.errstate(invalid="ignore"):
            totals = [[np.exp(part - top).sum() for part, top in zip(*each)] for each in zip(own, tops)]
        return {"tops": np.array(tops), "totals": np.array(totals)}

    grid = (parts, n_rows)
    return Case(
        name, "softmax.py", "softmax_parts_kernel", make, expect, {"BLOCK": block}, grid, tolerance=2e-6
    )


def _softmax_of_parts(name: str, n_cols: int, block: int, parts: int) -> Case:
    n_rows = 2

    def make(rng):
        x = rng.normal(size=(n_rows, n_cols)).astype(np.float32)
        tops = rng.normal(size=(n_rows, parts)).astype(np.float32)
        tops[:, 0] = x.max(axis=1) + 3
        totals = rng.uniform(1, 2, size=(n_rows, parts)).astype(np.float32)
        strides = {"stride_x": n_cols, "stride_out": n_cols, "n_cols": n_cols}
        return {"x": x, "out": poisoned(n_rows, n_cols), "tops": tops, "totals": totals, **strides}

    def expect(x, tops, totals, **_):
        x, tops, totals = (array.astype(np.float64) for array in (x, tops, totals))
        top = tops.max(axis=1, keepdims=True)
        return {"out": np.exp(x - top) / (totals * np.exp(tops - top)).sum(axis=1, keepdims=True)}

    constexprs, grid = {"BLOCK": block, "PARTS": 8}, (parts, n_rows)
    return Case(name, "softmax.py", "softmax_of_parts_kernel", make, expect, constexprs, grid, tolerance=2e-6)


def _normal_inputs(rng: np.random.Generator, n_rows: int, n_cols: int, element: type) -> dict:
    """Rows whose mean is large beside what they spread, and others."""
    x = rng.normal(size=(n_rows, n_cols))
    x[0] += 100
    weight, bias = rng.normal(size=(2, n_cols)).astype(element)
    return {
        "x": x.astype(element),
        "y": poisoned(n_rows, n_cols, dtype=element),
        "weight": weight,
        "bias": bias,
    }


def _normalised(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> dict[str, np.ndarray]:
    x, weight, bias = (array.astype(np.float64) for array in (x, weight, bias))
    mean, rstd = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + EPS)
    return {"y": (x - mean[:, None]) * rstd[:, None] * weight + bias, "mean": mean, "rstd": rstd}


def _layer_norm_case(
    name: str, function: str, n_cols: int, constexprs: Mapping[str, int], element: type
) -> Case:
    n_rows, short = 11, "ROWS" in constexprs

    def make(rng):
        moments = {"mean": poisoned(n_rows), "rstd": poisoned(n_rows)}
        strides = {"stride_x": n_cols, "stride_y": n_cols, "n_cols": n_cols, "eps": EPS}
        rows = {"n_rows": n_rows} if short else {}
        return {**_normal_inputs(rng, n_rows, n_cols, element), **moments, **strides, **rows}

    return Case(
        name,
        "layer_norm_short.py" if short else "layer_norm.py",
        function,
        make,
        lambda x, weight, bias, **_: _normalised(x, weight, bias),
        constexprs,
        grid=(-(-n_rows // constexprs.get("ROWS", 1)),),
        tolerance=2e-3 if element is np.float16 else 1e-5,
    )


def _moments(x: np.ndarray, block: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each part of each row, and the sum of the squares of the distances from it."""
    own = [_parts_of(row, index, block, parts) for index, row in enumerate(x)]
    return (
        np.array([[part.mean() if len(part) else 0 for part in row] for row in own]),
        np.array([[part.var() * len(part) if len(part) else 0 for part in row] for row in own]),
    )


def _layer_norm_parts(name: str, n_cols: int, block: int, parts: int) -> Case:
    n_rows = 2

    def make(rng):
        x = _normal_inputs(rng, n_rows, n_cols, np.float32)["x"]
        moments = {"means": poisoned(n_rows, parts), "squares": poisoned(n_rows, parts)}
        return {"x": x, **moments, "stride_x": n_cols, "n_cols": n_cols}

    def expect(x, **_):
        means, squares = _moments(x, block, parts)
        return {"means": means, "squares": squares}

    constexprs, grid = {"BLOCK": block}, (parts, n_rows)
    return Case(
        name, "layer_norm.py", "layer_norm_parts_kernel", make, expect, constexprs, grid, tolerance=1e-5
    )


def _layer_norm_of_parts(name: str, n_cols: int, block: int, parts: int) -> Case:
    n_rows = 2

    def make(rng):
        inputs = _normal_inputs(rng, n_rows, n_cols, np.float32)
        means, squares = (array.astype(np.float32) for array in _moments(inputs["x"], block, parts))
        moments = {"mean": poisoned(n_rows), "rstd": poisoned(n_rows), "means": means, "squares": squares}
        return {**inputs, **moments, "stride_x": n_cols, "stride_y": n_cols, "n_cols": n_cols, "eps": EPS}

    return Case(
        name,
        "layer_norm.py",
        "layer_norm_of_parts_kernel",
        make,
        lambda x, weight, bias, **_: _normalised(x, weight, bias),
        {"BLOCK": block, "PARTS": 8},
        grid=(parts, n_rows),
        tolerance=1e-5,
    )


CASES = [
    _softmax_case("softmax_short", "softmax_short_kernel", 24, {"BLOCK": 32, "ROWS": 8}, np.float16),
    _softmax_case("softmax_short_odd", "softmax_short_kernel", 77, {"BLOCK": 128, "ROWS": 4}, np.float32),
    _softmax_case(
        "softmax_short_apart", "softmax_short_kernel", 77, {"BLOCK": 128, "ROWS": 4, **APART}, np.float16
    ),
    _softmax_case("softmax_long", "softmax_long_kernel", 1064, {"BLOCK": 512, "ALIGNED": True}, np.float16),
    _softmax_case("softmax_long_odd", "softmax_long_kernel", 1027, {"BLOCK": 256}, np.float32),
    _softmax_case(
        "softmax_long_apart", "softmax_long_kernel", 1031, {"BLOCK": 256}, np.float16, out_stride=1033
    ),
    _softmax_parts("softmax_parts", 1027, 128, 3),
    _softmax_of_parts("softmax_of_parts", 1027, 128, 3),
    _layer_norm_case("layer_norm_short", "layer_norm_short_kernel", 24, {"BLOCK": 32, "ROWS": 8}, np.float16),
    _layer_norm_case(
        "layer_norm_short_early",
        "layer_norm_short_kernel",
        24,
        {"BLOCK": 32, "ROWS": 8, "EARLY": True},
        np.float16,
    ),
    _layer_norm_case(
        "layer_norm_short_apart",
        "layer_norm_short_kernel",
        77,
        {"BLOCK": 128, "ROWS": 4, **APART},
        np.float16,
    ),
    _layer_norm_case(
        "layer_norm_short_odd", "layer_norm_short_kernel", 77, {"BLOCK": 128, "ROWS": 4}, np.float32
    ),
    _layer_norm_case(
        "layer_norm_long", "layer_norm_long_kernel", 1064, {"BLOCK": 512, "ALIGNED": True}, np.float16
    ),
    _layer_norm_case("layer_norm_long_odd", "layer_norm_long_kernel", 1027, {"BLOCK": 256}, np.float32),
    _layer_norm_case("layer_norm_long_16", "layer_norm_long_kernel", 1031, {"BLOCK": 256}, np.float16),
    _layer_norm_parts("layer_norm_parts", 1027, 128, 3),
    _layer_norm_parts("layer_norm_parts_without_vectors", 129, 128, 2),
    _layer_norm_of_parts("layer_norm_of_parts", 1027, 128, 3),
    _layer_norm_of_parts("layer_norm_of_parts_without_vectors", 129, 128, 2),
    _layer_norm_of_parts("layer_norm_of_equal_parts", 1024, 128, 4),
]
