"""Matrix descriptors of `wgmma`: where the 16-byte chunks of an operand lie in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.emulator.findings import Fault

_WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row by the descriptor's swizzle field; rows of 16 bytes are not swizzled."""
_FIELDS = 0xC00E_3FFF_3FFF_3FFF
CHUNK = 16


def swizzle(addresses: np.ndarray, width: int) -> np.ndarray:
    """Where bytes lie when rows of `width` bytes are swizzled: the chunk's number is combined with the number of the 128 bytes.

    Bits 4, 5 and 6 of the address (as many as number the chunks of a row) are XORed with bits 7, 8 and 9.
    """
    return addresses ^ ((addresses >> 7 & (width // CHUNK - 1)) << 4)


@dataclass(frozen=True)
class Descriptor:
    """The 64 bits of a descriptor, taken apart; all distances in bytes."""

    start: int
    leading: int
    """Leading dimension byte offset."""
    stride: int
    """Stride dimension byte offset."""
    width: int
    """Bytes of a row of the swizzle's pattern: 128, 64, 32, or 16 for no swizzle."""

    @staticmethod
    def decode(bits: int) -> Descriptor:
        """Raises Fault for bits that belong to no field, and for a tile that is not aligned to its swizzle pattern."""
        if bits & ~_FIELDS:
            raise Fault("wgmma-misuse", f"the matrix descriptor {bits:#018x} has bits set that belong to no field")
        if bits >> 49 & 7:
            raise Fault("wgmma-misuse", f"the matrix descriptor {bits:#018x} has a base offset, which is not supported")
        return Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, _WIDTHS[bits >> 62])

    def encode(self) -> int:
        """The 64 bits."""
        mode = next(mode for mode, width in _WIDTHS.items() if width == self.width)
        return self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | mode << 62

    def chunks(self, extent: int, depth: int, transposed: bool) -> np.ndarray:
        """Addresses of the chunks of an operand with `extent` rows of A (columns of B) and `depth` places along k.

        Plain operands (K-major) have chunks along k: int64 [extent, chunks], `depth` counts chunks.  Transposed ones (MN-major)
        have chunks along the other axis: [chunks, depth], `extent` counts chunks.
        """
        row, k = np.arange(extent)[:, None], np.arange(depth)[None, :]
        if transposed:
            # Panels as wide as the swizzle, eight k's each; without a swizzle the two distances change their roles.
            panel, group = (self.stride, self.leading) if self.width == CHUNK else (self.leading, self.stride)
            per_panel = self.width // CHUNK
            offsets = row // per_panel * panel + row % per_panel * CHUNK + k // 8 * group + k % 8 * self.width
        else:
            along = k * (self.leading if self.width == CHUNK else CHUNK)
            offsets = row // 8 * self.stride + row % 8 * self.width + along
        return swizzle(self.start + offsets, self.width)
