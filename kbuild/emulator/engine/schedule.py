"""Which batch of warps runs next, and for how long.

A batch is a run of consecutive warps that go through the same blocks together.  `lockstep` lets all warps of
a CTA be one batch for as long as they agree; the others run every warp on its own, in orders that expose
missing synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.seeded import Seeded, name_and_number

SLICE = 256
"""Blocks that a batch may run while others are ready, unless the schedule runs fewer: so that
spinning ends."""
SLICE_ALONE = 1024
"""The same of the only one that is ready."""
QUANTUM = 4096
"""Choices that a cluster gets before the next one is started beside it."""


class Runnable(Protocol):
    """The part of a batch that the choice uses."""

    first: int
    """Number of its first warp."""
    turns: int
    """How often it has been chosen."""


Chosen = TypeVar("Chosen", bound=Runnable)


class Schedule:
    """Runs the first ready batch until it waits."""

    name = "lockstep"
    together = True
    """Whether warps may run as one batch."""
    blocks = SLICE
    """How many blocks to run before the next choice."""
    alone = SLICE_ALONE
    """How many blocks the only ready one runs."""
    quantum = QUANTUM
    """How many choices before another cluster runs."""

    def choose(self, ready: Sequence[Chosen]) -> Chosen:
        """One of the batches that can run (at least one, in order of their warps)."""
        return min(ready, key=lambda batch: batch.turns)

    def start(self) -> None:
        """A new launch begins."""


class RoundRobin(Schedule):
    """Every warp runs one block, then the next warp does; and clusters alternate, so that they compete for
    locks."""

    name, together, blocks, alone, quantum = "round-robin", False, 1, 1, 1


class Reverse(Schedule):
    """The last warp runs until it waits, then the one before it."""

    name, together = "reverse", False

    def choose(self, ready: Sequence[Chosen]) -> Chosen:
        fewest = min(batch.turns // 4 for batch in ready)
        return [batch for batch in ready if batch.turns // 4 == fewest][-1]


class Forward(Schedule):
    """The first warp runs until it waits, then the one after it."""

    name, together = "forward", False


class RandomSchedule(Seeded, Schedule):
    """Any warp, for one to four blocks."""

    together = False

    def choose(self, ready: Sequence[Chosen]) -> Chosen:
        self.blocks = int(self.random.integers(1, 5))
        return ready[int(self.random.integers(len(ready)))]


class Starve(Schedule):
    """One warp runs only where no other can (or, so that spinning ends, once in a long while)."""

    together = False

    def __init__(self, warp: int) -> None:
        self.warp = warp
        self.name = f"starve({warp})"
        self.start()

    def start(self) -> None:
        self.choices = 0

    def choose(self, ready: Sequence[Chosen]) -> Chosen:
        self.choices += 1
        others = [batch for batch in ready if batch.first != self.warp]
        if not others or self.choices % 64 == 0:
            return ready[0]
        return min(others, key=lambda batch: batch.turns)


def schedule_named(text: str) -> Schedule:
    """`lockstep`, `round-robin`, `forward`, `reverse`, `random(seed)` or `starve(warp)`.  Raises
    EmulationError for others."""
    plain = {kind.name: kind for kind in (Schedule, RoundRobin, Reverse, Forward)}
    if text in plain:
        return plain[text]()
    name, number = name_and_number(text)
    if name in ("random", "starve") and number is not None:
        return (RandomSchedule if name == "random" else Starve)(number)
    raise EmulationError(
        f"unknown schedule {text!r}", help=f"known are {', '.join(plain)}, random(SEED) and starve(WARP)"
    )
