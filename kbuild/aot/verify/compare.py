"""Compares an array with the expected one: exactly, or within the bounds of its type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.aot.verify.verdict import BOUNDS, COARSEST
from kbuild.compiler.interp import decode
from kbuild.compiler.interp.loaded import Type, is_float


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
) -> Difference:
    """Compare two arrays in memory.  Elements that are not `written` must have kept their bits; a `tolerance` is in place
    of the bound of the type."""
    bound = tolerance or BOUNDS.get(str(element), COARSEST)
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
        wrong = errors > 1
    if not wrong.any():
        return Difference(float(errors.max(initial=0.0)))
    first = int(np.flatnonzero(wrong)[0])
    how = "" if exact or not is_float(element) else f"; allowed is a difference of {bound:g}"
    differ = f"{int(wrong.sum())} of {wrong.size} elements differ; [{first}] is {found[first]}, expected {expected[first]}{how}"
    return Difference(float(errors.max()), differ)


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
