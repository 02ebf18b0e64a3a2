"""Softmax over the rows of a matrix, which is read from memory once."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, stride_x, stride_out, n_cols, BLOCK: tl.constexpr, AGAIN: tl.constexpr = False):
    """Program r normalises row r of `n_cols` ≤ BLOCK elements; strides are in elements between rows.

    The row stays in registers, or, if AGAIN, is read again from the cache of the multiprocessor for each step: then its registers
    are enough for two wide rows, of which one uses memory while the other one computes.
    """
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
        values = tl.load(place, mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(values - row_max)
    row_sum = tl.sum(exponentials, axis=0)
    if AGAIN:
        values = tl.load(place, mask=inside, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        exponentials = tl.exp(values - row_max)
    tl.store(out + row * stride_out + columns, (exponentials / row_sum).to(out.dtype.element_ty), mask=inside)
