"""`cp.async`: copies from global to shared memory that each thread collects into groups and waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Copy:
    """The copies of one instruction that are under way, one entry per thread."""

    convoy: Any
    instruction: Any
    threads: np.ndarray
    destinations: np.ndarray
    sources: np.ndarray
    size: int
    filled: np.ndarray | None
    """Bytes that come from the source, the rest being zero; None: all of them."""
    groups: np.ndarray
    """Number of the thread's group that each belongs to."""

    def take(self, chosen: np.ndarray) -> Copy:
        """Some of the entries."""
        filled = None if self.filled is None else self.filled[chosen]
        return Copy(self.convoy, self.instruction, self.threads[chosen], self.destinations[chosen], self.sources[chosen],
                    self.size, filled, self.groups[chosen])  # fmt: skip

    def land(self) -> None:
        """Copy the bytes.  Raises Fault for addresses that are wrong."""
        site = (self.convoy, self.instruction, self.threads - self.convoy.first_thread)
        memory = self.convoy.memory
        memory.store("shared", self.destinations, self._read(memory, site), self.size, True, site)

    def _read(self, memory: Any, site: tuple) -> np.ndarray:
        if self.filled is None:
            return memory.load("global", self.sources, self.size, True, site)
        data = np.zeros((len(self.threads), self.size), np.uint8)
        for count in np.unique(self.filled).tolist():
            chosen = np.flatnonzero(self.filled == count)
            width = count & -count
            for start in range(0, count, width or 1):
                addresses = self.sources[chosen] + np.uint64(start)
                found = memory.load("global", addresses, width, True, (site[0], site[1], site[2][chosen]))
                data[chosen, start : start + width] = np.ascontiguousarray(found).view(np.uint8).reshape(-1, width)
        return data.view(np.uint64).reshape(-1, 2) if self.size == 16 else data.view(f"u{self.size}").ravel()


class CopyGroups:
    """The copies of a CTA's threads.  An agent of the CTA."""

    def __init__(self, cta: Any) -> None:
        self.timing = cta.launch.timing
        self.pending: list[Copy] = []
        self.committed = np.zeros(32 * cta.warp_count, np.int64)
        """Groups that each thread has committed."""
        self.watchers: list[tuple[np.ndarray, Callable[[np.ndarray], None]]] = []
        """Threads that asked to be told when their copies so far have landed, and whom to tell."""

    def issue(self, copy: Copy) -> None:
        """Begin copies; they belong to the group that each thread commits next."""
        copy.groups = self.committed[copy.threads].copy()
        self.pending.append(copy)
        for _ in range(self.timing.ready(len(self.pending))):
            self.land()

    def commit(self, threads: np.ndarray) -> None:
        """End the open group of these threads and begin another."""
        self.committed[threads] += 1

    def wait(self, threads: np.ndarray, allowed: int | None) -> None:
        """Land the copies of these threads but for those of the last `allowed` groups; None: all copies, in groups or not."""
        limit = np.full(len(self.committed), -1)
        limit[threads] = np.iinfo(np.int64).max if allowed is None else self.committed[threads] - allowed
        rest = []
        for copy in self.pending:
            chosen = copy.groups < limit[copy.threads]
            if chosen.all():
                copy.land()
                continue
            if chosen.any():
                copy.take(chosen).land()
                copy = copy.take(~chosen)
            rest.append(copy)
        self.pending = rest
        self._tell()

    def when_landed(self, threads: np.ndarray, tell: Callable[[np.ndarray], None]) -> None:
        """Call `tell(threads)` once all the copies that these threads have begun so far have landed."""
        pending = list(self.pending)
        if not any(np.isin(threads, copy.threads).any() for copy in pending):
            tell(threads)
            return
        self.watchers.append((threads, tell))

    def land(self) -> bool:
        """Land the oldest copy.  False where there is none."""
        if not self.pending:
            return False
        self.pending.pop(0).land()
        self._tell()
        return True

    def finish(self) -> None:
        """The CTA has ended; what nobody waited for, nobody has read."""
        self.pending.clear()

    def _tell(self) -> None:
        """Tell those whose copies have all landed; a thread's later copies count too, which only delays it."""
        if not self.watchers:
            return
        busy = np.zeros(len(self.committed), bool)
        for copy in self.pending:
            busy[copy.threads] = True
        watchers, self.watchers = self.watchers, []
        for threads, tell in watchers:
            if busy[threads].any():
                self.watchers.append((threads, tell))
            else:
                tell(threads)
