"""Conversions and arithmetic, against exact rational numbers."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from kbuild.emulator import fp
from kbuild.emulator.isa.floats import greatest, least
from kbuild.emulator.isa.table import form_of
from kbuild.emulator.ptx.model import Instruction

ROUNDINGS = ("rn", "rz", "rm", "rp")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def round_fraction(value: Fraction, precision: int, lowest: int, rounding: str) -> Fraction:
    """The rounding of an exact number, straight from its definition; no overflow."""
    if value == 0:
        return value
    magnitude, exponent = abs(value), 0
    while Fraction(2) ** exponent <= magnitude:
        exponent += 1
    while Fraction(2) ** (exponent - 1) > magnitude:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision, lowest)
    below = math.floor(value / unit)
    rest = value / unit - below
    if rounding == "rm" or rest == 0:
        up = False
    elif rounding == "rp":
        up = True
    elif rounding == "rz":
        up = value < 0
    elif rest != Fraction(1, 2):
        up = rest > Fraction(1, 2)
    else:
        up = below % 2 == 1 if rounding == "rn" else value > 0
    return (below + up) * unit


def awkward_numbers(dtype: str, count: int, seed: int) -> np.ndarray:
    """Random bits, small integers, and numbers very close to others."""
    random = np.random.default_rng(seed)
    bits = np.dtype(dtype).itemsize * 8
    anything = random.integers(0, 256, (count, bits // 8)).astype(np.uint8).view(dtype).ravel()
    whole = random.integers(-20, 20, count).astype(dtype)
    near = (random.choice([1, 1.5, 2, 3, 0.5], count) * np.exp2(random.integers(-14, 14, count))).astype(
        dtype
    )
    near = np.nextafter(near, random.choice([-np.inf, np.inf], count).astype(dtype))
    return np.select([np.arange(count) % 3 == 0, np.arange(count) % 3 == 1], [anything, whole], near).astype(
        dtype
    )


@pytest.mark.parametrize("target", ["f16", "bf16", "tf32", "e5m2", "e4m3"])
@pytest.mark.parametrize("rounding", [*ROUNDINGS, "rna"])
def test_conversions_round_once(target: str, rounding: str) -> None:
    form = fp.FORMATS[target]
    values = awkward_numbers("f4", 600, 1)
    values = values[np.isfinite(values)]
    result = fp.decode(fp.convert(values, "f32", target, rounding), target).astype(np.float64)
    for value, got in zip(values.tolist(), result.tolist()):
        wanted = round_fraction(Fraction(value), form.precision, form.lowest, rounding)
        if abs(wanted) > form.largest:
            stays = rounding == "rz" or (rounding == "rm" and value > 0) or (rounding == "rp" and value < 0)
            beyond = math.inf if form.infinities else math.nan
            assert (
                abs(got) == form.largest
                if stays
                else (abs(got) == beyond or (math.isnan(got) and math.isnan(beyond)))
            )
        else:
            assert Fraction(got) == wanted, (value, got)
        assert math.copysign(1, got) == math.copysign(1, value) or math.isnan(got)


@pytest.mark.parametrize("source", ["f16", "bf16", "e5m2", "e4m3"])
def test_every_number_of_a_small_type_survives_the_way_there_and_back(source: str) -> None:
    form = fp.FORMATS[source]
    codes = np.arange(1 << (8 * form.bits.itemsize), dtype=form.bits)
    for wide in ("f32", "f64"):
        widened = fp.convert(codes.view(form.storage), source, wide)
        back = fp.convert(widened, wide, source).view(form.bits)
        missing = np.isnan(widened)
        assert (back[~missing] == codes[~missing]).all()
        assert (back[missing] == form.nan).all()
    assert missing.any() and fp.decode(codes.view(form.storage), source)[1] == 2.0**form.lowest


def test_eight_bit_floats_have_their_published_values() -> None:
    codes = np.array([0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0x80, 0xFE], np.uint8)
    assert fp.decode(codes, "e4m3").tolist() == [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -0.0, -448]
    codes = np.array([0x01, 0x03, 0x04, 0x3C, 0x7B, 0x7C, 0xFB], np.uint8)
    assert fp.decode(codes, "e5m2").tolist() == [2**-16, 3 * 2**-16, 2**-14, 1, 57344, np.inf, -57344]


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_all_halves_to_eight_bits_saturate(source: str) -> None:
    values = np.arange(65536, dtype=np.uint16).view(fp.FORMATS[source].storage)
    wide = fp.decode(values, source).astype(np.float64)
    for target in ("e4m3", "e5m2"):
        form = fp.FORMATS[target]
        grid = fp.decode(np.arange(128, dtype=np.uint8), target).astype(np.float64)
        grid = grid[np.isfinite(grid)]
        got = fp.decode(fp.convert(values, source, target, saturate=True), target).astype(np.float64)
        clipped = np.clip(wide, -form.largest, form.largest)
        index = np.clip(np.searchsorted(grid, np.abs(clipped)), 1, len(grid) - 1)
        low, high = grid[index - 1], grid[index]
        twice = 2 * np.abs(clipped)
        nearest = np.where((twice > low + high) | ((twice == low + high) & (index % 2 == 0)), high, low)
        here = np.isfinite(wide)
        assert (np.abs(got[here]) == nearest[here]).all() and (
            np.signbit(got[here]) == np.signbit(wide[here])
        ).all()
        assert (np.isnan(got) == np.isnan(wide)).all() and (np.abs(got[np.isinf(wide)]) == form.largest).all()


def test_halves_and_tensor_floats_as_bits() -> None:
    values = np.array(
        [1.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.996, 65520.0, 2.0**-25, 3 * 2.0**-25], np.float32
    )
    assert fp.convert(values, "f32", "f16").view(np.uint16).tolist() == [
        0x3C00,
        0x3C00,
        0x3C02,
        0x7BFF,
        0x7C00,
        0,
        2,
    ]
    values = np.array([0x3F800FFF, 0x3F801000, 0x3F803000, 0x7F7FFFFF, 0x7FC12345], np.uint32).view(
        np.float32
    )
    away = [0x3F800000, 0x3F802000, 0x3F804000, 0x7F800000, 0x7FFFE000]
    assert fp.convert(values, "f32", "tf32", "rna").tolist() == away
    assert fp.convert(values, "f32", "tf32", "rn")[:3].tolist() == [0x3F800000, 0x3F800000, 0x3F804000]


def test_relu_saturation_and_flush() -> None:
    values = np.array([-1, -0.0, 1, np.nan, np.inf, -np.inf, 1e-40, 3e38], np.float32)
    relu = fp.decode(fp.convert(values, "f32", "bf16", relu=True), "bf16")
    assert (
        relu[:3].tolist() == [0, 0, 1]
        and not np.signbit(relu[:2]).any()
        and np.isnan(relu[3])
        and relu[5] == 0
    )
    assert fp.convert(values, "f32", "f16", saturate=True)[4:6].tolist() == [65504, -65504]
    assert fp.convert(values, "f32", "f64", flush=True)[6] == 0 and fp.convert(values, "f32", "f64")[6] > 0


@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("dtype", ["i4", "u8", "i8"])
def test_integers_round_once(target: str, dtype: str) -> None:
    random, form = np.random.default_rng(3), fp.FORMATS[target]
    values = (
        random.integers(0, 1 << 63, 300, np.uint64) >> random.integers(0, 63, 300).astype(np.uint64)
    ).astype(dtype)
    for rounding in ROUNDINGS:
        got = fp.decode(fp.convert(values, "integer", target, rounding), target).astype(np.float64)
        for value, result in zip(values.tolist(), got.tolist()):
            wanted = round_fraction(Fraction(value), form.precision, form.lowest, rounding)
            assert abs(result) >= form.largest if abs(wanted) > form.largest else Fraction(result) == wanted


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fused_multiply_add_is_exact(dtype: str, rounding: str) -> None:
    a, b, c = (awkward_numbers(dtype, 500, seed) for seed in (5, 6, 7))
    c = np.where(np.arange(500) % 5 == 0, np.nextafter(-(a * b), 0).astype(dtype), c)  # nearly cancels
    form = fp.FORMATS["f" + str(8 * np.dtype(dtype).itemsize)]
    got = fp.fma(a, b, c, rounding)
    assert got.dtype == a.dtype
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist()):
        if not all(map(math.isfinite, (x, y, z))):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        wanted = round_fraction(exact, form.precision, form.lowest, rounding)
        if abs(wanted) > Fraction(form.largest):
            assert abs(result) >= form.largest and (result > 0) == (exact > 0)
        else:
            assert Fraction(result) == wanted, (x, y, z)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_basic_operations_in_every_rounding(dtype: str, rounding: str, name: str) -> None:
    a, b = (awkward_numbers(dtype, 240, seed) for seed in (8, 9))
    form = fp.FORMATS["f" + str(8 * np.dtype(dtype).itemsize)]
    got = getattr(fp, name)(a, b, rounding)
    exact_operation = operator.truediv if name == "div" else getattr(operator, name)
    for x, y, result in zip(a.tolist(), b.tolist(), got.tolist()):
        if not (math.isfinite(x) and math.isfinite(y)) or (name == "div" and y == 0):
            continue
        exact = exact_operation(Fraction(x), Fraction(y))
        wanted = round_fraction(exact, form.precision, form.lowest, rounding)
        if abs(wanted) > Fraction(form.largest):
            assert abs(result) >= form.largest
        else:
            assert Fraction(result) == wanted, (x, y)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nearest_is_what_numpy_gives(dtype: str) -> None:
    a, b = (awkward_numbers(dtype, 30000, seed) for seed in (10, 11))
    with np.errstate(all="ignore"):
        for got, wanted in (
            (fp.add(a, b), a + b),
            (fp.mul(a, b), a * b),
            (fp.div(a, b), a / b),
            (fp.sqrt(a), np.sqrt(a)),
        ):
            bits = f"u{a.dtype.itemsize}"
            missing = np.isnan(wanted)
            assert (np.isnan(got) == missing).all() and (
                got.view(bits)[~missing] == wanted.view(bits)[~missing]
            ).all()


def test_roots_are_bracketed_by_the_directed_roundings() -> None:
    values = np.abs(awkward_numbers("f8", 500, 12))
    values = values[np.isfinite(values) & (values > 0)]
    low, high = fp.sqrt(values, "rm"), fp.sqrt(values, "rp")
    for value, lower, upper in zip(values.tolist(), low.tolist(), high.tolist()):
        assert Fraction(lower) ** 2 <= Fraction(value) <= Fraction(upper) ** 2
        assert upper in (lower, math.nextafter(lower, math.inf) if hasattr(math, "nextafter") else upper)
    assert (fp.sqrt(np.array([4.0, 0.0, -0.0], np.float32), "rp") == [2, 0, 0]).all()


def test_zeros_keep_the_signs_of_the_standard() -> None:
    one, zero = np.array([1.0], np.float32), np.array([0.0], np.float32)
    assert np.signbit(fp.sub(one, one, "rm")) and not np.signbit(fp.sub(one, one, "rz"))
    assert (
        np.signbit(fp.mul(-one, zero))
        and np.signbit(fp.add(-zero, -zero, "rp"))
        and not np.signbit(fp.add(zero, -zero))
    )


def test_bfloat_fma_rounds_once() -> None:
    random = np.random.default_rng(13)
    a, b, c = (fp.decode(random.integers(0, 65536, 1000).astype(np.uint16), "bf16") for _ in range(3))
    got = fp.fma(a, b, c, target="bf16")
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist()):
        if all(map(math.isfinite, (x, y, z))) and math.isfinite(result):
            assert Fraction(result) == round_fraction(Fraction(x) * Fraction(y) + Fraction(z), 8, -133, "rn")


@pytest.mark.parametrize("count", [1, 7, 32, 256])
def test_of_two_zeros_the_negative_one_is_less(count: int) -> None:
    """In whatever order they come, and however many numpy takes at a time."""
    plus, minus = np.zeros(count, np.float32), np.full(count, -0.0, np.float32)
    for a, b in ((plus, minus), (minus, plus)):
        assert np.signbit(least(a, b)).all() and not np.signbit(greatest(a, b)).any()


@pytest.mark.parametrize("extreme", [least, greatest])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_two_nan_have_the_same_extreme_in_either_order(extreme, kind: str) -> None:
    """Whatever their payloads: threads that hold the same may have found it in either order."""
    bits = np.array([-1, -3, 1], np.dtype(kind.replace("f", "i")))
    one, other = bits.view(kind), bits[[1, 0, 2]].view(kind)
    first, second = (extreme(*pair).view(bits.dtype) for pair in ((one, other), (other, one)))
    assert np.isnan(first[:2].view(kind)).all() and first[0] == first[1] == second[0] == second[1]
    assert first[2] == 1


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("opcode", ["add", "sub", "fma"])
def test_halves_are_widened_before_they_meet_binary32(opcode: str, rounding: str, kind: str) -> None:
    """`add.f32.f16` and its like, of sm_100 and newer: one rounding, to binary32."""
    random = np.random.default_rng(17)
    count = 1 if opcode != "fma" else 2
    narrow = [random.normal(0, 1, 500).astype("f4") for _ in range(count)]
    bits = [fp.convert(values, "f32", kind).view("u2") for values in narrow]
    exact = [values.view("f2") if kind == "f16" else fp.decode(values, kind) for values in bits]
    last = random.normal(0, 1e-3, 500).astype("f4")
    form = form_of(Instruction(opcode, (rounding, "f32", kind), ()))
    assert form.function is not None
    sources = [values.view("f2") if kind == "f16" else values for values in bits]
    found = form.function(*sources, last)
    for *parts, addend, result in zip(*exact, last, found):
        first = Fraction(float(parts[0])) * (Fraction(float(parts[1])) if opcode == "fma" else 1)
        whole = first - Fraction(float(addend)) if opcode == "sub" else first + Fraction(float(addend))
        assert Fraction(float(result)) == round_fraction(whole, 24, -149, rounding)
