"""The sum of a vector: one partial sum per program, then the partial sums by one program, in a second launch
or in the same.

Sums are kept in fp64, which costs no time beside reading memory: the result is the nearest number of its
type, or next to it.
"""

import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, partial, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Program p writes to `partial[p]` the sum, in fp64, of its STEPS blocks of BLOCK neighbouring elements
    of x."""
    tl.extra.cuda.gdc_launch_dependents()
    start = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    offsets = start + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for step in tl.static_range(STEPS):
        position = offsets + step * BLOCK
        total += tl.load(x + position, mask=position < n, other=0.0, eviction_policy="evict_first").to(
            tl.float64
        )
    tl.store(partial + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def sum_partials_kernel(partial, out, count, BLOCK: tl.constexpr):
    """One program adds the `count` partial sums in a fixed order and writes the result to `out[0]`.

    It may begin while those that write the partial sums still run (`launch_pdl`), for it waits for them.
    """
    tl.extra.cuda.gdc_wait()
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for start in range(0, count, BLOCK):
        position = start + offsets
        total += tl.load(partial + position, mask=position < count, other=0.0)
    tl.store(out, tl.sum(total, axis=0).to(out.dtype.element_ty))


@triton.jit
def sum_at_once_kernel(x, partial, ticket, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Program p writes to `partial[p]` the sum of every block of BLOCK elements that is p, modulo the grid's
    length; the program that is done last adds them, in the order of their numbers, so that the result does
    not depend on which one that is.

    `ticket` is one number, zero before the launch and after it; launches that may overlap need one each, and
    partial sums, too.
    """
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for block in tl.range(program, tl.cdiv(n, BLOCK).to(tl.int32), tl.num_programs(0), num_stages=STAGES):
        position = block.to(tl.int64) * BLOCK + lanes
        total += tl.load(x + position, mask=position < n, other=0.0).to(tl.float64)
    tl.store(partial + program, tl.sum(total, axis=0))
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        whole = tl.zeros([BLOCK], dtype=tl.float64)
        for start in range(0, tl.num_programs(0), BLOCK):
            place = start + lanes
            whole += tl.load(partial + place, mask=place < tl.num_programs(0), other=0.0)
        tl.store(out, tl.sum(whole, axis=0).to(out.dtype.element_ty))
        tl.store(ticket, 0)
