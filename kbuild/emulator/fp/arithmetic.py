"""The basic operations, each the exact result rounded once.

Arrays are float16, float32 or float64, all of one type; the result has that type too.  `target` names a
narrower format to round to instead (such as `bf16`, whose operands come widened to float32).
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator.fp.formats import FORMATS, Format
from kbuild.emulator.fp.rounding import round_exact, to_odd, two_product, two_sum

_NAMES = {np.dtype("f2"): "f16", np.dtype("f4"): "f32", np.dtype("f8"): "f64"}
_FAR = 300
"""Powers of two that separate a number from another one so that only its sign can matter."""


@np.errstate(all="ignore")
def fma(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    rounding: str = "rn",
    flush: bool = False,
    target: str | None = None,
) -> np.ndarray:
    """`a * b + c`.  `flush` treats subnormal numbers, operands and result, as zero."""
    to = _format(a, target)
    if flush:
        a, b, c = (_flushed(value, FORMATS[_NAMES[value.dtype]]) for value in (a, b, c))
    result = _nearest(a, b, c, to) if rounding == "rn" and a.dtype.itemsize < 8 else None
    if result is None:
        a, b, c = np.broadcast_arrays(a, b, c)
        result = _exact_fma(a, b, c, to, rounding)
    return _flushed(result, to) if flush else result


def add(
    a: np.ndarray, b: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None
) -> np.ndarray:
    """`a + b`."""
    return fma(a, np.ones_like(a), b, rounding, flush, target)


def sub(
    a: np.ndarray, b: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None
) -> np.ndarray:
    """`a - b`."""
    return fma(a, np.ones_like(a), -b, rounding, flush, target)


def mul(
    a: np.ndarray, b: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None
) -> np.ndarray:
    """`a * b`."""
    zero = np.copysign(np.zeros_like(a), a) * np.copysign(
        np.ones_like(b), b
    )  # so that the sign of a zero product stays
    return fma(a, b, zero, rounding, flush, target)


@np.errstate(all="ignore")
def div(
    a: np.ndarray, b: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None
) -> np.ndarray:
    """`a / b`."""
    to = _format(a, target)
    if flush:
        a, b = _flushed(a, FORMATS[_NAMES[a.dtype]]), _flushed(b, FORMATS[_NAMES[b.dtype]])
    result = np.array(a.astype(np.float64) / b.astype(np.float64))
    ordinary = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    over, over_size = np.frexp(a[ordinary].astype(np.float64))
    under, under_size = np.frexp(b[ordinary].astype(np.float64))
    quotient = over / under
    product, lost = two_product(quotient, under)
    remainder = ((over - product) - lost) / under
    result[ordinary] = round_exact(quotient, remainder, over_size.astype(np.int64) - under_size, to, rounding)
    result = result.astype(a.dtype)
    return _flushed(result, to) if flush else result


def rcp(a: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None) -> np.ndarray:
    """`1 / a`."""
    return div(np.ones_like(a), a, rounding, flush, target)


@np.errstate(all="ignore")
def sqrt(a: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None) -> np.ndarray:
    """The square root."""
    to = _format(a, target)
    if flush:
        a = _flushed(a, FORMATS[_NAMES[a.dtype]])
    result = np.array(np.sqrt(a.astype(np.float64)))
    ordinary = np.isfinite(a) & (a > 0)
    value, size = np.frexp(a[ordinary].astype(np.float64))
    odd = size & 1
    value, size = np.ldexp(value, odd), (size - odd).astype(np.int64)
    root = np.sqrt(value)
    product, lost = two_product(root, root)
    result[ordinary] = round_exact(root, (value - product) - lost, size // 2, to, rounding)
    return result.astype(a.dtype)


def _format(a: np.ndarray, target: str | None) -> Format:
    return FORMATS[target or _NAMES[a.dtype]]


def _flushed(values: np.ndarray, form: Format) -> np.ndarray:
    small = np.abs(values) < form.smallest_normal
    return np.where(small, np.copysign(values.dtype.type(0), values), values) if small.any() else values


def _nearest(a: np.ndarray, b: np.ndarray, c: np.ndarray, to: Format) -> np.ndarray | None:
    """The fused operation through float64, to the operands' own type; None where that could round twice.

    The product is exact in float64.  The sum is rounded twice: that is wrong only where it lies
    exactly between two neighbours of the narrow type, or among its subnormal numbers.
    """
    if to.storage != a.dtype:
        return None
    total = a.astype(np.float64) * b + c
    between = (total.view(np.int64) & ((1 << (53 - to.precision)) - 1)) == 1 << (52 - to.precision)
    small = np.abs(total) < to.smallest_normal
    if (between | (small & (total != 0))).any():
        return None
    return total.astype(a.dtype)


def _exact_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, to: Format, rounding: str) -> np.ndarray:
    """The fused operation for all values and roundings."""
    result = np.array(a.astype(np.float64) * b + c)
    product_zero = (a == 0) | (b == 0)
    ordinary = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ~(product_zero & (c == 0))
    if ordinary.any():
        x, y, z = (value[ordinary].astype(np.float64) for value in (a, b, c))
        result[ordinary] = _fused_sum(x, y, z, to, rounding)
    if rounding == "rm":  # zeros of opposite sign give the negative one
        signs = np.signbit(a) ^ np.signbit(b)
        opposite = product_zero & (c == 0) & (signs != np.signbit(c))
        result = np.where(opposite, -0.0, result)
    return result.astype(a.dtype)


def _fused_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray, to: Format, rounding: str) -> np.ndarray:
    """`a * b + c` for finite numbers, not all zero: scaled to where nothing over- or underflows, then
    rounded."""
    (a, a_size), (b, b_size), (c, c_size) = (np.frexp(value) for value in (a, b, c))
    scale = a_size.astype(np.int64) + b_size
    scale = np.where((a == 0) | (b == 0), c_size, scale)
    apart = np.where(c == 0, 0, np.clip(c_size - scale, -_FAR, None))
    exponent = np.where(apart > _FAR, c_size - _FAR, scale)
    c = np.ldexp(c, np.minimum(apart, _FAR).astype(np.int32))
    product, product_low = two_product(a, b)
    middle, low = two_sum(c, product_low)
    high, middle = two_sum(product, middle)
    high, rest = two_sum(high, to_odd(*two_sum(middle, low)))  # Boldo and Melquiond: as good as the exact sum
    zero = (high == 0) & (rest == 0)
    rounded = round_exact(np.where(zero, 1.0, high), rest, exponent, to, rounding)
    return np.where(zero, -0.0 if rounding == "rm" else 0.0, rounded)
