"""Softmax over the rows of a matrix; a row is read once and held in registers."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, stride_x, stride_out, n_cols, BLOCK: tl.constexpr):
    """Program r normalises row r of `n_cols` ≤ BLOCK elements; strides are in elements between rows."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    values = tl.load(x + row * stride_x + columns, mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(values - tl.max(values, axis=0))
    result = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out + row * stride_out + columns, result.to(out.dtype.element_ty), mask=inside)
