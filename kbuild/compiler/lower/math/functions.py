"""Mathematical functions, as formulas over the approximate instructions of the hardware and polynomials.

Each states its largest error against the exact value, in units of the last place (ulp), where each approximate
instruction is as far off as its specification allows; the tests check it over all arguments, and
docs/numerics.md lists it.  exp, exp2, sqrt, rsqrt and division are Triton's: fast, flushing subnormals.
f16 and bf16 are computed in f32 and rounded once.  Trigonometric functions are in `trigonometry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.types import FloatType, Type
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.math.real import Real
from kbuild.compiler.ops import elementwise as rows
from kbuild.errors import CompileError

Function = Callable[..., str]


@dataclass(frozen=True)
class Formula:
    """How a row of mathematics is computed."""

    write: Function
    """Writes it, given a `Real` and the operands."""
    f32: float
    """Largest error in single precision, in ulp."""
    f64: float | None
    """Largest error in double precision, in ulp; None where there is no formula."""

    @property
    def text(self) -> str:
        """What it computes, in words."""
        return self.write.__doc__ or ""


FORMULAS: dict[type[Op], Formula] = {}

LOG2_E = 1.4426950408889634
LN_2, LN_2_TAIL = 0.6931471805599453, 2.3190468138462996e-17
LN_2_F32, LN_2_F32_TAIL = 0.693147182464599609375, -1.904654299957768e-09
LOG10_2, LOG10_2_TAIL = 0.3010299956639812, -2.8037281277851704e-18
LOG10_E = 0.4342944819032518
INFINITY, NAN = math.inf, math.nan

# Minimax polynomials, in ascending powers.
_LOG = (0.33333215, -0.24999809, 0.20010523, -0.16679867, 0.14003877, -0.12193958, 0.13994653, -0.12844941)
"""(log(1 + f) - f + f²/2) / f³ for f in [-1/3, 1/3]."""
_EXPM1 = (0.16666666, 0.04166648, 0.0083334204, 0.0013933483, 0.0001982403)
"""(exp(f) - 1 - f - f²/2) / f³ for |f| up to ln(2)/2."""
_TANH = (-0.333333, 0.13331959, -0.053786676, 0.020805357, -0.0059058368)
"""(tanh(x) - x) / x³ in x², for |x| up to 0.6."""
_ERF_SMALL = (1.1283791, -0.37612626, 0.112835854, -0.026853811, 0.0051883273, -0.0008010189, 0.00007853847)
"""erf(x) / x in x², for |x| up to 1."""
_ERF_LARGE = (
    0.000271288969,
    -1.62963724,
    -0.913543165,
    -0.156415001,
    0.0363678597,
    -0.00606591301,
    0.000636716315,
    -0.0000312877237,
)
"""log2(1 - erf(a)) for a in [1, 4]."""
_ERF_SMALL_F64 = (
    1.1283791670955126,
    -0.37612638903183754,
    0.11283791670955126,
    -0.026866170645131218,
    0.005223977625441674,
    -0.0008548327023403001,
    0.00012055332978879483,
    -1.4925650236967501e-05,
    1.6462110782018636e-06,
    -1.636576864883207e-07,
    1.4806027146128752e-08,
    -1.2277734486795524e-09,
    9.323723518153027e-11,
    -6.1967364287877e-12,
    2.8067128195611264e-13,
)
"""erf(x) / x in x², for |x| up to 1."""
_ERFCX_F64 = (
    1.2648381843668615,
    -0.12235676308240431,
    -0.09902453957360226,
    0.15762991902322052,
    -0.10296705603853232,
    0.032760893268559604,
    0.00093189281600878,
    -0.004382078337867247,
    0.0004918658357649545,
    0.0006321243060661638,
    -8.847948146890282e-05,
    -0.00011352204861605622,
    6.267851267306095e-06,
    2.269784211457058e-05,
    2.5986288775979485e-06,
    -4.211819867465684e-06,
    -1.5436009856378387e-06,
    5.181942467703588e-07,
    4.2825173361816287e-07,
    2.3817190954909507e-08,
)
"""erfc(a) · e^(a²) · (1 + 2a) in (a - 5/2) / (a + 5/2), for a in [1, 6]."""
_ATANH = (0.20000158, 0.14266169, 0.11877388)
"""(atanh(s) - s - s³/3) / s⁵ in s², for |s| up to 1/5."""
# Taylor series suffice in f64, where each further term is cheap to state and divides the error by hundreds.
_EXPM1_F64 = tuple(1 / math.factorial(n) for n in range(3, 15))
_ATANH_F64 = tuple(1 / n for n in range(3, 27, 2))


def function(row: type[Op], f32: float, f64: float | None) -> Callable[[Function], Function]:
    """Register the formula of a row, with its errors in ulp."""

    def register(write: Function) -> Function:
        FORMULAS[row] = Formula(write, f32, f64)
        return write

    return register


def has_math(cls: type[Op]) -> bool:
    """Whether a row is computed by a formula."""
    return cls in FORMULAS


def math_function(op: rows.Elementwise, element: Type) -> Callable[[Emitter, Sequence[str]], str]:
    """The function that writes a row's formula for f32 or f64.  Raises `CompileError` where there is none for the type."""
    formula = FORMULAS[type(op)]
    assert isinstance(element, FloatType)
    if element.bits == 64 and formula.f64 is None:
        raise CompileError(
            f"{op.op_name} is not supported in float64", op.loc, "convert the argument to float32"
        )
    return lambda emit, operands: formula.write(Real(emit, element), *operands)


# Exponentials


@function(rows.Exp, f32=66, f64=2)
def exp(m: Real, x: str) -> str:
    """e^x, as in Triton: in f32 the exponent x·log2(e) is rounded, so that the error is up to 2.1 + 1.23·|x|
    ulp. `libdevice.exp` avoids that, in seven instructions instead of two."""
    if not m.double:
        return exp2(m, m.mul(x, LOG2_E))
    count, p = _exp_parts(m, clamp(m, x, -746.0, 710.0))
    return m.scale(m.add(p, 1.0), count)


@function(rows.PreciseExp, f32=4.5, f64=2)
def precise_exp(m: Real, x: str) -> str:
    """e^x: as `math.exp`, corrected for the rounding error of the exponent."""
    if m.double:
        return exp(m, x)
    exponent = m.mul(x, LOG2_E)
    lost = m.fma(m.negate(exponent), LN_2_F32_TAIL, m.fma(m.negate(exponent), LN_2_F32, x))
    # An infinite exponent has no rounding error: of NaN and a number llvm.maxnum gives the number.
    factor = m.call("llvm.maxnum.f32", m.add(lost, 1.0), 0.5)
    return m.mul(exp2(m, exponent), factor)


@function(rows.Exp2, f32=2.1, f64=2)
def exp2(m: Real, x: str) -> str:
    """2^x; f32 by ex2.approx.ftz."""
    if not m.double:
        return m.call("llvm.nvvm.ex2.approx.ftz.f", x)
    x = clamp(m, x, -1076.0, 1025.0)
    count = m.round(x)
    return m.scale(m.add(_expm1_reduced(m, m.mul(m.sub(x, count), LN_2)), 1.0), count)


def clamp(m: Real, x: str, low: float, high: float) -> str:
    """`x` clamped between two numbers; NaN stays."""
    return m.select(m.compare("olt", x, low), low, m.select(m.compare("ogt", x, high), high, x))


def _exp_parts(m: Real, x: str) -> tuple[str, str]:
    """n and p with exp(x) = 2^n · (1 + p) and |p| at most 0.42."""
    high, low = m.split_constant(LN_2, LN_2_TAIL)
    count = m.round(m.mul(x, LOG2_E))
    rest = m.fma(count, -low, m.fma(count, -high, x))
    return count, _expm1_reduced(m, rest)


def _expm1_reduced(m: Real, f: str) -> str:
    square = m.mul(f, f)
    tail = m.mul(m.polynomial(f, _EXPM1_F64 if m.double else _EXPM1), f)
    return m.fma(m.add(tail, 0.5), square, f)


@function(rows.ExpM1, f32=2, f64=2)
def expm1(m: Real, x: str) -> str:
    """e^x - 1."""
    limit = 710.0 if m.double else 89.0
    count, p = _exp_parts(m, clamp(m, x, -40.0, limit))
    # Half of the power, because 2^n itself overflows before the result does.
    half = m.power_of_two(m.sub(count, 1.0))
    doubled = m.fma(p, half, m.sub(half, 0.5))
    return m.select(m.compare("oeq", x, 0.0), x, m.add(doubled, doubled))


def _half_exp(m: Real, x: str) -> str:
    """exp(x) / 2 for x from 0 on: 2 ulp."""
    count, p = _exp_parts(m, clamp(m, x, 0.0, 720.0 if m.double else 95.0))
    # The power of two in two steps: the result may lie just below overflow, or above.
    power = m.power_of_two(m.sub(count, 20.0))
    return m.mul(m.fma(p, power, power), 2.0**19)


@function(rows.Sinh, f32=3.1, f64=3)
def sinh(m: Real, x: str) -> str:
    """Hyperbolic sine."""
    magnitude = m.absolute(x)
    e = expm1(m, magnitude)
    small = m.mul(m.add(e, m.div(e, m.add(e, 1.0))), 0.5)
    half = _half_exp(m, magnitude)
    large = m.sub(half, m.div(0.25, half))
    return m.with_sign(m.select(m.compare("olt", magnitude, 1.0), small, large), x)


@function(rows.Cosh, f32=2, f64=2)
def cosh(m: Real, x: str) -> str:
    """Hyperbolic cosine."""
    half = _half_exp(m, m.absolute(x))
    return m.add(half, m.div(0.25, half))


@function(rows.Tanh, f32=2.5, f64=3)
def tanh(m: Real, x: str) -> str:
    """Hyperbolic tangent."""
    magnitude = m.absolute(x)
    if m.double:
        e = expm1(m, clamp(m, m.mul(magnitude, 2.0), 0.0, 44.0))
        return m.with_sign(m.div(e, m.add(e, 2.0)), x)
    square = m.mul(x, x)
    small = m.fma(m.mul(m.polynomial(square, _TANH), square), x, x)
    grown = exp2(m, m.mul(magnitude, 2 * LOG2_E))
    large = m.fma(m.reciprocal(m.add(grown, 1.0)), -2.0, 1.0)
    return m.select(m.compare("olt", magnitude, 0.6), small, m.with_sign(large, x))


@function(rows.FastTanh, f32=8192, f64=3)
def fast_tanh(m: Real, x: str) -> str:
    """Hyperbolic tangent by one instruction in f32, tanh.approx: relative error 2^-11."""
    return tanh(m, x) if m.double else m.emit.call("llvm.tanh.f32", "float", [("float", x)], flags="afn")


# Logarithms


def _log_parts(m: Real, x: str, more: str) -> tuple[str, str]:
    """log(m) and e + `more` for x = m · 2^e: for positive normal x."""
    mantissa, exponent = m.split(x, more)
    f = m.sub(mantissa, 1.0)
    if m.double:
        # log(1 + f) = 2·atanh(s) = f - s·(f - 2·s²·P(s²)), where s = f / (2 + f)
        s = m.div(f, m.add(mantissa, 1.0))
        square = m.mul(s, s)
        tail = m.mul(m.mul(m.polynomial(square, _ATANH_F64), square), 2.0)
        return m.sub(f, m.mul(s, m.sub(f, tail))), exponent
    square = m.mul(f, f)
    tail = m.fma(m.polynomial(f, _LOG), f, -0.5)
    return m.fma(tail, square, f), exponent


def _log_of(m: Real, x: str, combine: Callable[[str, str], str]) -> str:
    """`combine(log(m), e)` for x = m · 2^e, subnormals and special values included."""
    normal, more = m.normalized(x)
    result = combine(*_log_parts(m, normal, more))
    if not m.double:  # One instruction has all special values right, negative numbers among them.
        below = m.emit.instruction(f"add i32 {m.bits(x)}, -1")
        proper = m.emit.compare("ult", below, str((0xFF << 23) - 1))
        return m.select(proper, result, m.call("llvm.nvvm.lg2.approx.ftz.f", normal))
    # inf and NaN give themselves, zero -inf, negative numbers NaN: x·inf + inf is right but for zeros, and as unsigned
    # integers the bits of all of these but zero are not below those of inf.
    finite = m.emit.compare("ult", m.bits(x), str(0x7FF << 52), m.integer)
    result = m.select(finite, result, m.fma(x, INFINITY, INFINITY))
    return m.select(m.compare("oeq", x, 0.0), -INFINITY, result)


@function(rows.Log, f32=1, f64=2)
def log(m: Real, x: str) -> str:
    """Natural logarithm."""
    if not m.double:  # What the constant lacks is 0.06 ulp of the result.
        return _log_of(m, x, lambda l, e: m.fma(e, LN_2, l))
    high, low = m.split_constant(LN_2, LN_2_TAIL)
    return _log_of(m, x, lambda l, e: m.fma(e, high, m.fma(e, low, l)))


@function(rows.Log2, f32=2, f64=2)
def log2(m: Real, x: str) -> str:
    """Logarithm to base 2."""
    return _log_of(m, x, lambda l, e: m.fma(l, LOG2_E, e))


@function(rows.Log10, f32=3, f64=3)
def log10(m: Real, x: str) -> str:
    """Logarithm to base 10."""
    high, low = m.split_constant(LOG10_2, LOG10_2_TAIL)
    return _log_of(m, x, lambda l, e: m.fma(e, high, m.fma(l, LOG10_E, m.mul(e, low))))


@function(rows.Log1P, f32=2.6, f64=2)
def log1p(m: Real, x: str) -> str:
    """log(1 + x), corrected for the rounding error of 1 + x."""
    sum_ = m.add(x, 1.0)
    lost = m.sub(x, m.sub(sum_, 1.0))
    proper = m.both(m.compare("ogt", sum_, 0.0), m.compare("olt", sum_, INFINITY))
    correction = m.select(proper, m.div(lost, sum_), 0.0)
    return m.select(m.compare("oeq", x, 0.0), x, m.add(log(m, sum_), correction))


# Roots and powers


@function(rows.Sqrt, f32=1, f64=0.5)
def sqrt(m: Real, x: str) -> str:
    """Square root; f32 by sqrt.approx.ftz, f64 correctly rounded."""
    return m.sqrt(x) if m.double else m.call("llvm.nvvm.sqrt.approx.ftz.f", x)


@function(rows.RSqrt, f32=2, f64=2)
def rsqrt(m: Real, x: str) -> str:
    """1 / √x; f32 by rsqrt.approx.ftz."""
    return m.div(1.0, m.sqrt(x)) if m.double else m.call("llvm.nvvm.rsqrt.approx.ftz.f", x)


@function(rows.PowF, f32=4, f64=None)
def power(m: Real, x: str, y: str) -> str:
    """x^y with C's special cases: exp2(y · log2|x|), the logarithm as a sum of two numbers."""
    magnitude = m.absolute(x)
    log_high, log_low = _log2_exact(m, magnitude)
    # From 2^128 or 2^-150 on, more changes nothing; the limit keeps infinities out of the differences below.
    product = m.mul(y, log_high)
    error = m.fma(y, log_low, m.fma(y, log_high, m.negate(product)))
    bounded = clamp(m, product, -252.0, 252.0)
    error = m.select(m.compare("oeq", bounded, product), error, 0.0)
    count = m.round(bounded)
    fraction = m.add(m.sub(bounded, count), error)
    result = m.scale(exp2(m, fraction), count)
    return _power_special(m, x, y, magnitude, result)


def _log2_exact(m: Real, x: str) -> tuple[str, str]:
    """log2 of a positive number as a sum of two f32, with some 32 significant bits."""
    mantissa, exponent = m.split(*m.normalized(x))
    # s = (m - 1) / (m + 1) as a sum: the quotient of the rounded numbers, and what it leaves.
    f, sum_ = m.sub(mantissa, 1.0), m.add(mantissa, 1.0)
    sum_low = m.sub(mantissa, m.sub(sum_, 1.0))
    inverse = m.reciprocal(sum_)
    s = m.mul(f, inverse)
    rest = m.fma(m.negate(s), sum_low, m.fma(m.negate(s), sum_, f))
    s_low = m.mul(rest, inverse)
    # log2(m) = c·s·(1 + t), c = 2·log2(e) and t = s²/3 + s⁴·Q(s²)
    high, low = _scaled_sum(m, s, s_low, 2.885390043258667, 3.851926e-08)
    square = m.mul(s, s)
    square_low = m.fma(s, m.add(s_low, s_low), m.fma(s, s, m.negate(square)))
    t, t_low = _scaled_sum(m, square, square_low, 0.3333333432674408, -9.934107e-09)
    t_low = m.fma(m.mul(square, square), m.polynomial(square, _ATANH), t_low)
    tail = m.mul(high, t)
    tail_low = m.fma(low, t, m.fma(high, t_low, m.fma(high, t, m.negate(tail))))
    lead = m.add(high, tail)
    low = m.add(m.add(m.sub(tail, m.sub(lead, high)), tail_low), low)
    high = lead
    total = m.add(exponent, high)
    # The exponent is zero or the larger of the two, so the difference is exact.
    low = m.add(m.sub(high, m.sub(total, exponent)), low)
    result = m.add(total, low)
    return result, m.add(m.sub(total, result), low)


def _scaled_sum(m: Real, high: str, low: str, scale: float, scale_low: float) -> tuple[str, str]:
    """(high + low) · (scale + scale_low) as a sum."""
    product = m.mul(high, scale)
    return product, m.fma(high, scale_low, m.fma(low, scale, m.fma(high, scale, m.negate(product))))


def _power_special(m: Real, x: str, y: str, magnitude: str, result: str) -> str:
    half = m.mul(y, 0.5)
    whole = m.compare("oeq", m.call("llvm.trunc.f32", y), y)
    odd = m.both(whole, m.compare("one", m.call("llvm.trunc.f32", half), half))
    # Zero and infinity: zero or infinity by the sign of the exponent.
    grows = m.compare("ogt", y, 0.0)
    at_zero = m.select(grows, 0.0, INFINITY)
    at_infinity = m.select(grows, INFINITY, 0.0)
    result = m.select(m.compare("oeq", magnitude, 0.0), at_zero, result)
    result = m.select(m.compare("oeq", magnitude, INFINITY), at_infinity, result)
    negative = m.emit.compare("slt", m.bits(x), "0")
    result = m.select(m.both(negative, odd), m.negate(result), result)
    invalid = m.both(m.compare("olt", x, 0.0), m.compare("olt", magnitude, INFINITY))
    finite_y = m.compare("olt", m.absolute(y), INFINITY)
    fractional = m.both(m.both(invalid, finite_y), m.compare("une", m.call("llvm.trunc.f32", y), y))
    result = m.select(fractional, NAN, result)
    result = m.select(m.either(m.compare("uno", x, y), m.compare("uno", y, y)), NAN, result)
    one = m.either(m.compare("oeq", x, 1.0), m.compare("oeq", y, 0.0))
    minus_one = m.both(m.compare("oeq", magnitude, 1.0), m.compare("oeq", m.absolute(y), INFINITY))
    return m.select(m.either(one, minus_one), 1.0, result)


@function(rows.Erf, f32=3, f64=2)
def erf(m: Real, x: str) -> str:
    """The error function."""
    magnitude = m.absolute(x)
    square = m.mul(x, x)
    if m.double:
        return _erf_of_double(m, x, magnitude, square)
    small = m.mul(m.polynomial(square, _ERF_SMALL), x)
    bounded = m.select(m.compare("ogt", magnitude, 4.0), 4.0, magnitude)
    large = m.sub(1.0, exp2(m, m.polynomial(bounded, _ERF_LARGE)))
    return m.select(m.compare("olt", magnitude, 1.0), small, m.with_sign(large, x))


def _erf_of_double(m: Real, x: str, magnitude: str, square: str) -> str:
    small = m.mul(m.polynomial(square, _ERF_SMALL_F64), x)
    bounded = m.select(m.compare("ogt", magnitude, 6.0), 6.0, magnitude)
    place = m.div(m.sub(bounded, 2.5), m.add(bounded, 2.5))
    power = exp(m, m.negate(m.mul(bounded, bounded)))
    rest = m.div(m.mul(power, m.polynomial(place, _ERFCX_F64)), m.fma(bounded, 2.0, 1.0))
    return m.select(m.compare("olt", magnitude, 1.0), small, m.with_sign(m.sub(1.0, rest), x))
