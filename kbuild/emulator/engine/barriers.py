"""Barriers that warps meet at: the sixteen of a CTA, and the one of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.async_ops.operation import notify
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import Memory


class Group(Protocol):
    """The part of a CTA that its barriers use."""

    live_warps: int
    rank: int

    @property
    def memory(self) -> Memory: ...


class Comers(Protocol):
    """A batch that comes to a barrier."""

    @property
    def cta(self) -> Group: ...

    @property
    def memory(self) -> Memory: ...

    def warps_in(self, where: Any) -> list[int]: ...


class Gathering(Protocol):
    """The part of a cluster that its barrier uses."""

    @property
    def ctas(self) -> Sequence[Group]: ...

    @property
    def observers(self) -> Sequence[Any]: ...


Finish = Callable[[int, int], None]
"""Called at release with the sum of what warps brought and the number of threads that came."""


@dataclass
class BarrierState:
    """One barrier; each release begins a new generation."""

    number: int
    generation: int = 0
    arrived: int = 0
    """Threads that came in this generation."""
    expected: int = 0
    """Threads that release it; 0: all of the CTA that have not ended."""
    waiting: set[int] = field(default_factory=set)
    """Warps that wait in this generation."""
    total: int = 0
    finishers: list[Finish] = field(default_factory=list)


@dataclass(frozen=True)
class BarrierWait:
    """A batch waiting for a barrier's release."""

    barrier: BarrierState
    generation: int

    def ready(self) -> bool:
        return self.barrier.generation != self.generation

    def describe(self) -> str:
        needed = self.barrier.expected or "all"
        return (
            f"waits at barrier {self.barrier.number} ({self.barrier.arrived} of {needed} threads are there)"
        )


class CtaBarriers:
    """The named barriers of a CTA."""

    def __init__(self, cta: Group) -> None:
        self.cta = cta
        self.barriers = [BarrierState(number) for number in range(16)]

    def arrive(
        self,
        batch: Comers,
        number: int,
        count: int,
        where: Any,
        waits: bool,
        brought: tuple[int, Finish] | None = None,
    ) -> BarrierWait | None:
        """The warps of a batch arrive; returns the wait, or None where they may continue.  Raises Fault for
        misuse."""
        if number > 15:
            raise Fault("barrier-misuse", f"barrier {number} does not exist; there are 16")
        if count % 32:
            raise Fault("barrier-misuse", f"the thread count {count} is not a multiple of 32")
        barrier = self.barriers[number]
        if barrier.arrived and barrier.expected != count:
            raise Fault(
                "barrier-misuse",
                f"barrier {number} is used with {barrier.expected} and with {count} threads at once",
            )
        warps = batch.warps_in(where)
        again = barrier.waiting & set(warps)
        if again:
            raise Fault(
                "barrier-misuse",
                f"warp {min(again)} comes to barrier {number} a second time before its release",
            )
        notify(self.cta.memory.observers, "came", self.cta, number, warps)
        barrier.expected = count
        barrier.arrived += 32 * len(warps)
        if waits:
            barrier.waiting.update(warps)
        if brought is not None:
            barrier.total += brought[0]
            barrier.finishers.append(brought[1])
        wait = BarrierWait(barrier, barrier.generation)
        self._release(barrier)
        return wait if waits and not wait.ready() else None

    def warps_ended(self) -> None:
        """Some warps have ended: barriers of the whole CTA no longer wait for them."""
        for barrier in self.barriers:
            if barrier.arrived and not barrier.expected:
                self._release(barrier)

    def _release(self, barrier: BarrierState) -> None:
        needed = barrier.expected or 32 * self.cta.live_warps
        if barrier.arrived < needed:
            return
        if barrier.arrived > needed:
            raise Fault(
                "barrier-misuse",
                f"{barrier.arrived} threads come to barrier {barrier.number}, which is for {needed}",
            )
        for finish in barrier.finishers:
            finish(barrier.total, barrier.arrived)
        notify(self.cta.memory.observers, "released", self.cta, barrier.number, sorted(barrier.waiting))
        barrier.generation += 1
        barrier.arrived, barrier.total = 0, 0
        barrier.waiting.clear()
        barrier.finishers.clear()


@dataclass(frozen=True)
class ClusterWait:
    """A batch waiting for all warps of the cluster."""

    barrier: ClusterBarrier
    generation: int

    def ready(self) -> bool:
        return self.barrier.generation != self.generation

    def describe(self) -> str:
        return f"waits at the barrier of the cluster ({self.barrier.arrived} threads of {self.barrier.live_threads} arrived)"


class ClusterBarrier:
    """`barrier.cluster`: arriving and waiting are two instructions."""

    def __init__(self, cluster: Gathering) -> None:
        self.cluster = cluster
        self.generation = 0
        self.arrived = 0
        self._arrivals: dict[tuple[int, int], int] = {}
        """For each warp (rank of its CTA, number) the generation it last arrived in."""

    @property
    def live_threads(self) -> int:
        """The threads of the cluster that have not ended."""
        return sum(32 * cta.live_warps for cta in self.cluster.ctas)

    def arrive(self, batch: Comers, where: Any, releases: bool = True) -> None:
        """The warps of a batch arrive.  Raises Fault where they did before and have not waited."""
        warps = batch.warps_in(where)
        notify(batch.memory.observers, "cluster_came", batch.cta, warps, releases)
        for warp in warps:
            key = (batch.cta.rank, warp)
            if self._arrivals.get(key) == self.generation:
                raise Fault("barrier-misuse", f"warp {warp} arrives twice at the barrier of the cluster")
            self._arrivals[key] = self.generation
            self.arrived += 32
        self._release()

    def wait(self, batch: Comers, where: Any) -> ClusterWait | None:
        """The wait of the warps of a batch."""
        warps = batch.warps_in(where)
        generations = {self._arrivals.get((batch.cta.rank, warp)) for warp in warps}
        if None in generations:
            raise Fault("barrier-misuse", "barrier.cluster.wait without barrier.cluster.arrive before it")
        wait = ClusterWait(self, max(generation for generation in generations if generation is not None))
        notify(batch.memory.observers, "cluster_waits", batch.cta, warps, wait.ready())
        return None if wait.ready() else wait

    def warps_ended(self) -> None:
        """Some warps have ended."""
        self._release()

    def _release(self) -> None:
        if self.arrived and self.arrived >= self.live_threads:
            self.generation += 1
            self.arrived = 0
            notify(self.cluster.observers, "cluster_released", self.cluster)


def lanes_to_warps(where: Any, first: int, count: int) -> list[int]:
    """The warps, of `count` from `first` on, that have a lane in a mask."""
    if where is True:
        return list(range(first, first + count))
    return (first + np.flatnonzero(where.reshape(-1, 32).any(1))).tolist()
