"""Offsets of 32 bits that wrap around: what is far away as a sum of 64 bits is near."""

import triton
import triton.language as tl


@triton.jit
def load_near(table, place):
    return tl.load(table + place, mask=(place >= 0) & (place < 64), other=-1)


@triton.jit
def constants_passed_on(table, keys, out, n, WAY: tl.constexpr):
    """A constant that brings keys back comes to their sum by various ways."""
    r = tl.arange(0, 16)
    key = tl.load(keys + r)
    smallest = tl.full((16,), -2147483648, tl.int32)
    constant = -2147483648
    if WAY == "split":
        smallest, _ = tl.split(tl.full((16, 2), -2147483648, tl.int32))
        tl.store(out + r, load_near(table, key + smallest))
    elif WAY == "join":
        sums = tl.join(key, key) + tl.join(smallest, smallest)
        tl.store(out + r, tl.split(load_near(table, sums))[1])
    elif WAY == "gather":
        tl.store(out + r, load_near(table, key + tl.gather(smallest, r, 0)))
    elif WAY == "branch":
        if n > 2:
            tl.store(out + r, load_near(table, key))
            constant += 2
        tl.store(out + r, load_near(table, key + constant))
    elif WAY == "for":
        for _ in range(n):
            tl.store(out + r, load_near(table, key + constant))
            constant += 1
    elif WAY == "while":
        while constant < -2147483648 + n:
            tl.store(out + r, load_near(table, key + constant))
            constant += 1
    elif WAY == "counter":
        for i in range(-2147483648, -2147483648 + n):
            tl.store(out + r, load_near(table, key + i))
    else:
        wide = tl.cast(n, tl.int64) - 2147483651
        tl.store(out + r, load_near(table, key + wide.to(tl.int32)))


@triton.jit
def products_that_wrap(table, keys, out, FACTOR: tl.constexpr, COUNT: tl.constexpr):
    """Sums times a large factor, as a product and as a shift: neither summand is near, but all together."""
    r = tl.arange(0, 16)
    key = tl.load(keys + r)
    tl.store(out + r, load_near(table, (key - 6) * FACTOR))
    tl.store(out + 16 + r, load_near(table, ((key - 6) << COUNT) + 1))
    tl.store(out + 32 + r, load_near(table, ((key + 10) * (FACTOR // 64) * 64 + 2)))
    tl.store(out + 48 + r, load_near(table, (key.to(tl.int64) - 6) << (COUNT + 32)))
    tl.store(out + 64 + r, load_near(table, (((key.to(tl.int64) - 6) << COUNT) + 3).to(tl.int32)))


@triton.jit
def sums_from_memory(table, keys, wide, fractions, out):
    """Of two numbers from memory, one for all elements."""
    r = tl.arange(0, 16)
    key, first = tl.load(keys + 16 + r), tl.load(keys)
    tl.store(out + r, load_near(table, key + first))
    tl.store(out + 16 + r, load_near(table, (key - 5) * first))
    tl.store(out + 32 + r, load_near(table, tl.load(wide + 16 + r).to(tl.int32) - tl.load(wide).to(tl.int32)))
    tl.store(
        out + 48 + r,
        load_near(table, tl.load(fractions + 16 + r).to(tl.int32) + tl.load(fractions).to(tl.int32)),
    )
