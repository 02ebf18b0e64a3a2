"""The binary floating-point formats of PTX."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """One binary format: sign, biased exponent, fraction."""

    name: str
    precision: int
    """Bits of the significand, with the leading one that is not stored."""
    lowest: int
    """The smallest positive (subnormal) number is 2 to this power."""
    largest: float
    """The largest finite number."""
    infinities: bool
    storage: np.dtype
    """How arrays of it are kept: a numpy float type where there is one, else the bits."""
    nan: int
    """The bits of the NaN that the hardware makes."""

    @property
    def bits(self) -> np.dtype:
        """The unsigned type of the storage's size."""
        return np.dtype(f"u{self.storage.itemsize}")

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (self.lowest + self.precision - 1)


def _format(
    name: str, precision: int, lowest: int, largest: float, storage: str, nan: int, infinities: bool = True
) -> Format:
    return Format(name, precision, lowest, largest, infinities, np.dtype(storage), nan)


FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        _format("f64", 53, -1074, float(np.finfo(np.float64).max), "f8", 0x7FFFFFFFFFFFFFFF),
        _format("f32", 24, -149, float(np.finfo(np.float32).max), "f4", 0x7FFFFFFF),
        _format("tf32", 11, -136, (2 - 2.0**-10) * 2.0**127, "u4", 0x7FFFE000),
        _format("bf16", 8, -133, (2 - 2.0**-7) * 2.0**127, "u2", 0x7FFF),
        _format("f16", 11, -24, 65504.0, "f2", 0x7FFF),
        _format("e5m2", 3, -16, 57344.0, "u1", 0x7F),
        _format("e4m3", 4, -9, 448.0, "u1", 0x7F, infinities=False),
    )
}
"""By PTX name.  `tf32` lies in the upper 19 bits of 32; the lower 13 are zero in results and ignored in
operands."""
