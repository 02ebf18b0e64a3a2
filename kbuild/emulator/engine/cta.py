"""CTAs and their clusters: which convoy runs next, which join, and when no warp can go on.

Convoys that parted join again when a barrier releases them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.async_ops.operation import tell
from kbuild.emulator.engine.barriers import BarrierWait, ClusterBarrier, CtaBarriers
from kbuild.emulator.engine.convoy import Convoy, Entry, Mask, Run, Stop, Waiting
from kbuild.emulator.engine.findings import Fault, Finding
from kbuild.emulator.engine.memory import Memory, Space
from kbuild.emulator.engine.registers import RegisterFile
from kbuild.emulator.engine.schedule import Schedule


class Agent(Protocol):
    """Something that works beside the warps, such as a copy engine."""

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
        convoys: dict[tuple[int, int], Convoy],
        memory: Memory,
    ) -> None:
        self.launch, self.cluster, self.index, self.rank = launch, cluster, index, rank
        self.file, self.memory = file, memory
        self.warp_count = launch.warps
        self.barriers = CtaBarriers(self)
        self.live_warps = launch.warps
        self.agents: list[Agent] = []
        self.all_convoys = convoys
        count = launch.warps if launch.schedule.together else 1
        self.convoys: list[Convoy] = []
        threads = launch.threads
        for first in range(0, launch.warps, count):
            convoy = self.convoy(first, count)
            mask: Mask = True
            if threads < 32 * (first + count):
                mask = np.arange(32 * first, 32 * (first + count)) < threads
            convoy.begin(self, [Entry(0, mask, len(launch.program.blocks))])
            self.convoys.append(convoy)

    def land(self) -> bool:
        """Let one asynchronous operation take effect.  False where none is under way."""
        return any(agent.land() for agent in self.agents)

    @property
    def shared(self) -> Space:
        return self.memory.spaces["shared"]

    def convoy(self, first: int, count: int) -> Convoy:
        """The convoy of some warps, which has its lanes looked up already if it ran before."""
        key = (first, count)
        if key not in self.all_convoys:
            self.all_convoys[key] = Convoy(self.launch.program, self.file, first, count)
        return self.all_convoys[key]

    def replace(self, old: Sequence[Convoy], new: Sequence[Convoy]) -> None:
        """Put convoys in the place of others that hold the same warps."""
        self.convoys = sorted(
            [convoy for convoy in self.convoys if convoy not in old] + list(new),
            key=lambda convoy: convoy.first,
        )

    def lanes_ended(self) -> None:
        """Some lanes have ended: count the warps that live, and tell the barriers."""
        live = 0
        for convoy in self.convoys:
            masks = [entry.mask for entry in convoy.stack]
            if any(mask is True for mask in masks):
                live += convoy.count
            elif masks:
                live += len(convoy.warps_in(np.logical_or.reduce(masks)))
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
        tell(self.memory.observers, "ended", self)

    def wake(self) -> None:
        """Let convoys go on whose wait is over, and join those that one barrier released."""
        released: dict[int, list[Convoy]] = {}
        for convoy in self.convoys:
            if convoy.waiting is not None and self._is_over(convoy, convoy.waiting):
                if isinstance(convoy.waiting, BarrierWait):
                    released.setdefault(id(convoy.waiting.barrier), []).append(convoy)
                convoy.waiting = None
        if self.launch.schedule.together:
            for convoys in released.values():
                self._unite(convoys)

    @staticmethod
    def _is_over(convoy: Convoy, waiting: Waiting) -> bool:
        """Whether a wait is over.  Raises Stop where what is waited for has gone."""
        try:
            return waiting.ready()
        except Fault as fault:
            raise Stop(convoy.finding(fault.kind, fault.message, None)) from None

    def _unite(self, convoys: list[Convoy]) -> None:
        """Join neighbours that are at the same place and not diverged."""
        run: list[Convoy] = []
        for convoy in [*convoys, None]:
            if (
                run
                and convoy
                and len(convoy.stack) == len(run[-1].stack) == 1
                and (
                    convoy.first == run[-1].first + run[-1].count
                    and convoy.stack[0].block == run[-1].stack[0].block
                )
            ):
                run.append(convoy)
                continue
            if len(run) > 1:
                whole = self.convoy(run[0].first, sum(member.count for member in run))
                masks = [member.stack[0].mask for member in run]
                mask: Mask = True
                if any(part is not True for part in masks):
                    mask = np.concatenate(
                        [
                            np.ones(member.size, bool) if part is True else part
                            for member, part in zip(run, masks)
                        ]
                    )
                whole.begin(self, [Entry(run[0].stack[0].block, mask, run[0].stack[0].until)])
                whole.turns = max(member.turns for member in run)
                self.replace(run, [whole])
            run = [convoy] if convoy else []


class Cluster:
    """CTAs that run at the same time and may talk to each other."""

    def __init__(self, launch: Run) -> None:
        self.launch = launch
        self.ctas: list[Cta] = []
        self.barrier = ClusterBarrier(self)
        self.gives_way = False
        """Whether a warp has looked at memory in vain, so that other clusters should have a turn."""

    @property
    def observers(self) -> Sequence[Any]:
        return self.launch.observers

    def run(self, schedule: Schedule, quantum: int) -> bool:
        """Run until the cluster is done (True), has had `quantum` turns or spins.  Raises Stop for a deadlock
        and other finds."""
        for _ in range(quantum):
            ready = self._ready()
            if not ready:
                if all(convoy.done for cta in self.ctas for convoy in cta.convoys):
                    return True
                if self._land():
                    continue
                raise Stop(self._deadlock())
            schedule.choose(ready).run(schedule.blocks if len(ready) > 1 else schedule.alone)
            if self.gives_way:
                self.gives_way = False
                return False
        return False

    def _ready(self) -> list[Convoy]:
        ready = []
        for cta in self.ctas:
            if any(convoy.waiting is not None for convoy in cta.convoys):
                cta.wake()
            ready += [convoy for convoy in cta.convoys if convoy.stack and convoy.waiting is None]
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
            for convoy in cta.convoys:
                if convoy.waiting is not None:
                    names = (
                        f"warps {convoy.first}-{convoy.warps[-1]}"
                        if convoy.count > 1
                        else f"warp {convoy.first}"
                    )
                    lines.append(f"{names} of CTA {cta.index} {convoy.waiting.describe()}")
        return Finding("deadlock", "no warp can go on: " + "; ".join(lines), cta=self.ctas[0].index)
