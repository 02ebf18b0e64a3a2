"""Times several calls by interleaving them, launch by launch in random order.

A GPU under load runs into its power limit: a launch that follows one full of dots finds a lower clock than
one that follows a slow kernel.  So no call has a fixed place: each round launches every call once, in a new
random order, and medians are over all rounds.  Before each launch the L2 cache is overwritten, as
`triton.testing.do_bench` does.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

from kbuild.errors import ToolError

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], Any]

SECONDS = 0.8
"""Seconds of device time for each comparison."""
MAX_ROUNDS, MIN_ROUNDS = 1000, 16
BATCH = 96
"""Launches enqueued, with a flush and two marks each, before any is waited for: a stream takes about
1,000 commands."""
MAX_AHEAD = 256
_SEED = 20
_PROBE = 3


class Clock(Protocol):
    """A device that runs requests asynchronously, in order."""

    def flush(self) -> None:
        """Enqueue what comes before each launch: overwriting of the L2 cache, and of arrays such as locks."""
        ...

    def mark(self) -> Any:
        """Enqueue a mark, whose time can be read once the device has reached it."""
        ...

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached a mark."""
        ...

    def wait(self) -> None:
        """Wait until the device has done everything."""
        ...

    def microseconds(self, start: Any, end: Any) -> float:
        """The time between two marks, after a wait."""
        ...


def interleave(
    calls: Mapping[Key, Call], clock: Clock, seconds: float = SECONDS, rounds: int = 0
) -> dict[Key, float]:
    """The median time of each call in microseconds, over so many rounds or so many seconds of them.

    ToolError where the device is always faster than the process that enqueues, so that the process would
    be measured.
    """
    for call in calls.values():
        clock.flush()
        call()
    order = random.Random(_SEED)
    ahead = 8
    times: dict[Key, list[float]] = {name: [] for name in calls}
    if not rounds:
        _, once, ahead = _batch(calls, clock, order, _PROBE, ahead)
        rounds = max(MIN_ROUNDS, min(MAX_ROUNDS, int(seconds * 1e6 / max(once, 1.0))))
    size = max(1, BATCH // len(calls))
    for start in range(0, rounds, size):
        found, _, ahead = _batch(calls, clock, order, min(size, rounds - start), ahead)
        for name, own in found.items():
            times[name] += own
    return {name: statistics.median(own) for name, own in times.items()}


def _batch(
    calls: Mapping[Key, Call], clock: Clock, order: random.Random, rounds: int, ahead: int
) -> tuple[dict[Key, list[float]], float, int]:
    """All times of some rounds, microseconds of device time for a round, and how many flushes it took to stay
    ahead.

    The device starts with `ahead` flushes while the launches are enqueued.  Times of launches that it waited for do not
    count; where these are most of one call's, the rounds are repeated with more flushes.
    """
    names = list(calls)
    while ahead <= MAX_AHEAD:
        clock.wait()
        for _ in range(ahead):
            clock.flush()
        marks: list[tuple[Key, Any, Any]] = []
        late: set[int] = set()
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                clock.flush()
                start = clock.mark()
                calls[name]()
                end = clock.mark()
                # Asked each time: a process that others hold up for a while is ahead again some flushes later.
                if clock.has_passed(start):
                    late.add(len(marks))
                marks.append((name, start, end))
        clock.wait()
        times: dict[Key, list[float]] = {name: [] for name in calls}
        for number, (name, start, end) in enumerate(marks):
            if number not in late:
                times[name].append(clock.microseconds(start, end))
        if all(2 * len(own) >= rounds for own in times.values()):
            # Without the first flush: one too few among many.
            return times, clock.microseconds(marks[0][1], marks[-1][2]) / rounds, ahead
        ahead *= 2
    raise ToolError(
        f"launches of {', '.join(map(str, calls))} take longer to enqueue than to run, and cannot be timed"
    )


def shortlist(calls: Mapping[Key, Call], clock: Clock, most: int = 3) -> list[Key]:
    """The calls that may be the fastest, by short measurements: the candidates for `interleave`.

    Two rounds leave out calls that take 1.5 times as long; more rounds those that are slower than noise
    explains.
    """
    left = list(calls)
    for rounds, bound in ((2, 1.5), (15, 1.04)):
        times = interleave({name: calls[name] for name in left}, clock, rounds=rounds)
        left = [
            name
            for name in sorted(left, key=lambda name: times[name])
            if times[name] <= bound * min(times.values())
        ]
    return left[:most]
