"""out = x + y, element by element."""

import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """One program adds BLOCK neighbouring elements; `n` is the number of elements."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, total, mask=inside)
