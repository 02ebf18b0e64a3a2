"""CTAs and their clusters: which batch runs next, which join, and when no warp can go on.

Batches that parted join again when a barrier releases them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.async_ops.operation import notify
from kbuild.emulator.engine.barriers import BarrierWait, ClusterBarrier, CtaBarriers
from kbuild.emulator.engine.findings import Fault, Finding
from kbuild.emulator.engine.memory import Memory, Space
from kbuild.emulator.engine.registers import RegisterFile
from kbuild.emulator.engine.schedule import Schedule
from kbuild.emulator.engine.warp_batch import DivergenceLevel, Mask, Run, Stop, Waiting, WarpBatch


class Agent(Protocol):
    """A unit that works beside the warps, such as TMA."""

    def land(self) -> bool:
        """Let one operation take effect; False where none is under way."""
        ...

    def finish(self) -> None:
        """The CTA has ended.  Raises Fault for operations that should have been waited for."""
        ...


class Cta:
    """The warps of one CTA, its shared memory and its barriers."""

    def __init__(
        self,
        launch: Run,
        cluster: Cluster,
        index: tuple[int, int, int],
        rank: int,
        file: RegisterFile,
        batches: dict[tuple[int, int], WarpBatch],
        memory: Memory,
    ) -> None:
        self.launch, self.cluster, self.index, self.rank = launch, cluster, index, rank
        self.file, self.memory = file, memory
        self.warp_count = launch.warps
        self.barriers = CtaBarriers(self)
        self.live_warps = launch.warps
        self.agents: list[Agent] = []
        self.all_batches = batches
        count = launch.warps if launch.schedule.together else 1
        self.batches: list[WarpBatch] = []
        threads = launch.threads
        for first in range(0, launch.warps, count):
            batch = self.batch(first, count)
            mask: Mask = True
            if threads < 32 * (first + count):
                mask = np.arange(32 * first, 32 * (first + count)) < threads
            batch.begin(self, [DivergenceLevel(0, mask, len(launch.program.blocks))])
            self.batches.append(batch)

    def land(self) -> bool:
        """Let one asynchronous operation take effect.  False where none is under way."""
        return any(agent.land() for agent in self.agents)

    @property
    def shared(self) -> Space:
        return self.memory.spaces["shared"]

    def batch(self, first: int, count: int) -> WarpBatch:
        """The batch of some warps, which has its lanes looked up already if it ran before."""
        key = (first, count)
        if key not in self.all_batches:
            self.all_batches[key] = WarpBatch(self.launch.program, self.file, first, count)
        return self.all_batches[key]

    def replace(self, old: Sequence[WarpBatch], new: Sequence[WarpBatch]) -> None:
        """Put batches in the place of others that hold the same warps."""
        self.batches = sorted(
            [batch for batch in self.batches if batch not in old] + list(new),
            key=lambda batch: batch.first,
        )

    def lanes_ended(self) -> None:
        """Some lanes have ended: count the warps that live, and notify the barriers."""
        live = 0
        for batch in self.batches:
            masks = [entry.mask for entry in batch.stack]
            if any(mask is True for mask in masks):
                live += batch.count
            elif masks:
                live += len(batch.warps_in(np.logical_or.reduce(masks)))
        if live != self.live_warps:
            self.live_warps = live
            self.barriers.warps_ended()
            self.cluster.barrier.warps_ended()
        if live == 0:
            self._finish()

    def _finish(self) -> None:
        """The last warp has ended."""
        try:
            for agent in self.agents:
                agent.finish()
        except Fault as fault:
            raise Stop(Finding(fault.kind, fault.message, cta=self.index)) from None
        self.shared.ended = True
        notify(self.memory.observers, "ended", self)

    def wake(self) -> None:
        """Resume batches whose wait is over, and join those that one barrier released."""
        released: dict[int, list[WarpBatch]] = {}
        for batch in self.batches:
            if batch.waiting is not None and self._is_over(batch, batch.waiting):
                if isinstance(batch.waiting, BarrierWait):
                    released.setdefault(id(batch.waiting.barrier), []).append(batch)
                batch.waiting = None
        if self.launch.schedule.together:
            for batches in released.values():
                self._unite(batches)

    @staticmethod
    def _is_over(batch: WarpBatch, waiting: Waiting) -> bool:
        """Whether a wait is over.  Raises Stop where the thing waited for does not exist any more."""
        try:
            return waiting.ready()
        except Fault as fault:
            raise Stop(batch.finding(fault.kind, fault.message, None)) from None

    def _unite(self, batches: list[WarpBatch]) -> None:
        """Join neighbours that are at the same place and not diverged."""
        run: list[WarpBatch] = []
        for batch in [*batches, None]:
            if (
                run
                and batch
                and len(batch.stack) == len(run[-1].stack) == 1
                and (
                    batch.first == run[-1].first + run[-1].count
                    and batch.stack[0].block == run[-1].stack[0].block
                )
            ):
                run.append(batch)
                continue
            if len(run) > 1:
                whole = self.batch(run[0].first, sum(member.count for member in run))
                masks = [member.stack[0].mask for member in run]
                mask: Mask = True
                if any(part is not True for part in masks):
                    mask = np.concatenate(
                        [
                            np.ones(member.size, bool) if part is True else part
                            for member, part in zip(run, masks)
                        ]
                    )
                whole.begin(self, [DivergenceLevel(run[0].stack[0].block, mask, run[0].stack[0].until)])
                whole.turns = max(member.turns for member in run)
                self.replace(run, [whole])
            run = [batch] if batch else []


class Cluster:
    """CTAs that run at the same time and may talk to each other."""

    def __init__(self, launch: Run) -> None:
        self.launch = launch
        self.ctas: list[Cta] = []
        self.barrier = ClusterBarrier(self)
        self.gives_way = False
        """Whether a warp spins on memory, so that other clusters should run."""

    @property
    def observers(self) -> Sequence[Any]:
        return self.launch.observers

    def run(self, schedule: Schedule, quantum: int) -> bool:
        """Run until the cluster is done (True), has had `quantum` turns or spins.  Raises Stop for a deadlock
        and other finds."""
        for _ in range(quantum):
            ready = self._ready()
            if not ready:
                if all(batch.done for cta in self.ctas for batch in cta.batches):
                    return True
                if self._land():
                    continue
                raise Stop(self._deadlock())
            schedule.choose(ready).run(schedule.blocks if len(ready) > 1 else schedule.alone)
            if self.gives_way:
                self.gives_way = False
                return False
        return False

    def _ready(self) -> list[WarpBatch]:
        ready = []
        for cta in self.ctas:
            if any(batch.waiting is not None for batch in cta.batches):
                cta.wake()
            ready += [batch for batch in cta.batches if batch.stack and batch.waiting is None]
        return ready

    def _land(self) -> bool:
        """Let one asynchronous operation land that warps may be waiting for.  Raises Stop where it cannot."""
        for cta in self.ctas:
            try:
                if cta.land():
                    return True
            except Fault as fault:
                raise Stop(Finding(fault.kind, fault.message, cta=cta.index)) from None
        return False

    def _deadlock(self) -> Finding:
        lines = []
        for cta in self.ctas:
            for batch in cta.batches:
                if batch.waiting is not None:
                    names = (
                        f"warps {batch.first}-{batch.warps[-1]}" if batch.count > 1 else f"warp {batch.first}"
                    )
                    lines.append(f"{names} of CTA {cta.index} {batch.waiting.describe()}")
        return Finding("deadlock", "no warp can go on: " + "; ".join(lines), cta=self.ctas[0].index)
