"""A build as intervals: which step ran when and in which lane, and what the build waited for."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from kbuild.aot.history.ledger import BuildRun, Step

_JITTER = 0.05
"""Seconds by which times of ninja's log may differ where one step follows another."""


def timeline(build: BuildRun) -> dict[str, Any]:
    """A build for the page: its steps with their lanes, and the numbers of those on its critical path."""
    steps = build.steps
    return {
        "number": build.number,
        "ended": build.ended,
        "jobs": build.jobs,
        "seconds": round(build.seconds, 3),
        "work": round(sum(step.end - step.start for step in steps if step.start is not None), 3),
        "hits": sum(step.how == "cache" for step in steps),
        "failed": sum(step.how == "failed" for step in steps),
        "steps": [
            [step.what, step.kind, step.start, step.end, step.how, lane, list(step.notes)]
            for step, lane in zip(steps, lanes(steps))
        ],
        "path": critical_path(steps),
        "shortest": round(shortest(steps), 3),
    }


def lanes(steps: Sequence[Step]) -> list[int]:
    """The lane of each step: the first that is free when it begins, as ninja gives its slots away; -1 for steps of
    which the beginning is not known."""
    found = [-1] * len(steps)
    free: list[float] = []
    order = sorted((step.start, place) for place, step in enumerate(steps) if step.start is not None)
    for start, place in order:
        lane = next((lane for lane, end in enumerate(free) if end <= start + 1e-9), len(free))
        free[lane : lane + 1] = [steps[place].end]
        found[place] = lane
    return found


def critical_path(steps: Sequence[Step]) -> list[int]:
    """The steps that the end of the build waited for, the first one first: from the last step back to the one that
    ended last before it began, whether for its result or for its slot."""
    by_end = sorted((step.end, place) for place, step in enumerate(steps) if step.start is not None)
    if not by_end:
        return []
    path = [by_end[-1][1]]
    while True:
        start = steps[path[-1]].start or 0.0
        index = bisect.bisect_right(by_end, (start + _JITTER, len(steps))) - 1
        # Each begins before the one after it, however short they are.
        while index >= 0 and (steps[by_end[index][1]].start or 0.0) >= start:
            index -= 1
        if index < 0:
            return path[::-1]
        path.append(by_end[index][1])


def shortest(steps: Sequence[Step]) -> float:
    """Seconds that the build would take with a slot for every step: the package waits for all others."""
    last = sum(
        step.end - (step.start or 0.0) for step in steps if step.kind == "package" and step.start is not None
    )
    others = [step.end - step.start for step in steps if step.kind != "package" and step.start is not None]
    return max(others, default=0.0) + last
