"""SwiGLU: out = silu(gate) · up with silu(g) = g · sigmoid(g), and its gradients."""

import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate, up, out, stride_gate, stride_up, n_cols, BLOCK: tl.constexpr):
    """Program (r, b) makes BLOCK elements of row r."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_cols
    g = tl.load(gate + row * stride_gate + columns, mask=inside).to(tl.float32)
    u = tl.load(up + row * stride_up + columns, mask=inside).to(tl.float32)
    result = g * tl.sigmoid(g) * u
    tl.store(out + row * n_cols + columns, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_backward_kernel(dout, gate, up, dgate, dup, stride_gate, stride_up, n_cols, BLOCK: tl.constexpr):
    """The gradients of gate and up from that of out, in the same parts."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_cols
    d = tl.load(dout + row * n_cols + columns, mask=inside).to(tl.float32)
    g = tl.load(gate + row * stride_gate + columns, mask=inside).to(tl.float32)
    u = tl.load(up + row * stride_up + columns, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(g)
    of_gate = d * u * sigmoid * (1.0 + g * (1.0 - sigmoid))
    of_up = d * g * sigmoid
    tl.store(dgate + row * n_cols + columns, of_gate.to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + row * n_cols + columns, of_up.to(dup.dtype.element_ty), mask=inside)
