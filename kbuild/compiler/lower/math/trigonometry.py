"""Sines and their inverses.

An argument is reduced to r in [-π/4, π/4] and a quarter-turn count q.  f32 up to 105615, and f64 up to a million, by three
subtractions; beyond, by multiplying with as many bits of 2/π as matter (Payne and Hanek), in a function that
is called only there.
"""

from __future__ import annotations

import math

from kbuild.compiler.lower.math.functions import NAN, function
from kbuild.compiler.lower.math.real import Real
from kbuild.compiler.ops import elementwise as rows

_SIN = (-0.16666667, 0.008333329, -0.0001983929, 0.0000027178744)
"""(sin(r) - r) / r³ in r²."""
_COS = (0.041666668, -0.0013888883, 0.00002479947, -0.00000027206178)
"""(cos(r) - 1 + r²/2) / r⁴ in r²."""
_ATAN = (
    -0.333333,
    0.19998547,
    -0.14264238,
    0.109521665,
    -0.084033944,
    0.05795664,
    -0.0311769,
    0.010914098,
    -0.0017935085,
)
"""(atan(x) - x) / x³ in x², for |x| up to 1."""
_ASIN = (0.16666754, 0.07495242, 0.045477092, 0.024147647, 0.04221848)
"""(asin(x) - x) / x³ in x², for |x| up to 1/2."""
_SIN_F64 = tuple((-1) ** (n // 2) / math.factorial(n) for n in range(3, 21, 2))
_COS_F64 = tuple((-1) ** (n // 2) / math.factorial(n) for n in range(4, 22, 2))

_LARGE = 105615.0
_PI_HALF_HIGH, _PI_HALF_LOW = 1.5707963705062866, -4.371139e-08
_TWO_OVER_PI = (0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041)
"""The first 192 bits of 2/π after the point, with a word of zeros before them."""

_LARGE_REDUCTION = """
define internal {float, i32} @kbuild.reduce_large(float %x) noinline {
  %bits = bitcast float %x to i32
  %shifted = lshr i32 %bits, 23
  %biased = and i32 %shifted, 255
  %start = sub i32 %biased, 128
  %fraction = shl i32 %bits, 8
  %mantissa = or i32 %fraction, -2147483648
  %index = lshr i32 %start, 5
  %shift = and i32 %start, 31
  %p0 = getelementptr i32, ptr addrspace(4) @kbuild.two_over_pi, i32 %index
  %p1 = getelementptr i32, ptr addrspace(4) %p0, i32 1
  %p2 = getelementptr i32, ptr addrspace(4) %p0, i32 2
  %p3 = getelementptr i32, ptr addrspace(4) %p0, i32 3
  %t0 = load i32, ptr addrspace(4) %p0
  %t1 = load i32, ptr addrspace(4) %p1
  %t2 = load i32, ptr addrspace(4) %p2
  %t3 = load i32, ptr addrspace(4) %p3
  %w0 = call i32 @llvm.fshl.i32(i32 %t0, i32 %t1, i32 %shift)
  %w1 = call i32 @llvm.fshl.i32(i32 %t1, i32 %t2, i32 %shift)
  %w2 = call i32 @llvm.fshl.i32(i32 %t2, i32 %t3, i32 %shift)
  %m = zext i32 %mantissa to i64
  %z0 = zext i32 %w0 to i64
  %z1 = zext i32 %w1 to i64
  %z2 = zext i32 %w2 to i64
  %low = mul i64 %m, %z2
  %middle = mul i64 %m, %z1
  %high = mul i64 %m, %z0
  %carry = lshr i64 %low, 32
  %sum = add i64 %middle, %carry
  %top = shl i64 %high, 32
  %product = add i64 %top, %sum
  %turns = lshr i64 %product, 62
  %part = shl i64 %product, 2
  %roundup = lshr i64 %part, 63
  %quarters = add i64 %turns, %roundup
  %count = trunc i64 %quarters to i32
  %real = sitofp i64 %part to double
  %angle = fmul double %real, 0x3BF921FB54442D18
  %rest = fptrunc double %angle to float
  %negative = icmp slt i32 %bits, 0
  %minus = fneg float %rest
  %minuscount = sub i32 0, %count
  %r = select i1 %negative, float %minus, float %rest
  %q = select i1 %negative, i32 %minuscount, i32 %count
  %infinite = icmp eq i32 %biased, 255
  %proper = select i1 %infinite, float 0x7FF8000000000000, float %r
  %first = insertvalue {float, i32} poison, float %proper, 0
  %both = insertvalue {float, i32} %first, i32 %q, 1
  ret {float, i32} %both
}
"""

_REDUCTION = f"""
define internal {{float, i32}} @kbuild.reduce(float %x) alwaysinline {{
  %scaled = fmul float %x, 0x3FE45F3060000000
  %turns = call float @llvm.rint.f32(float %scaled)
  %minus = fneg float %turns
  %r0 = call float @llvm.fma.f32(float %minus, float 0x3FF921FB40000000, float %x)
  %r1 = call float @llvm.fma.f32(float %minus, float 0x3E74442D00000000, float %r0)
  %r = call float @llvm.fma.f32(float %minus, float 0x3CF84698A0000000, float %r1)
  %whole = fptosi float %turns to i32
  %q = freeze i32 %whole
  %first = insertvalue {{float, i32}} poison, float %r, 0
  %near = insertvalue {{float, i32}} %first, i32 %q, 1
  %magnitude = call float @llvm.fabs.f32(float %x)
  %large = fcmp ogt float %magnitude, {_LARGE:e}
  br i1 %large, label %far, label %done
far:
  %distant = call {{float, i32}} @kbuild.reduce_large(float %x)
  br label %done
done:
  %result = phi {{float, i32}} [%near, %0], [%distant, %far]
  ret {{float, i32}} %result
}}
"""


_LARGE_F64 = 1e6
_TWO_OVER_PI_F64 = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)
"""The first 1216 bits of 2/π after the point, with a word of zeros before them."""

_LARGE_REDUCTION_F64 = """
define internal {double, i32} @kbuild.reduce_large.f64(double %x) noinline {
  %bits = bitcast double %x to i64
  %shifted = lshr i64 %bits, 52
  %biased = and i64 %shifted, 2047
  %fraction = and i64 %bits, 4503599627370495
  %mantissa = or i64 %fraction, 4503599627370496
  %start = sub i64 %biased, 1013
  %index = lshr i64 %start, 6
  %shift = and i64 %start, 63
  %p0 = getelementptr i64, ptr addrspace(4) @kbuild.two_over_pi.f64, i64 %index
  %p1 = getelementptr i64, ptr addrspace(4) %p0, i32 1
  %p2 = getelementptr i64, ptr addrspace(4) %p0, i32 2
  %p3 = getelementptr i64, ptr addrspace(4) %p0, i32 3
  %t0 = load i64, ptr addrspace(4) %p0
  %t1 = load i64, ptr addrspace(4) %p1
  %t2 = load i64, ptr addrspace(4) %p2
  %t3 = load i64, ptr addrspace(4) %p3
  %w0 = call i64 @llvm.fshl.i64(i64 %t0, i64 %t1, i64 %shift)
  %w1 = call i64 @llvm.fshl.i64(i64 %t1, i64 %t2, i64 %shift)
  %w2 = call i64 @llvm.fshl.i64(i64 %t2, i64 %t3, i64 %shift)
  %m = zext i64 %mantissa to i128
  %z0 = zext i64 %w0 to i128
  %z1 = zext i64 %w1 to i128
  %z2 = zext i64 %w2 to i128
  %low = mul i128 %m, %z2
  %middle = mul i128 %m, %z1
  %high = mul i128 %m, %z0
  %carry = lshr i128 %low, 64
  %sum = add i128 %middle, %carry
  %top = shl i128 %high, 64
  %product = add i128 %top, %sum
  %turns = lshr i128 %product, 126
  %part = shl i128 %product, 2
  %roundup = lshr i128 %part, 127
  %quarters = add i128 %turns, %roundup
  %count = trunc i128 %quarters to i32
  %below = icmp slt i128 %part, 0
  %opposite = sub i128 0, %part
  %size = select i1 %below, i128 %opposite, i128 %part
  %size_high = lshr i128 %size, 64
  %upper = trunc i128 %size_high to i64
  %lower = trunc i128 %size to i64
  %leading = and i64 %upper, -2048
  %trailing = and i64 %upper, 2047
  %leading_real = uitofp i64 %leading to double
  %trailing_real = uitofp i64 %trailing to double
  %lower_real = uitofp i64 %lower to double
  %a = fmul double %leading_real, 0x3BF0000000000000
  %b0 = fmul double %lower_real, 0x3BF0000000000000
  %b1 = fadd double %trailing_real, %b0
  %b = fmul double %b1, 0x3BF0000000000000
  %lead = fmul double %a, 0x3FF921FB54442D18
  %minuslead = fneg double %lead
  %lost = call double @llvm.fma.f64(double %a, double 0x3FF921FB54442D18, double %minuslead)
  %lost_more = call double @llvm.fma.f64(double %a, double 0x3C91A62633145C07, double %lost)
  %tail = call double @llvm.fma.f64(double %b, double 0x3FF921FB54442D18, double %lost_more)
  %rest = fadd double %lead, %tail
  %negative = icmp slt i64 %bits, 0
  %turned = xor i1 %negative, %below
  %minus = fneg double %rest
  %minuscount = sub i32 0, %count
  %r = select i1 %turned, double %minus, double %rest
  %q = select i1 %negative, i32 %minuscount, i32 %count
  %infinite = icmp eq i64 %biased, 2047
  %proper = select i1 %infinite, double 0x7FF8000000000000, double %r
  %first = insertvalue {double, i32} poison, double %proper, 0
  %both = insertvalue {double, i32} %first, i32 %q, 1
  ret {double, i32} %both
}
"""

_REDUCTION_F64 = f"""
define internal {{double, i32}} @kbuild.reduce.f64(double %x) alwaysinline {{
  %scaled = fmul double %x, 0x3FE45F306DC9C883
  %turns = call double @llvm.rint.f64(double %scaled)
  %minus = fneg double %turns
  %r0 = call double @llvm.fma.f64(double %minus, double 0x3FF921FB54400000, double %x)
  %r1 = call double @llvm.fma.f64(double %minus, double 0x3DD0B4611A600000, double %r0)
  %r = call double @llvm.fma.f64(double %minus, double 0x3BA3198A2E037073, double %r1)
  %whole = fptosi double %turns to i32
  %q = freeze i32 %whole
  %first = insertvalue {{double, i32}} poison, double %r, 0
  %near = insertvalue {{double, i32}} %first, i32 %q, 1
  %magnitude = call double @llvm.fabs.f64(double %x)
  %large = fcmp ogt double %magnitude, {_LARGE_F64:e}
  br i1 %large, label %far, label %done
far:
  %distant = call {{double, i32}} @kbuild.reduce_large.f64(double %x)
  br label %done
done:
  %result = phi {{double, i32}} [%near, %0], [%distant, %far]
  ret {{double, i32}} %result
}}
"""
"""The first two of the three parts of π/2 have 33 bits: exact products up to 2^20 quarter turns."""


def _reduce(m: Real, x: str) -> tuple[str, str]:
    """r and the i32 count q with x = q·π/2 + r."""
    _declare_reduction(m)
    name = "kbuild.reduce.f64" if m.double else "kbuild.reduce"
    pair = m.emit.instruction(f"call {{{m.kind}, i32}} @{name}({m.kind} {x})")
    rest, count = m.emit.unpack(pair, [m.kind, "i32"])
    return rest, count


def _declare_reduction(m: Real) -> None:
    words, ending = (_TWO_OVER_PI_F64, ".f64") if m.double else (_TWO_OVER_PI, "")
    values = ", ".join(f"{m.integer} {word}" for word in words)
    table = f"@kbuild.two_over_pi{ending} = internal addrspace(4) constant [{len(words)} x {m.integer}] [{values}]"
    functions = (_LARGE_REDUCTION_F64, _REDUCTION_F64) if m.double else (_LARGE_REDUCTION, _REDUCTION)
    for text in (table, *functions):
        if text not in m.emit.globals:
            m.emit.globals.append(text)
    for name, count, kind in (
        ("rint", 1, m.kind),
        ("fma", 3, m.kind),
        ("fabs", 1, m.kind),
        ("fshl", 3, m.integer),
    ):
        full = f"llvm.{name}.{m.suffix if kind == m.kind else kind}"
        m.emit.declarations[full] = f"declare {kind} @{full}({', '.join([kind] * count)})"


def _sin_reduced(m: Real, r: str) -> str:
    square = m.mul(r, r)
    return m.fma(m.mul(m.polynomial(square, _SIN_F64 if m.double else _SIN), square), r, r)


def _cos_reduced(m: Real, r: str) -> str:
    square = m.mul(r, r)
    tail = m.fma(m.polynomial(square, _COS_F64 if m.double else _COS), square, -0.5)
    return m.fma(tail, square, 1.0)


def _quarter(m: Real, r: str, count: str) -> str:
    """sin(count·π/2 + r)"""
    emit = m.emit
    odd = emit.compare("ne", emit.and_(count, "1"), "0")
    value = m.select(odd, _cos_reduced(m, r), _sin_reduced(m, r))
    return m.select(emit.compare("ne", emit.and_(count, "2"), "0"), m.negate(value), value)


@function(rows.Sin, f32=2, f64=2)
def sin(m: Real, x: str) -> str:
    """Sine."""
    return _quarter(m, *_reduce(m, x))


@function(rows.Cos, f32=2, f64=2)
def cos(m: Real, x: str) -> str:
    """Cosine."""
    r, count = _reduce(m, x)
    return _quarter(m, r, m.emit.add(count, "1"))


@function(rows.Tan, f32=5, f64=4)
def tan(m: Real, x: str) -> str:
    """Tangent."""
    r, count = _reduce(m, x)
    sine, cosine = _sin_reduced(m, r), _cos_reduced(m, r)
    odd = m.emit.compare("ne", m.emit.and_(count, "1"), "0")
    return m.div(m.select(odd, m.negate(cosine), sine), m.select(odd, sine, cosine))


# Inverses


@function(rows.ATan, f32=5.2, f64=None)
def atan(m: Real, x: str) -> str:
    """Arc tangent."""
    magnitude = m.absolute(x)
    return m.with_sign(_atan_ratio(m, magnitude, m.register(1.0)), x)


def _atan_ratio(m: Real, y: str, x: str) -> str:
    """atan(y / x) for y and x from 0 on."""
    swapped = m.compare("ogt", y, x)
    quotient = m.div(m.select(swapped, x, y), m.select(swapped, y, x))
    square = m.mul(quotient, quotient)
    angle = m.fma(m.mul(m.polynomial(square, _ATAN), square), quotient, quotient)
    turned = m.add(m.sub(_PI_HALF_HIGH, angle), _PI_HALF_LOW)
    return m.select(swapped, turned, angle)


@function(rows.ATan2, f32=5.2, f64=None)
def atan2(m: Real, y: str, x: str) -> str:
    """The angle of the point (x, y), with C's special cases."""
    a, b = m.absolute(y), m.absolute(x)
    # Scaled, so that the quotient of huge numbers does not vanish; 0/0 and inf/inf have the angles of 0/1 and
    # 1/1.
    huge = m.either(m.compare("ogt", a, 2.0**120), m.compare("ogt", b, 2.0**120))
    scaled = [m.select(huge, m.mul(v, 2.0**-24), v) for v in (a, b)]
    both_zero = m.both(m.compare("oeq", a, 0.0), m.compare("oeq", b, 0.0))
    both_infinite = m.both(m.compare("oeq", a, math.inf), m.compare("oeq", b, math.inf))
    top = m.select(both_infinite, 1.0, scaled[0])
    bottom = m.select(m.either(both_zero, both_infinite), 1.0, scaled[1])
    angle = _atan_ratio(m, top, bottom)
    negative = m.emit.compare("slt", m.bits(x), "0", m.integer)
    left = m.add(m.sub(2 * _PI_HALF_HIGH, angle), 2 * _PI_HALF_LOW)
    result = m.with_sign(m.select(negative, left, angle), y)
    return m.select(m.compare("uno", x, y), NAN, result)


@function(rows.ASin, f32=3, f64=None)
def asin(m: Real, x: str) -> str:
    """Arc sine."""
    magnitude = m.absolute(x)
    inner, outer = _asin_parts(m, magnitude)
    turned = m.fma(outer, -2.0, m.register(_PI_HALF_HIGH))
    return m.with_sign(m.select(m.compare("ogt", magnitude, 0.5), turned, inner), x)


@function(rows.ACos, f32=2, f64=None)
def acos(m: Real, x: str) -> str:
    """Arc cosine."""
    magnitude = m.absolute(x)
    inner, outer = _asin_parts(m, magnitude)
    doubled = m.add(outer, outer)
    near = m.select(
        m.compare("olt", x, 0.0), m.sub(2 * _PI_HALF_HIGH, m.sub(doubled, 2 * _PI_HALF_LOW)), doubled
    )
    middle = m.sub(_PI_HALF_HIGH, m.sub(m.with_sign(inner, x), _PI_HALF_LOW))
    return m.select(m.compare("ogt", magnitude, 0.5), near, middle)


def _asin_parts(m: Real, a: str) -> tuple[str, str]:
    """asin(a), good up to 1/2, and asin(√((1 - a)/2)), good from there; NaN above 1."""
    half = m.fma(a, -0.5, 0.5)
    large = m.compare("ogt", a, 0.5)
    square = m.select(large, half, m.mul(a, a))
    root = m.select(large, m.sqrt(half), a)
    value = m.fma(m.mul(m.polynomial(square, _ASIN), square), root, root)
    return value, value
