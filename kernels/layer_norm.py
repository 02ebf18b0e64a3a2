"""Layer normalisation: y = (x - mean) · rstd · weight + bias over each row, and its gradients."""

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


@triton.jit
def layer_norm_backward_kernel(
    dy,
    x,
    weight,
    mean,
    rstd,
    dx,
    partial_dweight,
    partial_dbias,
    stride_dy,
    stride_x,
    stride_dx,
    n_rows,
    n_cols,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr = False,
):
    """The gradients of x, weight and bias from that of y, with mean and 1/σ of the forward pass.

    Program p of P makes rows p, p + P, … of dx, and row p of the partial sums of dweight and dbias (fp32), which
    are P × n_cols.  With x̂ = (x - mean) · rstd and g = dy · weight,

        dx = (g - mean of g - x̂ · mean of g·x̂) · rstd

    Rows of up to BLOCK elements are read once, and the program's sums stay in registers.  WIDE ones are read
    twice, BLOCK elements at a time, and each row adds to the sums in memory."""
    partial_dweight += tl.program_id(0).to(tl.int64) * n_cols
    partial_dbias += tl.program_id(0).to(tl.int64) * n_cols
    if WIDE:
        for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=1):
            wide_row_backward(
                dy + row.to(tl.int64) * stride_dy, x + row.to(tl.int64) * stride_x, weight, mean + row, rstd + row,
                dx + row.to(tl.int64) * stride_dx, partial_dweight, partial_dbias, n_cols,
                row > tl.program_id(0), BLOCK,
            )  # fmt: skip
    else:
        columns = tl.arange(0, BLOCK)
        inside = columns < n_cols
        weights = part_of(weight, 0, n_cols, BLOCK, "")
        of_weight, of_bias = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
        for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=2):
            gradients = part_of(dy + row.to(tl.int64) * stride_dy, 0, n_cols, BLOCK, "")
            values = part_of(x + row.to(tl.int64) * stride_x, 0, n_cols, BLOCK, "")
            row_rstd = tl.load(rstd + row)
            # Zeros of dy behind the row's end hide what x̂ is there.
            normal = (values - tl.load(mean + row)) * row_rstd
            weighted = gradients * weights
            first = tl.sum(weighted, axis=0) / n_cols
            second = tl.sum(weighted * normal, axis=0) / n_cols
            result = (weighted - first - normal * second) * row_rstd
            target = dx + row.to(tl.int64) * stride_dx + columns
            tl.store(target, result.to(dx.dtype.element_ty), mask=inside)
            of_weight += gradients * normal
            of_bias += gradients
        tl.store(partial_dweight + columns, of_weight, mask=inside)
        tl.store(partial_dbias + columns, of_bias, mask=inside)


@triton.jit
def wide_row_backward(
    dy, x, weight, mean, rstd, dx, partial_dweight, partial_dbias, n_cols, is_later, BLOCK: tl.constexpr
):
    """One row in parts of BLOCK elements; the first of a program writes to the sums what later ones add to."""
    row_mean, row_rstd = tl.load(mean), tl.load(rstd)
    total, total_of_products = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    parts = tl.cdiv(n_cols, BLOCK)
    for part in range(parts):
        normal = (part_of(x, part, n_cols, BLOCK, "evict_last") - row_mean) * row_rstd
        weighted = part_of(dy, part, n_cols, BLOCK, "evict_last") * part_of(weight, part, n_cols, BLOCK, "")
        total += weighted
        total_of_products += weighted * normal
    first = tl.sum(total, axis=0) / n_cols
    second = tl.sum(total_of_products, axis=0) / n_cols
    for part in range(parts):
        place = part * BLOCK + tl.arange(0, BLOCK)
        inside = place < n_cols
        normal = (part_of(x, part, n_cols, BLOCK, "evict_first") - row_mean) * row_rstd
        gradients = part_of(dy, part, n_cols, BLOCK, "evict_first")
        weighted = gradients * part_of(weight, part, n_cols, BLOCK, "")
        result = (weighted - first - normal * second) * row_rstd
        tl.store(dx + place, result.to(dx.dtype.element_ty), mask=inside)
        of_weight = tl.load(partial_dweight + place, mask=inside & is_later, other=0.0)
        of_bias = tl.load(partial_dbias + place, mask=inside & is_later, other=0.0)
        tl.store(partial_dweight + place, of_weight + gradients * normal, mask=inside)
        tl.store(partial_dbias + place, of_bias + gradients, mask=inside)


@triton.jit
def layer_norm_backward_weights_kernel(
    partial_dweight,
    partial_dbias,
    dweight,
    dbias,
    count,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Each program adds BLOCK_N columns of the `count` rows of partial sums, always in the same order."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    of_weight = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    of_bias = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, count, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        place = rows.to(tl.int64)[:, None] * n_cols + columns[None, :]
        inside = (rows[:, None] < count) & (columns[None, :] < n_cols)
        of_weight += tl.load(partial_dweight + place, mask=inside, other=0.0)
        of_bias += tl.load(partial_dbias + place, mask=inside, other=0.0)
    tl.store(dweight + columns, tl.sum(of_weight, axis=0).to(dweight.dtype.element_ty), mask=columns < n_cols)
    tl.store(dbias + columns, tl.sum(of_bias, axis=0).to(dbias.dtype.element_ty), mask=columns < n_cols)
