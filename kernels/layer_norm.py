"""Layer normalisation, forward: y = (x - mean) · rstd · weight + bias over each row."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(
    x, y, weight, bias, mean, rstd, stride_x, stride_y, n_cols, eps, BLOCK: tl.constexpr, PARTS: tl.constexpr = 1
):
    """Program r normalises row r of `n_cols` ≤ BLOCK·PARTS elements and writes its mean and 1/σ (fp32) for the backward
    pass.  The row stays in registers; of weight and bias only one of the PARTS at a time, which makes wide rows fit."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    values = ()
    for part in tl.static_range(PARTS):
        place = part * BLOCK + columns
        loaded = tl.load(x + row * stride_x + place, mask=place < n_cols, other=0.0)
        values = values + (loaded.to(tl.float32),)
    total = values[0]
    for part in tl.static_range(1, PARTS):
        total += values[part]
    row_mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    centred = ()
    for part in tl.static_range(PARTS):
        difference = tl.where(part * BLOCK + columns < n_cols, values[part] - row_mean, 0.0)
        squares += difference * difference
        centred = centred + (difference,)
    row_rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    tl.store(mean + row, row_mean)
    tl.store(rstd + row, row_rstd)
    for part in tl.static_range(PARTS):
        place = part * BLOCK + columns
        inside = place < n_cols
        scale = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
        shift = tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
        result = centred[part] * row_rstd * scale + shift
        tl.store(y + row * stride_y + place, result.to(y.dtype.element_ty), mask=inside)
