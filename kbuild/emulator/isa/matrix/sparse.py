"""`mma.sp`: A has half of its elements, and metadata say which; all else is as in `mma.sync`.

Of each group of A's row, 4 bits of metadata keep two numbers.  The group is of 4 elements, two of which are
kept; of 2 elements of 32 bits, one of which is kept (numbers 0 and 1 stand for the first, 2 and 3 for the
second); or of 4 pairs of elements of 4 bits, two of which are kept.  Of four neighbouring lanes, those that
the selector names hold the metadata of rows g and g + 8: a lane has 4 groups of each row for elements of 16
and 32 bits, and 8 groups of one row for smaller ones (measured on an H200).
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator.isa.matrix.elements import ELEMENT_BITS, finish
from kbuild.emulator.isa.matrix.mma import (
    check_registers,
    matrix_a,
    matrix_b,
    matrix_c,
    registers_of_d,
    shape_of,
)

_ROWS = np.arange(16)


def mma_sparse(
    shape: str,
    types: tuple[str, str, str, str],
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    metadata: np.ndarray,
    selector: int,
    ordered: bool,
    saturate: bool = False,
) -> np.ndarray:
    """The registers of D, as `mma_sync` returns them.  `metadata` is uint32 [warps, 32].

    Raises ValueError for registers, a selector or metadata that do not fit.
    """
    rows, columns, depth = shape_of(shape)
    kind_d, kind_a, kind_b, kind_c = types
    if (rows, columns) != (16, 8):
        raise ValueError(f"the fragments of {shape} are not known")
    check_registers(shape, (("A", a, kind_a, 8 * depth), ("B", b, kind_b, 8 * depth), ("C", c, kind_c, 128)))
    numbers = kept_numbers(metadata, kind_a, depth, selector, ordered)
    left = spread(matrix_a(a, kind_a, rows), numbers, kind_a)
    with np.errstate(all="ignore"):
        dot = left @ matrix_b(b, kind_b)
    return registers_of_d(finish(dot + matrix_c(c, kind_c, rows), kind_d, saturate), kind_d)


def kept_numbers(metadata: np.ndarray, kind: str, depth: int, selector: int, ordered: bool) -> np.ndarray:
    """The two numbers of each group, [warps, 16, groups, 2].  Raises ValueError for an invalid selector or
    numbers."""
    bits = ELEMENT_BITS[kind]
    groups = np.arange(depth // _group(bits))
    lanes = len(groups) // 4
    if bits >= 16:
        place, nibble = groups // 4 + 0 * _ROWS[:, None], groups % 4 + 4 * (_ROWS[:, None] // 8)
    else:
        place, nibble = 2 * (groups // 8) + _ROWS[:, None] // 8, groups % 8 + 0 * _ROWS[:, None]
    if not 0 <= selector < 4 // lanes:
        raise ValueError(f"the selector {selector} is not one of the {4 // lanes} of the shape")
    words = metadata[:, 4 * (_ROWS[:, None] % 8) + lanes * selector + place]
    found = words >> (4 * nibble).astype(np.uint32) & 15
    first, second = found & 3, found >> 2
    wrong = (
        ~np.isin(found, (0b0100, 0b1110)) if bits == 32 else first >= second if ordered else first == second
    )
    if wrong.any():
        raise ValueError(
            f"the metadata hold {int(found[wrong][0]):#06b} for a group of elements of {bits} bits"
        )
    return np.stack([first, second], -1)


def spread(packed: np.ndarray, numbers: np.ndarray, kind: str) -> np.ndarray:
    """A as [warps, 16, k], zero where nothing was kept, from [warps, 16, k // 2]."""
    bits = ELEMENT_BITS[kind]
    group, unit = _group(bits), 2 if bits == 4 else 1
    places = numbers[..., :1] // 2 if bits == 32 else numbers
    within = (places[..., None] * unit + np.arange(unit)).astype(np.intp)
    index = (np.arange(numbers.shape[2])[:, None, None] * group + within).reshape(*packed.shape)
    whole = np.zeros((*packed.shape[:2], 2 * packed.shape[2]))
    np.put_along_axis(whole, index, packed, axis=2)
    return whole


def _group(bits: int) -> int:
    """Elements of a group."""
    return {32: 2, 4: 8}.get(bits, 4)
