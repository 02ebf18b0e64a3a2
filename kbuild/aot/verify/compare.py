"""Compares an array with the expected one: exactly, or within the bounds of its type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.aot.verify.verdict import BOUNDS, COARSEST
from kbuild.compiler.interp import decode
from kbuild.compiler.interp.loaded import Type, is_float

_ROUNDINGS = 8
"""How much farther than the interpreter in f32 code may be off, which adds in another order."""


@dataclass(frozen=True)
class Difference:
    """How two arrays differ."""

    error: float = 0.0
    """The largest difference as a share of what is allowed; infinite where a number is missing or must be
    equal and is not."""
    problem: str = ""
    """The error in words; empty if there is none."""


def compare(
    element: Type,
    expected: np.ndarray,
    found: np.ndarray,
    written: np.ndarray,
    exact: bool,
    tolerance: float | None = None,
    rounding: float | None = None,
) -> Difference:
    """Compare two arrays in memory.  Elements that are not `written` must have kept their bits; a `tolerance` is in place
    of the bound of the type.  With a `rounding`, that of the kernel in f32, results may be off by several times as much,
    and numbers that are not finite by any other such number."""
    bound = tolerance or max(BOUNDS.get(str(element), COARSEST), _ROUNDINGS * (rounding or 0.0))
    kept = _bits(expected) == _bits(found)
    spoiled = ~written & ~kept
    if spoiled.any():
        first = int(np.flatnonzero(spoiled)[0])
        places = f"{int(spoiled.sum())} elements were written that the kernel does not write, the first is [{first}]"
        return Difference(np.inf, places)
    if not is_float(element):
        wrong, errors = expected != found, np.where(expected != found, np.inf, 0.0)
    else:
        expected, found = (
            decode(expected, element).astype(np.float64),
            decode(found, element).astype(np.float64),
        )
        errors = _errors(expected, found, 0.0 if exact else bound)
        if rounding is not None and not exact:
            errors[~np.isfinite(expected) & ~np.isfinite(found)] = 0.0
        wrong = errors > 1
    if not wrong.any():
        return Difference(float(errors.max(initial=0.0)))
    first = int(np.flatnonzero(wrong)[0])
    how = "" if exact or not is_float(element) else f"; allowed is a difference of {bound:g}"
    differ = f"{int(wrong.sum())} of {wrong.size} elements differ; [{first}] is {found[first]}, expected {expected[first]}{how}"
    return Difference(float(errors.max()), differ)


def rounding(element: Type, wide: np.ndarray, narrow: np.ndarray, written: np.ndarray) -> float:
    """How far what is computed in f32 is off from what is computed in float64, as a share of the greater of an element's
    size and the mean size; where one of them is not finite, it does not count."""
    one, other = (decode(values[written], element).astype(np.float64) for values in (wide, narrow))
    known = np.isfinite(one) & np.isfinite(other)
    if not known.any():
        return 0.0
    return float(_errors(one[known], other[known], 1.0).max())


def _errors(expected: np.ndarray, found: np.ndarray, bound: float) -> np.ndarray:
    """Each difference as a share of the bound."""
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    finite = np.abs(expected[np.isfinite(expected)])
    with np.errstate(all="ignore"):
        allowed = bound * np.maximum(np.abs(expected), finite.mean() if finite.size else 0.0)
        errors = np.where(same, 0.0, np.abs(expected - found) / allowed)
    errors[~same & ~(np.isfinite(expected) & np.isfinite(found))] = np.inf
    return errors


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.dtype.itemsize}")
