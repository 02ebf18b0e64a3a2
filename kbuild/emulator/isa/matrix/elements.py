"""Packed elements of registers and memory as numbers, and sums back as elements.

All products of the types below are exact in float64, and so are, nearly always, their sums; the result of an
instruction is rounded once.  The hardware keeps fewer bits of a sum (how many is not documented), so real
data agrees with it up to rounding and integers of moderate size agree exactly.
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator import fp

ELEMENT_BITS: dict[str, int] = {
    "f64": 64,
    "f32": 32,
    "tf32": 32,
    "s32": 32,
    "f16": 16,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
"""Bits of an element of each type that the instructions know."""


def elements(packed: np.ndarray, kind: str) -> np.ndarray:
    """The elements of packed words, lowest bits first, as float64; the last axis grows by the elements per
    word.

    `packed` is contiguous in its last axis, of any unsigned type.
    """
    bits = ELEMENT_BITS[kind]
    if bits < 8:
        return _fractions_of_bytes(packed.view(np.uint8), kind, bits).astype(np.float64)
    raw = packed.view(np.dtype(f"u{bits // 8}"))
    if kind in ("s8", "s32"):
        return raw.view(f"i{bits // 8}").astype(np.float64)
    if kind == "u8":
        return raw.astype(np.float64)
    values = raw.view(fp.FORMATS[kind].storage)
    return fp.decode(values, kind).astype(np.float64)


def _fractions_of_bytes(data: np.ndarray, kind: str, bits: int) -> np.ndarray:
    places = np.arange(0, 8, bits, dtype=np.uint8)
    parts = data[..., None] >> places & np.uint8((1 << bits) - 1)
    parts = parts.reshape(*data.shape[:-1], -1).astype(np.int8)
    return np.where(parts >= 8, parts - 16, parts) if kind == "s4" else parts


def finish(values: np.ndarray, kind: str, saturate: bool = False) -> np.ndarray:
    """Sums (float64) as elements of the type of an accumulator: the unsigned type of its size.

    Floats are rounded to nearest even.  Integers wrap, or with `saturate` are clamped.
    """
    if kind == "s32":
        if saturate:
            values = np.clip(values, -(2.0**31), 2.0**31 - 1)
        return values.astype(np.int64).astype(np.uint32)
    if kind == "f64":
        return np.ascontiguousarray(values).view(np.uint64)
    with np.errstate(all="ignore"):
        return values.astype(fp.FORMATS[kind].storage).view(fp.FORMATS[kind].bits)
