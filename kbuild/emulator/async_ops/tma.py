"""The arithmetic of TMA: the elements of an array and the bytes of shared memory that a box covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbuild.emulator import fp
from kbuild.emulator.async_ops.tensor_map import SWIZZLES, TensorMap
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.matrix.swizzle import swizzle

_CHUNK = 16
"""Bytes that a swizzle keeps together; addresses and strides are multiples of them, and so are the rows of a
box."""


@dataclass(frozen=True, eq=False)
class Box:
    """The elements of one box, in the order of shared memory before the swizzle; arrays are int64, one entry
    per element, or per 16 bytes of them."""

    inside: np.ndarray
    """Which lie inside the array."""
    sources: np.ndarray
    """Address in global memory; of no meaning outside."""
    places: np.ndarray
    """Address in shared memory."""
    size: int
    """Bytes per entry."""


def box_at(
    tensor_map: TensorMap, coordinates: Sequence[int], shared: int, unit: int = 1, wide: bool = False
) -> Box:
    """The box that begins at some coordinates (innermost first, possibly outside) with its bytes at a
    shared-memory address. The part inside ends with a whole `unit` of bytes along the innermost dimension.
    Where 16 bytes always lie together, inside or outside, a `wide` box has entries of 16 bytes.

    Raises Fault for another number of coordinates than dimensions, for an address that is not a multiple of
    128, and for a box that does not begin at a multiple of 16 bytes in its rows, at which an H200 stops with
    an illegal instruction.
    """
    if len(coordinates) != tensor_map.rank:
        raise Fault(
            "tma-misuse", f"{len(coordinates)} coordinates for a tensor map of rank {tensor_map.rank}"
        )
    if shared % 128:
        raise Fault(
            "misaligned", f"the box lies at shared address {shared:#x}, which is not a multiple of 128"
        )
    element = tensor_map.element_bytes
    first, end = coordinates[0] * element, -(-tensor_map.sizes[0] * element // unit) * unit
    if first % _CHUNK:
        place = f"element {coordinates[0]} of its rows, which is not a multiple of {_CHUNK} bytes"
        raise Fault("tma-misuse", f"the box begins at {place}: an illegal instruction")
    size = _CHUNK if wide and end % _CHUNK == 0 else element
    moved = (tensor_map.moved[0] * element // size, *tensor_map.moved[1:])
    shape = moved[::-1]  # outermost first, as numpy counts
    inside = np.ones(shape, bool)
    sources = np.full(shape, tensor_map.address, np.int64)
    for dimension in range(tensor_map.rank):
        step = tensor_map.steps[dimension] if dimension else 1
        stride = tensor_map.strides[dimension - 1] if dimension else size
        start, last = (
            (coordinates[dimension], tensor_map.sizes[dimension])
            if dimension
            else (first // size, end // size)
        )
        view = (start + step * np.arange(moved[dimension])).reshape((-1,) + (1,) * dimension)
        inside &= (view >= 0) & (view < last)
        sources += view * stride
    places = shared + np.arange(inside.size, dtype=np.int64) * size
    return Box(inside.ravel(), sources.ravel(), swizzle(places, SWIZZLES[tensor_map.swizzle]), size)


def fill_bits(tensor_map: TensorMap) -> int:
    """The bits that elements outside the array are loaded as."""
    return fp.FORMATS[tensor_map.element].nan if tensor_map.fill_nan else 0


def rounded(element: str, bits: np.ndarray) -> np.ndarray:
    """The bits of elements as a load brings them: those of f32 through a map for `tf32` are rounded to
    nearest."""
    return fp.convert(bits.view(np.float32), "f32", element) if element == "tf32" else bits


def reduce_elements(operation: str, kind: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The bits of elements after a bulk reduction with `add`, `min`, `max`, `inc`, `dec`, `and`, `or` or
    `xor`."""
    if operation in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[operation](old, new)
    if operation == "inc":
        return np.where(old >= new, 0, old + 1).astype(old.dtype)
    if operation == "dec":
        return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
    apply = {"add": np.add, "min": np.fmin, "max": np.fmax}[operation]
    if kind[0] in "us":
        signed = old.dtype.str.replace("u", "i") if kind[0] == "s" else old.dtype
        return apply(old.view(signed), new.view(signed)).view(old.dtype)
    storage = fp.FORMATS[kind].storage
    if kind == "bf16":
        return fp.convert(apply(fp.decode(old, kind), fp.decode(new, kind)), "f32", kind)
    return apply(old.view(storage), new.view(storage)).view(old.dtype)
