"""Layer normalisation: y = (x - mean) · rstd · weight + bias over each row, and its gradients."""

import triton
import triton.language as tl
from vectors import edges_and_body, elements_before_vectors


@triton.jit
def part_of(row, part, n_cols, BLOCK: tl.constexpr, POLICY: tl.constexpr):
    """Elements part·BLOCK to (part + 1)·BLOCK of the `n_cols` at `row`; zeros behind them."""
    place = part * BLOCK + tl.arange(0, BLOCK)
    return tl.load(row + place, mask=place < n_cols, other=0.0, eviction_policy=POLICY).to(tl.float32)


@triton.jit
def reciprocal_root(x):
    """1/√x in fp32, by a step of Newton's from the approximation: almost always the nearest number."""
    root = tl.rsqrt(x)
    excess = tl.fma(x * root, root, -1.0)
    return tl.where(tl.abs(excess) < 1.0, tl.fma(-0.5 * root, excess, root), root)  # Not of 0 and infinity.


@triton.jit
def is_there(pointer):
    """Whether somebody asks for an optional output."""
    return pointer.to(tl.int64) != 0


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
    EARLY: tl.constexpr = False,
):
    """Program r normalises row r of `n_cols` ≤ BLOCK·PARTS elements and writes its mean and 1/σ (fp32), where there are
    arrays for these: the backward pass asks for them.

    The row stays in registers, and of weight and bias only one of the PARTS at a time, which makes wide rows
    fit.  AGAIN: the row is reloaded from the cache of the multiprocessor for each step, which leaves registers
    for more rows at a time.  EARLY: weight and bias are asked for with the row; where there are few rows, their way
    from memory counts more than registers.
    """
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    y += row * stride_y
    values, scales, shifts = (), (), ()
    for part in tl.static_range(PARTS):
        if not AGAIN:
            values = values + (part_of(x, part, n_cols, BLOCK, ""),)
        if EARLY:
            scales = scales + (part_of(weight, part, n_cols, BLOCK, ""),)
            shifts = shifts + (part_of(bias, part, n_cols, BLOCK, ""),)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += part_of(x, part, n_cols, BLOCK, "evict_last") if AGAIN else values[part]
    row_mean = tl.sum(total, axis=0) / n_cols
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(PARTS):
        value = part_of(x, part, n_cols, BLOCK, "evict_last") if AGAIN else values[part]
        # Behind the row's end both are zero: one choice for all elements of a vector.
        difference = value - tl.where(part * BLOCK + columns < n_cols, row_mean, 0.0)
        squares += difference * difference
    row_rstd = reciprocal_root(tl.sum(squares, axis=0) / n_cols + eps)
    for part in tl.static_range(PARTS):
        value = part_of(x, part, n_cols, BLOCK, "evict_first") if AGAIN else values[part]
        scale = scales[part] if EARLY else part_of(weight, part, n_cols, BLOCK, "")
        shift = shifts[part] if EARLY else part_of(bias, part, n_cols, BLOCK, "")
        result = (value - row_mean) * row_rstd * scale + shift
        place = part * BLOCK + columns
        tl.store(y + place, result.to(y.dtype.element_ty), mask=place < n_cols)
    if is_there(mean):
        tl.store(mean + row, row_mean)
    if is_there(rstd):
        tl.store(rstd + row, row_rstd)


@triton.jit
def moments_of_blocks(
    x, first, step, n_cols, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr
):
    """The mean of blocks `first`, `first + step`, … of BLOCK of the vectors in the `n_cols` at `x`, and the sum of the
    squares of their distances from it; with the edges for the first block.  ALIGNED: there are none.

    Each lane updates its own mean (Welford, Technometrics 4, 1962), and these are joined at the end: no large
    sums cancel each other.
    """
    body = n_cols
    if not ALIGNED:
        places, present, head, body = edges_and_body(x, n_cols)
        present = present & (first == 0)
        edges = tl.load(x + places, mask=present, other=0.0).to(tl.float32)
        x = tl.multiple_of(x + head, 16)
    columns = tl.arange(0, BLOCK)
    means, squares = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    counts = tl.zeros([BLOCK], dtype=tl.float32)
    seen = 0.0
    for block in tl.range(first, tl.cdiv(body, BLOCK), step, num_stages=STAGES):
        start = block * BLOCK
        inside = columns < body - start
        values = tl.load(x + start + columns, mask=inside, other=0.0, eviction_policy="evict_last")
        seen += 1.0
        difference = tl.where(inside, values.to(tl.float32) - means, 0.0)
        means += difference * (1.0 / seen)
        squares += difference * tl.where(inside, values.to(tl.float32) - means, 0.0)
        counts += tl.where(inside, 1.0, 0.0)
    count, total = tl.sum(counts, axis=0), tl.sum(means * counts, axis=0)
    if not ALIGNED:
        count += tl.sum(tl.where(present, 1.0, 0.0), axis=0)
        total += tl.sum(edges, axis=0)
    mean = total / tl.maximum(count, 1.0)  # A part may have nothing.
    distant = tl.sum(squares + counts * (means - mean) * (means - mean), axis=0)
    if not ALIGNED:
        distances = tl.where(present, edges - mean, 0.0)
        distant += tl.sum(distances * distances, axis=0)
    return mean, distant


@triton.jit
def normalised(values, scale, shift, row_mean, row_rstd):
    """In fp32."""
    return (values.to(tl.float32) - row_mean) * row_rstd * scale.to(tl.float32) + shift.to(tl.float32)


@triton.jit
def normalise_body(
    x, y, weight, bias, first, step, n_cols, row_mean, row_rstd, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """Writes blocks `first`, `first + step`, … of the `n_cols` at `x`, the last one first: the caches still have it."""
    columns = tl.arange(0, BLOCK)
    count = tl.cdiv(tl.cdiv(n_cols, BLOCK) - first, step)
    for done in tl.range(0, count, num_stages=STAGES):
        start = (first + (count - 1 - done) * step) * BLOCK
        inside = columns < n_cols - start
        values = tl.load(x + start + columns, mask=inside, other=0.0, eviction_policy="evict_first")
        scale = tl.load(weight + start + columns, mask=inside, other=0.0)
        shift = tl.load(bias + start + columns, mask=inside, other=0.0)
        result = normalised(values, scale, shift, row_mean, row_rstd)
        tl.store(y + start + columns, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def normalise_blocks(
    x,
    y,
    weight,
    bias,
    first,
    step,
    n_cols,
    row_mean,
    row_rstd,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Writes what `moments_of_blocks` has read; the others go in vectors, too, where they begin as x does."""
    if ALIGNED:
        normalise_body(x, y, weight, bias, first, step, n_cols, row_mean, row_rstd, BLOCK, STAGES)
        return
    places, present, head, body = edges_and_body(x, n_cols)
    present = present & (first == 0)
    edges = tl.load(x + places, mask=present, other=0.0)
    scale = tl.load(weight + places, mask=present, other=0.0)
    shift = tl.load(bias + places, mask=present, other=0.0)
    result = normalised(edges, scale, shift, row_mean, row_rstd)
    tl.store(y + places, result.to(y.dtype.element_ty), mask=present)
    before = elements_before_vectors(x)
    is_alike = elements_before_vectors(weight) == before and elements_before_vectors(bias) == before
    x, y, weight, bias = tl.multiple_of(x + head, 16), y + head, weight + head, bias + head
    if elements_before_vectors(y) == 0:
        y = tl.multiple_of(y, 16)
        if is_alike:
            weight, bias = tl.multiple_of(weight, 16), tl.multiple_of(bias, 16)
            normalise_body(x, y, weight, bias, first, step, body, row_mean, row_rstd, BLOCK, STAGES)
        else:
            normalise_body(x, y, weight, bias, first, step, body, row_mean, row_rstd, BLOCK, STAGES)
    else:
        normalise_body(x, y, weight, bias, first, step, body, row_mean, row_rstd, BLOCK, STAGES)


@triton.jit
def layer_norm_long_kernel(
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
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program r does for row r of any width what `layer_norm_kernel` does: it reads the row twice, by blocks.
    ALIGNED: 16 bytes divide the addresses of rows and vectors, and their length."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    y += row * stride_y
    row_mean, squares = moments_of_blocks(x, 0, 1, n_cols, BLOCK, ALIGNED, STAGES)
    row_rstd = reciprocal_root(squares / n_cols + eps)
    normalise_blocks(x, y, weight, bias, 0, 1, n_cols, row_mean, row_rstd, BLOCK, ALIGNED, STAGES)
    if is_there(mean):
        tl.store(mean + row, row_mean)
    if is_there(rstd):
        tl.store(rstd + row, row_rstd)


@triton.jit
def layer_norm_parts_kernel(
    x,
    means,
    squares,
    stride_x,
    n_cols,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program (p, r) of P × R writes to place r·P + p the mean of every P-th block of row r, and the sum of the
    squares of the distances from it (fp32)."""
    tl.extra.cuda.gdc_launch_dependents()
    row, part, parts = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    own_mean, own_squares = moments_of_blocks(x + row * stride_x, part, parts, n_cols, BLOCK, ALIGNED, STAGES)
    tl.store(means + row * parts + part, own_mean)
    tl.store(squares + row * parts + part, own_squares)


@triton.jit
def layer_norm_of_parts_kernel(
    x,
    y,
    weight,
    bias,
    mean,
    rstd,
    means,
    squares,
    stride_x,
    stride_y,
    n_cols,
    eps,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program (p, r) of P × R, with P ≤ PARTS, normalises every P-th block of row r by what
    `layer_norm_parts_kernel` has found, for which it waits: it may begin earlier (`launch_pdl`)."""
    tl.extra.cuda.gdc_wait()
    row, part, parts = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    lanes = tl.arange(0, PARTS)
    present = lanes < parts
    own_means = tl.load(means + row * parts + lanes, mask=present, other=0.0)
    own_squares = tl.load(squares + row * parts + lanes, mask=present, other=0.0)
    # How many elements each part has: the last block may be short, and the first part has the edges.
    x += row * stride_x
    body = n_cols
    if not ALIGNED:
        _, _, _, body = edges_and_body(x, n_cols)
    blocks = tl.cdiv(body, BLOCK)
    counts = tl.where(present, tl.cdiv(blocks - lanes, parts) * BLOCK, 0)
    counts -= tl.where(lanes == (blocks - 1) % parts, blocks * BLOCK - body, 0)
    counts = (counts + tl.where(lanes == 0, n_cols - body, 0)).to(tl.float32)
    row_mean = tl.sum(own_means * counts, axis=0) / n_cols
    distances = own_means - row_mean
    row_squares = tl.sum(own_squares + counts * distances * distances, axis=0)
    row_rstd = reciprocal_root(row_squares / n_cols + eps)
    if (part == 0) & is_there(mean):
        tl.store(mean + row, row_mean)
    if (part == 0) & is_there(rstd):
        tl.store(rstd + row, row_rstd)
    normalise_blocks(
        x,
        y + row * stride_y,
        weight,
        bias,
        part,
        parts,
        n_cols,
        row_mean,
        row_rstd,
        BLOCK,
        ALIGNED,
        STAGES,
    )


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
):
    """The gradients of x, weight and bias from that of y, with mean and 1/σ of the forward pass.

    Program p of P makes rows p, p + P, … of dx, and row p of the partial sums of dweight and dbias (fp32), which
    are P × n_cols.  With x̂ = (x - mean) · rstd and g = dy · weight,

        dx = (g - mean of g - x̂ · mean of g·x̂) · rstd

    Rows have up to BLOCK elements and are read once; the program's sums stay in registers.  Wider rows take two
    launches, `layer_norm_backward_rows` and `layer_norm_backward_columns`."""
    partial_dweight += tl.program_id(0).to(tl.int64) * n_cols
    partial_dbias += tl.program_id(0).to(tl.int64) * n_cols
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
def layer_norm_backward_rows_kernel(
    dy, x, weight, mean, rstd, mean_of_g, mean_of_gx, stride_dy, stride_x, n_cols, BLOCK: tl.constexpr
):
    """Program r writes for row r of any width the mean of g and that of g·x̂ (fp32)."""
    row = tl.program_id(0).to(tl.int64)
    row_mean, row_rstd = tl.load(mean + row), tl.load(rstd + row)
    total, total_of_products = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.range(0, tl.cdiv(n_cols, BLOCK), num_stages=2):
        normal = (part_of(x + row * stride_x, part, n_cols, BLOCK, "") - row_mean) * row_rstd
        # Zeros of dy behind the row's end hide what x̂ is there.
        weighted = part_of(dy + row * stride_dy, part, n_cols, BLOCK, "") * part_of(
            weight, part, n_cols, BLOCK, ""
        )
        total += weighted
        total_of_products += weighted * normal
    tl.store(mean_of_g + row, tl.sum(total, axis=0) / n_cols)
    tl.store(mean_of_gx + row, tl.sum(total_of_products, axis=0) / n_cols)


@triton.jit
def layer_norm_backward_columns_kernel(
    dy,
    x,
    weight,
    mean,
    rstd,
    mean_of_g,
    mean_of_gx,
    dx,
    partial_dweight,
    partial_dbias,
    stride_dy,
    stride_x,
    stride_dx,
    n_rows,
    n_cols,
    BLOCK: tl.constexpr,
):
    """Program (c, p) of P makes block c of BLOCK columns of rows p, p + P, … of dx, and of row p of the partial
    sums."""
    part, program = tl.program_id(0), tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_cols
    weights = part_of(weight, part, n_cols, BLOCK, "")
    of_weight, of_bias = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(program, n_rows, tl.num_programs(1), num_stages=2):
        gradients = part_of(dy + row.to(tl.int64) * stride_dy, part, n_cols, BLOCK, "")
        row_rstd = tl.load(rstd + row)
        normal = (
            part_of(x + row.to(tl.int64) * stride_x, part, n_cols, BLOCK, "") - tl.load(mean + row)
        ) * row_rstd
        result = (
            gradients * weights - tl.load(mean_of_g + row) - normal * tl.load(mean_of_gx + row)
        ) * row_rstd
        tl.store(dx + row.to(tl.int64) * stride_dx + columns, result.to(dx.dtype.element_ty), mask=inside)
        of_weight += gradients * normal
        of_bias += gradients
    partials = program.to(tl.int64) * n_cols + columns
    tl.store(partial_dweight + partials, of_weight, mask=inside)
    tl.store(partial_dbias + partials, of_bias, mask=inside)


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
