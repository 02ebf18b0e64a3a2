"""Conversions between number types, exact for every input."""

from __future__ import annotations

import numpy as np

from kbuild.emulator.fp.formats import FORMATS, Format
from kbuild.emulator.fp.rounding import round_exact, two_sum

_KEPT_BY_TENSOR_FLOAT = np.uint32(0xFFFFE000)


def _decode_e4m3() -> np.ndarray:
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    value = np.where(code & 0x7F == 0x7F, np.nan, value)
    return np.where(code & 0x80, -value, value)


_E4M3 = _decode_e4m3()
_E4M3_32 = _E4M3.astype(np.float32)


def decode(values: np.ndarray, source: str) -> np.ndarray:
    """Numbers of a float type in its storage, as a numpy float type that holds them all exactly."""
    if source in ("f16", "f32", "f64"):
        return values
    if source == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if source == "tf32":
        return (values & _KEPT_BY_TENSOR_FLOAT).view(np.float32)
    if source == "e5m2":
        return (values.astype(np.uint16) << np.uint16(8)).view(np.float16)
    if source == "e4m3":
        return _E4M3_32[values]
    raise ValueError(f"{source} is not a float type")


def encode(values: np.ndarray, target: str) -> np.ndarray:
    """Float64 values that are in a format already, or infinite or NaN, in its storage; NaN becomes the
    hardware's."""
    form = FORMATS[target]
    if target in ("f64", "f32", "f16"):
        bits = values.astype(form.storage).view(form.bits)
    elif target == "tf32":
        bits = values.astype(np.float32).view(np.uint32)
    elif target == "bf16":
        bits = (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    elif target == "e5m2":
        bits = (values.astype(np.float16).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
    else:
        code = np.searchsorted(_E4M3[:127], np.abs(np.nan_to_num(values)))
        code = np.where(np.isinf(values), 0x7F, code)
        bits = (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
    return np.where(np.isnan(values), form.bits.type(form.nan), bits).astype(form.bits).view(form.storage)


@np.errstate(all="ignore")
def convert(
    values: np.ndarray,
    source: str,
    target: str,
    rounding: str = "rn",
    saturate: bool = False,
    relu: bool = False,
    flush: bool = False,
) -> np.ndarray:
    """Values in the storage of one type, rounded once to another.

    `source` is a float type of `FORMATS` or any word such as `s32` whose storage is a numpy integer type;
    `target` a float type. `saturate` puts the largest finite number where the result would be infinite;
    without it, a type that has no infinity gets NaN there.  `relu` replaces numbers below zero by zero.  `flush`
    treats subnormal float32 numbers, on both sides, as zero.
    """
    form = FORMATS[target]
    if source == "f32" and rounding == "rn" and not (saturate or relu or flush) and target in ("bf16", "f16"):
        return _to_bfloat(values) if target == "bf16" else _with_nan(values.astype(np.float16), values, form)
    is_integer = source not in FORMATS and values.dtype.itemsize <= 4
    is_narrow = is_integer or source in ("bf16", "f16")
    if target == "f32" and is_narrow and rounding == "rn" and not (saturate or relu or flush):
        narrow = values if is_integer else decode(values, source)
        return _with_nan(narrow.astype(np.float32), narrow, form)
    high, low = _exact(values, source)
    if flush and source == "f32":
        high = np.where(np.abs(high) < FORMATS["f32"].smallest_normal, np.copysign(0, high), high)
    result = high.copy()
    finite = np.isfinite(high) & (high != 0)
    result[finite] = round_exact(high[finite], low[finite], 0, form, rounding)
    if relu:
        result = np.where(result <= 0, 0.0, result)
    if saturate:
        result = np.where(np.isinf(result), np.copysign(form.largest, result), result)
    if flush and target == "f32":
        result = np.where(np.abs(result) < form.smallest_normal, np.copysign(0, result), result)
    return encode(result, target)


def _exact(values: np.ndarray, source: str) -> tuple[np.ndarray, np.ndarray]:
    """The values as float64, and the remainder of 64-bit integers."""
    if source in FORMATS or values.dtype.itemsize < 8:
        high = (decode(values, source) if source in FORMATS else values).astype(np.float64)
        return high, np.zeros(high.shape)
    upper = (values >> values.dtype.type(32)).astype(np.float64) * 2.0**32
    return two_sum(upper, (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64))


def _to_bfloat(values: np.ndarray) -> np.ndarray:
    """Float32 to the bits of bfloat16, to nearest even: an addition carries into the upper half."""
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    missing = np.isnan(values)
    return np.where(missing, np.uint16(FORMATS["bf16"].nan), rounded) if missing.any() else rounded


def _with_nan(result: np.ndarray, values: np.ndarray, form: Format) -> np.ndarray:
    missing = np.isnan(values)
    if missing.any():
        result.view(form.bits)[missing] = form.nan
    return result
