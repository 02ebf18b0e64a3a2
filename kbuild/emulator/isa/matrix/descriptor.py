"""Shared-memory matrix descriptors of `wgmma`: where each element of an operand lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.emulator.isa.matrix.swizzle import SWIZZLE_BYTES, swizzle

_WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a swizzled row by the descriptor's field."""


class DescriptorError(ValueError):
    """Raised for an invalid descriptor."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """The 64 bits of a descriptor, taken apart.  All distances are in bytes."""

    start: int
    leading: int
    """Leading dimension byte offset."""
    stride: int
    """Stride dimension byte offset."""
    width: int = 16
    """Bytes of a swizzled row: 128, 64, 32, or 16 for no swizzle."""
    base_offset: int = 0

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """The descriptor in a 64-bit register.  Raises DescriptorError where bits that must be zero are not."""
        if bits & ~0xC00E_3FFF_3FFF_3FFF:
            raise DescriptorError(f"the matrix descriptor {bits:#018x} has bits set that belong to no field")
        return cls(
            (bits & 0x3FFF) << 4,
            (bits >> 16 & 0x3FFF) << 4,
            (bits >> 32 & 0x3FFF) << 4,
            _WIDTHS[bits >> 62],
            bits >> 49 & 7,
        )

    def encode(self) -> int:
        """The 64 bits."""
        mode = next(mode for mode, width in _WIDTHS.items() if width == self.width)
        fields = self.start >> 4 & 0x3FFF, self.leading >> 4 & 0x3FFF, self.stride >> 4 & 0x3FFF
        return fields[0] | fields[1] << 16 | fields[2] << 32 | self.base_offset << 49 | mode << 62


def operand_addresses(
    descriptor: MatrixDescriptor, extent: int, depth_bytes: int, element_bytes: int, transposed: bool
) -> np.ndarray:
    """The shared-memory address of each element, int64 [extent, elements of the k axis].

    `extent` counts rows of A or columns of B.  Plain operands (K-major) have the k axis contiguous in rows of
    the swizzle width; `transposed` ones (MN-major) the other axis.  Without a swizzle both are made of cores
    of 8 rows of 16 bytes.  Raises DescriptorError for a base offset, and for operands that may not be
    transposed.
    """
    if descriptor.base_offset:
        raise DescriptorError(
            f"the base offset {descriptor.base_offset} means a tile that is not aligned to its swizzle pattern"
        )
    if descriptor.width not in SWIZZLE_BYTES:
        raise DescriptorError(f"{descriptor.width} bytes are not the width of a swizzle")
    if transposed and element_bytes != 2:
        raise DescriptorError(
            f"only 16-bit operands may be transposed, not those of {8 * element_bytes} bits"
        )
    place = _mn_major if transposed else _k_major
    offsets = place(
        descriptor,
        np.arange(extent)[:, None],
        np.arange(depth_bytes // element_bytes)[None, :],
        element_bytes,
    )
    return swizzle(descriptor.start + offsets, descriptor.width)


def _k_major(descriptor: MatrixDescriptor, row: np.ndarray, k: np.ndarray, size: int) -> np.ndarray:
    """Eight rows of the swizzle width, then the next eight a stride on; unswizzled, chunks of 16 bytes a
    leading offset apart."""
    byte = k * size
    along = byte // 16 * (descriptor.leading if descriptor.width == 16 else 16) + byte % 16
    return row // 8 * descriptor.stride + row % 8 * descriptor.width + along


def _mn_major(descriptor: MatrixDescriptor, row: np.ndarray, k: np.ndarray, size: int) -> np.ndarray:
    """Panels of the swizzle width along M or N, eight k's each; without a swizzle the two distances swap
    their roles."""
    panel, group = descriptor.leading, descriptor.stride
    if descriptor.width == 16:
        panel, group = group, panel
    byte = row * size
    return (
        byte // descriptor.width * panel + byte % descriptor.width + k // 8 * group + k % 8 * descriptor.width
    )
