"""Layer normalisation, forward: y = (x - mean) · rstd · weight + bias over each row."""

import triton
import triton.language as tl


@triton.jit
def part_of(row, part, n_cols, BLOCK: tl.constexpr, POLICY: tl.constexpr):
    """Elements part·BLOCK to (part + 1)·BLOCK of the `n_cols` at `row`; zeros behind them."""
    place = part * BLOCK + tl.arange(0, BLOCK)
    return tl.load(row + place, mask=place < n_cols, other=0.0, eviction_policy=POLICY).to(tl.float32)


@triton.jit
def layer_norm_kernel(
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
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr = 1,
    AGAIN: tl.constexpr = False,
):
    """Program r normalises row r of `n_cols` ≤ BLOCK·PARTS elements and writes its mean and 1/σ (fp32) for
    the backward pass.

    The row stays in registers, and of weight and bias only one of the PARTS at a time, which makes wide rows
    fit.  AGAIN: the row is reloaded from the cache of the multiprocessor for each step, which leaves registers
    for more rows at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    y += row * stride_y
    values = ()
    if not AGAIN:
        for part in tl.static_range(PARTS):
            values = values + (part_of(x, part, n_cols, BLOCK, ""),)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += part_of(x, part, n_cols, BLOCK, "evict_last") if AGAIN else values[part]
    row_mean = tl.sum(total, axis=0) / n_cols
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(PARTS):
        value = part_of(x, part, n_cols, BLOCK, "evict_last") if AGAIN else values[part]
        difference = tl.where(part * BLOCK + columns < n_cols, value - row_mean, 0.0)
        squares += difference * difference
    row_rstd = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(squares, axis=0) / n_cols + eps))
    tl.store(mean + row, row_mean)
    tl.store(rstd + row, row_rstd)
    for part in tl.static_range(PARTS):
        value = part_of(x, part, n_cols, BLOCK, "evict_first") if AGAIN else values[part]
        scale, shift = part_of(weight, part, n_cols, BLOCK, ""), part_of(bias, part, n_cols, BLOCK, "")
        result = (value - row_mean) * row_rstd * scale + shift
        place = part * BLOCK + columns
        tl.store(y + place, result.to(y.dtype.element_ty), mask=place < n_cols)
