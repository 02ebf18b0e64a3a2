"""`wgmma.mma_async`: the arithmetic, and the fragments of a warpgroup.

Warp w of a warpgroup owns the rows 16w to 16w + 15 of A and D, so any of the four warps can be computed
alone.  Registers are [registers, warps, 32] for the warps at hand, matrices [16 * warps, ...].
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator.isa.matrix.elements import elements
from kbuild.emulator.isa.matrix.mma import matrix_a

DEPTH_BYTES = 32
"""Bytes of the k axis that one instruction takes, for every type."""


def operand_of_registers(registers: np.ndarray, kind: str) -> np.ndarray:
    """A from four registers per lane, float64 [16 * warps, k]: the fragment of `mma.sync` with 16 rows."""
    matrix = matrix_a(registers, kind, 16)
    return matrix.reshape(-1, matrix.shape[-1])


def accumulator(registers: np.ndarray, kind: str) -> np.ndarray:
    """D as float64 [16 * warps, n]."""
    count, warps, _ = registers.shape
    parts = elements(np.ascontiguousarray(registers), kind)
    if kind == "f16":
        return (
            parts.reshape(count // 2, 2, warps, 8, 4, 2).transpose(2, 1, 3, 0, 4, 5).reshape(16 * warps, -1)
        )
    return parts.reshape(count // 4, 2, 2, warps, 8, 4).transpose(3, 1, 4, 0, 5, 2).reshape(16 * warps, -1)


def accumulator_registers(matrix: np.ndarray, kind: str) -> np.ndarray:
    """The registers that hold elements [16 * warps, n] of D."""
    warps, columns = len(matrix) // 16, matrix.shape[1]
    parts = matrix.reshape(warps, 2, 8, columns // 8, 4, 2)
    if kind == "f16":
        return (
            np.ascontiguousarray(parts.transpose(3, 1, 0, 2, 4, 5))
            .view(np.uint32)
            .reshape(columns // 4, warps, 32)
        )
    return parts.transpose(3, 1, 5, 0, 2, 4).reshape(columns // 2, warps, 32)


def multiply(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, scale_a: int = 1, scale_b: int = 1
) -> np.ndarray:
    """`a @ b.T + c` in float64: A [rows, k], B [n, k], and C [rows, n] or None for zero."""
    with np.errstate(all="ignore"):
        dot = a @ b.T
        if scale_a * scale_b < 0:
            dot = -dot
        return dot if c is None else dot + c
