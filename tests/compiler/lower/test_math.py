"""The formulas of the mathematical functions against float64, in units of the last place."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.ir.types import F32, F64
from kbuild.compiler.lower.math.functions import FORMULAS
from kbuild.compiler.lower.math.real import Real
from kbuild.compiler.ops import elementwise as rows
from kbuild.emulator import run as emulate
from tests.compiler.lower.host import evaluate, every_exponent, run, ulps
from tests.compiler.lower.kernels import ptx

ERF = np.vectorize(math.erf, otypes=[float])


def samples(dtype: type) -> np.ndarray:
    """Numbers of all exponents, more where functions of all kinds bend, and those next to multiples of a
    quarter turn."""
    random = np.random.default_rng(3)
    near = [random.uniform(-bound, bound, 20_000) for bound in (1, 4, 90, 720)] + [
        random.uniform(0.5, 2, 20_000)
    ]
    turns = (random.integers(1, 636_619, 20_000) * np.longdouble("1.5707963267948966192313")).astype(dtype)
    everywhere = every_exponent(dtype, 200 if dtype is np.float32 else 30)
    return np.concatenate([everywhere, *(part.astype(dtype) for part in near), turns])


F32_SAMPLES, F64_SAMPLES = samples(np.float32), samples(np.float64)
EXACT = {
    rows.Exp: np.exp,
    rows.PreciseExp: np.exp,
    rows.Exp2: np.exp2,
    rows.ExpM1: np.expm1,
    rows.Sinh: np.sinh,
    rows.Cosh: np.cosh,
    rows.Tanh: np.tanh,
    rows.Log: np.log,
    rows.Log2: np.log2,
    rows.Log10: np.log10,
    rows.Log1P: np.log1p,
    rows.Erf: ERF,
    rows.Sin: np.sin,
    rows.Cos: np.cos,
    rows.Tan: np.tan,
    rows.ATan: np.arctan,
    rows.ASin: np.arcsin,
    rows.ACos: np.arccos,
    rows.Sqrt: np.sqrt,
    rows.RSqrt: lambda x: 1 / np.sqrt(x),
}
FLUSHING = (rows.Exp, rows.PreciseExp, rows.Exp2, rows.Sqrt, rows.RSqrt)
"""Functions that treat subnormal numbers of fp32 as zero, and return zero for them."""
OFF = (0, 1, -1)
"""How the approximate instructions are off: by one rounding, and as far as they may be."""


def errors(row: type, x: np.ndarray, off: int) -> np.ndarray:
    """The errors in ulp of a function in fp32, where zero is right for a subnormal number if the function
    takes it so."""
    tiny = np.finfo(np.float32).tiny
    with np.errstate(all="ignore"):
        exact = EXACT[row](x.astype(np.float64))
        found = evaluate(row, F32, x, off=off)
        error = ulps(found, exact)
        if row in FLUSHING:
            small = np.abs(x) < tiny
            error[small] = np.minimum(
                error[small], ulps(found[small], EXACT[row](np.copysign(0.0, x[small]).astype(np.float64)))
            )
            error[(np.abs(exact) < tiny * (1 + 2.0**-20)) & (found == 0)] = 0
    return error


@pytest.mark.parametrize("row", EXACT, ids=lambda row: row.op_name)
def test_f32_within_the_stated_error_over_all_arguments(row):
    for off in OFF:
        error = errors(row, F32_SAMPLES, off)
        worst = error.argmax()
        assert error[worst] <= FORMULAS[row].f32, (
            f"{error[worst]:.2f} ulp at {F32_SAMPLES[worst]!r}, instructions off by {off}"
        )


def test_every_formula_is_held_against_its_stated_error():
    assert {*EXACT, rows.PowF, rows.ATan2, rows.FastTanh} == set(FORMULAS), (
        "FastTanh is an instruction, or Tanh in f64"
    )


def test_the_error_of_exp_grows_with_its_argument():
    """More closely in the last binade, where it is largest."""
    low, high = np.array([64, 88.8], np.float32).view(np.uint32)
    last = np.arange(low, high, 19, dtype=np.uint32).view(np.float32)
    x = np.concatenate([F32_SAMPLES[np.abs(F32_SAMPLES) < 1e4], last, -last])
    for off in OFF:
        assert (errors(rows.Exp, x, off) <= np.fmin(2.1 + 1.23 * np.abs(x), FORMULAS[rows.Exp].f32)).all()
        assert errors(rows.PreciseExp, x, off).max() <= FORMULAS[rows.PreciseExp].f32


def _rounded_to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("row", [rows.Exp, rows.Exp2, rows.Tan, rows.RSqrt], ids=lambda row: row.op_name)
def test_half_precision_is_as_good_as_rounded_once(row):
    """All numbers of both types, by the functions that are least exact in fp32: 0.51 ulp."""
    tiny = np.finfo(np.float32).tiny
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    brain = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        for off in OFF[1:]:
            exact = EXACT[row](half.astype(np.float64))
            assert ulps(evaluate(row, F32, half, off=off).astype(np.float16), exact).max() <= 0.51
            exact, found = (
                EXACT[row](brain.astype(np.float64)),
                _rounded_to_bf16(evaluate(row, F32, brain, off=off)),
            )
            proper = (
                np.isfinite(exact)
                & (np.abs(exact) > tiny)
                & (np.abs(exact) < 3.38e38)
                & (np.abs(brain) >= tiny)
            )
            assert (ulps(found, exact)[proper] / 2**16).max() <= 0.51


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


def test_the_double_that_is_nearest_to_a_multiple_of_a_quarter_turn():
    """6381956970095103 · 2^797 is 5e-19 from one: 61 bits of the fraction are zero."""
    x = np.array([6381956970095103.0 * 2.0**797, -6381956970095103.0 * 2.0**797])
    for row, exact in ((rows.Sin, np.sin), (rows.Cos, np.cos), (rows.Tan, np.tan)):
        right = exact(x.astype(np.longdouble))
        assert np.abs(right).min() < 1e-18 or np.abs(right).min() > 0.9
        assert ulps(evaluate(row, F64, x), right).max() <= FORMULAS[row].f64


def test_power_within_the_stated_error():
    random = np.random.default_rng(3)
    x, y = (random.permutation(every_exponent(np.float32, 400)) for _ in range(2))
    x = np.abs(x)
    x[:60_000], x[60_000:90_000] = random.uniform(0.5, 2, 60_000), 1 + random.normal(0, 1e-3, 30_000)
    with np.errstate(all="ignore"):
        logs = np.log2(x.astype(np.float64))
        y[:150_000] = (random.uniform(-151, 129, x.size) / np.where(logs == 0, 1, logs))[:150_000]
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        for off in OFF:
            error = ulps(evaluate(rows.PowF, F32, x, y, off=off), exact)
            worst = error.argmax()
            assert error[worst] <= FORMULAS[rows.PowF].f32, (
                f"{error[worst]:.2f} ulp at {x[worst]!r} ** {y[worst]!r}"
            )


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    3.0,
    -3.0,
    0.5,
    -0.5,
    1e-40,
    3e38,
    -3e38,
    math.inf,
    -math.inf,
    math.nan,
]


def test_power_of_special_values_is_that_of_c():
    x, y = (np.array(values.ravel(), np.float32) for values in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    error = ulps(evaluate(rows.PowF, F32, x, y), exact)
    assert error.max() <= 4, f"at {x[error.argmax()]!r} ** {y[error.argmax()]!r}"


def test_atan2_in_every_quadrant():
    values = np.concatenate([np.array(SPECIAL), np.random.default_rng(5).normal(0, 10, 200)])
    y, x = (np.array(grid.ravel(), np.float32) for grid in np.meshgrid(values, values))
    random = np.random.default_rng(6)
    y, x = (np.concatenate([part, random.permutation(every_exponent(np.float32, 200))]) for part in (y, x))
    with np.errstate(all="ignore"):
        near = x * np.exp2(random.uniform(-30, 30, x.size)).astype(np.float32)
        y = np.where(np.arange(x.size) % 2, y, near)
        for off in OFF:
            error = ulps(
                evaluate(rows.ATan2, F32, y, x, off=off),
                np.arctan2(y.astype(np.float64), x.astype(np.float64)),
            )
            assert error.max() <= FORMULAS[rows.ATan2].f32, f"at {y[error.argmax()]!r}, {x[error.argmax()]!r}"


@pytest.mark.parametrize(
    "row", [row for row in [*EXACT, rows.FastTanh] if FORMULAS[row].f64], ids=lambda row: row.op_name
)
def test_f64_within_the_stated_error_over_all_arguments(row):
    exact = {rows.FastTanh: np.tanh, **EXACT}[row]
    x = F64_SAMPLES
    with np.errstate(all="ignore"):
        error = ulps(evaluate(row, F64, x), exact(x.astype(np.longdouble)))
    bound = FORMULAS[row].f64
    assert bound is not None and error.max() <= bound + 1e-6, (
        f"{error.max():.2f} ulp at {x[error.argmax()]!r}"
    )


@kbuild.jit
def sigmoid_and_softmax(x, sigmoids, softmaxes, N: tl.constexpr):
    places = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + places)
    tl.store(sigmoids + places, tl.sigmoid(values))
    tl.store(softmaxes + places, tl.softmax(values))


def test_functions_of_exp_have_its_error():
    """By the PTX of the library's functions: the further below zero, or below the largest element, the more;
    the distance from that is rounded, too."""
    x = np.random.default_rng(4).uniform(-85, 85, (8, 1024)).astype(np.float32)
    x[::2] /= 10
    signature = {"x": "*fp32", "sigmoids": "*fp32", "softmaxes": "*fp32"}
    artifact = kbuild.compile(sigmoid_and_softmax, signature=signature, constexprs={"N": 1024}, stop="ptx")
    report = emulate(
        artifact.asm["ptx"], artifact.metadata.name, (8,), 4, artifact.metadata.shared, [x, x * 0, x * 0]
    )
    _, sigmoids, softmaxes = report.outputs
    assert sigmoids is not None and softmaxes is not None
    exact = x.astype(np.float64)
    below = np.maximum(-exact, 0)
    assert (ulps(sigmoids, 1 / (1 + np.exp(-exact))) <= np.where(exact < 0, 5.5 + 1.23 * below, 5)).all()
    below = exact.max(axis=1, keepdims=True) - exact
    powers = np.exp(-below)
    error, seen = ulps(softmaxes, powers / powers.sum(axis=1, keepdims=True)), below < 80
    assert (error <= 6 + 2.23 * below)[seen].all() and error[seen].max() > 20


def test_a_quotient_by_a_common_divisor_is_that_of_any_other():
    special = np.array(
        [0, -0.0, 1e-45, -(2**-127), 2**-126, 1, -3, 2**126, 2**127, -3e38, np.inf, -np.inf, np.nan],
        np.float32,
    )
    source = np.random.default_rng(0)
    random = np.ldexp(source.uniform(1, 2, 1000), source.integers(-140, 128, 1000)).astype(np.float32)
    divisors = np.concatenate([special, random])
    dividends, divisors = (part.ravel() for part in np.meshgrid(divisors, divisors))

    def quotients(name: str) -> np.ndarray:
        return run(
            lambda emit, names: getattr(Real(emit, F32), name)(*names),
            "float",
            "float",
            np.float32,
            dividends,
            divisors,
        )

    found, right = quotients("div_by_common"), quotients("div")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    numbers = np.isfinite(right) & (np.abs(right) >= 2.0**-126)
    np.testing.assert_array_max_ulp(found[numbers], right[numbers], 2)
    np.testing.assert_array_equal(found[np.isinf(right)], right[np.isinf(right)])


def test_a_logarithm_takes_no_more_instructions_than_in_cuda():
    """Of which each counts where a kernel does little else: the exponent is converted without a shift, ln(2) is one
    constant, and special values are those of the hardware's own logarithm."""
    text = ptx("  %y: f32 = math.log %x\n  tt.store %p, %y", "%x: f32, %p: !tt.ptr<f32>")
    own = text[text.index("setp.lt.f32") : text.index("st.global")]
    assert len(re.findall(r"^\t\w[\w.]* ", own, re.M)) <= 25, own


@pytest.mark.parametrize("row", [rows.Exp, rows.Exp2, rows.ExpM1, rows.Sinh])
def test_exponentials_of_f64_round_and_convert_by_additions(row):
    text = ptx(f"  %y: f64 = {row.op_name} %x\n  tt.store %out, %y\n", "%x: f64, %out: !tt.ptr<f64>")
    assert "cvt.r" not in text and "fma.rn.f64" in text


# Division of integers

DIVISION = """
  %r: tensor<SIZExi32, #b> = tt.make_range {start = 0, end = SIZE}
  %w: tensor<SIZExi64, #b> = arith.extsi %r
  %s: tensor<SIZExi64, #b> = tt.splat %n
  %x: tensor<SIZExi64, #b> = arith.muli %w, %s
  %d: tensor<SIZExi64, #b> = tt.splat %m
  %q: tensor<SIZExi64, #b> = arith.divsi %x, %d
  %e: tensor<SIZExi64, #b> = arith.remsi %x, %d
  %y: tensor<SIZExi64, #b> = arith.xori %q, %e
  %p: tensor<SIZEx!tt.ptr<i64>, #b> = tt.splat %o
  %a: tensor<SIZEx!tt.ptr<i64>, #b> = tt.addptr %p, %w
  tt.store %a, %y
"""


def divided(size: int) -> str:
    """The PTX of quotients and remainders by one number, in 64 bits."""
    return ptx(DIVISION.replace("SIZE", str(size)), "%o: !tt.ptr<i64> {divisibility = 16}, %n: i64, %m: i64")


@pytest.mark.parametrize("size", [512, 1024])
def test_what_fits_32_bits_is_divided_there_by_one_branch(size):
    """The remainder comes with the quotient."""
    text, each = divided(size), size // 128
    assert text.count("div.u32") == text.count("div.s64") == each and "rem" not in text
    assert len(re.findall(r"@%p\d+ bra", text)) == 1


def test_many_elements_are_divided_one_by_one():
    """All quotients at once would take more registers than they save instructions."""
    assert len(re.findall(r"@%p\d+ bra", divided(4096))) >= 32
