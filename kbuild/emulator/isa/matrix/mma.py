"""`mma.sync`: D = A * B + C on the registers of a warp.

In every shape `m{8,16}n8kK`, a register of A or B holds W consecutive elements of the k axis, W being how
many fit.  Lane (g, t) holds for A the rows g and, in every second register, g + 8, for B the column g; along
k it begins at `W * t`, and at `4 * W` more for each further register (for A: pair of registers).  Of C and D
it holds the columns 2t and 2t + 1 of rows g and g + 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from kbuild.emulator.isa.matrix.elements import ELEMENT_BITS, elements, finish

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


def mma_sync(
    shape: str,
    types: tuple[str, str, str, str],
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    saturate: bool = False,
    operation: str = "",
) -> np.ndarray:
    """The registers of D.

    `shape` such as `m16n8k16` with A stored by rows and B by columns; `types` of D, A, B and C.  `a`, `b` and
    `c` are registers [registers, warps, 32].  `operation` is `xor` or `and` for one-bit elements: the number
    of ones of the combination is added. Raises ValueError where shape, types and numbers of registers do not
    match.
    """
    rows, columns, depth = shape_of(shape)
    kind_d, kind_a, kind_b, kind_c = types
    if columns != 8 or rows not in (8, 16):
        raise ValueError(f"the fragments of {shape} are not known")
    check_registers(
        shape, (("A", a, kind_a, rows * depth), ("B", b, kind_b, 8 * depth), ("C", c, kind_c, rows * 8))
    )
    left, right = matrix_a(a, kind_a, rows), matrix_b(b, kind_b)
    if operation:
        dot = count_ones(left, right, operation)
    else:
        with np.errstate(all="ignore"):
            dot = left @ right
    return registers_of_d(finish(dot + matrix_c(c, kind_c, rows), kind_d, saturate), kind_d)


def check_registers(shape: str, operands: Iterable[tuple[str, np.ndarray, str, int]]) -> None:
    """Raise ValueError unless each operand (name, registers, kind and number of elements) has as many
    registers as it needs."""
    for name, found, kind, size in operands:
        width = 64 if found.dtype.itemsize == 8 else 32
        needed = size * ELEMENT_BITS[kind] // (32 * width)
        if len(found) != needed:
            raise ValueError(f"{name} of {shape} with {kind} has {needed} registers, not {len(found)}")


def shape_of(shape: str) -> tuple[int, int, int]:
    """M, N and K of a shape's name.  Raises ValueError for other words."""
    match = _SHAPE.match(shape)
    if match is None:
        raise ValueError(f"{shape} is not a shape")
    rows, columns, depth = map(int, match.groups())
    return rows, columns, depth


def matrix_a(registers: np.ndarray, kind: str, rows: int) -> np.ndarray:
    """A as float64 [warps, rows, k]."""
    count, warps, _ = registers.shape
    parts = elements(np.ascontiguousarray(registers), kind).reshape(
        count // (rows // 8), rows // 8, warps, 8, 4, -1
    )
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(warps, rows, -1)


def matrix_b(registers: np.ndarray, kind: str) -> np.ndarray:
    """B as float64 [warps, k, 8]."""
    count, warps, _ = registers.shape
    parts = elements(np.ascontiguousarray(registers), kind).reshape(count, warps, 8, 4, -1)
    return parts.transpose(1, 0, 3, 4, 2).reshape(warps, -1, 8)


def matrix_c(registers: np.ndarray, kind: str, rows: int) -> np.ndarray:
    """C as float64 [warps, rows, 8]."""
    warps = registers.shape[1]
    parts = elements(np.ascontiguousarray(registers), kind)
    if kind == "f16":
        return parts.reshape(rows // 8, warps, 8, 4, 2).transpose(1, 0, 2, 3, 4).reshape(warps, rows, 8)
    return parts.reshape(rows // 8, 2, warps, 8, 4).transpose(2, 0, 3, 4, 1).reshape(warps, rows, 8)


def registers_of_d(matrix: np.ndarray, kind: str) -> np.ndarray:
    """The registers that hold a matrix of elements [warps, rows, 8]."""
    warps, rows, _ = matrix.shape
    parts = matrix.reshape(warps, rows // 8, 8, 4, 2)
    if kind == "f16":
        return (
            np.ascontiguousarray(parts.transpose(1, 0, 2, 3, 4)).view(np.uint32).reshape(rows // 8, warps, 32)
        )
    return parts.transpose(1, 4, 0, 2, 3).reshape(rows // 4, warps, 32)


def count_ones(left: np.ndarray, right: np.ndarray, operation: str) -> np.ndarray:
    """Dot products of bits: how often both are set, or how often they differ."""
    both = left @ right
    if operation == "and":
        return both
    return left.sum(-1, keepdims=True) + right.sum(-2, keepdims=True) - 2 * both
