"""The mathematical functions that tl itself lacks, made of operations.

A function takes fp32 or fp64; integers and half precision convert to fp32 as they would for a C function.
"""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops import elementwise as ops
from kbuild.compiler.semantic.arith import (
    add_values,
    bit_and,
    bit_or,
    compare,
    invert,
    multiply,
    negate,
    shift_left,
    shift_right,
    subtract,
)
from kbuild.compiler.semantic.cast import bitcast_to, cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.math import abs as absolute
from kbuild.compiler.semantic.promote import fitting, same_shape, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import FP32, FP64, INT1, INT32, INT64, UINT32
from kbuild.compiler.semantic.values import Tensor


def _floating(ctx: BuildContext, x: Any, name: str = "x") -> Tensor:
    x = to_tensor(ctx, x, name)
    return x if x.dtype in (FP32, FP64) else cast_to(ctx, x, FP32)


def _unary(name: str, op: Any, *also: str) -> None:
    def function(ctx: BuildContext, x):
        x = _floating(ctx, x)
        return ctx.tensor(op(x.value), x.dtype, x.shape)

    function.__doc__ = op.__doc__ or f"{name}(x), element by element."
    for key in (name, *also):
        builtin("libdevice", key)(function)


for _name, _op in (
    ("acos", ops.ACos),
    ("asin", ops.ASin),
    ("atan", ops.ATan),
    ("cosh", ops.Cosh),
    ("sinh", ops.Sinh),
    ("ceil", ops.Ceil),
    ("floor", ops.Floor),
    ("trunc", ops.TruncateF),
    ("expm1", ops.ExpM1),
    ("log1p", ops.Log1P),
):
    _unary(_name, _op)
_unary("cos", ops.Cos, "fast_cosf")
_unary("tan", ops.Tan, "fast_tanf")
_unary("log10", ops.Log10, "fast_log10f")
_unary("sin", ops.Sin, "fast_sinf")
_unary("erf", ops.Erf, "fast_erf")
_unary("exp", ops.PreciseExp)
_unary("fast_expf", ops.Exp)
_unary("exp2", ops.Exp2)
_unary("log", ops.Log, "fast_logf")
_unary("log2", ops.Log2, "fast_log2f")
_unary("tanh", ops.Tanh)
_unary("fast_tanh", ops.FastTanh, "fast_tanhf")
_unary("sqrt", ops.PreciseSqrt, "sqrt_rn")
_unary("rsqrt", ops.RSqrt)
_unary("rint", ops.RoundEven, "nearbyint")
_unary("round", ops.Round)


def _predicate(name: str, op: Any, *also: str) -> None:
    def function(ctx: BuildContext, x):
        x = _floating(ctx, x)
        result = ctx.tensor(op(x.value), INT1, x.shape)
        return cast_to(ctx, result, INT32)

    function.__doc__ = f"Whether x {name}, as int32."
    for key in also:
        builtin("libdevice", key)(function)


_predicate("is NaN", ops.IsNan, "isnan")
_predicate("is infinite", ops.IsInf, "isinf")
_predicate("is finite", ops.IsFinite, "finitef", "isfinited")


def _binary(name: str, op: Any, *also: str) -> None:
    def function(ctx: BuildContext, x, y):
        x, y = fitting(ctx, _floating(ctx, x), _floating(ctx, y, "y"))
        return ctx.tensor(op(x.value, y.value), x.dtype, x.shape)

    function.__doc__ = op.__doc__ or f"{name}(x, y), element by element."
    for key in (name, *also):
        builtin("libdevice", key)(function)


_binary("pow", ops.PowF, "fast_powf")
_binary("atan2", ops.ATan2)
_binary("copysign", ops.CopySign)
_binary("div_rn", ops.PreciseDivF)
_binary("fast_dividef", ops.DivF)


@builtin("libdevice")
def fma(ctx: BuildContext, x, y, z):
    """x * y + z, rounded once."""
    x, y = fitting(ctx, _floating(ctx, x), _floating(ctx, y, "y"))
    z, x = fitting(ctx, _floating(ctx, z, "z"), x)
    z, y = fitting(ctx, z, y)
    return ctx.tensor(ops.Fma(x.value, y.value, z.value), x.dtype, x.shape)


@builtin("libdevice", "abs")
def abs_(ctx: BuildContext, x):
    """The absolute value."""
    return absolute(ctx, x)


@builtin("libdevice")
def signbit(ctx: BuildContext, x):
    """1 for a negative number or negative zero, else 0."""
    x = _floating(ctx, x)
    bits = bitcast_to(ctx, x, INT32 if x.dtype == FP32 else INT64)
    return cast_to(ctx, compare(ctx, "<", bits, 0), INT32)


@builtin("libdevice")
def fdim(ctx: BuildContext, x, y):
    """x - y where that is positive, else zero."""
    difference = subtract(ctx, _floating(ctx, x), _floating(ctx, y, "y"))
    zero = ctx.constant_like(0.0, difference.dtype, difference)  # type: ignore[arg-type]
    return ctx.tensor(ops.MaximumF(difference.value, zero.value), difference.dtype, difference.shape)


@builtin("libdevice")
def popc(ctx: BuildContext, x):
    """The number of one bits, as int32."""
    x = to_tensor(ctx, x, "x")
    return cast_to(ctx, ctx.tensor(ops.CountOnes(x.value), x.dtype, x.shape), INT32)


@builtin("libdevice")
def clz(ctx: BuildContext, x):
    """The number of leading zero bits, as int32."""
    x = to_tensor(ctx, x, "x")
    return cast_to(ctx, ctx.tensor(ops.CountLeadingZeros(x.value), x.dtype, x.shape), INT32)


@builtin("libdevice")
def mulhi(ctx: BuildContext, x, y):
    """The upper half of the unsigned product."""
    x, y = fitting(ctx, to_tensor(ctx, x, "x"), to_tensor(ctx, y, "y"))
    if x.dtype.is_int_signed():
        ctx.error(
            f"libdevice.mulhi of signed integers is not available, x is {x.dtype}", "x", help="use tl.umulhi"
        )
    return ctx.tensor(ops.MulHiUI(x.value, y.value), x.dtype, x.shape)


@builtin("libdevice")
def float_as_int(ctx: BuildContext, x):
    """The bits of an fp32 number as int32."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), INT32)


@builtin("libdevice")
def float_as_uint(ctx: BuildContext, x):
    """The bits of an fp32 number as uint32."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), UINT32)


@builtin("libdevice")
def int_as_float(ctx: BuildContext, x):
    """The fp32 number with these bits."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), FP32)


@builtin("libdevice")
def saturatef(ctx: BuildContext, x):
    """x clamped to 0 … 1; NaN gives 0."""
    x = _floating(ctx, x)
    zero, one = (ctx.constant_like(value, x.dtype, x) for value in (0.0, 1.0))  # type: ignore[arg-type]
    above = ctx.tensor(ops.MaxNumF(x.value, zero.value), x.dtype, x.shape)
    return ctx.tensor(ops.MinNumF(above.value, one.value), x.dtype, x.shape)


# Functions of others


def _constant(ctx: BuildContext, value: float, like: Tensor) -> Tensor:
    return ctx.constant_like(value, like.dtype, like)  # type: ignore[arg-type]


def _apply(ctx: BuildContext, op: Any, *args: Tensor) -> Tensor:
    return ctx.tensor(op(*(item.value for item in args)), args[0].dtype, args[0].shape)


def _choose(ctx: BuildContext, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ctx.tensor(ops.Select(condition.value, x.value, y.value), x.dtype, x.shape)


@builtin("libdevice", "fast_exp10f")
@builtin("libdevice")
def exp10(ctx: BuildContext, x):
    """10 to the power x: 2^(x · log2 10), corrected for what rounding that product has lost."""
    x = _floating(ctx, x)
    log = _constant(
        ctx, 3.321928024291992, x
    )  # The first 24 bits: their product with x is known to twice as many.
    product = multiply(ctx, x, log)
    lost = _apply(ctx, ops.Fma, x, log, negate(ctx, product))
    lost = _apply(ctx, ops.Fma, x, _constant(ctx, 7.059537016037032e-08, x), lost)
    power = _apply(ctx, ops.Exp2, product)
    corrected = _apply(ctx, ops.Fma, power, multiply(ctx, lost, 0.6931471805599453), power)
    is_number = bit_and(
        ctx, compare(ctx, "<", _apply(ctx, ops.AbsF, x), 400.0), compare(ctx, "<", power, float("inf"))
    )
    return _choose(ctx, is_number, corrected, power)


@builtin("libdevice")
def fmod(ctx: BuildContext, x, y):
    """What truncated division leaves of x, exactly as far as the quotient has 53 bits; of the sign of x."""
    x, y = fitting(ctx, _floating(ctx, x), _floating(ctx, y, "y"))
    size, divisor = (_apply(ctx, ops.AbsF, cast_to(ctx, value, FP64)) for value in (x, y))
    quotient = _apply(ctx, ops.TruncateF, _apply(ctx, ops.PreciseDivF, size, divisor))
    rest = _apply(ctx, ops.Fma, negate(ctx, quotient), divisor, size)
    # The quotient may have been rounded up to the next whole number.
    rest = _choose(ctx, compare(ctx, "<", rest, 0.0), add_values(ctx, rest, divisor), rest)
    smaller = compare(ctx, "<", size, divisor)  # An infinite divisor, too.
    return _apply(ctx, ops.CopySign, cast_to(ctx, _choose(ctx, smaller, size, rest), x.dtype), x)


@builtin("libdevice")
def hypot(ctx: BuildContext, x, y):
    """The square root of x² + y², without overflow on the way."""
    x, y = fitting(ctx, _floating(ctx, x), _floating(ctx, y, "y"))
    if x.dtype == FP32:
        wide, other = cast_to(ctx, x, FP64), cast_to(ctx, y, FP64)
        return cast_to(
            ctx,
            _apply(ctx, ops.PreciseSqrt, _apply(ctx, ops.Fma, wide, wide, multiply(ctx, other, other))),
            FP32,
        )
    x, y = _apply(ctx, ops.AbsF, x), _apply(ctx, ops.AbsF, y)
    large, small = _apply(ctx, ops.MaxNumF, x, y), _apply(ctx, ops.MinNumF, x, y)
    ratio = _apply(ctx, ops.PreciseDivF, small, large)
    root = multiply(
        ctx,
        large,
        _apply(ctx, ops.PreciseSqrt, _apply(ctx, ops.Fma, ratio, ratio, _constant(ctx, 1.0, ratio))),
    )
    # Zero and infinity have no ratio; NaN comes of the sum.
    plain = bit_or(ctx, compare(ctx, "==", large, 0.0), compare(ctx, "==", large, float("inf")))
    return _choose(ctx, plain, large, add_values(ctx, root, multiply(ctx, add_values(ctx, x, y), 0.0)))


@builtin("libdevice", "scalbn")
@builtin("libdevice")
def ldexp(ctx: BuildContext, x, y):
    """x · 2^y for a whole y, rounded once where the result is subnormal, at most 2^±2000."""
    x = _floating(ctx, x)
    power = cast_to(ctx, to_tensor(ctx, y, "y"), INT32)
    value, power = same_shape(ctx, cast_to(ctx, x, FP64), power)
    limit = ctx.constant_like(2000, INT32, power)
    power = _apply(ctx, ops.MaxSI, _apply(ctx, ops.MinSI, power, limit), negate(ctx, limit))
    first = shift_right(ctx, power, 1)
    for part in (first, subtract(ctx, power, first)):  # Each fits the exponent of a double.
        bits = shift_left(ctx, cast_to(ctx, add_values(ctx, part, 1023), INT64), 52)
        value = multiply(ctx, value, bitcast_to(ctx, bits, FP64))
    return cast_to(ctx, value, x.dtype)


@builtin("libdevice", "_cbrt_of_single")
def cbrt(ctx: BuildContext, x):
    """The cube root of fp32 numbers: a power, and a step of Newton's method in fp64."""
    size = _apply(ctx, ops.AbsF, x)
    root = _apply(ctx, ops.PowF, size, _constant(ctx, 1.0 / 3.0, size))
    wide = cast_to(ctx, root, FP64)
    quotient = _apply(ctx, ops.PreciseDivF, cast_to(ctx, size, FP64), multiply(ctx, wide, wide))
    third = _constant(ctx, 1.0 / 3.0, wide)
    nearer = cast_to(ctx, _apply(ctx, ops.Fma, subtract(ctx, quotient, wide), third, wide), x.dtype)
    # Zero and infinity have no quotient.
    proper = bit_and(ctx, compare(ctx, ">", size, 0.0), compare(ctx, "<", size, float("inf")))
    return _apply(ctx, ops.CopySign, _choose(ctx, proper, nearer, root), x)


_LARGE = 2.0**30
"""From here on, squares may overflow, and what is added to them does not matter."""


def _log_of_double(ctx: BuildContext, x: Tensor) -> Tensor:
    """log(2x), for a 2x that may overflow."""
    return add_values(ctx, _apply(ctx, ops.Log, x), 0.6931471805599453)


@builtin("libdevice")
def asinh(ctx: BuildContext, x):
    """The inverse hyperbolic sine: log1p(a + a² / (1 + √(a² + 1))) of the size a, exact to a few ulp near
    zero."""
    x = _floating(ctx, x)
    size = _apply(ctx, ops.AbsF, x)
    square = multiply(ctx, size, size)
    root = _apply(ctx, ops.PreciseSqrt, add_values(ctx, square, 1.0))
    rest = _apply(ctx, ops.PreciseDivF, square, add_values(ctx, root, 1.0))
    near = _apply(ctx, ops.Log1P, add_values(ctx, size, rest))
    result = _choose(ctx, compare(ctx, ">", size, _LARGE), _log_of_double(ctx, size), near)
    return _apply(ctx, ops.CopySign, result, x)


@builtin("libdevice")
def acosh(ctx: BuildContext, x):
    """The inverse hyperbolic cosine: log1p(t + √(2t + t²)), t = x - 1; NaN below one."""
    x = _floating(ctx, x)
    t = subtract(ctx, x, 1.0)
    root = _apply(ctx, ops.PreciseSqrt, _apply(ctx, ops.Fma, t, t, add_values(ctx, t, t)))
    near = _apply(ctx, ops.Log1P, add_values(ctx, t, root))
    result = _choose(ctx, compare(ctx, ">", x, _LARGE), _log_of_double(ctx, x), near)
    return _choose(ctx, compare(ctx, "<", x, 1.0), _constant(ctx, float("nan"), x), result)


@builtin("libdevice")
def atanh(ctx: BuildContext, x):
    """The inverse hyperbolic tangent: half of log1p(2a / (1 - a)) of the size a."""
    x = _floating(ctx, x)
    size = _apply(ctx, ops.AbsF, x)
    ratio = _apply(
        ctx, ops.PreciseDivF, add_values(ctx, size, size), subtract(ctx, _constant(ctx, 1.0, x), size)
    )
    return _apply(ctx, ops.CopySign, multiply(ctx, _apply(ctx, ops.Log1P, ratio), 0.5), x)


_ERFC = (
    -0.67179406,
    1.3452865,
    0.189371,
    -0.3751648,
    -0.15782303,
    0.28222984,
    0.1094776,
    -0.29396033,
    -0.010990743,
    0.26515025,
    -0.1443929,
)
"""log(erfc(x) · e^(x²) / t) in t - 1/2, where t = 1 / (1 + x/2), for x from 0 to 10."""


@builtin("libdevice", "_erfc_of_single")
def erfc(ctx: BuildContext, x):
    """One minus the error function: t · e^(p(t) - x²), t = 1 / (1 + |x|/2), where it is small; 16 ulp, of
    fp32."""
    size = _apply(ctx, ops.MinimumF, _apply(ctx, ops.AbsF, x), _constant(ctx, 10.5, x))
    one = _constant(ctx, 1.0, x)
    t = _apply(ctx, ops.PreciseDivF, one, _apply(ctx, ops.Fma, size, _constant(ctx, 0.5, x), one))
    power = _constant(ctx, _ERFC[-1], x)
    for coefficient in reversed(_ERFC[:-1]):
        power = _apply(ctx, ops.Fma, power, subtract(ctx, t, 0.5), _constant(ctx, coefficient, x))
    square = multiply(ctx, size, size)
    lost = _apply(ctx, ops.Fma, size, size, negate(ctx, square))
    tail = multiply(
        ctx,
        multiply(ctx, t, _apply(ctx, ops.PreciseExp, subtract(ctx, power, lost))),
        _apply(ctx, ops.PreciseExp, negate(ctx, square)),
    )
    far = _choose(ctx, compare(ctx, "<", x, 0.0), subtract(ctx, _constant(ctx, 2.0, x), tail), tail)
    return _choose(ctx, compare(ctx, "<", size, 0.5), subtract(ctx, one, _apply(ctx, ops.Erf, x)), far)


@builtin("libdevice", "_normcdf_of_single")
def normcdf(ctx: BuildContext, x):
    """The normal distribution function, half of erfc(-x / √2), corrected for what rounding that argument has
    lost; 20 ulp, of fp32."""
    high, low = -0.7071067690849304, -1.2101617485882343e-08
    point = multiply(ctx, x, high)
    lost = _apply(ctx, ops.Fma, x, _constant(ctx, high, x), negate(ctx, point))
    lost = _apply(ctx, ops.Fma, x, _constant(ctx, low, x), lost)
    slope = multiply(
        ctx, _apply(ctx, ops.PreciseExp, negate(ctx, multiply(ctx, point, point))), -1.1283791670955126
    )
    # Beyond, the slope is zero, and an infinite x has lost NaN.
    lost = _choose(ctx, compare(ctx, "<", _apply(ctx, ops.AbsF, x), 20.0), lost, _constant(ctx, 0.0, x))
    return multiply(ctx, _apply(ctx, ops.Fma, slope, lost, erfc(ctx, point)), 0.5)


@builtin("libdevice")
def uint_as_float(ctx: BuildContext, x):
    """The fp32 number with these bits."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), FP32)


@builtin("libdevice")
def double_as_longlong(ctx: BuildContext, x):
    """The bits of an fp64 number as int64."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), INT64)


@builtin("libdevice")
def longlong_as_double(ctx: BuildContext, x):
    """The fp64 number with these bits."""
    return bitcast_to(ctx, to_tensor(ctx, x, "x"), FP64)


@builtin("libdevice")
def ffs(ctx: BuildContext, x):
    """The place of the lowest one bit, counted from 1; 0 where there is none; as int32."""
    x = to_tensor(ctx, x, "x")
    below = bit_and(ctx, invert(ctx, x), subtract(ctx, x, 1))  # ones where x ends in zeros
    place = add_values(ctx, popc(ctx, below), 1)
    zero = ctx.constant_like(0, INT32, x)
    return ctx.tensor(ops.Select(compare(ctx, "==", x, 0).value, zero.value, place.value), INT32, x.shape)
