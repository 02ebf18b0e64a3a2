"""Kernels whose programs wait for each other, as their authors write them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def stream_k_kernel(x, parts, locks, out, n, BLOCK: tl.constexpr):
    """Program 0 adds what the programs behind it have summed up, as stream-K does with the ends of a tile."""
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + offsets, mask=offsets < n, other=0))
    if program > 0:
        tl.store(parts + program, total)
        tl.debug_barrier()
        tl.atomic_xchg(locks + program, 1, sem="release")
    else:
        for other in range(1, tl.num_programs(0)):
            while tl.atomic_cas(locks + other, 1, 1) != 1:
                pass
            tl.debug_barrier()
            total += tl.load(parts + other)
        tl.store(out, total)


@triton.jit
def look_back_kernel(x, sums, flags, out, n, BLOCK: tl.constexpr):
    """A scan in one launch: each program waits for the one before it.  The last program is the first in the
    array."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.cumsum(tl.load(x + offsets, mask=offsets < n, other=0), 0)
    before = 0
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
        before = tl.load(sums + program - 1)
    tl.store(out + offsets, values + before, mask=offsets < n)
    tl.store(sums + program, before + tl.max(values, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1, sem="release")


@triton.jit
def grid_barrier_kernel(x, count, out, n, BLOCK: tl.constexpr):
    """Every program doubles its block, and then takes that of its right neighbour."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    tl.store(x + program * BLOCK + lanes, 2 * tl.load(x + program * BLOCK + lanes))
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < tl.num_programs(0):
        pass
    tl.debug_barrier()
    right = (program + 1) % tl.num_programs(0)
    tl.store(out + program * BLOCK + lanes, tl.load(x + right * BLOCK + lanes))


@triton.jit
def spin_lock_kernel(lock, total, n):
    """A lock that programs take one after another, and a number that is only touched under it."""
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.debug_barrier()
    tl.store(total, tl.load(total) + tl.program_id(0))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@triton.jit
def patient_kernel(flag, out, tries):
    """Program 0 waits for program 1, but not for ever."""
    if tl.program_id(0) == 1:
        tl.atomic_xchg(flag, 7)
    else:
        seen, left = 0, tries
        while (seen == 0) & (left > 0):
            seen = tl.load(flag, volatile=True)
            left -= 1
        tl.store(out, seen)


@triton.jit
def deadlock_kernel(flags, out):
    """Each program waits for the flag that the other would set afterwards."""
    other = 1 - tl.program_id(0)
    while tl.atomic_add(flags + 3 * other, 0) == 0:
        pass
    tl.atomic_xchg(flags + 3 * tl.program_id(0), 1)
    tl.store(out, 1)
