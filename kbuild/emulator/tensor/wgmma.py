"""`wgmma.mma_async`: what one warp of a warpgroup computes.

Warp w owns the rows 16 w to 16 w + 15 of A and D, whose fragments are those of `mma.sync` with 16 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.emulator.tensor.mma import STORAGE, Shape, bits_of, elements_per_register, to_matrix, to_registers, values_of

GROUP_ROWS = 64
WARP_ROWS = 16
CHUNKS_OF_K = 2
"""Chunks of 16 bytes along k that one instruction takes, whatever the type."""


@dataclass(frozen=True)
class Product:
    """What an instruction says of the product."""

    n: int
    k: int
    kinds: tuple[str, str, str]
    """Types of D, A and B."""
    negate: bool = False
    """Whether the product is subtracted: one of the two signs is negative."""
    transposed: tuple[bool, bool] = (False, False)
    """Whether A and B are MN-major."""
    saturate: bool = False

    @property
    def shape(self) -> Shape:
        """The part of one warp."""
        return Shape(WARP_ROWS, self.n, self.k)

    @property
    def result_registers(self) -> int:
        return WARP_ROWS * self.n // (32 * elements_per_register(self.kinds[0]))


def operand(chunks: np.ndarray, kind: str, transposed: bool) -> np.ndarray:
    """The elements of an operand as float64 [rows of A or columns of B, k], out of its chunks (uint8 [..., ..., 16])."""
    elements = np.ascontiguousarray(chunks).view(STORAGE[kind])
    if transposed:
        elements = np.ascontiguousarray(elements.swapaxes(1, 2))
        elements = elements.reshape(-1, elements.shape[-1])
    else:
        elements = elements.reshape(len(elements), -1)
    return values_of(elements, kind)


def operand_of_registers(product: Product, registers: np.ndarray) -> np.ndarray:
    """A as float64 [warps, 16, k] out of registers [warps, 4, 32]."""
    return values_of(to_matrix("a", product.shape, product.kinds[1], registers), product.kinds[1])


def multiply(product: Product, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """Registers of D, [warps, registers, 32], for A [warps, 16, k], B [n, k] and the registers of C (None: zero)."""
    total = a @ b.T
    if product.negate:
        total = -total
    kind = product.kinds[0]
    if c is not None:
        total = total + values_of(to_matrix("c", product.shape, kind, c), kind)
    return to_registers("c", product.shape, kind, bits_of(total, kind, product.saturate))
