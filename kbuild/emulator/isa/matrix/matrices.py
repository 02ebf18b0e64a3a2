"""`ldmatrix`, `stmatrix` and `movmatrix`: 8 by 8 matrices of 16-bit elements, spread over the lanes of a
warp.

Lane (g, t) holds the elements 2t and 2t + 1 of row g in one register; transposed, those of column g.
"""

from __future__ import annotations

import numpy as np


def distribute_matrix(rows: np.ndarray, transposed: bool = False) -> np.ndarray:
    """The registers uint32[count, warps, 32] that a load puts the matrices in, given their rows uint8[count,
    warps, 8, 16]."""
    count, warps = rows.shape[:2]
    cells = np.ascontiguousarray(rows).view(np.uint16)
    if transposed:
        cells = np.ascontiguousarray(cells.swapaxes(-1, -2))
    return cells.view(np.uint32).reshape(count, warps, 32)


def collect_matrix(registers: np.ndarray, transposed: bool = False) -> np.ndarray:
    """The rows uint8[count, warps, 8, 16] that a store writes, given registers uint32[count, warps, 32]."""
    count, warps, _ = registers.shape
    cells = np.ascontiguousarray(registers).view(np.uint16).reshape(count, warps, 8, 8)
    if transposed:
        cells = np.ascontiguousarray(cells.swapaxes(-1, -2))
    return cells.view(np.uint8)


def transpose_matrix(registers: np.ndarray) -> np.ndarray:
    """`movmatrix.trans`: one matrix in uint32[warps, 32], transposed over the lanes."""
    return distribute_matrix(collect_matrix(registers[None]), transposed=True)[0]
