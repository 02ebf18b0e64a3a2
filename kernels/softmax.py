"""Softmax over the rows of a matrix, which is read from memory once."""

import triton
import triton.language as tl


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
