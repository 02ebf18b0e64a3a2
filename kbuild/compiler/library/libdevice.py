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


@kbuild.constexpr_function
def _numbers(text):
    return tuple(float(word) for word in text.split())


@kbuild.jit
def _polynomial(x, coefficients: tl.constexpr):
    """c[0] + c[1]·x + c[2]·x² + …, by Horner's scheme."""
    numbers: tl.constexpr = _numbers(coefficients)
    result = tl.full(x.shape, numbers[-1], x.dtype)
    for place in tl.static_range(2, len(numbers) + 1):
        result = tl.fma(result, x, tl.full(x.shape, numbers[-place], x.dtype))
    return result


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


# Integers, and numbers as pairs of them


@kbuild.jit
def mul24(x, y):
    """The lower 32 bits of the product of the lower 24 bits of two integers, which have a sign if their type has."""
    x, y = tl.broadcast(x, y)
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@kbuild.jit
def hadd(x, y):
    """Half of the sum of two integers, rounded down, without overflow."""
    x, y = tl.broadcast(x, y)
    return (x & y) + ((x ^ y) >> 1)


@kbuild.jit
def rhadd(x, y):
    """Half of the sum of two integers, rounded up, without overflow."""
    x, y = tl.broadcast(x, y)
    return (x | y) - ((x ^ y) >> 1)


@kbuild.jit
def sad(x, y, z):
    """|x - y| + z of integers of 32 bits, of the type of x."""
    x, y = tl.broadcast(x, y)
    x, z = tl.broadcast(x, z)
    return tl.where(x > y, x - y, y - x) + z.to(x.dtype)


@kbuild.jit
def llround(x):
    """The nearest whole number, ties away from zero, as int64."""
    return tl.extra.libdevice.round(_floating(x)).to(tl.int64)


@kbuild.jit
def int2double_rn(x):
    """An int32 as fp64."""
    return tl.to_tensor(x).to(tl.int32).to(tl.float64)


@kbuild.jit
def uint2double_rn(x):
    """A uint32 as fp64."""
    return tl.to_tensor(x).to(tl.uint32).to(tl.float64)


@kbuild.jit
def double2hiint(x):
    """The upper half of the bits of an fp64 number, as int32."""
    return (tl.to_tensor(x).to(tl.float64).to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@kbuild.jit
def double2loint(x):
    """The lower half of the bits of an fp64 number, as int32."""
    return tl.to_tensor(x).to(tl.float64).to(tl.int64, bitcast=True).to(tl.int32)


@kbuild.jit
def hiloint2double(x, y):
    """The fp64 number whose bits have the upper half x and the lower half y."""
    x, y = tl.broadcast(tl.to_tensor(x).to(tl.int32), tl.to_tensor(y).to(tl.int32))
    bits = (x.to(tl.int64) << 32) | y.to(tl.uint32, bitcast=True).to(tl.int64)
    return bits.to(tl.float64, bitcast=True)


# Remainders


@kbuild.jit
def _remainder_of_one(size, divisor):
    """What rounding the quotient of two positive numbers to the nearest whole one, ties to even, leaves: digit by
    digit, in integers, where the quotient has any number of them."""
    mantissa: tl.constexpr = size.dtype.fp_mantissa_width
    step: tl.constexpr = 63 - mantissa - 1
    hidden: tl.constexpr = 1 << mantissa
    bits, other = _integer(size).to(tl.int64), _integer(divisor).to(tl.int64)
    exponent, own = bits >> mantissa, other >> mantissa
    rest = tl.where(exponent == 0, bits, (bits & (hidden - 1)) | hidden)
    unit = tl.where(own == 0, other, (other & (hidden - 1)) | hidden)
    shift = tl.maximum(exponent, 1) - tl.maximum(own, 1)
    is_odd = rest < 0
    if shift >= 0:
        is_odd = (rest // unit) % 2 == 1
        rest = rest % unit
        while shift > 0:
            part = tl.minimum(shift, step)
            rest = rest << part
            is_odd = (rest // unit) % 2 == 1
            rest = rest % unit
            shift = shift - part
        # Exact, for the rest has no more digits than the divisor.
        scale = tl.maximum(own, 1)
        found = tl.extra.libdevice.ldexp(rest.to(size.dtype), scale.to(tl.int32) - _bias(size) - mantissa)
    else:
        found = size
    half = divisor - found
    if (found > half) | ((found == half) & is_odd):
        found = found - divisor
    return found


@kbuild.jit
def _bias(x):
    return 127 if x.dtype == tl.float32 else 1023


@kbuild.jit
def remainder(x, y):
    """x - n·y, exactly, where n is the quotient rounded to the nearest whole number, ties to even."""
    x, y = tl.broadcast(_floating(x), _floating(y))
    size, divisor = tl.abs(x), tl.abs(y)
    is_plain = (size < float("inf")) & (divisor > 0) & (divisor < float("inf"))
    plain, by = tl.where(is_plain, size, 1.0), tl.where(is_plain, divisor, 1.0)
    if x.shape == ():
        result = _remainder_of_one(plain, by)
    else:
        result = tl.map_elementwise(_remainder_of_one, plain, by)
    result = tl.where(is_plain, result, tl.where((size < float("inf")) & (divisor > 0), size, float("nan")))
    result = tl.where((x == x) & (y == y), result, x + y)
    return tl.where(_integer(x) < 0, -1.0 * result, result)  # Zero has a sign, too.


# Lengths of vectors, and roots


@kbuild.jit
def _squares(a, b, c, d):
    """The sum of the squares of four fp64 numbers of which none is too large or too small."""
    return tl.fma(a, a, tl.fma(b, b, tl.fma(c, c, d * d)))


@kbuild.jit
def _length(a, b, c, d, inverse: tl.constexpr):
    """The length of a vector of four, or one over it: scaled by a power of two where fp64 has no larger type."""
    a, b = tl.broadcast(_floating(a), _floating(b))
    a, c = tl.broadcast(a, _floating(c))
    a, d = tl.broadcast(a, _floating(d))
    b, c = tl.broadcast(b, a)[0], tl.broadcast(c, a)[0]
    largest = tl.maximum(tl.maximum(tl.abs(a), tl.abs(b)), tl.maximum(tl.abs(c), tl.abs(d)))
    exponent = ilogb(tl.where((largest > 0) & (largest < float("inf")), largest, 1.0))
    if a.dtype == tl.float32:
        exponent = exponent * 0
    a, b = (
        tl.extra.libdevice.ldexp(a.to(tl.float64), -exponent),
        tl.extra.libdevice.ldexp(b.to(tl.float64), -exponent),
    )
    c, d = (
        tl.extra.libdevice.ldexp(c.to(tl.float64), -exponent),
        tl.extra.libdevice.ldexp(d.to(tl.float64), -exponent),
    )
    length = tl.extra.libdevice.sqrt(_squares(a, b, c, d))
    is_infinite = largest == float("inf")
    if inverse:
        result = tl.extra.libdevice.ldexp(1.0 / length, -exponent)
        result = tl.where(is_infinite, 0.0, result)
    else:
        result = tl.extra.libdevice.ldexp(length, exponent)
        result = tl.where(is_infinite, float("inf"), result)
    return result.to(largest.dtype)


@kbuild.jit
def norm3d(x, y, z):
    """The length of a vector of three, without overflow on the way."""
    return _length(x, y, z, z * 0.0, False)


@kbuild.jit
def norm4d(x, y, z, t):
    """The length of a vector of four, without overflow on the way."""
    return _length(x, y, z, t, False)


@kbuild.jit
def rnorm3d(x, y, z):
    """One over the length of a vector of three."""
    return _length(x, y, z, z * 0.0, True)


@kbuild.jit
def rnorm4d(x, y, z, t):
    """One over the length of a vector of four."""
    return _length(x, y, z, t, True)


@kbuild.jit
def rhypot(x, y):
    """One over the square root of x² + y²."""
    return _length(x, y, y * 0.0, y * 0.0, True)


@kbuild.jit
def _cube(x):
    """A fp64 number as m·8^e with m from 1 up to 8: m, 1 / ∛m, and e."""
    is_plain = (x != 0.0) & (tl.abs(x) < float("inf"))
    plain = tl.where(is_plain, tl.abs(x), 1.0)
    exponent = ilogb(plain)
    exponent = (exponent - (exponent % 3 + 3) % 3) // 3
    part = tl.extra.libdevice.ldexp(plain, -3 * exponent)
    root = 1.0 / tl.extra.libdevice._cbrt_of_single(part.to(tl.float32)).to(tl.float64)
    for _ in tl.static_range(2):
        square = root * root
        error = tl.fma(-(part * square), root, tl.full(x.shape, 1.0, tl.float64))
        root = tl.fma(root * 0.3333333333333333, error, root)
    return part, root, exponent, is_plain


@kbuild.jit
def cbrt(x):
    """The cube root."""
    x = _floating(x)
    if x.dtype == tl.float32:
        return tl.extra.libdevice._cbrt_of_single(x)
    else:
        part, inverse, exponent, is_plain = _cube(x)
        square = inverse * inverse
        root = part * square
        area = root * root
        error = tl.fma(area, root, -part) + tl.fma(root, root, -area) * root
        root = tl.fma(error * square, tl.full(x.shape, -0.3333333333333333, tl.float64), root)
        root = tl.extra.libdevice.ldexp(root, exponent)
        return tl.where(is_plain, tl.extra.libdevice.copysign(root, x), x)


@kbuild.jit
def rcbrt(x):
    """One over the cube root."""
    x = _floating(x)
    wide = x.to(tl.float64)
    _, inverse, exponent, is_plain = _cube(wide)
    root = tl.extra.libdevice.copysign(tl.extra.libdevice.ldexp(inverse, -exponent), wide)
    return tl.where(is_plain, root, 1.0 / wide).to(x.dtype)


@kbuild.jit
def rsqrt_rn(x):
    """One over the square root of an fp32 number, correctly rounded."""
    x = tl.to_tensor(x).to(tl.float32)
    return (1.0 / tl.extra.libdevice.sqrt(x.to(tl.float64))).to(tl.float32)


# Sine and cosine of multiples of π


@kbuild.jit
def _half_turns(x):
    """sin and cos of π·r, where r from -1/4 to 1/4 is what whole quarters leave of x / 2, and their number."""
    quarters = tl.extra.libdevice.rint(2.0 * x)
    rest = tl.fma(quarters, tl.full(x.shape, -0.5, x.dtype), x)
    if x.dtype == tl.float32:
        high: tl.constexpr = 3.1415927410125732
        low: tl.constexpr = -8.742278012618954e-08
        sine: tl.constexpr = (
            "-0.16666666666666666 0.008333333333333333 -0.0001984126984126984 2.7557319223985893e-06"
        )
        cosine: tl.constexpr = (
            "0.041666666666666664 -0.001388888888888889 2.48015873015873e-05 -2.755731922398589e-07"
        )
    else:
        high: tl.constexpr = 3.141592653589793
        low: tl.constexpr = 1.2246467991473532e-16
        sine: tl.constexpr = (
            "-0.16666666666666666 0.008333333333333333 -0.0001984126984126984 2.7557319223985893e-06 "
            "-2.505210838544172e-08 1.6059043836821613e-10 -7.647163731819816e-13 2.8114572543455206e-15"
        )
        cosine: tl.constexpr = (
            "0.041666666666666664 -0.001388888888888889 2.48015873015873e-05 -2.755731922398589e-07 "
            "2.08767569878681e-09 -1.1470745597729725e-11 4.779477332387385e-14 -1.5619206968586225e-16"
        )
    angle = rest * tl.full(x.shape, high, x.dtype)
    lost = tl.fma(rest, tl.full(x.shape, high, x.dtype), -angle) + rest * tl.full(x.shape, low, x.dtype)
    square = angle * angle
    sin = angle + tl.fma(square * angle, _polynomial(square, sine), lost)
    # 1 - angle²/2, whose rounding is known, and the rest.
    half = 0.5 * square
    lead = 1.0 - half
    rounding = (1.0 - lead) - half
    exact_half = tl.fma(0.5 * angle, angle, -half) + angle * lost
    cos = lead + tl.fma(square * square, _polynomial(square, cosine), rounding - exact_half)
    return sin, cos, quarters


@kbuild.jit
def sinpi(x):
    """The sine of π·x."""
    x = _floating(x)
    sin, cos, quarters = _half_turns(x)
    place = quarters - 4.0 * tl.floor(quarters * 0.25)
    result = tl.where((place == 1.0) | (place == 3.0), cos, sin)
    result = tl.where(place >= 2.0, -result, result)
    # Zeros have the sign of x.
    result = tl.where(tl.floor(x) == x, x * 0.0, result)
    return tl.where(tl.abs(x) < float("inf"), result, float("nan"))


@kbuild.jit
def cospi(x):
    """The cosine of π·x."""
    x = _floating(x)
    sin, cos, quarters = _half_turns(x)
    place = quarters - 4.0 * tl.floor(quarters * 0.25)
    result = tl.where((place == 1.0) | (place == 3.0), sin, cos)
    result = tl.where((place == 1.0) | (place == 2.0), -result, result)
    return tl.where(tl.abs(x) < float("inf"), result, float("nan"))
