"""out = x + y, element by element."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """One program adds BLOCK neighbouring elements."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + offsets, mask=offsets < n) + tl.load(y + offsets, mask=offsets < n)
    tl.store(out + offsets, total, mask=offsets < n)
