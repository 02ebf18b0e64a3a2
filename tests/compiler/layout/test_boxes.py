"""The boxes of TMA: element by element, a box's bytes lie where the hardware puts them."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.compiler.layout.boxes import MAX_BOX_SIZE, tma_box
from kbuild.compiler.layout.gluon import NVMMASharedLayout
from kbuild.compiler.layout.linear import LinearLayout
from kbuild.compiler.layout.named import swizzled, unswizzled

NVMMA = [
    ((64, 64), 16, 128),
    ((64, 128), 16, 128),
    ((16, 256), 16, 128),
    ((512, 64), 16, 128),
    ((128, 32), 16, 64),
    ((8, 16), 16, 32),
    ((64, 64), 8, 64),
    ((32, 64), 32, 128),
    ((64, 64), 32, 64),
    ((4, 8, 64), 16, 128),
    ((2, 16, 128), 16, 128),
    ((64, 64), 16, 0),
    ((64, 512), 16, 0),
    ((32, 8), 16, 0),
]


def copied(layout: LinearLayout, box: tuple[int, ...], swizzle: int, bits: int) -> np.ndarray:
    """Which element TMA puts at each offset (PTX ISA, "Tensor swizzling modes"), a box behind the other, each
    where the layout has its first element."""
    numbers, found, size = np.arange(layout.numel).reshape(layout.shape), [], int(np.prod(box))
    for first in range(0, layout.numel, size):
        start = layout.coordinates(offset=first)
        place = tuple(slice(at, at + length) for at, length in zip(start, box))
        found.append(numbers[place].reshape(-1))
    at = np.arange(layout.numel) * bits // 8
    moved = at ^ ((at >> 7 & (swizzle // 16 - 1)) << 4) if swizzle else at
    placed = np.empty(layout.numel, int)
    placed[moved * 8 // bits] = np.concatenate(found)
    return placed


def held(layout: LinearLayout) -> np.ndarray:
    """Which element a layout has at each offset."""
    elements = np.zeros(1, int)
    for basis in layout.bases_of("offset"):
        elements = np.concatenate([elements, elements ^ basis])
    return elements


@pytest.mark.parametrize(("shape", "bits", "swizzle"), NVMMA)
def test_a_tile_of_tensor_cores_is_made_of_boxes(shape: tuple[int, ...], bits: int, swizzle: int) -> None:
    layout = NVMMASharedLayout(swizzle, bits, len(shape)).linear(shape)
    found = tma_box(layout, bits)
    assert found is not None
    box, pattern = found
    assert pattern == swizzle and all(size <= MAX_BOX_SIZE for size in box)
    np.testing.assert_array_equal(held(layout), copied(layout, box, pattern, bits))


def test_rows_in_order_are_one_box() -> None:
    for shape, bits in (((16, 16), 16), ((256,), 32), ((4, 4, 4), 32)):
        assert tma_box(unswizzled(shape, range(len(shape))[::-1]), bits) == (shape, 0)
    assert tma_box(unswizzled((4, 512), (1, 0)), 8) == ((1, 256), 0)


def test_what_no_box_holds_is_refused() -> None:
    assert tma_box(unswizzled((64, 64), (0, 1)), 16) is None, "columns in order"
    assert tma_box(swizzled((64, 64), 4, 1, 8, (1, 0)), 16) is None, "8-byte chunks swapped"
    assert tma_box(swizzled((64, 64), 8, 2, 8, (1, 0)), 16) is None, "another pattern"
    assert tma_box(unswizzled((64, 4), (1, 0)), 16) is None, "rows of 8 bytes"
