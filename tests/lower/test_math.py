"""The formulas of the mathematical functions against float64, in units of the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kbuild.compiler.ir.types import F32, F64
from kbuild.compiler.lower.math import FORMULAS
from kbuild.compiler.lower.real import Real
from kbuild.compiler.ops import elementwise as rows
from tests.lower.host import evaluate, run

ERF = np.vectorize(math.erf, otypes=[float])


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the nearest number of `got`'s type; 0 where both are NaN or equal."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        spacing = np.spacing(np.maximum(np.abs(rounded), np.finfo(got.dtype).tiny)).astype(np.float64)
        error = np.abs(got.astype(np.float64) - exact.astype(np.float64)) / spacing
    equal = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(equal, 0, np.where(np.isnan(error), np.inf, error))


def samples(low: float, high: float, count: int = 200_000) -> np.ndarray:
    """Float32 numbers between two bounds of one sign or both: evenly spaced, and evenly spaced in the exponent."""
    random = np.random.default_rng(7)
    even = random.uniform(low, high, count)
    largest = max(abs(low), abs(high))
    spread = largest * 2.0 ** -random.uniform(0, 40, count) * random.choice([-1, 1], count)
    spread = spread[(spread >= low) & (spread <= high)]
    return np.concatenate([even, spread]).astype(np.float32)


F32_CASES = [
    (rows.Exp2, np.exp2, -125, 127),
    (rows.Exp, np.exp, -1, 1),
    (rows.ExpM1, np.expm1, -30, 88.7),
    (rows.Sinh, np.sinh, -89, 89),
    (rows.Cosh, np.cosh, -89, 89),
    (rows.Tanh, np.tanh, -12, 12),
    (rows.Log, np.log, 0, 3e38),
    (rows.Log, np.log, 0.5, 2),
    (rows.Log2, np.log2, 0, 3e38),
    (rows.Log2, np.log2, 0.5, 2),
    (rows.Log10, np.log10, 0, 3e38),
    (rows.Log10, np.log10, 0.5, 2),
    (rows.Log1P, np.log1p, -0.999999, 1e9),
    (rows.Log1P, np.log1p, -0.5, 0.5),
    (rows.Erf, ERF, -5, 5),
    (rows.Sin, np.sin, -100000, 100000),
    (rows.Sin, np.sin, -4, 4),
    (rows.Cos, np.cos, -100000, 100000),
    (rows.Cos, np.cos, -4, 4),
    (rows.Tan, np.tan, -1000, 1000),
    (rows.ATan, np.arctan, -1000, 1000),
    (rows.ATan, np.arctan, -2, 2),
    (rows.ASin, np.arcsin, -1, 1),
    (rows.ACos, np.arccos, -1, 1),
]


@pytest.mark.parametrize("row, exact, low, high", F32_CASES, ids=lambda item: getattr(item, "op_name", None))
def test_f32_within_the_stated_error(row, exact, low, high):
    x = samples(low, high)
    with np.errstate(all="ignore"):
        error = ulps(evaluate(row, F32, x), exact(x.astype(np.float64)))
    assert error.max() <= FORMULAS[row].f32, f"{error.max():.2f} ulp at {x[error.argmax()]!r}"


def test_sine_of_huge_numbers():
    x = np.array([105616.0, 1e6, 123456789.0, 1e20, 3.4028235e38, -2e30, 16777216.0 * 3], np.float32)
    exact = np.array([math.sin(_reduced(float(v))) for v in x])
    assert ulps(evaluate(rows.Sin, F32, x), exact).max() <= 2


def _reduced(x: float) -> float:
    """x modulo 2π, with 2π as an integer of 1200 bits."""
    bits = 1200
    # Machin: π = 16·atan(1/5) - 4·atan(1/239)

    def arctangent(n: int) -> int:
        total, term, k = 0, (1 << bits) // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    turn = 2 * (16 * arctangent(5) - 4 * arctangent(239))
    numerator, denominator = x.as_integer_ratio()
    return (numerator * (1 << bits) // denominator) % turn / (1 << bits)


def test_power_within_the_stated_error():
    random = np.random.default_rng(3)
    x = np.exp2(random.uniform(-60, 60, 400_000)).astype(np.float32)
    x[:100_000] = random.uniform(0.9, 1.1, 100_000)
    logs = np.log2(x.astype(np.float64))
    y = (random.uniform(-125, 125, x.size) / np.where(np.abs(logs) < 1e-3, 1, logs)).astype(np.float32)
    error = ulps(evaluate(rows.PowF, F32, x, y), np.power(x.astype(np.float64), y.astype(np.float64)))
    assert error.max() <= 4, f"{error.max():.2f} ulp at {x[error.argmax()]!r} ** {y[error.argmax()]!r}"


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e-40, 3e38, -3e38, math.inf, -math.inf, math.nan]


def test_power_of_special_values_is_that_of_c():
    x, y = (np.array(values.ravel(), np.float32) for values in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    error = ulps(evaluate(rows.PowF, F32, x, y), exact)
    assert error.max() <= 4, f"at {x[error.argmax()]!r} ** {y[error.argmax()]!r}"


def test_atan2_in_every_quadrant():
    values = np.concatenate([np.array(SPECIAL), np.random.default_rng(5).normal(0, 10, 200)])
    y, x = (np.array(grid.ravel(), np.float32) for grid in np.meshgrid(values, values))
    error = ulps(evaluate(rows.ATan2, F32, y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64)))
    assert error.max() <= 3, f"at {y[error.argmax()]!r}, {x[error.argmax()]!r}"


UNARY = [(row, exact) for row, exact, *_ in F32_CASES]


@pytest.mark.parametrize("row, exact", dict(UNARY).items(), ids=lambda item: getattr(item, "op_name", None))
def test_special_values(row, exact):
    x = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, -1e-30], np.float32)
    with np.errstate(all="ignore"):
        error = ulps(evaluate(row, F32, x), exact(x.astype(np.float64)))
    assert error.max() <= 4, f"at {x[error.argmax()]!r}"


F64_CASES = [
    (rows.Exp, np.exp, -700, 700),
    (rows.Exp2, np.exp2, -1000, 1000),
    (rows.ExpM1, np.expm1, -30, 700),
    (rows.Sinh, np.sinh, -700, 700),
    (rows.Cosh, np.cosh, -700, 700),
    (rows.Tanh, np.tanh, -20, 20),
    (rows.Log, np.log, 0, 1e300),
    (rows.Log, np.log, 0.5, 2),
    (rows.Log2, np.log2, 0.5, 2),
    (rows.Log10, np.log10, 1e-10, 1e10),
    (rows.Log1P, np.log1p, -0.9, 1e9),
    (rows.Sin, np.sin, -3, 3),
    (rows.Cos, np.cos, -1.5, 1.5),
    (rows.Tan, np.tan, -1.5, 1.5),
]


@pytest.mark.parametrize("row, exact, low, high", F64_CASES, ids=lambda item: getattr(item, "op_name", None))
def test_f64_within_the_stated_error(row, exact, low, high):
    x = np.random.default_rng(11).uniform(low, high, 200_000)
    error = ulps(evaluate(row, F64, x), exact(x.astype(np.longdouble)))
    assert error.max() <= FORMULAS[row].f64, f"{error.max():.2f} ulp at {x[error.argmax()]!r}"


def test_a_quotient_by_a_common_divisor_is_that_of_any_other():
    special = np.array([0, -0.0, 1e-45, -(2**-127), 2**-126, 1, -3, 2**126, 2**127, -3e38, np.inf, -np.inf, np.nan], np.float32)
    source = np.random.default_rng(0)
    random = np.ldexp(source.uniform(1, 2, 1000), source.integers(-140, 128, 1000)).astype(np.float32)
    divisors = np.concatenate([special, random])
    dividends, divisors = (part.ravel() for part in np.meshgrid(divisors, divisors))

    def quotients(name: str) -> np.ndarray:
        return run(lambda emit, names: getattr(Real(emit, F32), name)(*names), "float", "float", np.float32, dividends, divisors)

    found, right = quotients("div_by_common"), quotients("div")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    numbers = np.isfinite(right) & (np.abs(right) >= 2.0**-126)
    np.testing.assert_array_max_ulp(found[numbers], right[numbers], 2)
    np.testing.assert_array_equal(found[np.isinf(right)], right[np.isinf(right)])
