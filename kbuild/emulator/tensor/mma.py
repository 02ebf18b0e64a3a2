"""`mma.sync`: the fragments of the PTX ISA's figures, and the product of small matrices.

Registers come as [warps, registers, 32 lanes]; matrices are [warps, rows, columns].  Products are summed in binary64 and rounded
once, which is what the hardware approximates; integers are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kbuild.emulator import fp
from kbuild.emulator.findings import Fault

STORAGE = {
    "f64": np.dtype("u8"), "f32": np.dtype("u4"), "s32": np.dtype("u4"), "tf32": np.dtype("u4"), "f16": np.dtype("u2"),
    "bf16": np.dtype("u2"), "e4m3": np.dtype("u1"), "e5m2": np.dtype("u1"), "s8": np.dtype("u1"), "u8": np.dtype("u1"),
}  # fmt: skip
"""The bits of one element of each type."""


@dataclass(frozen=True)
class Shape:
    """Rows of A, columns of B and the length of the sums."""

    m: int
    n: int
    k: int

    @staticmethod
    def named(text: str) -> Shape:
        """The shape that a modifier such as `m16n8k16` names."""
        m, rest = text[1:].split("n")
        n, k = rest.split("k")
        return Shape(int(m), int(n), int(k))


def elements_per_register(kind: str) -> int:
    """How many elements of a type one register of a fragment holds; a binary64 number has a 64-bit register of its own."""
    return max(4 // STORAGE[kind].itemsize, 1)


@lru_cache(maxsize=256)
def fragment_places(role: str, shape: Shape, kind: str) -> np.ndarray:
    """For each register, lane and element of a fragment the place in its matrix: [registers, 32, elements], row * width + column.

    `role` is `a`, `b` or `c`.  Lane 4 g + t; within a row of A (a column of B) four lanes hold the elements of a register
    side by side; in C they hold pairs, and eight columns follow the eight before.
    """
    per = elements_per_register(kind)
    rows, columns = {"a": (shape.m, shape.k), "b": (shape.k, shape.n), "c": (shape.m, shape.n)}[role]
    registers = rows * columns // (32 * per)
    register, lane, element = np.ix_(range(registers), range(32), range(per))
    group, thread = lane // 4, lane % 4
    halves = rows // 8 if role == "a" else 1
    if role == "a":
        row = group + 8 * (register % halves)
        column = per * thread + element + 4 * per * (register // halves)
    elif role == "b":
        row = per * thread + element + 4 * per * register
        column = group + 0 * register
    else:
        index, per_tile = register * per + element, rows // 4
        row = group + 8 * (index % per_tile // 2)
        column = 8 * (index // per_tile) + 2 * thread + index % 2
    return np.ascontiguousarray(np.broadcast_to(row * columns + column, (registers, 32, per)))


@lru_cache(maxsize=256)
def _positions(role: str, shape: Shape, kind: str) -> np.ndarray:
    """For each place of the matrix the position among the fragment's elements."""
    places = fragment_places(role, shape, kind).ravel()
    positions = np.empty(places.size, np.intp)
    positions[places] = np.arange(places.size)
    return positions


def to_matrix(role: str, shape: Shape, kind: str, registers: np.ndarray) -> np.ndarray:
    """The matrix that a fragment holds, in the elements' storage: [warps, rows, columns]."""
    rows, columns = {"a": (shape.m, shape.k), "b": (shape.k, shape.n), "c": (shape.m, shape.n)}[role]
    positions = _positions(role, shape, kind)
    elements = np.ascontiguousarray(registers).view(STORAGE[kind]).reshape(len(registers), -1)
    if elements.shape[1] != positions.size:
        raise Fault("unsupported", f"a fragment {role} of {kind} has {registers.shape[1]} registers")
    return elements[:, positions].reshape(-1, rows, columns)


def to_registers(role: str, shape: Shape, kind: str, matrix: np.ndarray) -> np.ndarray:
    """A matrix in the elements' storage as a fragment: [warps, registers, 32]."""
    places = fragment_places(role, shape, kind)
    elements = matrix.reshape(len(matrix), -1)[:, places.ravel()]
    word = np.dtype("u8") if kind == "f64" else np.dtype("u4")
    return np.ascontiguousarray(elements).view(word).reshape(len(matrix), len(places), 32)


def values_of(bits: np.ndarray, kind: str) -> np.ndarray:
    """Elements as float64."""
    if kind in ("s8", "s32"):
        return bits.view({"s8": np.int8, "s32": np.int32}[kind]).astype(np.float64)
    if kind == "u8":
        return bits.astype(np.float64)
    if kind in ("f16", "f32", "f64"):
        return bits.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)
    return fp.widen(bits, kind).astype(np.float64)


def bits_of(values: np.ndarray, kind: str, saturate: bool = False) -> np.ndarray:
    """float64 numbers as elements: floats are rounded to nearest, integers wrap or are clamped."""
    if kind == "s32":
        if saturate:
            values = np.clip(values, -(2.0**31), 2.0**31 - 1)
        return (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
    if kind == "f64":
        return values.view(np.uint64)
    found = values.astype({"f16": np.float16, "f32": np.float32}[kind]).view(STORAGE[kind])
    missing = np.isnan(values)
    if missing.any():
        found[missing] = fp.FORMATS[kind].nan
    return found


def mma_sync(
    shape: str, kinds: tuple[str, str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray, saturate: bool = False
) -> np.ndarray:
    """D = A B + C on fragments [warps, registers, 32]; `kinds` are the types of D, A, B and C."""
    size = Shape.named(shape)
    left = values_of(to_matrix("a", size, kinds[1], a), kinds[1])
    right = values_of(to_matrix("b", size, kinds[2], b), kinds[2])
    total = left @ right + values_of(to_matrix("c", size, kinds[3], c), kinds[3])
    return to_registers("c", size, kinds[0], bits_of(total, kinds[0], saturate))
