"""Arithmetic, comparison, conversion and mathematics, one element at a time."""

import triton
import triton.language as tl


@triton.jit
def integers(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside, other=1)
    b = tl.load(y + offsets, mask=inside, other=1)
    total = a + b * 3 - (a & b) + (a | 12) - (a ^ b) + (a << 2) + (a >> 1)
    total += tl.where(a > b, a // b, a % b)
    total += tl.maximum(a, b) * tl.minimum(a, -b) + tl.abs(a - b)
    total = tl.where((a == b) | (a < 0) & (b != 3), total + 1, total - ~a)
    tl.store(out + offsets, total, mask=inside)


@triton.jit
def unsigned(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside, other=1)
    b = tl.load(y + offsets, mask=inside, other=1)
    high = tl.umulhi(a, b)
    tl.store(
        out + offsets, a // b + a % b + (a >> 3) + high + tl.where(a > b, 1, 2).to(tl.uint32), mask=inside
    )


@triton.jit
def quotients(x, y, quotient, remainder, last, BLOCK: tl.constexpr):
    """By a number for each element, and by one for all."""
    offsets = tl.arange(0, BLOCK)
    a, b = tl.load(x + offsets), tl.load(y + offsets)
    tl.store(quotient + offsets, a // b)
    tl.store(remainder + offsets, a % b)
    tl.store(last + offsets, a % tl.load(y))


@triton.jit
def floats(x, y, out, n, scale, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside, other=0.0)
    b = tl.load(y + offsets, mask=inside, other=1.0)
    result = tl.fma(a, b, a) - b * scale + tl.floor(a / 4) - tl.ceil(b / 3) + tl.abs(a)
    result = tl.clamp(result, -1000.0, 1000.0) + tl.maximum(a, b) - tl.minimum(a, -b)
    tl.store(out + offsets, result, mask=inside)


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside, other=1.0)
    tl.store(out + 0 * n + offsets, tl.exp(a), mask=inside)
    tl.store(out + 1 * n + offsets, tl.exp2(a), mask=inside)
    tl.store(out + 2 * n + offsets, tl.log(tl.abs(a) + 0.1), mask=inside)
    tl.store(out + 3 * n + offsets, tl.log2(tl.abs(a) + 0.1), mask=inside)
    tl.store(out + 4 * n + offsets, tl.sqrt(tl.abs(a)), mask=inside)
    tl.store(out + 5 * n + offsets, tl.rsqrt(tl.abs(a) + 0.1), mask=inside)
    tl.store(out + 6 * n + offsets, tl.sin(a), mask=inside)
    tl.store(out + 7 * n + offsets, tl.cos(a), mask=inside)
    tl.store(out + 8 * n + offsets, tl.sigmoid(a), mask=inside)
    tl.store(out + 9 * n + offsets, tl.erf(a), mask=inside)
    tl.store(out + 10 * n + offsets, tl.div_rn(a, 3.0), mask=inside)
    tl.store(out + 11 * n + offsets, tl.sqrt_rn(tl.abs(a)), mask=inside)


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    """From the pointee type of x to that of out, through a store's implicit cast."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside).to(out.dtype.element_ty), mask=inside)


@triton.jit
def bits(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    raw = tl.load(x + offsets, mask=inside).to(tl.int32, bitcast=True)
    tl.store(out + offsets, (raw ^ -2147483648).to(tl.float32, bitcast=True), mask=inside)


@triton.jit
def cut_with_others(x, filler, out, n, BLOCK: tl.constexpr):
    """Beyond the end stands an element of its own for each place, also within the vector that the end cuts."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n, other=tl.load(filler + offsets)))


@triton.jit
def narrow_to_bytes(x, cut, sizes, opposites, halves, BLOCK: tl.constexpr):
    """Toward zero to the pointee types, and what is known of fp8 without computing with it."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    small = values.to(cut.dtype.element_ty, fp_downcast_rounding="rtz")
    tl.store(cut + offsets, small)
    tl.store(sizes + offsets, tl.abs(small))
    tl.store(opposites + offsets, -small)
    tl.store(halves + offsets, values.to(tl.float16, fp_downcast_rounding="rtz"))


@triton.jit
def convert_all(x, y, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets).to(y.dtype.element_ty))


@triton.jit
def bytes_as_numbers(x, same, sizes, opposites, chosen, BLOCK: tl.constexpr):
    """What is done with fp8 by its bits, and with masks."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets).to(same.dtype.element_ty, bitcast=True)
    tl.store(same + offsets, values)
    tl.store(sizes + offsets, tl.abs(values))
    tl.store(opposites + offsets, -values)
    some = tl.load(same + offsets, mask=offsets % 3 == 0, other=0.3)
    tl.store(chosen + offsets, tl.where(offsets % 2 == 0, some, values))
