"""The arrays that cases are given: whole numbers, whose sums are exact, and outputs before the launch."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike
from zoo.case import Argument, Bits, bf16

POISON = 12345.0


def small_integers(
    rng: np.random.Generator, *shape: int, dtype: type = np.float32, low: int = -8, high: int = 9
) -> np.ndarray:
    """Random whole numbers: sums and products of them are exact in any order."""
    return rng.integers(low, high, shape).astype(dtype)


def poisoned(*shape: int, dtype: DTypeLike = np.float32) -> np.ndarray:
    """An output before the launch."""
    return np.full(shape, POISON if np.issubdtype(dtype, np.floating) else 99, dtype)


def plain(argument: Argument) -> np.ndarray:
    """An argument that is an array of a type that numpy has."""
    assert isinstance(argument, np.ndarray)
    return argument


def operand(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray | Bits:
    """Small whole numbers in any operand type: all products and sums are exact."""
    values = small_integers(rng, *shape, low=-2, high=3)
    if dtype == "bf16":
        return bf16(values)
    if dtype.startswith("fp8"):
        table = {
            "fp8e4nv": {-2: 0xC0, -1: 0xB8, 0: 0, 1: 0x38, 2: 0x40},
            "fp8e4b15": {-2: 0xF8, -1: 0xF0, 0: 0, 1: 0x70, 2: 0x78},
            "fp8e5": {-2: 0xC0, -1: 0xBC, 0: 0, 1: 0x3C, 2: 0x40},
        }
        return Bits(np.vectorize(table[dtype].get)(values.astype(int)).astype(np.uint8), dtype)
    return values.astype(dtype)
