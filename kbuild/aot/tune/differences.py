"""How results of two configurations differ."""

from __future__ import annotations

import numpy as np

from kbuild.compiler.interp import decode
from kbuild.compiler.interp.formats import element_named
from kbuild.compiler.interp.loaded import Type, is_float

BOUNDS = {"fp64": 1e-10, "fp32": 2e-3, "fp16": 1e-2, "bf16": 4e-2}
"""How far results of two configurations may be apart, relative to the root mean square of the array: sums are
added up in another order, and dots of fp32 may be of tf32."""
_COARSEST = 0.3
"""The tolerance of the 8-bit types."""
_MAX_COMPARED = 1 << 20
"""Elements of an array that are compared, spread over all of it."""


def element_of_argument(type_: str) -> Type:
    """The type of an array's elements, from that of the argument."""
    return element_named(type_.partition(":")[0].removeprefix("*"))


def difference(type_: str, expected: np.ndarray, found: np.ndarray) -> str:
    """How two arrays differ, in words; empty where they agree."""
    if np.array_equal(expected.view(np.uint8), found.view(np.uint8)):
        return ""
    step = -(-expected.size // _MAX_COMPARED)
    name, element = type_.partition(":")[0].removeprefix("*"), element_of_argument(type_)
    left, right = (decode(array[::step], element).astype(np.float64) for array in (expected, found))
    if not is_float(element):
        wrong = left != right
    else:
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        finite = left[np.isfinite(left)]
        scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 1.0
        with np.errstate(all="ignore"):
            errors = np.where(same, 0.0, np.abs(left - right)) / max(scale, 1e-30)
        wrong = ~(errors <= BOUNDS.get(name, _COARSEST))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ from those of the default" if wrong.any() else ""
    )
