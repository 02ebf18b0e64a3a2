"""Times of launches on a GPU that other processes use, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

ATTEMPTS = 6
WITHIN = 0.05
"""Two times that differ by less are the same."""


def steady(measure: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    """The least time of each call over several measurements, in their unit.

    A GPU's processes take turns of a few milliseconds.  A launch that has to wait for another process's turn takes
    longer, never shorter, and one measurement may hold many such launches of one call and few of the other.  So each
    call's least time has to come twice; after `ATTEMPTS` measurements it is what it is.
    """
    found = [measure()]
    least = dict(found[0])
    while len(found) < ATTEMPTS:
        found.append(measure())
        least = {name: min(one[name] for one in found) for name in least}
        bounds = {name: time * (1 + WITHIN) for name, time in least.items()}
        if all(sum(one[name] <= bound for one in found) >= 2 for name, bound in bounds.items()):
            break
    return least
