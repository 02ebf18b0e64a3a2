"""`wmma`: MMAs of fragments whose layout is not specified.

The PTX ISA leaves open which element a register holds, so any order works that loads, MMAs and stores
share.  Here a lane has elements of A and B that follow each other along k.  Those of C and D lie as in
`mma.sync`, one tile of 8 by 8 after another. Fragments of halves have registers for more elements than the
matrix has; these repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbuild.emulator.isa.matrix.elements import ELEMENT_BITS, elements, finish
from kbuild.emulator.isa.matrix.mma import count_ones, shape_of

_LANES = np.arange(32)


@dataclass(frozen=True)
class WmmaFragment:
    """Where the elements of one matrix are."""

    role: str
    """`a`, `b`, `c` or `d`."""
    shape: str
    kind: str

    @property
    def bits(self) -> int:
        return ELEMENT_BITS[self.kind]

    @property
    def word(self) -> int:
        """Bits of a register."""
        return 64 if self.kind == "f64" else 32

    @cached_property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns, depth = shape_of(self.shape)
        return {"a": (rows, depth), "b": (depth, columns)}.get(self.role, (rows, columns))

    @property
    def registers(self) -> int:
        """How many a lane has."""
        if self.kind == "f16" and self.role in "ab":
            return 8
        return self.size[0] * self.size[1] * self.bits // (32 * self.word)

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each lane's elements, [32, elements]; each element of the matrix is there once."""
        rows, columns = self.size
        count = rows * columns // 32
        if self.role in "ab":
            order = (_LANES[:, None] * count + np.arange(count)).astype(np.intp)
            return (order // columns, order % columns) if self.role == "a" else (order % rows, order // rows)
        element = np.arange(count)
        tile, half = element // 2, element % 2
        row = 8 * (tile % (rows // 8)) + _LANES[:, None] // 4
        return row, 8 * (tile // (rows // 8)) + 2 * (_LANES[:, None] % 4) + half

    def matrix(self, registers: np.ndarray) -> np.ndarray:
        """The matrix as float64 [warps, rows, columns], from registers [registers, warps, 32]."""
        values = elements(np.ascontiguousarray(registers.transpose(1, 2, 0)), self.kind)
        rows, columns = self.places
        found = np.zeros((registers.shape[1], *self.size))
        found[:, rows, columns] = values[..., : rows.shape[1]]
        return found

    def packed(self, values: np.ndarray) -> np.ndarray:
        """The registers [registers, warps, 32] of elements [warps, 32, elements], which are unsigned and of
        whole bytes."""
        count = self.registers * self.word // self.bits
        repeated = np.ascontiguousarray(np.tile(values, -(-count // values.shape[-1]))[..., :count])
        return repeated.view(f"u{self.word // 8}").transpose(2, 0, 1)

    def unpacked(self, registers: np.ndarray) -> np.ndarray:
        """Elements [warps, 32, elements] of whole bytes, from registers [registers, warps, 32]."""
        values = np.ascontiguousarray(registers.transpose(1, 2, 0)).view(f"u{self.bits // 8}")
        return values[..., : self.places[0].shape[1]]


def multiply_fragments(
    d: WmmaFragment,
    factors: tuple[WmmaFragment, WmmaFragment, WmmaFragment],
    registers: list[np.ndarray],
    saturate: bool = False,
    operation: str = "",
) -> np.ndarray:
    """The registers of D from those of A, B and C; `operation` is as for `mma_sync`."""
    left, right, add = (fragment.matrix(each) for fragment, each in zip(factors, registers))
    with np.errstate(all="ignore"):
        dot = count_ones(left, right, operation) if operation else left @ right
    rows, columns = d.places
    return d.packed(finish(dot + add, d.kind, saturate)[:, rows, columns])
