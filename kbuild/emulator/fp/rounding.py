"""Rounding of exact values, the one step in which arithmetic may lose anything.

An exact value is `(high + low) * 2**exponent`: `high` a float64, `low` a remainder of at most half a unit in
the last place of `high`, of which only the sign matters.  So sums, products, quotients and roots of float64
numbers are exact enough for any rounding to any format.
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator.fp.formats import Format


def round_exact(
    high: np.ndarray, low: np.ndarray | float, exponent: np.ndarray | int, to: Format, rounding: str
) -> np.ndarray:
    """The float64 values that round `(high + low) * 2**exponent` (finite, not 0) to a format.

    `rounding` is `rn` (nearest, ties to even), `rna` (nearest, ties away from zero), `rz`, `rm` (down) or
    `rp` (up).  Overflow gives infinity or the largest finite number, as the rounding requires; also for
    formats without infinities.
    """
    negative = np.signbit(high)
    magnitude = np.abs(high)
    rest = np.where(negative, -np.asarray(low), low)
    fraction, size = np.frexp(magnitude)
    size = size.astype(np.int64) - (
        (fraction == 0.5) & (rest < 0)
    )  # just below a power of two the places are finer
    # Power of two of the last place, before scaling
    unit = np.maximum(size + exponent - to.precision, to.lowest) - exponent
    # A value far below the smallest number is only "something above zero"; shifting it that far would lose
    # even that.
    scaled = np.where(
        unit - size > 60, 0.25, np.ldexp(magnitude, np.clip(-unit, -2000, 2000).astype(np.int32))
    )
    whole = np.floor(scaled)
    part = scaled - whole
    below = (part == 0) & (rest < 0)
    whole = whole - below
    inexact = (part != 0) | (rest != 0)
    against_half = np.where(below, 1, np.where(part == 0.5, np.sign(rest), np.sign(part - 0.5)))
    whole = whole + _goes_up(rounding, negative, whole, inexact, against_half)
    result = np.ldexp(whole, np.clip(unit + exponent, -1074, 2000).astype(np.int32))
    over = result > to.largest
    if over.any():
        stays = {"rz": np.ones_like(negative), "rm": ~negative, "rp": negative}.get(
            rounding, np.zeros_like(negative)
        )
        result = np.where(over, np.where(stays, to.largest, np.inf), result)
    return np.where(negative, -result, result)


def _goes_up(
    rounding: str, negative: np.ndarray, whole: np.ndarray, inexact: np.ndarray, against_half: np.ndarray
) -> np.ndarray:
    """Where a magnitude between `whole` and `whole + 1` becomes the latter."""
    if rounding == "rn":
        return (against_half > 0) | ((against_half == 0) & inexact & (np.fmod(whole, 2) == 1))
    if rounding == "rna":
        return (against_half >= 0) & inexact
    if rounding == "rz":
        return np.zeros_like(negative)
    if rounding == "rm":
        return negative & inexact
    if rounding == "rp":
        return ~negative & inexact
    raise ValueError(f"unknown rounding {rounding!r}")


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and what rounding lost: `a + b` exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product and what rounding lost, for factors of moderate size (Dekker, Veltkamp)."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    product = a * b
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of a significand, of 26 bits each."""
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


def to_odd(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """`high + low` rounded to odd: later rounding to two bits less or more gives what rounding the exact
    value would."""
    even = (high.view(np.int64) & 1) == 0
    moved = np.nextafter(high, np.where(low > 0, np.inf, -np.inf))
    return np.where((low != 0) & even, moved, high)
