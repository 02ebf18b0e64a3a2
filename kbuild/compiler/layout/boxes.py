"""The boxes in which TMA copies a tile of shared memory.

A box is dense in shared memory, in the order of its axes, the last one fastest; a row of it along that axis is as
wide as the swizzle, where there is one.  The hardware swaps 16-byte chunks by the address, as in
`named.wgmma_shared`.
"""

from __future__ import annotations

from functools import lru_cache

from kbuild.compiler.layout.linear import LinearLayout, axis_bits

MAX_BOX_SIZE = 256
"""Elements along an axis that one instruction may copy."""
PATTERN_ROWS = 8
"""Rows after which a swizzle repeats."""
_CHUNK_BYTES, _PATTERN_BIT = 16, 7
"""What a swizzle moves, and the lowest bit of the address by which it does."""


@lru_cache(maxsize=1024)
def tma_box(layout: LinearLayout, element_bits: int) -> tuple[tuple[int, ...], int] | None:
    """The largest box that a shared layout consists of, and the bytes of its swizzle, 0 for none; None for a
    layout that TMA cannot copy."""
    for swizzle_bytes in (128, 64, 32, 0):
        plain = _unswizzled(layout, element_bits, swizzle_bytes)
        if plain is None:
            continue
        box = _leading_box(layout.shape, plain, swizzle_bytes * 8 // element_bits or MAX_BOX_SIZE)
        row_bytes = box[-1] * element_bits // 8
        rows = 1
        for size in box[:-1]:
            rows *= size
        if row_bytes < _CHUNK_BYTES or (
            swizzle_bytes and (row_bytes != swizzle_bytes or rows < PATTERN_ROWS)
        ):
            continue
        return box, swizzle_bytes
    return None


def _unswizzled(layout: LinearLayout, element_bits: int, swizzle_bytes: int) -> list[int] | None:
    """The bases of a layout without a swizzle; None where it is not one of a layout that has it."""
    bases = list(layout.bases_of("offset"))
    element = (element_bits // 8).bit_length() - 1
    chunk = _CHUNK_BYTES.bit_length() - 1 - element
    for position in range((swizzle_bytes // _CHUNK_BYTES).bit_length() - 1 if swizzle_bytes else 0):
        bit = _PATTERN_BIT - element + position
        if bit >= len(bases):
            return None
        bases[bit] ^= bases[chunk + position]
    return None if any(basis & (basis - 1) or not basis for basis in bases) else bases


def _leading_box(shape: tuple[int, ...], plain: list[int], width: int) -> tuple[int, ...]:
    """The box that the lowest bits of offsets go through, `width` elements along the last axis at most."""
    box, last = [1] * len(shape), len(shape) - 1
    axis_of = {1 << bit: axis for axis in range(len(shape)) for bit in axis_bits(shape, axis)}
    current = last
    for basis in plain:
        axis = axis_of[basis]
        is_next = basis == box[axis] << axis_bits(shape, axis).start
        if axis > current or not is_next or box[axis] >= (width if axis == last else MAX_BOX_SIZE):
            break
        current = axis
        box[axis] *= 2
    return tuple(box)
