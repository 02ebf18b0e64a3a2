"""`cp.async`: copies from global to shared memory that each thread commits in groups and waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.operation import ByteExtent, Operation, hears, notify
from kbuild.emulator.async_ops.timing import Timing
from kbuild.emulator.engine.memory import Memory, Space


@dataclass(eq=False)
class Copy(Operation):
    """One `cp.async` of several threads; arrays have one entry per thread."""

    threads: np.ndarray
    destinations: np.ndarray
    """Addresses in shared memory."""
    sources: np.ndarray
    """Addresses in global memory."""
    size: int
    amounts: np.ndarray
    """Bytes read, at most `size`; the rest of the destination is zero."""
    groups: np.ndarray
    """Number of the thread's group that the copy belongs to."""
    flying: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Where it has not landed."""
    awaited: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Where the thread has waited for it."""

    def __post_init__(self) -> None:
        self.first, self.last = int(self.threads[0]), int(self.threads[-1])
        self.open = True
        """Whether a thread has not waited for it."""


class CopyGroups:
    """The copies of the threads of one CTA."""

    def __init__(self, memory: Memory, threads: int, timing: Timing) -> None:
        self.memory = memory
        self.timing = timing
        self.committed = np.zeros(threads, np.int64)
        """Groups that each thread has committed."""
        self.pending: list[Copy] = []
        self._arrivals: list[tuple[int, Callable[[], None]]] = []
        """Callbacks of threads, for when their copies so far have landed."""

    def issue(
        self,
        site: Any,
        threads: np.ndarray,
        destinations: np.ndarray,
        sources: np.ndarray,
        size: int,
        amounts: np.ndarray,
    ) -> None:
        """Begin copies of `size` (4, 8 or 16) bytes.  Raises Fault for addresses out of bounds or misaligned."""
        shared = ByteExtent(self.memory.spaces["shared"], destinations.astype(np.int64), size)
        heap = self.memory.spaces["global"]
        offsets = sources.astype(np.int64) - heap.base
        shared.check()
        if np.count_nonzero(amounts == size) == len(amounts):
            source = ByteExtent(heap, offsets, size)
            source.check()
        else:
            reading = amounts > 0
            source = ByteExtent(heap, offsets[reading], size)
            if (amounts[reading] == size).all():
                source.check()
            else:
                source = _partial(heap, offsets[reading], amounts[reading], size)
        count = len(threads)
        copy = Copy(
            "copy",
            site,
            (source,),
            (shared,),
            threads,
            destinations,
            sources,
            size,
            amounts,
            self.committed[threads],
            np.ones(count, bool),
            np.zeros(count, bool),
        )
        observers = self.memory.observers
        notify(observers, "issued", copy)
        if self.timing.lands_at_issue():
            self._land(copy, copy.flying.copy())
        else:
            shared.poison()
        if copy.flying.any() or hears(observers, "awaited"):
            self.pending.append(copy)

    def commit(self, threads: np.ndarray) -> None:
        """`cp.async.commit_group`."""
        self.committed[threads] += 1

    def wait(self, threads: np.ndarray, allowed: int | None, site: Any) -> None:
        """Land all but the last `allowed` groups of these threads; None: everything, committed or not."""
        if not self.pending:
            return
        limit = np.full(len(self.committed), -1, np.int64)
        limit[threads] = self.committed[threads] + 1 if allowed is None else self.committed[threads] - allowed
        first, last = int(threads[0]), int(threads[-1])
        for copy in self.pending:
            if copy.last < first or last < copy.first:
                continue
            due = ~copy.awaited & (copy.groups < limit[copy.threads])
            if due.any():
                self._land(copy, due & copy.flying)
                copy.awaited |= due
                copy.open = not copy.awaited.all()
                notify(self.memory.observers, "awaited", copy, copy.threads[due], False, site)
        self.pending = [copy for copy in self.pending if copy.open]
        self._arrive()

    def when_landed(self, thread: int, action: Callable[[], None]) -> None:
        """Call something once all copies that a thread has issued so far have landed."""
        if any(copy.flying[copy.threads == thread].any() for copy in self.pending):
            self._arrivals.append((thread, action))
        else:
            action()

    def land(self) -> bool:
        """Land the copies of a thread with a callback.  False where there is none."""
        if not self._arrivals:
            return False
        thread = self._arrivals[self.timing.choose(len(self._arrivals))][0]
        for copy in self.pending:
            self._land(copy, copy.flying & (copy.threads == thread))
        self._arrive()
        return True

    def _arrive(self) -> None:
        """Call what waited for copies that have now landed."""
        waiting, self._arrivals = self._arrivals, []
        for thread, action in waiting:
            self.when_landed(thread, action)

    def _land(self, copy: Copy, due: np.ndarray) -> None:
        """Move the bytes of some of a copy's threads."""
        if not due.any():
            return
        copy.flying &= ~due
        batch, instruction, lanes = copy.site[0], copy.site[1], copy.site[2][due]
        size, amounts, sources = copy.size, copy.amounts[due], copy.sources[due]
        if np.count_nonzero(amounts == size) == len(amounts):
            values = self.memory.load("global", sources, size, True, (batch, instruction, lanes))
            self.memory.store(
                "shared", copy.destinations[due], values, size, True, (batch, instruction, lanes)
            )
            return
        data = np.zeros((len(lanes), size), np.uint8)

        def fetch(which: np.ndarray, first: int, width: int) -> None:
            if which.any():
                found = self.memory.load(
                    "global",
                    sources[which] + sources.dtype.type(first),
                    width,
                    True,
                    (batch, instruction, lanes[which]),
                )
                data[which, first : first + width] = found.view(np.uint8).reshape(-1, width)

        fetch(amounts == size, 0, size)
        partial = (amounts > 0) & (amounts < size)
        for byte in range(size if partial.any() else 0):
            fetch(partial & (byte < amounts), byte, 1)
        values = data if size == 16 else data.view(f"u{size}").ravel()
        self.memory.store("shared", copy.destinations[due], values, size, True, (batch, instruction, lanes))


def _partial(heap: Space, offsets: np.ndarray, amounts: np.ndarray, size: int) -> ByteExtent:
    """The bytes that copies of different amounts read."""
    ByteExtent(heap, offsets[amounts == size], size).check()
    places = offsets[:, None] + np.arange(size)
    found = ByteExtent(heap, places[np.arange(size) < amounts[:, None]], 1)
    found.check()
    return found
