"""The functions of `tl.extra.cuda.libdevice` that are made of others, written in the language itself.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.
"""

import kbuild
import kbuild.language as tl


@kbuild.jit
def _floating(x):
    """fp32 and fp64 as they are, all other numbers as fp32."""
    x = tl.to_tensor(x)
    return x if x.dtype == tl.float32 or x.dtype == tl.float64 else x.to(tl.float32)


@kbuild.jit
def _double(x):
    return tl.to_tensor(x).to(tl.float64)


# Exponents and neighbours


@kbuild.jit
def _integer(x):
    """The bits of a number, as a signed integer."""
    return x.to(tl.int32 if x.dtype == tl.float32 else tl.int64, bitcast=True)


@kbuild.jit
def ilogb(x):
    """The exponent of the number's leading bit, as int32; the least int32 for zero and NaN, the greatest for
    infinity."""
    x = _floating(x)
    mantissa: tl.constexpr = x.dtype.fp_mantissa_width
    bias: tl.constexpr = 127 if x.dtype == tl.float32 else 1023
    bits = _integer(tl.abs(x))
    leading = x.dtype.primitive_bitwidth - 1 - tl.extra.libdevice.clz(bits)
    exponent = (bits >> mantissa).to(tl.int32) - bias
    exponent = tl.where(exponent == -bias, leading - (bias - 1 + mantissa), exponent)
    exponent = tl.where(exponent > bias, tl.where(x == x, 0x7FFFFFFF, -0x80000000), exponent)
    return tl.where(x == 0, -0x80000000, exponent)


@kbuild.jit
def logb(x):
    """The exponent of the number's leading bit; -∞ for zero, ∞ for infinity, NaN for NaN."""
    x = _floating(x)
    exponent = ilogb(x).to(x.dtype)
    exponent = tl.where(x == 0, float("-inf"), exponent)
    return tl.where(tl.abs(x) < float("inf"), exponent, tl.abs(x))


@kbuild.jit
def nextafter(x, y):
    """The next number after x on the way to y; y where they are equal."""
    x, y = tl.broadcast(_floating(x), _floating(y))
    bits = _integer(x)
    up = (x < y) == (x > 0)
    sign: tl.constexpr = -(1 << (x.dtype.primitive_bitwidth - 1))
    least = tl.where(y > 0, 1, sign + 1).to(bits.dtype)
    moved = tl.where(x == 0, least, tl.where(up, bits + 1, bits - 1)).to(x.dtype, bitcast=True)
    return tl.where(x == y, y, tl.where((x == x) & (y == y), moved, x + y))
