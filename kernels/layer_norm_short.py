"""Layer normalisation of short rows, several to a program."""

import triton
import triton.language as tl
from layer_norm import is_there, reciprocal_root


@triton.jit
def layer_norm_of_rows(
    x,
    y,
    weight,
    bias,
    mean,
    rstd,
    stride_x,
    stride_y,
    n_cols,
    eps,
    first,
    count,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LEAST: tl.constexpr,
    EARLY: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Normalises the first `count` of ROWS rows, of LEAST ≤ `n_cols` ≤ BLOCK elements; all of them if WHOLE."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)
    present, filled = rows < count, (columns < LEAST) | (columns < n_cols)
    inside = filled[None, :] if WHOLE else present & filled[None, :]
    values = tl.load(x + (rows * stride_x + columns[None, :]), mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + columns, mask=filled, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=filled, other=0.0).to(tl.float32)
    if EARLY:  # Never the latter, but ptxas may not put their loads behind the first sum.
        values = tl.where(n_cols > 0, values, (scale + shift)[None, :])
    share = 1.0 / n_cols
    row_mean = tl.sum(values, axis=1)[:, None] * share
    # Behind the rows' ends both are zero: one choice for all elements of a vector.
    difference = values - tl.where(filled[None, :], row_mean, 0.0)
    row_rstd = reciprocal_root(tl.sum(difference * difference, axis=1)[:, None] * share + eps)
    result = difference * row_rstd * scale[None, :] + shift[None, :]
    tl.store(y + (rows * stride_y + columns[None, :]), result.to(y.dtype.element_ty), mask=inside)
    if is_there(mean) | is_there(rstd):  # One way out for those who ask for neither.
        if is_there(mean):
            tl.store(mean + first + rows, row_mean, mask=present)
        if is_there(rstd):
            tl.store(rstd + first + rows, row_rstd, mask=present)


@triton.jit
def layer_norm_short_kernel(
    x,
    y,
    weight,
    bias,
    mean,
    rstd,
    stride_x,
    stride_y,
    n_cols,
    eps,
    n_rows,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LEAST: tl.constexpr = 0,
    EARLY: tl.constexpr = False,
    APART: tl.constexpr = False,
):
    """Program p does for rows p·ROWS to (p + 1)·ROWS of the `n_rows`, each of LEAST ≤ `n_cols` ≤ BLOCK elements, what
    `layer_norm_kernel` does for one.

    Strides are below 2^31 / ROWS, so that places within a program's rows have 32 bits.  EARLY: weight and bias come
    with the rows.  APART: as for `softmax_short_kernel`.
    """
    first = tl.program_id(0) * ROWS
    count = n_rows - first
    x += first.to(tl.int64) * stride_x
    y += first.to(tl.int64) * stride_y
    whole = count >= ROWS if APART else False
    if whole:
        layer_norm_of_rows(
            x, y, weight, bias, mean, rstd, stride_x, stride_y, n_cols, eps, first, count,
            BLOCK, ROWS, LEAST, EARLY, True,
        )  # fmt: skip
    else:
        layer_norm_of_rows(
            x, y, weight, bias, mean, rstd, stride_x, stride_y, n_cols, eps, first, count,
            BLOCK, ROWS, LEAST, EARLY, False,
        )  # fmt: skip
