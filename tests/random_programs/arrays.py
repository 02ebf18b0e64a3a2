"""Arguments of random programs: arrays with contents drawn from a seed, and numbers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from random_programs.types import DType

POISON = 0xA5
"""Every byte of an output before the launch."""
_EXPONENT = {"bf16": (8, 7), "fp8e4nv": (4, 3), "fp8e5": (5, 2)}


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel: an array where it has a size, else a number."""

    name: str
    dtype: DType
    size: int = 0
    low: int = 0
    """Smallest and greatest number of an array's contents; both zero for arbitrary bits (of floats: no NaN)."""
    high: int = 0
    value: int | float = 0
    is_output: bool = False
    """Whether it is compared afterwards.  It begins poisoned, or with numbers where `low` and `high` differ."""
    tolerance: float = 0.0
    """Largest error of an output, relative to its largest number; zero means exact."""
    hint: str = ""
    """The hint in the signature: `:16` or `:1`."""
    descriptor: str = ""
    """The type of an argument that is a descriptor made by the host, of which the array is the base."""
    companions: tuple[tuple[str, int], ...] = ()
    """Its sizes and strides, by the names of the parameters that they become."""

    @property
    def signature(self) -> str:
        if self.descriptor:
            return self.descriptor
        return f"{'*' if self.size else ''}{self.dtype.signature}{self.hint}"

    def make(self, seed: int) -> Any:
        """The argument's value."""
        if not self.size:
            return self.value
        storage = np.dtype(self.dtype.storage)
        if self.is_output and self.low == self.high:
            return np.full(self.size * storage.itemsize, POISON, np.uint8).view(storage)
        random = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        if self.low != self.high:
            return encoded(
                random.integers(self.low, self.high, self.size, endpoint=True, dtype=np.int64), self.dtype
            )
        return _arbitrary(random, self.size, self.dtype)


def _arbitrary(random: np.random.Generator, size: int, dtype: DType) -> np.ndarray:
    """Numbers of every size: all bits at random, and many corners."""
    storage = np.dtype(dtype.storage)
    if dtype.is_bool:
        return random.integers(0, 2, size).astype(storage)
    data = random.integers(0, 256, size * storage.itemsize, np.uint8).view(storage)
    if not dtype.is_float:
        corners = np.array(
            [dtype.low, dtype.low + 1, dtype.high, dtype.high - 1, 0, 1, 2, 3, -1 & dtype.high], object
        )
        chosen = corners[random.integers(0, len(corners), size)].astype(storage)
        return np.where(random.random(size) < 0.4, chosen, data)
    small = encoded(random.integers(-8, 9, size), dtype)
    return np.where((random.random(size) < 0.5) | np.isnan(decoded(data, dtype)), small, data)


def encoded(numbers: np.ndarray, dtype: DType) -> np.ndarray:
    """Small whole numbers as they lie in memory."""
    if dtype.signature not in _EXPONENT:
        return numbers.astype(dtype.storage)
    exponent_bits, mantissa = _EXPONENT[dtype.signature]
    fraction, exponent = np.frexp(np.abs(numbers).astype(np.float64))  # fraction in [0.5, 1)
    bias = (1 << (exponent_bits - 1)) - 1
    scaled = (fraction * (2 << mantissa)).astype(np.int64) - (1 << mantissa)
    bits = ((exponent - 1 + bias) << mantissa) + scaled
    bits = np.where(numbers == 0, 0, bits) | (numbers < 0).astype(np.int64) << (exponent_bits + mantissa)
    return bits.astype(dtype.storage)


def decoded(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The numbers of an array: float64 for floats, as they are for integers."""
    if not dtype.is_float:
        return array
    if dtype.signature not in _EXPONENT:
        with np.errstate(invalid="ignore"):  # signalling NaN
            return array.astype(np.float64)
    exponent_bits, mantissa = _EXPONENT[dtype.signature]
    raw = array.astype(np.int64)
    top = (1 << exponent_bits) - 1
    exponent, fraction = (raw >> mantissa) & top, raw & ((1 << mantissa) - 1)
    bias = top >> 1
    scaled = np.where(
        exponent == 0,
        np.ldexp(fraction, 1 - bias - mantissa),
        np.ldexp(fraction + (1 << mantissa), exponent - bias - mantissa),
    )
    if dtype.signature == "fp8e4nv":
        scaled = np.where((exponent == top) & (fraction == 7), np.nan, scaled)
    else:
        scaled = np.where(exponent == top, np.where(fraction == 0, np.inf, np.nan), scaled)
    return np.where(raw >> (exponent_bits + mantissa) & 1, -scaled, scaled)


def difference(found: np.ndarray, right: np.ndarray, argument: Argument) -> str:
    """Where an output differs from the expected contents; empty when it does not."""
    if found.tobytes() == right.tobytes():
        return ""
    one, other = decoded(found, argument.dtype), decoded(right, argument.dtype)
    same = one == other
    if argument.dtype.is_float:
        same |= np.isnan(one) & np.isnan(other)
        if argument.tolerance:
            finite = np.abs(other[np.isfinite(other)])
            with np.errstate(all="ignore"):
                same |= np.abs(one - other) <= argument.tolerance * max(float(finite.max(initial=0.0)), 1e-6)
    wrong = np.flatnonzero(~same)
    if not len(wrong):
        return ""
    return (
        f"{argument.name}[{wrong[0]}] is {one[wrong[0]]}, expected {other[wrong[0]]}; "
        f"{len(wrong)} of {len(same)} differ, the last at {wrong[-1]}"
    )
