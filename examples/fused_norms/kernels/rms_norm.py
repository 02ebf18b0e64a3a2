"""RMS norm: y = x · rstd · weight with rstd = 1 / sqrt(mean of x² + eps) over each row, and its gradients."""

import triton
import triton.language as tl


@triton.jit
def part_of(row, start, n_cols, BLOCK: tl.constexpr):
    """BLOCK elements of the `n_cols` at `row`, from `start` on, in fp32; zeros behind them."""
    columns = start + tl.arange(0, BLOCK)
    return tl.load(row + columns, mask=columns < n_cols, other=0.0).to(tl.float32)


@triton.jit
def rms_norm_kernel(x, weight, y, rstd, stride_x, n_cols, eps, BLOCK: tl.constexpr):
    """Program r normalises row r.  The row is read twice; the second time it is in a cache."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    y += row * n_cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        values = part_of(x, start, n_cols, BLOCK)
        squares += values * values
    row_rstd = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(squares, axis=0) / n_cols + eps))
    tl.store(rstd + row, row_rstd)
    for start in range(0, n_cols, BLOCK):
        result = part_of(x, start, n_cols, BLOCK) * row_rstd * part_of(weight, start, n_cols, BLOCK)
        columns = start + tl.arange(0, BLOCK)
        tl.store(y + columns, result.to(y.dtype.element_ty), mask=columns < n_cols)


@triton.jit
def rms_norm_backward_kernel(dy, x, weight, rstd, dx, partial, stride_x, n_rows, n_cols, BLOCK: tl.constexpr):
    """Program p of P makes rows p, p + P, … of dx, and row p of `partial`: P × n_cols sums of dy · x̂, in fp32.

    With x̂ = x · rstd and g = dy · weight, dx = (g - x̂ · mean of g·x̂) · rstd."""
    first = tl.program_id(0)
    partial += first.to(tl.int64) * n_cols
    for row in range(first, n_rows, tl.num_programs(0)):
        place = row.to(tl.int64)
        row_dy, row_x, row_dx = dy + place * n_cols, x + place * stride_x, dx + place * n_cols
        row_rstd = tl.load(rstd + row)
        products = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            weighted = part_of(row_dy, start, n_cols, BLOCK) * part_of(weight, start, n_cols, BLOCK)
            products += weighted * part_of(row_x, start, n_cols, BLOCK) * row_rstd
        mean = tl.sum(products, axis=0) / n_cols
        for start in range(0, n_cols, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            inside = columns < n_cols
            gradients = part_of(row_dy, start, n_cols, BLOCK)
            normal = part_of(row_x, start, n_cols, BLOCK) * row_rstd
            result = (gradients * part_of(weight, start, n_cols, BLOCK) - normal * mean) * row_rstd
            tl.store(row_dx + columns, result.to(dx.dtype.element_ty), mask=inside)
            # The first row of a program writes what its later rows add to.
            total = tl.load(partial + columns, mask=inside & (row > first), other=0.0)
            tl.store(partial + columns, total + gradients * normal, mask=inside)


@triton.jit
def rms_norm_backward_weight_kernel(
    partial, dweight, count, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Each program adds BLOCK_N columns of the `count` rows of `partial`, always in the same order."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, count, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        place = rows.to(tl.int64)[:, None] * n_cols + columns[None, :]
        inside = (rows[:, None] < count) & (columns[None, :] < n_cols)
        total += tl.load(partial + place, mask=inside, other=0.0)
    result = tl.sum(total, axis=0).to(dweight.dtype.element_ty)
    tl.store(dweight + columns, result, mask=columns < n_cols)
