"""`ldmatrix`, `stmatrix` and `movmatrix`: 8 x 8 matrices of 16-bit elements between rows of 16 bytes and registers.

Lane 4 g + t holds the elements 2 t and 2 t + 1 of row g; transposed, of column g.
"""

from __future__ import annotations

import numpy as np


def distribute(rows: np.ndarray, transposed: bool) -> np.ndarray:
    """Rows of matrices (uint8 [..., 8, 16]) as one register per matrix (uint32 [..., 32])."""
    elements = np.ascontiguousarray(rows).view(np.uint16)
    if transposed:
        elements = np.swapaxes(elements, -1, -2)
    return np.ascontiguousarray(elements).view(np.uint32).reshape(*rows.shape[:-2], 32)


def collect(registers: np.ndarray, transposed: bool) -> np.ndarray:
    """The inverse of `distribute`: registers (uint32 [..., 32]) as rows of bytes (uint8 [..., 8, 16])."""
    elements = np.ascontiguousarray(registers).view(np.uint16).reshape(*registers.shape[:-1], 8, 8)
    if transposed:
        elements = np.swapaxes(elements, -1, -2)
    return np.ascontiguousarray(elements).view(np.uint8)


def transpose(registers: np.ndarray) -> np.ndarray:
    """`movmatrix.trans`: the fragment of the transposed matrix."""
    return distribute(collect(registers, transposed=False), transposed=True)
