"""What orders threads: barriers, mbarriers, fences, and atomic operations that acquire and release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kbuild.emulator.race.clocks import FENCED, Clocks, Knowledge, Threads
from kbuild.emulator.race.sites import CLUSTER, CTA, DEVICE, InstructionSite

_KEPT = 4
"""Releases kept apart at one address."""


@dataclass(frozen=True, eq=False)
class Release:
    """What threads passed on at an address."""

    row: Knowledge
    cta: Any
    scope: int
    """The narrowest on the way: of the release, and of the accesses that pass it on."""

    def reaches(self, cta: Any, scope: int) -> bool:
        """Whether threads of a CTA that acquire with a scope are in both scopes, as are those that released."""
        distance = CTA if self.cta is cta else CLUSTER if self.cta.cluster is cta.cluster else DEVICE
        return min(self.scope, scope) >= distance


class Order:
    """The order among the threads of one cluster; `releases` is shared by all clusters of a launch."""

    def __init__(
        self, clocks: Clocks, threads_per_cta: int, releases: dict[tuple[int, int], list[Release]]
    ) -> None:
        self.clocks = clocks
        self.threads_per_cta = threads_per_cta
        self.releases = releases
        self._brought: dict[tuple[int, int], Knowledge] = {}
        """What came to each barrier of a CTA (rank, number)."""
        self._phases: dict[tuple[int, int], dict[int, Knowledge]] = {}
        """What arrived at each mbarrier (space, offset) in each of its last phases, and its own CTA may
        know."""
        self._far: dict[tuple[int, int], dict[int, Knowledge]] = {}
        """What others released there at the scope of the cluster: for threads that acquire at that scope."""
        self._makers: dict[tuple[int, int], tuple[int, int]] = {}
        """The thread that made each mbarrier, at which of its clocks."""
        self._meeting: Knowledge | None = None
        self._met: Knowledge | None = None
        """What came to the barrier of the cluster in this generation, and in the one before."""
        self._meeting_waits: list[np.ndarray] = []
        self._fences: dict[int, tuple[Knowledge, int]] = {}
        """For each thread what its last fence passed on to its later relaxed writes, and the scope of that."""
        self._seen: dict[int, list[Release]] = {}
        """For each thread what its relaxed reads have met, which its next fence acquires."""

    def threads(self, rank: int, warps: list[int]) -> Threads:
        """The threads of warps of a CTA."""
        first = rank * self.threads_per_cta
        if warps and warps[-1] - warps[0] + 1 == len(warps):
            return slice(first + 32 * warps[0], first + 32 * warps[-1] + 32)
        return np.concatenate(
            [first + 32 * warp + np.arange(32) for warp in warps] or [np.zeros(0, np.int64)]
        )

    # Barriers

    def came(self, rank: int, number: int, warps: list[int]) -> None:
        """Warps bring what they know to a barrier."""
        threads = self.threads(rank, warps)
        self._brought[rank, number] = self.clocks.row(threads).joined(self._brought.get((rank, number)))
        self.clocks.tick(threads)

    def released(self, rank: int, number: int, waiting: list[int]) -> None:
        """Warps continue with what all brought."""
        brought = self._brought.pop((rank, number), None)
        if brought is not None and waiting:
            self.clocks.learn(self.threads(rank, waiting), brought)

    def cluster_came(self, rank: int, warps: list[int], releases: bool) -> None:
        threads = self.threads(rank, warps)
        if releases:
            self._meeting = self.clocks.row(threads).joined(self._meeting)
            self.clocks.tick(threads)

    def cluster_waits(self, rank: int, warps: list[int], ready: bool) -> None:
        threads = self.threads(rank, warps)
        if not ready:
            self._meeting_waits.append(self.clocks.numbers(threads))
        elif self._met is not None:
            self.clocks.learn(threads, self._met)

    def cluster_released(self) -> None:
        self._met, self._meeting = self._meeting, None
        waits, self._meeting_waits = self._meeting_waits, []
        for threads in waits:
            if self._met is not None:
                self.clocks.learn(threads, self._met)

    def warps_meet(self, threads: np.ndarray) -> None:
        """`bar.warp.sync`: threads of one or more warps meet, warp by warp."""
        for warp in np.unique(threads >> 5).tolist():
            own = threads[threads >> 5 == warp]
            self.clocks.learn(own, self.clocks.row(own))
            self.clocks.tick(own)

    # Mbarriers

    def arrived(
        self, barrier: tuple[int, int], phase: int, threads: np.ndarray, from_afar: bool, to_cluster: bool
    ) -> None:
        """Threads pass on what they know to those that see a phase complete.

        Threads of another CTA do so `to_cluster` alone.  At the scope of their own CTA they only say which
        asynchronous operations they know to have ended: those touch nothing any more.
        """
        row = self.clocks.row(threads)
        if from_afar and to_cluster:
            _hand_on(self._far.setdefault(barrier, {}), phase, row)
        _hand_on(self._phases.setdefault(barrier, {}), phase, self.clocks.ended(row) if from_afar else row)
        self.clocks.tick(threads)

    def passed(self, barrier: tuple[int, int], phase: int, threads: np.ndarray, of_cluster: bool) -> None:
        """Threads have seen a phase complete: they know which threads arrived, and what copies brought; they
        acquire what other CTAs released at the scope `of_cluster`."""
        for phases in (self._phases, self._far)[: 1 + of_cluster]:
            before = [number for number in phases.get(barrier, {}) if number <= phase]
            if before:
                self.clocks.learn(threads, phases[barrier][max(before)])
        self.clocks.see(threads, barrier, phase + 1)

    def begun(self, barrier: tuple[int, int], thread: int) -> None:
        """A thread makes an mbarrier: what an older one at the same place meant is over."""
        self.clocks.column(barrier, fresh=True)
        self._phases.pop(barrier, None)
        self._far.pop(barrier, None)
        self._makers[barrier] = (thread, int(self.clocks.own(np.array([thread]))[0]))

    def made_for(self, barrier: tuple[int, int], thread: int) -> bool:
        """Whether the copies that a thread issues find an mbarrier made: a fence lies between the two."""
        maker, clock = self._makers.get(barrier, (0, 0))
        return bool(self.clocks.rows[FENCED, thread, maker] >= clock)

    # Fences, acquire and release

    def fence(self, cta: Any, threads: np.ndarray, scope: int, sequential: bool) -> None:
        """`fence` and `membar`: acquire what relaxed reads have met, and pass on to relaxed writes that
        follow.

        Those that are `sequential` have one order for all threads: one that comes after a read of what was
        written after another one comes after that, however the two threads and the two accesses were ordered.
        So that is followed for the scope of the device; narrower ones count as others do.
        """
        for thread in threads.tolist():
            for release in self._seen.pop(thread, ()):
                self._acquire(release, cta, scope, np.array([thread]))
        if sequential and scope == DEVICE:
            self.clocks.fence_in_sequence(threads)
        for thread in threads.tolist():
            self._fences[thread] = (self.clocks.row(np.array([thread])), scope)
        self.clocks.tick(threads)

    def strong_access(
        self, kind: str, site: InstructionSite, cta: Any, place: tuple[int, np.ndarray], threads: np.ndarray
    ) -> None:
        """An atomic operation, or an access with an order, by threads at offsets of a space."""
        if not (site.acquires or site.releases or self.releases or self._fences or self.clocks.sequential):
            return
        space, offsets = place
        for offset in np.unique(offsets).tolist():
            here = threads[offsets == offset]
            known = self.releases.get((space, offset), [])
            if kind != "store":
                self._meet(site, cta, known, here)
            if kind == "load":
                continue
            kept = list(known) if site.modifies else []
            if site.releases:
                kept.append(Release(self.clocks.row(here), cta, site.scope))
            kept += [
                Release(self._fences[thread][0], cta, min(self._fences[thread][1], site.scope))
                for thread in here.tolist()
                if thread in self._fences
            ]
            if self.clocks.sequential:
                kept.append(Release(self.clocks.row_for_sequence(here), cta, site.scope))
            if kept or known:
                self.releases[space, offset] = _fewer(kept)
        if site.releases and kind != "load":
            self.clocks.tick(threads)

    def _meet(self, site: InstructionSite, cta: Any, known: list[Release], threads: np.ndarray) -> None:
        """Threads read what was released somewhere."""
        if site.acquires:
            for release in known:
                self._acquire(release, cta, site.scope, threads)
            return
        for release in known:
            if release.row.in_sequence:
                self._acquire(release, cta, site.scope, threads)
        met = [replace(release, scope=min(release.scope, site.scope)) for release in known]
        for thread in threads.tolist() if met else ():
            self._seen[thread] = [*self._seen.get(thread, ())[-_KEPT:], *met]

    def _acquire(self, release: Release, cta: Any, scope: int, threads: np.ndarray) -> None:
        if release.reaches(cta, scope):
            self.clocks.learn(threads, release.row)


def _hand_on(phases: dict[int, Knowledge], phase: int, row: Knowledge) -> None:
    """Add a row to what arrived in a phase, of which there is none later, and forget phases that no thread
    can wait for."""
    phases[phase] = row.joined(phases[max(phases)] if phases else None)
    for number in [number for number in phases if number < phase - 1]:
        del phases[number]


def _fewer(releases: list[Release]) -> list[Release]:
    """The same with those of one CTA and scope in one."""
    if len(releases) <= _KEPT:
        return releases
    found: dict[tuple[int, int, bool], Release] = {}
    for release in releases:
        key = (id(release.cta), release.scope, release.row.in_sequence)
        row = release.row.joined(found[key].row) if key in found else release.row
        found[key] = Release(row, release.cta, release.scope)
    return list(found.values())
