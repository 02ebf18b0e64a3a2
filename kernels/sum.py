"""The sum of a vector, in two launches: one partial sum per program, then the partial sums by one program."""

import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, partial, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Program p writes to `partial[p]` the sum, in fp32, of its STEPS blocks of BLOCK neighbouring elements of x."""
    start = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    offsets = start + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for step in tl.static_range(STEPS):
        position = offsets + step * BLOCK
        total += tl.load(x + position, mask=position < n, other=0.0).to(tl.float32)
    tl.store(partial + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def sum_partials_kernel(partial, out, count, BLOCK: tl.constexpr):
    """One program adds the `count` partial sums in a fixed order and writes the result to `out[0]`."""
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, count, BLOCK):
        position = start + offsets
        total += tl.load(partial + position, mask=position < count, other=0.0)
    tl.store(out, tl.sum(total, axis=0).to(out.dtype.element_ty))
