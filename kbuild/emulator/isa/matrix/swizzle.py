"""The permutation of 16-byte chunks that keeps shared memory free of bank conflicts."""

from __future__ import annotations

import numpy as np

SWIZZLE_BYTES = (16, 32, 64, 128)
"""Widths of a swizzled row; 16 means no swizzle."""


def swizzle(addresses: np.ndarray, width: int) -> np.ndarray:
    """The swizzled address, for rows of `width` bytes, of the byte that a plain row-by-row layout has at a
    shared-memory address.

    Address bits 4, 5 and 6 (as many as chunks need) are combined with bits 7, 8 and 9 by exclusive or.
    """
    return addresses ^ ((addresses >> 7 & (width // 16 - 1)) << 4)
