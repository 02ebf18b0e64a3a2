"""Branches, loops, early returns, atomics and random numbers."""

import triton
import triton.language as tl


@triton.jit
def collatz_steps(x, out, n):
    place = tl.program_id(0)
    if place >= n:
        return
    value = tl.load(x + place)
    steps = 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = value * 3 + 1
        steps += 1
    tl.store(out + place, steps)


@triton.jit
def nested_loops(x, out, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(rows):
        line = tl.zeros((BLOCK,), dtype=tl.float32)
        for column in range(0, columns, BLOCK):
            inside = column + offsets < columns
            line += tl.load(x + row * columns + column + offsets, mask=inside, other=0.0)
        if row % 2 == 1:
            line = -line
        total += line
    tl.store(out + offsets, total)


@triton.jit
def backwards(x, out, n):
    total = 0.0
    for place in range(n - 1, -1, -1):
        total = total * 2.0 + tl.load(x + place)
    tl.store(out, total)


@triton.jit
def clamp_positive(value, limit):
    if value < 0:
        return 0.0
    return tl.minimum(value, limit)


@triton.jit
def helper_returns_early(x, out, limit):
    place = tl.program_id(0)
    tl.store(out + place, clamp_positive(tl.load(x + place), limit))


@triton.jit
def atomic_histogram(x, counts, largest, total, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(x + offsets, mask=inside, other=0)
    tl.atomic_add(counts + values, 1, mask=inside)
    tl.atomic_max(largest, tl.max(tl.where(inside, values, 0), axis=0))
    tl.atomic_add(total, tl.sum(values.to(tl.float32), axis=0))


@triton.jit
def cleared_histogram(x, counts, total, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program clears its own counts, which other threads than those then count in, and reads them."""
    bins = tl.program_id(0) * BINS + tl.arange(0, BINS)
    tl.store(counts + bins, tl.zeros([BINS], tl.int32))
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.atomic_add(counts + tl.program_id(0) * BINS + values, 1, mask=offsets < n)
    tl.store(total + tl.program_id(0), tl.sum(tl.load(counts + bins), axis=0))


@triton.jit
def all_atomics(x, memory, before, BLOCK: tl.constexpr):
    """Each kind on a row of its own, and what stood there before."""
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(before + offsets, tl.atomic_max(memory + offsets, value))
    tl.store(before + BLOCK + offsets, tl.atomic_min(memory + BLOCK + offsets, value))
    tl.store(before + 2 * BLOCK + offsets, tl.atomic_add(memory + 2 * BLOCK + offsets, value))
    tl.store(before + 3 * BLOCK + offsets, tl.atomic_xchg(memory + 3 * BLOCK + offsets, value))
    if value.dtype.is_int():
        tl.store(before + 4 * BLOCK + offsets, tl.atomic_and(memory + 4 * BLOCK + offsets, value))
        tl.store(before + 5 * BLOCK + offsets, tl.atomic_or(memory + 5 * BLOCK + offsets, value))
        tl.store(before + 6 * BLOCK + offsets, tl.atomic_xor(memory + 6 * BLOCK + offsets, value))


@triton.jit
def locked_sum(x, lock, total):
    """Each program adds its element while it holds a lock."""
    value = tl.load(x + tl.program_id(0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def count_calls(counter, out, BLOCK: tl.constexpr):
    """An element that all threads load before one of them stores it, and load again after that."""
    before = tl.load(counter)
    tl.store(counter, before + 1)
    tl.store(out + tl.arange(0, BLOCK), tl.arange(0, BLOCK) * before + tl.load(counter))


@triton.jit
def update_few(x, out, BLOCK: tl.constexpr):
    """So few elements, changed in place, that several warps load the same, and sums of them in which all
    warps take part."""
    offsets = tl.arange(0, BLOCK)
    before = tl.load(x + offsets)
    tl.store(x + offsets, before + 1)
    after = tl.load(x + offsets)
    if tl.sum(before, axis=0) < tl.sum(after, axis=0):
        tl.store(out + offsets, before + after)


@triton.jit
def between_launches(x, factor, out, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A kernel that may begin before the launch before it has ended, which makes x; and the one after it,
    before it has ended."""
    offsets = tl.arange(0, BLOCK)
    scale = tl.load(factor + offsets)
    tl.extra.cuda.gdc_wait()
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(ROWS):
        total += tl.load(x + row * BLOCK + offsets)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + offsets, scale * total)


@triton.jit
def last_one_adds(x, parts, counter, out, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """The program that comes last adds what all have written."""
    offsets = tl.arange(0, BLOCK)
    place = tl.program_id(0) * BLOCK + offsets
    tl.store(parts + place, tl.load(x + place) * 2)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1) == PARTS - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for part in range(PARTS):
            total += tl.load(parts + part * BLOCK + tl.flip(offsets))
        tl.store(out + tl.flip(offsets), total)


@triton.jit
def random_numbers(out, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.rand(seed, offsets))


@triton.jit
def steps_to_one(n, limit):
    """The steps of Collatz's sequence, at most `limit`, and where it is then."""
    steps = 0
    while n > 1 and steps < limit:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps, n * 0.5


@triton.jit
def ordered(a0, a1, b0, b1):
    """Neighbours of `a` in order, and where `b` says so the other way round."""
    if (a0 > a1) == (b0 + b1 == 0):
        return a1, a0
    return a0, a1


@triton.jit
def mapped(x, limits, steps, rest, sorted, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    places = rows * COLUMNS + columns
    values = tl.load(x + places)
    count, last = tl.map_elementwise(steps_to_one, values, tl.load(limits + rows))
    tl.store(steps + places, count + tl.max(count, axis=1)[:, None])
    tl.store(rest + places, last)
    (pairs,) = tl.map_elementwise(ordered, values, rows & 1, pack=2)
    tl.store(sorted + places, pairs)


@triton.jit
def atomics_of_halves(x, sums, before, extremes, BLOCK: tl.constexpr):
    """Sums at few addresses, sums with what stood there before, and greatest and least of rows."""
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.atomic_add(sums + (offsets & 3), value, mask=offsets < BLOCK - 5, sem="relaxed")
    others = offsets != 7
    tl.store(before + offsets, tl.atomic_add(sums + 4 + offsets, value, mask=others), mask=others)
    tile = value.reshape([BLOCK // 8, 8])
    rows = tl.make_tensor_descriptor(extremes, [BLOCK // 8 - 1, 8], [8, 1], [BLOCK // 8, 8])
    rows.atomic_max([0, 0], tile)
    below = tl.make_tensor_descriptor(extremes + BLOCK, [BLOCK // 8, 8], [8, 1], [BLOCK // 8, 8])
    below.atomic_min([0, 0], tile)


@triton.jit
def atomic_rows(x, rows, sums, memory, before, n, M: tl.constexpr, N: tl.constexpr):
    """Rows added to what stands there, which is kept, and then to those that an index chooses."""
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    places, mask = row * N + column, row < n
    value = tl.load(x + places)
    tl.store(before + places, tl.atomic_add(memory + places, value, mask=mask), mask=mask)
    tl.atomic_add(sums + tl.load(rows + row) * N + column, value, mask=mask)


@triton.jit
def handed_over(x, passed, flags, out, N: tl.constexpr):
    """One program hands a row to the other, with a flag for each element."""
    offsets = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(passed + offsets, tl.load(x + offsets) * 2)
        tl.atomic_add(flags + offsets, 1)
    else:
        while tl.min(tl.atomic_add(flags + offsets, 0), 0) == 0:
            pass
        tl.store(out + offsets, tl.load(passed + offsets))
