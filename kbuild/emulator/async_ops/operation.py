"""Operations that take effect later, and the events of theirs that observers are notified of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.engine.memory import POISON, Space


@dataclass(frozen=True, eq=False)
class ByteExtent:
    """Bytes that an operation touches: `size` of them from each offset on."""

    space: Space
    offsets: np.ndarray
    """int64, into `space.data`."""
    size: int
    known: dict[int, np.ndarray] = field(default_factory=dict)
    """The granules that it touches, by their size; filled on demand."""

    def check(self) -> None:
        """Raise Fault unless all bytes are aligned and inside live memory."""
        if len(self.offsets):
            self.space.check(self.offsets, self.size)

    def bytes(self) -> np.ndarray:
        """The offset of every byte."""
        return (self.offsets[:, None] + np.arange(self.size)).ravel()

    def poison(self) -> None:
        """Poison the bytes: they are undefined while the operation is under way."""
        self.space.data.reshape(-1, self.size)[self.offsets // self.size] = POISON


@dataclass(eq=False)
class Operation:
    """One asynchronous operation, of one thread or one warp."""

    kind: str
    """`copy` (cp.async), `load`, `store` or `reduce` (bulk and tensor copies), or `wgmma`."""
    site: Any
    """The batch, the instruction, and the lanes that issued it."""
    reads: tuple[ByteExtent, ...]
    writes: tuple[ByteExtent, ...]


class AsyncObserver(Protocol):
    """Is notified of asynchronous operations and of mbarriers.

    The bytes that an operation touches count as touched at any time from `issued` to `awaited`, or for an
    operation that an mbarrier tracks until `passed` with the phase that `arrived` named.  Landing also
    calls `Observer.accessed`, with the site of the issue.
    """

    def issued(self, operation: Operation) -> None: ...

    def awaited(self, operation: Operation, threads: np.ndarray, only_reads: bool, site: Any) -> None:
        """Threads of the CTA have waited for it, or for the end of its reading."""
        ...

    def arrived(self, barrier: tuple[Space, int], phase: int, site: Any, operation: Operation | None) -> None:
        """The threads of `site` arrived in this phase, or `operation` brought its bytes in it."""
        ...

    def reused(self, barrier: tuple[Space, int], site: Any) -> None:
        """A thread has initialised an mbarrier again that was used before and not invalidated."""
        ...

    def passed(self, barrier: tuple[Space, int], phase: int, site: Any) -> None:
        """The threads of `site` saw this phase complete."""
        ...

    def map_acquired(self, addresses: np.ndarray, site: Any) -> None:
        """The threads of `site` came to a fence before uses of the tensor maps at these addresses."""
        ...


def notify(observers: Iterable[Any], event: str, *what: Any) -> None:
    """Notify the observers that handle an event."""
    for observer in observers:
        method = getattr(observer, event, None)
        if method is not None:
            method(*what)


def hears(observers: Iterable[Any], event: str) -> bool:
    """Whether an observer handles an event."""
    return any(hasattr(observer, event) for observer in observers)
