"""Layer normalisation, forward: y = (x - mean) · rstd · weight + bias over each row."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x, y, weight, bias, mean, rstd, stride_x, stride_y, n_cols, eps, BLOCK: tl.constexpr):
    """Program r normalises row r of `n_cols` ≤ BLOCK elements and writes its mean and 1/σ (fp32) for the backward pass."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    values = tl.load(x + row * stride_x + columns, mask=inside, other=0.0).to(tl.float32)
    row_mean = tl.sum(values, axis=0) / n_cols
    centred = tl.where(inside, values - row_mean, 0.0)
    row_rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    tl.store(mean + row, row_mean)
    tl.store(rstd + row, row_rstd)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    result = centred * row_rstd * scale + shift
    tl.store(y + row * stride_y + columns, result.to(y.dtype.element_ty), mask=inside)
