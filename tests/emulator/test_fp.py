"""Floating point: every conversion of every small input, and arithmetic against rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from kbuild.emulator import fp

SMALL = ("e4m3", "e5m2", "f16", "bf16")
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def values_of_all(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All bit patterns of a format of at most 16 bits and their values, by the IEEE definition."""
    precision, exponents = {"e4m3": (4, 4), "e5m2": (3, 5), "f16": (11, 5), "bf16": (8, 8)}[name]
    bits = np.arange(1 << (precision + exponents))
    fraction = bits & ((1 << (precision - 1)) - 1)
    exponent = bits >> (precision - 1) & ((1 << exponents) - 1)
    bias = (1 << (exponents - 1)) - 1
    value = np.where(exponent == 0, fraction * 2.0 ** (2 - precision - bias),
                     (fraction + (1 << (precision - 1))) * 2.0 ** (exponent - precision + 1.0 - bias))  # fmt: skip
    top = exponent == (1 << exponents) - 1
    if name == "e4m3":
        value[top & (fraction == 7)] = np.nan
    else:
        value[top] = np.where(fraction[top] == 0, np.inf, np.nan)
    return bits, np.where(bits >> (precision + exponents - 1), -value, value)


def rounded(exact: Fraction, name: str, rounding: str) -> float:
    """A rational rounded to a format: the rules of IEEE 754, with whole numbers only."""
    form = fp.FORMATS[name]
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    quantum = Fraction(2) ** (max(exponent, form.lowest) - form.precision + 1)
    steps, rest = divmod(magnitude, quantum)
    half = 2 * rest - quantum
    up = {
        "rn": half > 0 or (half == 0 and steps % 2 == 1), "rna": half >= 0, "rz": False,
        "rm": rest > 0 and exact < 0, "rp": rest > 0 and exact > 0,
    }[rounding]  # fmt: skip
    value = (steps + up) * quantum
    if value > Fraction(form.largest):
        toward_zero = {"rz": True, "rm": exact > 0, "rp": exact < 0}.get(rounding, False)
        return math.copysign(form.largest if toward_zero else (math.inf if form.infinite else math.nan), exact)
    return math.copysign(float(value), exact)


def same(found: np.ndarray, expected: object) -> None:
    """Equal with equal signs of zero; NaN equals NaN."""
    left, right = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    wrong = ~((left == right) & (np.signbit(left) == np.signbit(right)) | np.isnan(left) & np.isnan(right))
    assert not wrong.any(), (int(np.argmax(wrong)), left[wrong][:3].tolist(), right[wrong][:3].tolist())


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_is_its_value_and_comes_back(name: str) -> None:
    bits, values = values_of_all(name)
    unsigned = np.dtype(f"u{fp.FORMATS[name].bits // 8}")
    stored = bits.astype(unsigned)
    same(fp.decode(stored.view(np.float16) if name == "f16" else stored, name), values)
    numbers = ~np.isnan(values)
    found = fp.encode(values, name).view(unsigned)
    assert (found[numbers] == stored[numbers]).all()
    assert (found[~numbers] == fp.FORMATS[name].nan).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("target", [*SMALL, "tf32", "f32"])
def test_numbers_between_neighbours_round_as_the_mode_says(target: str, rounding: str) -> None:
    if target in SMALL:
        values = values_of_all(target)[1]
    else:
        kept = np.uint32(0xFFFFE000 if target == "tf32" else 0xFFFFFFFF)
        values = (rng.integers(0, 1 << 32, 2000, np.uint64).astype(np.uint32) & kept).view(np.float32).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    step = max(len(values) // 400, 1)
    low, high = values[:-1:step], values[1::step]
    points = np.concatenate([values[::step], (low + high) / 2, low + (high - low) * 0.2499, low + (high - low) * 0.75,
                             2 * values[[0, -1]], values[[0, -1]] * 1.001])  # fmt: skip
    expected = [rounded(Fraction(value), target, rounding) if value else value for value in points.tolist()]
    found = fp.round_to(points, target, rounding)
    same(found, expected)
    same(fp.decode(fp.encode(found, target), target), found)


@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("target", SMALL)
def test_all_sixteen_bit_inputs_convert_to_a_nearest_number(source: str, target: str) -> None:
    bits, values = values_of_all(source)
    stored = bits.astype(np.uint16).view(np.float16) if source == "f16" else bits.astype(np.uint16)
    table = np.unique(values_of_all(target)[1][np.isfinite(values_of_all(target)[1])])
    found = fp.decode(fp.convert(stored, source, target, saturate=True), target)
    assert (np.isnan(found) == np.isnan(values)).all()
    chosen = np.isfinite(values)
    nearest = np.clip(np.searchsorted(table, values[chosen]), 1, len(table) - 1)
    best = np.minimum(np.abs(table[nearest] - values[chosen]), np.abs(table[nearest - 1] - values[chosen]))
    assert (np.abs(found[chosen] - values[chosen]) == best).all()
    same(found[np.isinf(values)], np.copysign(table[-1], values[np.isinf(values)]))


def test_float32_to_bfloat16_takes_the_fast_way_to_the_same_place() -> None:
    bits = rng.integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    bits[:4] = [0x7F7FFFFF, 0x7F800000, 0xFF800001, 0x3F808000]
    floats = bits.view(np.float32)
    found = fp.convert(floats, "f32", "bf16")
    assert (found == fp.encode(fp.round_to(floats.astype(np.float64), "bf16"), "bf16")).all()


def test_modifiers() -> None:
    values = np.array([-1.0, np.nan, np.inf, 1e9, 1e-40, -1e-40], np.float32)
    assert fp.convert(values, "f32", "e4m3", saturate=True, relu=True).tolist() == [0, 0x7F, 0x7E, 0x7E, 0, 0]
    assert fp.convert(values, "f32", "f16", saturate=True).view(np.uint16).tolist() == [0xBC00, 0x7FFF, 0x7BFF, 0x7BFF, 0, 0x8000]
    same(fp.convert(values[4:].astype(np.float64), "f64", "f32", flush=True), [0.0, -0.0])
    assert fp.convert(np.array([1.0 + 2**-11], np.float32), "f32", "tf32", rounding="rna").tolist() == [0x3F802000]


def test_wide_integers_round_once() -> None:
    values = np.array([(1 << 53) + 1, (1 << 62) + (1 << 38) + 1, -(1 << 62) - (1 << 38), (1 << 24) + 1, -(2**63)], np.int64)
    for rounding in ("rn", "rz", "rm", "rp"):
        for target in ("f32", "f64"):
            expected = [rounded(Fraction(value), target, rounding) for value in values.tolist()]
            same(fp.convert(values, "s64", target, rounding=rounding), expected)
    large = np.array([2**64 - 1, 2**63 + 1], np.uint64)
    same(fp.convert(large, "u64", "f32", rounding="rz"), [float(2**64 - 2**40), float(2**63)])


def operands(name: str, count: int) -> list[np.ndarray]:
    """Random numbers of a format with close and far exponents, so that sums cancel and products fall between neighbours."""
    form = fp.FORMATS[name]
    spread = 6 if name == "f16" else 30
    lists = []
    for _ in range(3):
        fraction = rng.integers(1 << (form.precision - 1), 1 << form.precision, count) * rng.choice([-1, 1], count)
        lists.append(np.ldexp(fraction.astype(np.float64), rng.integers(-spread, spread, count) - form.precision))
    lists[2][: count // 2] = -fp.round_to(lists[0][: count // 2] * lists[1][: count // 2], name)
    return [fp.round_to(value, name).astype({"f16": "f2", "f64": "f8"}.get(name, "f4")) for value in lists]


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_fused_multiply_add_rounds_once(name: str, rounding: str) -> None:
    a, b, c = operands(name, 600)
    a[::17], c[::19] = 0.0, 0.0
    found = fp.fma(a, b, c, rounding=rounding, target="bf16" if name == "bf16" else None)
    expected = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist()):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        opposite = math.copysign(1, x * y) != math.copysign(1, z)
        zero = (-0.0 if rounding == "rm" else 0.0) if opposite else x * y + z
        expected.append(rounded(exact, name, rounding) if exact else zero)
    same(found, expected)


def test_fused_multiply_add_where_two_roundings_differ() -> None:
    one_up, one_down, tiny = (np.array([value], np.float32) for value in (1 + 2**-12, 1 - 2**-23, 2.0**-60))
    exact = Fraction(1 + 2**-12) ** 2 + Fraction(2.0**-60)
    same(fp.fma(one_up, one_up, tiny), [rounded(exact, "f32", "rn")])
    same(fp.fma(one_up, one_up, -tiny), [rounded(exact - 2 * Fraction(2.0**-60), "f32", "rn")])
    same(fp.fma(one_up, one_down, -one_up), [-(1 + 2**-12) * 2.0**-23])
    small = np.array([2.0**-1000])
    same(fp.fma(small, small, small), small)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "rcp"])
def test_directed_rounding(operation: str, name: str, rounding: str) -> None:
    a, b, _ = operands(name, 300)
    sources = (b,) if operation == "rcp" else (a, b)
    exact = {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
        "rcp": lambda x: 1 / x,
    }[operation]  # fmt: skip
    found = getattr(fp, operation)(*sources, rounding=rounding)
    same(found, [rounded(exact(*map(Fraction, values)), name, rounding) for values in zip(*(s.tolist() for s in sources))])


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_square_roots_bracket_the_exact_one(name: str, rounding: str) -> None:
    values = np.abs(operands(name, 300)[0])
    found = fp.sqrt(values, rounding=rounding)
    for value, root in zip(values.tolist(), found):
        below, here, above = (Fraction(float(np.nextafter(root, np.array(end, root.dtype)))) for end in (0, root, np.inf))
        exact = Fraction(value)
        if rounding in ("rz", "rm"):
            assert here**2 <= exact < above**2
        elif rounding == "rp":
            assert below**2 < exact <= here**2
        else:
            assert (below + here) ** 2 <= 4 * exact <= (above + here) ** 2
