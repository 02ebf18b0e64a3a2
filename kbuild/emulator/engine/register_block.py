"""Several registers as one array, for instructions that work on many: MMAs, and their fragments."""

from __future__ import annotations

from typing import Any

import numpy as np


class RegisterBlock:
    """Some lanes of several registers of one width; their bits are arrays [registers, lanes]."""

    __slots__ = ("_lanes", "_rows")

    def __init__(self, lanes: np.ndarray, rows: tuple[int, ...] | slice | np.ndarray) -> None:
        if isinstance(rows, tuple):  # Registers that lie side by side need no copy.
            rows = (
                slice(rows[0], rows[0] + len(rows))
                if rows == tuple(range(rows[0], rows[0] + len(rows)))
                else np.array(rows)
            )
        self._lanes, self._rows = lanes, rows

    def __len__(self) -> int:
        """How many lanes there are."""
        return self._lanes.shape[1]

    def part(self, first: int, last: int) -> RegisterBlock:
        """The lanes from `first` to before `last`."""
        return self if last - first == len(self) else RegisterBlock(self._lanes[:, first:last], self._rows)

    def read(self) -> np.ndarray:
        """The registers; perhaps themselves, and no copy."""
        return self._lanes[self._rows]

    def write(self, bits: np.ndarray | int, where: Any = True) -> None:
        """Put bits [registers, lanes] into those lanes that a mask names."""
        if where is True:
            self._lanes[self._rows] = bits
        else:
            self._lanes[self._rows] = np.where(where, bits, self._lanes[self._rows])
