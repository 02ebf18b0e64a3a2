"""Launches that were captured, as the key `launches` of a manifest gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = 1
"""Raised when the meaning of a line changes."""
COLUMNS = ("at", "hints", "values", "arrays")
"""What the first line of their file names."""


@dataclass(frozen=True)
class RecordedArray:
    """An array of a launch, in elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements from its first one to its last one."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch of a variant."""

    at: tuple[tuple[str, Any], ...]
    """Values that the variant has: of axes, and of meta-parameters."""
    hints: tuple[tuple[str, str], ...]
    """The hints of its arguments."""
    values: tuple[tuple[str, int | float], ...]
    """Numbers, those that the grid needs among them."""
    arrays: tuple[RecordedArray, ...]
    """Those whose shapes are known."""

    @property
    def elements(self) -> int:
        """Elements of all arrays."""
        return sum(array.elements for array in self.arrays)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
