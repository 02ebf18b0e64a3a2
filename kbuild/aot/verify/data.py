"""The contents of arrays before a launch.

Numbers are small enough for sums and products to be exact in most kernels.  Memory that the kernel does not
read, as the interpreter finds out, is poisoned: what masked lanes would touch, gaps between rows, and arrays
that are only written.
"""

from __future__ import annotations

import numpy as np

from kbuild.compiler.interp import encode, memory_dtype
from kbuild.compiler.interp.loaded import Type, is_float

KINDS = ("whole", "real", "special")
"""Whole numbers from -3 to 3; normally distributed ones of 8 bits; the same with numbers among them that few
kernels expect."""
WIDE = "wide"
"""The second, spread out, so that exponentials are often too large: further data for mutants of kernels."""

_SPECIAL = (np.inf, -np.inf, np.nan, -0.0, 0.0, 6e-8)
"""The last one is subnormal in f16."""
_EVERY = 61
"""One in so many numbers is special."""


def numbers(kind: str, element: Type, count: int, random: np.random.Generator) -> np.ndarray:
    """An array in memory of one of `KINDS`, or `WIDE`; integers are from 0 to 3, for they may be positions in
    other arrays."""
    if not is_float(element):
        return np.atleast_1d(encode(random.integers(0, 4, count), element))
    if kind == "whole":
        return np.atleast_1d(encode(random.integers(-3, 4, count).astype(np.float32), element))
    values = random.standard_normal(count)
    fraction, exponent = np.frexp(values)
    values = np.ldexp(np.round(fraction * 256), exponent + (2 if kind == WIDE else -8))
    if kind == "special" and count:
        places = random.integers(0, count, -(-count // _EVERY))
        values[places] = random.choice(_SPECIAL, len(places))
    return np.atleast_1d(encode(values.astype(np.float32), element))


def poisoned(element: Type, count: int) -> np.ndarray:
    """An array in uninitialized memory: NaN, or bytes of 0xA5."""
    dtype = np.dtype(memory_dtype(element))
    return np.full(count * dtype.itemsize, 0xFF if is_float(element) else 0xA5, np.uint8).view(dtype)
