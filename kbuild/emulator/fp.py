"""Exact conversions and once-rounded arithmetic of the GPU's floating-point types, for all rounding modes.

Everything goes through binary64: a value that does not fit there exactly is rounded to odd, which keeps later rounding to a
format at least two bits narrower right.  Types that numpy lacks (bf16, tf32, e4m3, e5m2) are arrays of their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kbuild.emulator.findings import Fault


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: a sign, an exponent with bias, a significand of `precision` bits with the hidden one."""

    precision: int
    lowest: int
    """Exponent of the smallest normal number."""
    largest: float
    nan: int
    """Bits of the canonical NaN."""
    bits: int
    """Bits of the storage."""
    shift: int = 0
    """Unused low bits of the storage."""
    infinite: bool = True


FORMATS = {
    "f64": Format(53, -1022, float(np.finfo(np.float64).max), 0x7FF8000000000000, 64),
    "f32": Format(24, -126, float(np.finfo(np.float32).max), 0x7FFFFFFF, 32),
    "f16": Format(11, -14, 65504.0, 0x7FFF, 16),
    "bf16": Format(8, -126, float.fromhex("0x1.fep127"), 0x7FFF, 16),
    "tf32": Format(11, -126, float.fromhex("0x1.ffcp127"), 0x7FFFFFFF, 32, shift=13),
    "e4m3": Format(4, -6, 448.0, 0x7F, 8, infinite=False),
    "e5m2": Format(3, -14, 57344.0, 0x7F, 8),
}
_NATIVE = {"f64": np.dtype("f8"), "f32": np.dtype("f4"), "f16": np.dtype("f2")}
_INTEGERS = {f"{kind}{bits}": np.dtype(f"{'u' if kind == 'u' else 'i'}{bits // 8}") for kind in "us" for bits in (8, 16, 32, 64)}


def _byte_table(name: str) -> np.ndarray:
    """The float32 values of all 256 bytes of an 8-bit format."""
    form = FORMATS[name]
    byte = np.arange(256)
    fraction = form.precision - 1
    exponent, mantissa = (byte & 0x7F) >> fraction, byte & ((1 << fraction) - 1)
    normal = np.ldexp(mantissa + (1 << fraction), form.lowest - 1 - fraction + exponent)
    value = np.where(exponent == 0, np.ldexp(mantissa.astype(float), form.lowest - fraction), normal)
    if form.infinite:
        value = np.where(value > form.largest, np.where(mantissa == 0, np.inf, np.nan), value)
    else:
        value = np.where((byte & 0x7F) == 0x7F, np.nan, value)
    return np.where(byte & 0x80, -value, value).astype(np.float32)


_BYTES = {name: _byte_table(name) for name in ("e4m3", "e5m2")}


def widen(values: np.ndarray, source: str) -> np.ndarray:
    """The values of any float type of at most 32 bits as float32, exactly."""
    if source == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if source == "tf32":
        return (values & np.uint32(0xFFFFE000)).view(np.float32)
    if source in _BYTES:
        return _BYTES[source][values]
    return values.astype(np.float32)


def decode(values: np.ndarray, source: str) -> np.ndarray:
    """Values of any type as float64: exact, but 64-bit integers above 2^53 are rounded to odd."""
    if source in ("f64", "f32", "f16"):
        return values.astype(np.float64)
    if source in _INTEGERS:
        if values.dtype.itemsize < 8:
            return values.astype(np.float64)
        negative = values < 0
        magnitude = np.where(negative, np.uint64(0) - values.view(np.uint64), values.view(np.uint64))
        sticky = ((magnitude & np.uint64(0x7FF)) != 0).astype(np.uint64)
        odd = magnitude & np.uint64((1 << 64) - (1 << 11)) | sticky << np.uint64(11)
        large = np.where(magnitude >= np.uint64(1 << 53), odd, magnitude).astype(np.float64)
        return np.where(negative, -large, large)
    return widen(values, source).astype(np.float64)


def round_to(values: np.ndarray, target: str, rounding: str = "rn", saturate: bool = False) -> np.ndarray:
    """float64 numbers rounded to values of a format, still as float64; NaN stays, overflow is as the rounding mode says."""
    form = FORMATS[target]
    _, exponent = np.frexp(values)
    quantum = np.maximum(exponent - 1, form.lowest) - (form.precision - 1)
    scaled = np.ldexp(values, -quantum)
    result = np.ldexp(_ROUND[rounding](scaled), quantum)
    over = np.abs(result) > form.largest
    finite = np.isfinite(values)
    result = np.where(finite, result, values)
    if saturate:
        return np.where(over | np.isinf(values), np.copysign(form.largest, values), result)
    if over.any():
        clamps = {"rz": np.ones_like(over), "rm": values > 0, "rp": values < 0}.get(rounding)
        limit = np.full_like(values, np.inf) if clamps is None else np.where(clamps, form.largest, np.inf)
        result = np.where(over & finite, np.copysign(limit, values), result)
    return result if form.infinite else np.where(np.isinf(result), np.nan, result)


def _away(scaled: np.ndarray) -> np.ndarray:
    """To the nearest integer, ties away from zero."""
    whole = np.trunc(scaled)
    return np.copysign(np.abs(whole) + (np.abs(scaled - whole) >= 0.5), scaled)


_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil, "rna": _away,
}  # fmt: skip


def encode(values: np.ndarray, target: str) -> np.ndarray:
    """float64 numbers that a format has exactly, in its storage dtype; every NaN becomes the canonical one."""
    form = FORMATS[target]
    unsigned = np.dtype(f"u{form.bits // 8}")
    missing = np.isnan(values)
    if target in _NATIVE:
        found = values.astype(_NATIVE[target])
        if target != "f64" and missing.any():
            found.view(unsigned)[missing] = form.nan
        return found
    if target in ("bf16", "tf32"):
        bits = values.astype(np.float32).view(np.uint32)
        found = (bits >> np.uint32(16)).astype(np.uint16) if target == "bf16" else bits
    else:
        found = _encode_byte(values, form)
    found[missing] = form.nan
    return found


def _encode_byte(values: np.ndarray, form: Format) -> np.ndarray:
    fraction = form.precision - 1
    magnitude = np.abs(np.where(np.isfinite(values), values, 0.0))
    _, exponent = np.frexp(magnitude)
    power = np.where(magnitude == 0, form.lowest, np.maximum(exponent - 1, form.lowest))
    steps = np.ldexp(magnitude, fraction - power).astype(np.int64)
    # A normal number has the hidden bit in `steps`, which is the lowest bit of the exponent field.
    bits = (power - form.lowest << fraction) + steps
    infinity = -2 * form.lowest + 3 << fraction
    bits = np.where(np.isinf(values), infinity, bits)
    return (bits | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def convert(
    values: np.ndarray, source: str, target: str, rounding: str = "rn", saturate: bool = False, relu: bool = False,
    flush: bool = False,
) -> np.ndarray:  # fmt: skip
    """Values in the storage of one type in that of another, rounded once.

    `saturate` clamps to the finite range (`.satfinite`), `relu` makes negative numbers +0, `flush` makes subnormal float32
    operands and results zero.  Raises Fault for a target that is not a float type.
    """
    if target not in FORMATS:
        raise Fault("unsupported", f"conversion of {source} to {target}")
    if rounding == "rs":
        raise Fault("unsupported", "stochastic rounding")
    if target == "bf16" and source == "f32" and rounding == "rn" and not (saturate or relu or flush):
        return _narrow(np.ascontiguousarray(values))
    if source in ("u64", "s64") and target == "f64":
        return _exactly(lambda value: Fraction(int(value)), rounding, values)
    wide = decode(np.ascontiguousarray(values), source)
    if flush and source == "f32":
        wide = _flushed(wide)
    if relu:
        wide = np.where(np.isnan(wide), wide, np.where(wide > 0, wide, 0.0))
    result = round_to(wide, target, rounding, saturate)
    return encode(_flushed(result) if flush and target == "f32" else result, target)


def _narrow(values: np.ndarray) -> np.ndarray:
    """float32 to bfloat16, ties to even."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)).astype(np.uint16)
    missing = np.isnan(values)
    if missing.any():
        rounded[missing] = 0x7FFF
    return rounded


def _flushed(values: np.ndarray) -> np.ndarray:
    """float64 numbers that are subnormal in float32 as zeros of their sign."""
    return np.where(np.abs(values) < 2.0**-126, np.copysign(0.0, values), values)


# Arithmetic


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The float64 sum rounded to odd."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    inexact = (error != 0) & np.isfinite(total)
    return toward_odd(total, np.where(inexact, error, 0.0)) if inexact.any() else total


def toward_odd(values: np.ndarray, error: np.ndarray) -> np.ndarray:
    """float64 numbers rounded to odd, given the exact value's distance, below half a unit in the last place, from each."""
    even = (values.view(np.int64) & 1) == 0
    return np.where((error != 0) & even, np.nextafter(values, np.copysign(np.inf, error)), values)


def fma(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: str = "rn", flush: bool = False, target: str | None = None
) -> np.ndarray:
    """a * b + c rounded once; for `target="bf16"` the float32 values of the bfloat16 results of bfloat16 values in float32."""
    if a.dtype == np.float64:
        return _fma_double(a, b, c, rounding)
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    name = target or {2: "f16", 4: "f32"}[a.dtype.itemsize]
    if name == "f32" and rounding == "rn" and not flush:
        total = product + addend
        # A float64 rounding can only mislead the next one where it ends half-way between two float32 numbers.
        half = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        if not (half | ((np.abs(total) < 2.0**-125) & (total != 0))).any():
            return _canonical(total.astype(np.float32))
    return _finish(odd_sum(product, addend), product, addend, name, rounding, flush)


def _finish(total: np.ndarray, a: np.ndarray, b: np.ndarray, name: str, rounding: str, flush: bool) -> np.ndarray:
    """A sum rounded to odd brought to its format; an exact zero out of opposite signs is -0 only when rounding down."""
    if rounding == "rm":
        total = np.where((total == 0) & (np.signbit(a) != np.signbit(b)), -0.0, total)
    result = round_to(total, name, rounding)
    found = encode(_flushed(result) if flush else result, name)
    return widen(found, name) if name == "bf16" else found


def _canonical(values: np.ndarray) -> np.ndarray:
    missing = np.isnan(values)
    if missing.any():
        values.view(np.uint32)[missing] = 0x7FFFFFFF
    return values


def _fma_double(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: str) -> np.ndarray:
    plain = a * b + c
    moderate = (_moderate(a) & _moderate(b) & _moderate(c)) if rounding == "rn" else np.zeros(a.shape, bool)
    if not moderate.all():
        special = ~moderate & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        plain[special] = _exactly(lambda x, y, z: _fraction(x) * _fraction(y) + _fraction(z), rounding, a[special], b[special],
                                  c[special], zero=lambda x, y, z: x * y + z)  # fmt: skip
        if not moderate.any():
            return plain
    product, low = _two_product(a, b)
    upper, upper_error = _two_sum(c, low)
    total, error = _two_sum(product, upper)
    return np.where(moderate, total + odd_sum(error, upper_error), plain)


def _moderate(values: np.ndarray) -> np.ndarray:
    """Whether a number is far from overflow and underflow of its products' parts."""
    magnitude = np.abs(values)
    return (magnitude > 2.0**-200) & (magnitude < 2.0**400)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A product and its rounding error, by halves of 26 bits."""
    product = a * b
    scaled_a, scaled_b = a * 134217729.0, b * 134217729.0
    high_a, high_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


def _fraction(value: float) -> Fraction:
    return Fraction(float(value))


def _exactly(compute: Callable[..., Fraction], rounding: str, *operands: np.ndarray, zero: Callable | None = None) -> np.ndarray:
    """Rationals rounded to float64 one by one; `zero` gives the zero of the right sign where the result is zero."""
    results = np.empty(len(operands[0]), np.float64)
    for index, values in enumerate(zip(*(operand.ravel() for operand in operands))):
        exact = compute(*values)
        if exact == 0:
            value = float(zero(*values)) if zero is not None else 0.0
            opposite = rounding == "rm" and len(values) > 1 and zero is not None and value == 0 and any(values)
            results[index] = -0.0 if opposite else value
            continue
        results[index] = _nearest(exact, rounding)
    return results.reshape(operands[0].shape)


def _nearest(exact: Fraction, rounding: str) -> float:
    """A rational rounded to float64."""
    try:
        value = float(exact)
    except OverflowError:
        value = math.copysign(math.inf, exact)
    if rounding == "rn" or (math.isfinite(value) and Fraction(value) == exact):
        return value
    above = value > 0 if math.isinf(value) else Fraction(value) > exact
    down = rounding == "rm" or (rounding == "rz" and exact > 0)
    if above == down:
        return math.nextafter(value, -math.inf if down else math.inf)
    return value


def _directed(name: str) -> Callable[..., np.ndarray]:
    """A basic operation under any rounding mode, on float16, float32 or float64."""

    def function(*values: np.ndarray, rounding: str = "rn", flush: bool = False) -> np.ndarray:
        operands = [value.astype(np.float64) for value in values]
        plain = _PLAIN[name](*operands)
        if values[0].dtype == np.float64:
            if rounding == "rn":
                return plain
            return _directed_double(name, operands, plain, rounding)
        target = {2: "f16", 4: "f32"}[values[0].dtype.itemsize]
        if name in ("add", "sub"):
            second = operands[1] if name == "add" else -operands[1]
            return _finish(odd_sum(operands[0], second), operands[0], second, target, rounding, flush)
        result = round_to(_ODD[name](*operands, plain), target, rounding)
        return encode(_flushed(result) if flush else result, target)

    return function


def _directed_double(name: str, operands: list[np.ndarray], plain: np.ndarray, rounding: str) -> np.ndarray:
    exact = np.isfinite(np.stack(operands)).all(0) & ~np.isnan(plain)
    if name in ("div", "rcp"):
        exact &= operands[-1] != 0
    if name == "sqrt":
        below = np.array([value > 0 and _fraction(value) ** 2 > _fraction(a) for value, a in zip(plain, operands[0])], bool)
        above = np.array([value > 0 and _fraction(value) ** 2 < _fraction(a) for value, a in zip(plain, operands[0])], bool)
        plain = np.where(below & (rounding != "rp") & exact, np.nextafter(plain, 0), plain)
        return np.where(above & (rounding == "rp") & exact, np.nextafter(plain, np.inf), plain)
    compute = {
        "add": lambda a, b: _fraction(a) + _fraction(b), "sub": lambda a, b: _fraction(a) - _fraction(b),
        "mul": lambda a, b: _fraction(a) * _fraction(b), "div": lambda a, b: _fraction(a) / _fraction(b),
        "rcp": lambda a: 1 / _fraction(a),
    }[name]  # fmt: skip
    result = plain.copy()
    chosen = [operand[exact] for operand in operands]
    result[exact] = _exactly(compute, rounding, *chosen, zero=_PLAIN[name] if name in ("add", "sub") else None)
    return np.where((result == 0) & (plain == 0) & (np.signbit(plain) & (name in ("mul", "div"))), -0.0, result)


_PLAIN: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt, "rcp": np.reciprocal,
}  # fmt: skip


def _cut(values: np.ndarray, bits: int) -> np.ndarray:
    """float64 numbers without their lowest `bits` bits."""
    return (values.view(np.uint64) & np.uint64((1 << 64) - (1 << bits))).view(np.float64)


def _odd_quotient(a: np.ndarray, b: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """A quotient of float32 numbers rounded to odd: 29 bits of it times 24 bits are exact, and so is what remains."""
    short = _cut(plain, 24)
    remainder = a - short * b
    return toward_odd(short, np.where(np.isfinite(plain) & (remainder != 0), remainder * np.copysign(1.0, b), 0.0))


def _odd_root(a: np.ndarray, plain: np.ndarray) -> np.ndarray:
    short = _cut(plain, 27)
    remainder = a - short * short
    return toward_odd(short, np.where(np.isfinite(plain), remainder, 0.0))


_ODD: dict[str, Callable[..., np.ndarray]] = {
    "mul": lambda a, b, plain: plain,
    "div": _odd_quotient,
    "rcp": lambda a, plain: _odd_quotient(np.ones_like(a), a, plain),
    "sqrt": _odd_root,
}

add, sub, mul, div, sqrt, rcp = (_directed(name) for name in ("add", "sub", "mul", "div", "sqrt", "rcp"))
