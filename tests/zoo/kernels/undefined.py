"""Operands for which C and LLVM leave a result undefined, and the numbers below zero that offsets rarely are."""

import triton
import triton.language as tl


@triton.jit
def divisions(x, out, rows, n, d):
    """Divides before, or without, comparing the divisor with zero."""
    r = tl.arange(0, 32)
    a = tl.load(x + r)
    divisor = tl.zeros((32,), tl.int32) + d
    known = 0
    varying = 0
    guarded = 0
    looped = 0
    each = tl.zeros((32,), tl.int32)
    for i in range(n):
        known += 100 // d
        varying += i % d
        each += a // d
        if d != 0:
            guarded += 100 // d
    j = 0
    while j < n:
        looped += 100 % d
        j += 1
    if d == 0:
        known = -1
        varying = -2
        guarded = -3
        looped = -4
    if d != 0:
        chosen = 100 // d
    else:
        chosen = -5
    tl.store(out, known)
    tl.store(out + 1, varying)
    tl.store(out + 2, guarded)
    tl.store(out + 3, looped)
    tl.store(out + 4, chosen)
    tl.store(rows + r, tl.where(divisor == 0, -6, each))
    tl.store(rows + 32 + r, tl.where(divisor == 0, -7, a // divisor))
    tl.store(rows + 64 + r, tl.where(divisor == 0, -8, a % divisor))


@triton.jit
def divisions_by_themselves(x, out):
    """Zero divided by zero is computed beside the comparison of the divisor with zero, which gives zero,
    too."""
    r = tl.arange(0, 64)
    a = tl.load(x + r)
    same = tl.load(x + r, mask=r < 0, other=a)
    tl.store(out + r, tl.where(a == 0, 0, same // a))
    tl.store(out + 64 + r, tl.where(a == 0, 0, same % a))


@triton.jit
def remainders_beside(x, places, divisors, out):
    """Remainders of 8 bits share words; what a division by zero leaves in one of them stays there."""
    r = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    halves = (
        tl.arange(0, 16)[:, None, None] * 16
        + tl.arange(0, 2)[None, :, None] * 256
        + tl.arange(0, 16)[None, None, :]
    )
    a = tl.load(x + tl.load(places + halves))
    d = tl.load(divisors + r)
    rest = tl.sum(a, 1, dtype=tl.uint8) % d
    tl.store(out + r.to(tl.uint8), tl.where(d == 0, 2, rest))


@triton.jit
def shifts(x, counts, lefts, rights, logical):
    """Counts at and beyond the width shift everything out."""
    r = tl.arange(0, 64)
    a = tl.load(x + r)
    count = tl.load(counts + r)
    tl.store(lefts + r, a << count)
    tl.store(rights + r, a >> count)
    tl.store(
        logical + r,
        a.to(logical.dtype.element_ty, bitcast=True) >> count.to(logical.dtype.element_ty, bitcast=True),
    )


@triton.jit
def shifts_beyond(x, out, n):
    """Counts of which only zeros remain if they are within the width, and constants below zero, in addresses,
    too."""
    r = tl.arange(0, 128)
    below = tl.full((128,), -64, tl.int32)
    tl.store(out + r, (r - 64) >> (n << 21))
    tl.store(out + 128 + r, (r - 64).to(tl.int8) >> (n << 4).to(tl.int8))
    tl.store(out + 256 + r, tl.load(x + (r << below)))
    tl.store(out + 384 + r, tl.load(x + (r >> below)))


@triton.jit
def shifts_compared(counts, out):
    """What follows from a shifted constant, by counts of which LLVM could conclude that they are small."""
    r = tl.arange(0, 64)
    count = tl.load(counts + r)
    tl.store(out + r, (tl.full((64,), -(1 << 63), tl.int64) >> count) == -1)
    tl.store(out + 64 + r, (tl.full((64,), -(1 << 31), tl.int32) >> count.to(tl.int32)) == -1)
    tl.store(out + 128 + r, (tl.full((64,), -(1 << 15), tl.int16) >> count.to(tl.int16)) == -1)
    tl.store(out + 192 + r, (tl.full((64,), 1, tl.int16) << count.to(tl.int16)) != 0)
    tl.store(out + 256 + r, (tl.full((64,), 1 << 15, tl.uint16) >> count.to(tl.uint16)) != 0)


@triton.jit
def to_integers(x, out):
    r = tl.arange(0, 64)
    tl.store(out + r, tl.load(x + r).to(out.dtype.element_ty))


@triton.jit
def below_zero(x, out, shift):
    """Quotients and remainders of numbers on both sides of zero, as masks, as addresses, and after a shift."""
    r = tl.arange(0, 128)
    tl.store(out + r, tl.load(x + r, mask=((r - 8) // 4) < -1, other=0))
    tl.store(out + 128 + r, tl.load(x + 16 + (r - 16) % 16))
    i = (r - shift) % 16
    tl.store(out + 256 + r, tl.load(x + tl.where(i < 0, i + 16, i)))
    tl.store(out + 384 + r, tl.load(x + 32 + (r - shift) // 16))


@triton.jit
def narrow_offsets(table, out, n):
    """Offsets of 8 and 16 bits wrap around, each for itself, also as 64-bit numbers."""
    r = tl.arange(0, 128) + n
    short = (r * 256).to(tl.int16)
    first = n.to(tl.int8)
    tl.store(out + r - n, tl.load(table + 128 + r.to(tl.int8)))
    tl.store(out + 128 + r - n, tl.load(table + 128 + r.to(tl.int8).to(tl.int64)))
    tl.store(out + 256 + r - n, tl.load(table + 128 + short // 256))
    for i in tl.static_range(4):
        tl.store(out + 384 + i, tl.load(table + 128 + (first + i)))
        either = tl.where(n > 99, (first + i).to(tl.int32), (first + i + 7).to(tl.int32))
        tl.store(out + 388 + i, tl.load(table + 128 + either))


@triton.jit
def short_offsets(table, x, out, angle):
    """Offsets out of memory that wrap around in 16 bits, to bytes: nothing scales them.  The sine calls a
    function of its own."""
    r = tl.arange(0, 64)
    a = tl.load(x + r)
    tl.store(out + r, tl.load(table + (a + 16).to(tl.uint16, bitcast=True)))
    tl.store(out + 64 + r, tl.load(table + (a.to(tl.uint8) + 16).to(tl.uint8)))
    tl.store(out + 128 + r, (tl.sin(angle) * 100).to(tl.uint8))


@triton.jit
def sums_of_constants(out, n):
    """Constants that all lanes share, with signs, in what follows them."""
    r = tl.arange(0, 32)
    total = tl.minimum(n, tl.sum(tl.full((2,), -7, tl.int32), 0))
    largest = tl.maximum(n, tl.max(tl.full((64,), -7, tl.int32), 0) + 3)
    tl.store(out + r, r * total)
    tl.store(out + 32 + r, r * largest)
    tl.store(out + 64 + r, r // 7 % 7 + 7)


@triton.jit
def large_offsets(table, out, n):
    """Offsets of 32 bits wrap around, too: sums of a scan, and those that a large constant brings back."""
    r = tl.arange(0, 32)[:, None] * 16 + tl.arange(0, 16)[None, :]
    sums = tl.cumsum(tl.full((32, 16), -2147483648, tl.int32), 1)
    tl.store(out + r, tl.load(table + sums, mask=(sums >= 0) & (sums < 32), other=-1))
    tl.store(out + 512 + r, tl.load(table + ((r + n) - 2147483640)))


@triton.jit
def offsets_from_memory(table, keys, out):
    """Differences of numbers that were loaded wrap around as well: what is far away in one access is near in
    the next."""
    r = tl.arange(0, 16)[None, :]
    start = tl.load(keys + tl.full((1, 16), 0, tl.int32))
    for i in tl.static_range(3):
        is_loaded = (r + 16) < tl.full((), 16 * (i + 1), tl.int32)
        key = tl.where(is_loaded, tl.load(keys + 16 + r, mask=is_loaded), 0)
        place = key - start
        tl.store(
            out + 16 * i + r, tl.load(table + place.to(tl.int64), mask=(place >= 0) & (place < 64), other=-1)
        )
    place = tl.load(keys + 16 + r) - tl.load(keys)
    tl.store(out + 48 + r, tl.load(table + place, mask=(place >= 0) & (place < 64), other=-1))


@triton.jit
def chosen_constants(out, n):
    """Of two constants the one beyond the range is converted."""
    if n < 0:
        chosen = tl.full((32,), 1.0, tl.float64)
    else:
        chosen = tl.full((32,), -1.0, tl.float64)
    tl.store(out + tl.arange(0, 32), chosen.to(tl.uint16))
