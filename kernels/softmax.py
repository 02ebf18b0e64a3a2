"""Softmax over the rows of a matrix, which is read from memory once."""

import triton
import triton.language as tl
from vectors import edges_and_body, elements_before_vectors


@triton.jit
def in_powers_of_2(x):
    """x · log2 e as a whole number and a rest of at most a half, which is rounded as the small number that it
    is."""
    log2_e = 1.4426950216293335  # The nearest number of fp32, and what it lacks.
    log2_e_rest = 1.925963033500011e-8
    from_1_apart = 12582912.0  # 1.5 · 2^23: numbers near it are one apart, so that a sum with it is whole.
    x = tl.maximum(x, -4194304.0, propagate_nan=tl.PropagateNan.ALL)  # Instead of minus infinity.
    whole = tl.fma(x, log2_e, from_1_apart) - from_1_apart
    return whole, tl.fma(x, log2_e_rest, tl.fma(x, log2_e, -whole))


@triton.jit
def exponential(x, top, EXACT: tl.constexpr):
    """e^(x - top), with `top` the largest x.

    EXACT: neither x - top nor its product with log2 e is rounded, which would cost the last digits of all
    that is far below the top ("range reduction": Muller, Elementary Functions, chapter 11).
    """
    if not EXACT:
        return tl.exp(x - top)
    base = tl.where(tl.abs(top) < 1048576.0, 0.0, top)  # Numbers as large as that lose nothing by x - top.
    whole, rest = in_powers_of_2(x - base)
    top_whole, top_rest = in_powers_of_2(top - base)
    return tl.exp2(rest - top_rest) * tl.exp2(whole - top_whole)


@triton.jit
def softmax_kernel(
    x,
    out,
    stride_x,
    stride_out,
    n_cols,
    BLOCK: tl.constexpr,
    AGAIN: tl.constexpr = False,
    SECOND: tl.constexpr = "",
):
    """Program r normalises row r of `n_cols` ≤ BLOCK elements; strides are in elements between rows.

    The row stays in registers, or, if AGAIN, is read again from the cache of the multiprocessor for each
    step: then its registers are enough for two wide rows, of which one uses memory while the other one
    computes.  SECOND is the eviction policy of the second of the three reads.
    """
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    place = x + row * stride_x + columns
    if AGAIN:
        values = tl.load(place, mask=inside, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    else:
        values = tl.load(place, mask=inside, other=-float("inf")).to(tl.float32)
    row_max = tl.max(values, axis=0)
    if AGAIN:
        values = tl.load(place, mask=inside, other=-float("inf"), eviction_policy=SECOND).to(tl.float32)
    exponentials = exponential(values, row_max, EXACT)
    row_sum = tl.sum(exponentials, axis=0)
    if AGAIN:
        values = tl.load(place, mask=inside, other=-float("inf"), eviction_policy="evict_first").to(
            tl.float32
        )
        exponentials = exponential(values, row_max, EXACT)
    tl.store(out + row * stride_out + columns, (exponentials / row_sum).to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_of_rows(
    x,
    out,
    stride_x,
    stride_out,
    n_cols,
    count,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LEAST: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """The softmax of the first `count` of ROWS rows, of LEAST ≤ `n_cols` ≤ BLOCK elements; of all of them if WHOLE."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (columns < LEAST) | (columns < n_cols)
    if not WHOLE:
        inside = (rows < count) & inside
    values = tl.load(x + (rows * stride_x + columns), mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = exponential(values, tl.max(values, axis=1)[:, None], EXACT)
    results = exponentials * (1.0 / tl.sum(exponentials, axis=1)[:, None])
    tl.store(out + (rows * stride_out + columns), results.to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_short_kernel(
    x,
    out,
    stride_x,
    stride_out,
    n_cols,
    n_rows,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LEAST: tl.constexpr = 0,
    APART: tl.constexpr = False,
):
    """Program p normalises rows p·ROWS to (p + 1)·ROWS of the `n_rows`, each of LEAST ≤ `n_cols` ≤ BLOCK elements.

    Strides are below 2^31 / ROWS, so that places within a program's rows have 32 bits.  APART: programs that have
    all of their rows take code without masks for rows: with those, and masks for more columns than LEAST leaves
    any for, predicates are short, and ptxas loads one row after the other.
    """
    first = tl.program_id(0) * ROWS
    count = n_rows - first
    x += first.to(tl.int64) * stride_x
    out += first.to(tl.int64) * stride_out
    whole = count >= ROWS if APART else False
    if whole:
        softmax_of_rows(x, out, stride_x, stride_out, n_cols, count, BLOCK, ROWS, LEAST, True)
    else:
        softmax_of_rows(x, out, stride_x, stride_out, n_cols, count, BLOCK, ROWS, LEAST, False)


@triton.jit
def sums_of_blocks(x, first, step, n_cols, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr):
    """The largest element of blocks `first`, `first + step`, … of BLOCK of the vectors in the `n_cols` at `x`, and the
    sum of the exponentials of all of them less it; with the edges for the first block.  ALIGNED: there are none.

    Each lane keeps the largest element that it has seen, which begins with the least finite number: a lane
    that has seen only minus infinity adds nothing to the others.
    """
    body = n_cols
    if not ALIGNED:
        places, present, head, body = edges_and_body(x, n_cols)
        edges = tl.load(x + places, mask=present & (first == 0), other=-float("inf")).to(tl.float32)
        x = tl.multiple_of(x + head, 16)
    columns = tl.arange(0, BLOCK)
    tops, totals = tl.full([BLOCK], -3.4028234663852886e38, tl.float32), tl.zeros([BLOCK], tl.float32)
    for block in tl.range(first, tl.cdiv(body, BLOCK), step, num_stages=STAGES):
        start = block * BLOCK
        values = tl.load(
            x + start + columns,
            mask=columns < body - start,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        # Of e^(top - new top) and e^(x - new top) one is 1.
        difference = values - tops
        factor = tl.exp(-tl.abs(difference))
        totals = tl.where(difference > 0, totals * factor + 1.0, totals + factor)
        tops = tl.maximum(tops, values)
    top = tl.max(tops, axis=0)
    if ALIGNED:
        return top, tl.sum(totals * tl.exp(tops - top), axis=0)
    top = tl.maximum(top, tl.max(edges, axis=0))
    return top, tl.sum(totals * tl.exp(tops - top), axis=0) + tl.sum(tl.exp(edges - top), axis=0)


@triton.jit
def normalise_body(x, out, first, step, n_cols, top, total, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Writes the softmax of blocks `first`, `first + step`, … of the `n_cols` at `x`, the last one first: the caches
    still have it."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    columns = tl.arange(0, BLOCK)
    count = tl.cdiv(tl.cdiv(n_cols, BLOCK) - first, step)
    for done in tl.range(0, count, num_stages=STAGES):
        start = (first + (count - 1 - done) * step) * BLOCK
        inside = columns < n_cols - start
        values = tl.load(
            x + start + columns, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        results = exponential(values, top, EXACT) / total
        tl.store(out + start + columns, results.to(out.dtype.element_ty), mask=inside)


@triton.jit
def normalise_blocks(
    x, out, first, step, n_cols, top, total, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, STAGES: tl.constexpr
):
    """Writes the softmax of what `sums_of_blocks` has read; results go in vectors, too, where they begin as x does."""
    if ALIGNED:
        normalise_body(x, out, first, step, n_cols, top, total, BLOCK, STAGES)
        return
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    places, present, head, body = edges_and_body(x, n_cols)
    present = present & (first == 0)
    edges = tl.load(x + places, mask=present, other=-float("inf")).to(tl.float32)
    results = exponential(edges, top, EXACT) / total
    tl.store(out + places, results.to(out.dtype.element_ty), mask=present)
    inner, target = tl.multiple_of(x + head, 16), out + head
    if elements_before_vectors(out) == elements_before_vectors(x):
        normalise_body(inner, tl.multiple_of(target, 16), first, step, body, top, total, BLOCK, STAGES)
    else:
        normalise_body(inner, target, first, step, body, top, total, BLOCK, STAGES)


@triton.jit
def softmax_long_kernel(
    x,
    out,
    stride_x,
    stride_out,
    n_cols,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program r normalises row r of any width: it reads the row twice, by blocks.  ALIGNED: 16 bytes divide the addresses
    of rows, and their length."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    out += row * stride_out
    top, total = sums_of_blocks(x, 0, 1, n_cols, BLOCK, ALIGNED, STAGES)
    normalise_blocks(x, out, 0, 1, n_cols, top, total, BLOCK, ALIGNED, STAGES)


@triton.jit
def softmax_parts_kernel(
    x,
    tops,
    totals,
    stride_x,
    n_cols,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program (p, r) of P × R writes to place r·P + p the largest element of every P-th block of row r, and the sum
    of the exponentials of all of them less it (fp32)."""
    tl.extra.cuda.gdc_launch_dependents()
    row, part, parts = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    top, total = sums_of_blocks(x + row * stride_x, part, parts, n_cols, BLOCK, ALIGNED, STAGES)
    tl.store(tops + row * parts + part, top)
    tl.store(totals + row * parts + part, total)


@triton.jit
def softmax_of_parts_kernel(
    x,
    out,
    tops,
    totals,
    stride_x,
    stride_out,
    n_cols,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    ALIGNED: tl.constexpr = False,
    STAGES: tl.constexpr = 1,
):
    """Program (p, r) of P × R, with P ≤ PARTS, normalises every P-th block of row r by what `softmax_parts_kernel`
    has found, for which it waits: it may begin earlier (`launch_pdl`)."""
    tl.extra.cuda.gdc_wait()
    row, part, parts = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    lanes = tl.arange(0, PARTS)
    places = row * parts + lanes
    own_tops = tl.load(tops + places, mask=lanes < parts, other=-float("inf"))
    own_totals = tl.load(totals + places, mask=lanes < parts, other=0.0)
    top = tl.max(own_tops, axis=0)
    total = tl.sum(own_totals * tl.exp(own_tops - top), axis=0)
    normalise_blocks(
        x + row * stride_x, out + row * stride_out, part, parts, n_cols, top, total, BLOCK, ALIGNED, STAGES
    )
