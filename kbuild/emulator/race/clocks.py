"""Vector clocks: for each thread of a cluster, up to which of its moments it knows every other thread.

A thread's own clock goes up whenever it passes on what it knows.  Something done at clock c of thread u comes
before what thread t does now just when t knows u up to c.  Besides threads there is a column for every
mbarrier: its clock counts the phases that are complete, and stands for the copies that the phases track.
And there is one for each warp's wgmmas: its clock counts those that the warp has waited for.

Two more planes of the same shape say up to where generic accesses of shared and of global memory are also
ordered before those of the asynchronous proxy, by a `fence.proxy.async` somewhere on the way.  Another, in
kernels that write tensor maps, says up to where writes have been released to the proxy that reads those.

The last two, in kernels with `fence.sc` (or `membar`), follow the one order that these fences have.
`SEQUENCED` says what comes before one of them that comes before now; `OBSERVED` what came before one that the
next such fence must follow, since what was written after the former has been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

MBARRIERS = 1024
"""Numbers kept for mbarriers, and for the wgmmas of warps, beside those of a cluster's threads."""
WGMMAS, LAUNCHES = -1, -2
"""What stands for the space in the keys of columns: of a warp's wgmmas, and of the launches before this
one."""
_GROWTH = 64
KNOWN, FENCED, FENCED_GLOBAL, RELEASED, SEQUENCED, OBSERVED = range(6)
"""The planes: known accesses; those of shared and of global memory that are ordered before the asynchronous
proxy too; writes released to the proxy of tensor maps; and the two of fences in sequence."""

Threads = Any
"""A slice, or an array of thread numbers."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a thread or warp knows: clocks int32 [planes, columns] of cluster `number`, and of other clusters."""

    number: int
    clocks: np.ndarray
    foreign: Mapping[int, np.ndarray] = field(default_factory=dict)
    in_sequence: bool = False
    """Whether it is for the next fence in sequence alone."""

    def joined(self, other: Knowledge | None) -> Knowledge:
        """The union of what two rows of one cluster know."""
        if other is None:
            return self
        return replace(
            self,
            clocks=_larger(self.clocks, other.clocks),
            foreign=_merged(self.foreign, other.foreign.items()),
        )


class Clocks:
    """The clocks of the threads of one cluster."""

    def __init__(self, number: int, threads: int, planes: int) -> None:
        self.number, self.threads = number, threads
        self.base = number * (threads + MBARRIERS)
        """The number of the first thread among those of all clusters."""
        self.rows = np.zeros((planes, threads, threads), np.int32)
        self._all = np.arange(threads)
        self._diagonal = self._own_clocks()
        """What each thread knows of itself, in `rows`."""
        self._diagonal[:] = 1
        self._foreign: list[Mapping[int, np.ndarray]] = [{}] * threads
        self._knows_foreign = False
        self._columns: dict[tuple[int, int], int] = {}
        self._used = threads
        self._warp_rows: dict[int, Knowledge] = {}
        """The union of what the threads of each warp know, kept until one of them learns more."""

    def numbers(self, threads: Threads) -> np.ndarray:
        """The numbers of some threads."""
        return self._all[threads]

    def own(self, threads: Threads) -> np.ndarray:
        """The clocks of some threads themselves."""
        return self._diagonal[threads]

    def tick(self, threads: Threads) -> None:
        """Advance the clocks of these threads: their later accesses are not part of what they passed on."""
        self._warp_rows.clear()
        self._diagonal[threads] += 1

    def fence(self, threads: Threads, planes: Sequence[int]) -> None:
        """All that these threads know comes before another proxy's accesses that come after this."""
        if len(self.rows) > 1:
            self._warp_rows.clear()
            for plane in planes:
                self.rows[plane, threads] = self.rows[KNOWN, threads]
            self.tick(threads)

    @property
    def sequential(self) -> bool:
        """Whether fences in sequence are followed."""
        return len(self.rows) > OBSERVED

    def fence_in_sequence(self, threads: np.ndarray) -> None:
        """`fence.sc`: these threads know what came before the fences that theirs follow."""
        self._warp_rows.clear()
        known = np.maximum(self.rows[KNOWN, threads], self.rows[OBSERVED, threads])
        self.rows[KNOWN, threads] = self.rows[SEQUENCED, threads] = known
        for thread in threads.tolist():
            fenced = {}
            for number, clocks in self._foreign[thread].items():
                fenced[number] = clocks.copy()
                fenced[number][KNOWN] = fenced[number][SEQUENCED] = np.maximum(
                    clocks[KNOWN], clocks[OBSERVED]
                )
            self._foreign[thread] = fenced

    def row_for_sequence(self, threads: np.ndarray) -> Knowledge:
        """What a fence in sequence knows that comes after a read of what these threads write now."""
        row = self.row(threads)
        return Knowledge(
            row.number,
            _observed(row.clocks),
            {key: _observed(value) for key, value in row.foreign.items()},
            True,
        )

    def row(self, threads: Threads) -> Knowledge:
        """The union of what these threads know."""
        foreign: Mapping[int, np.ndarray] = {}
        if self._knows_foreign:
            dictionaries = {
                id(self._foreign[thread]): self._foreign[thread] for thread in self._all[threads].tolist()
            }
            for each in dictionaries.values():
                foreign = _merged(foreign, each.items())
        return Knowledge(self.number, self.rows[:, threads].max(1), foreign)

    def row_of_warp(self, warp: int) -> Knowledge:
        """The union of what the threads of a warp know."""
        found = self._warp_rows.get(warp)
        if found is None:
            found = self._warp_rows[warp] = self.row(slice(32 * warp, 32 * warp + 32))
        return found

    def learn(self, threads: Threads, row: Knowledge) -> None:
        """Let these threads know what a row says."""
        self._warp_rows.clear()
        others = []
        for number, clocks in ((row.number, row.clocks), *row.foreign.items()):
            if number == self.number:
                width = clocks.shape[1]
                self._fit(width)
                known = self.rows[:, threads, :width]
                if isinstance(threads, slice):  # `known` is part of the rows.
                    np.maximum(known, clocks[:, None], out=known)
                else:
                    self.rows[:, threads, :width] = np.maximum(known, clocks[:, None])
            else:
                others.append((number, clocks))
        if not others:
            return
        self._knows_foreign = True
        done: dict[int, Mapping[int, np.ndarray]] = {}
        for thread in self._all[threads].tolist():
            old = self._foreign[thread]
            if id(old) not in done:
                done[id(old)] = _merged(old, others)
            self._foreign[thread] = done[id(old)]

    def ended(self, row: Knowledge) -> Knowledge:
        """The part of a row about asynchronous operations, without that about threads."""
        clocks = row.clocks.copy()
        clocks[:, : self.threads] = 0
        return Knowledge(row.number, clocks)

    def waited_for_launches(self, threads: Threads) -> None:
        """`griddepcontrol.wait`: these threads know that the launches before this one have ended."""
        self._raise_to(threads, self.column((LAUNCHES, 0)), 1)

    def know_launches(self, threads: Threads) -> np.ndarray:
        """For each thread whether it knows the launches before this one to have ended."""
        column = self.column((LAUNCHES, 0))
        return self.rows[KNOWN, threads, column] > 0

    def column(self, barrier: tuple[int, int], fresh: bool = False) -> int:
        """The column of an mbarrier (space, offset), or of wgmmas (`WGMMAS`, warp); a `fresh` one is
        unknown to all threads."""
        if fresh or barrier not in self._columns:
            self._warp_rows.clear()
            self._columns[barrier] = self.threads + (self._used - self.threads) % MBARRIERS
            self._used += 1
            self._fit(self._columns[barrier] + 1)
            self.rows[:, :, self._columns[barrier]] = 0
        return self._columns[barrier]

    def see(self, threads: Threads, barrier: tuple[int, int], phases: int) -> None:
        """These threads have seen a number of phases of an mbarrier complete."""
        column = self.column(barrier)
        self._raise_to(threads, column, np.maximum(self.rows[:, threads, column], phases))

    def see_wgmma_end(self, threads: slice) -> tuple[int, int]:
        """The threads of a warp have waited for one more of its wgmmas; returns the column of these, and how
        many have ended."""
        column = self.column((WGMMAS, threads.start >> 5))
        count = int(self.rows[KNOWN, threads, column].max()) + 1
        self._raise_to(threads, column, count)
        return column, count

    def _raise_to(self, threads: Threads, column: int, clocks: np.ndarray | int) -> None:
        self._warp_rows.clear()
        self.rows[:, threads, column] = clocks

    def knows(self, threads: np.ndarray, agents: np.ndarray, clocks: np.ndarray, plane: int) -> np.ndarray:
        """For each thread, or the only one, whether it knows agents of this cluster up to clocks."""
        rows = self.rows[plane]
        return rows.take(threads * rows.shape[1] + agents) >= clocks

    def knows_any(
        self, threads: np.ndarray, agents: np.ndarray, clocks: np.ndarray, plane: int
    ) -> np.ndarray:
        """As `knows`, for agents numbered among those of all clusters."""
        if np.count_nonzero(clocks) == 0:
            return np.ones(len(clocks), bool)
        local = agents - self.base
        inside = (local >= 0) & (local < self.rows.shape[2])
        known = self.knows(threads, np.where(inside, local, 0), clocks, plane) & inside
        unsure = ~known & (clocks > 0) & ~inside
        if unsure.any():
            size, threads = self.threads + MBARRIERS, np.broadcast_to(threads, agents.shape)
            for index in np.flatnonzero(unsure).tolist():
                number, agent = divmod(int(agents[index]), size)
                row = self._foreign[int(threads[index])].get(number)
                if row is not None and agent < row.shape[1]:
                    known[index] = row[plane, agent] >= clocks[index]
        return known | (clocks == 0)

    def _fit(self, columns: int) -> None:
        """Have at least this many columns."""
        missing = columns - self.rows.shape[2]
        if missing > 0:
            more = np.zeros((*self.rows.shape[:2], -(-missing // _GROWTH) * _GROWTH), np.int32)
            self.rows = np.concatenate([self.rows, more], axis=2)
            self._diagonal = self._own_clocks()

    def _own_clocks(self) -> np.ndarray:
        return self.rows[KNOWN].reshape(-1)[:: self.rows.shape[2] + 1][: self.threads]


def _larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of clocks, of which one may have fewer columns."""
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    found = a.copy()
    found[:, : b.shape[1]] = np.maximum(a[:, : b.shape[1]], b)
    return found


def _observed(clocks: np.ndarray) -> np.ndarray:
    """The sequenced plane, as observed and not known."""
    found = np.zeros_like(clocks)
    found[OBSERVED] = clocks[SEQUENCED]
    return found


def _merged(
    old: Mapping[int, np.ndarray], more: Iterable[tuple[int, np.ndarray]]
) -> Mapping[int, np.ndarray]:
    found = dict(old)
    for number, clocks in more:
        found[number] = _larger(found[number], clocks) if number in found else clocks
    return found
