"""Softmax over the rows of a matrix; a row is read once and held in registers."""

import triton
import triton.language as tl


@triton.jit
def softmax_row(x, out, n_cols, BLOCK: tl.constexpr):
    """Normalises one row of `n_cols` ≤ BLOCK elements."""
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    values = tl.load(x + columns, mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(values - tl.max(values, axis=0))
    result = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out + columns, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_kernel(x, out, stride_x, stride_out, n_cols, n_rows, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr = 2147483647):
    """Program r normalises row r; strides are in elements between rows.  With fewer PROGRAMS than any grid has, each goes on
    with every row that many further down, whose copies run while it works: a multiprocessor holds only one wide row."""
    row = tl.program_id(0)
    if PROGRAMS == 2147483647:
        softmax_row(x + row.to(tl.int64) * stride_x, out + row.to(tl.int64) * stride_out, n_cols, BLOCK)
    else:
        for place in tl.range(row, n_rows, tl.num_programs(0), num_stages=2):
            softmax_row(x + place.to(tl.int64) * stride_x, out + place.to(tl.int64) * stride_out, n_cols, BLOCK)
