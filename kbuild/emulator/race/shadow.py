"""Who touched each byte last: one word per granule of a space and kind of access.

A word holds the instruction, the thread or mbarrier that the access counts for, and its clock.  Granules begin at 16 bytes and
are split when a smaller access comes.
"""

from __future__ import annotations

import numpy as np

from kbuild.emulator.asyncp.operation import Extent

CLOCK_BITS, AGENT_BITS = 20, 28
PENDING = 1 << (CLOCK_BITS - 1)
"""Clocks from here on stand for operations under way, which nobody knows yet."""
_CLOCK, _AGENT = (1 << CLOCK_BITS) - 1, (1 << AGENT_BITS) - 1
LARGEST_GRANULE = 16


def pack(site: int, agents: np.ndarray | int, clocks: np.ndarray | int) -> np.ndarray:
    """Words of an instruction's number, agents and clocks; 0 stands for never."""
    word = np.asarray(agents, np.int64) << CLOCK_BITS
    return (word | clocks) | (site << (CLOCK_BITS + AGENT_BITS))


def clocks_of(words: np.ndarray) -> np.ndarray:
    return words & _CLOCK


def agents_of(words: np.ndarray) -> np.ndarray:
    return words >> CLOCK_BITS & _AGENT


def sites_of(words: np.ndarray) -> np.ndarray:
    return words >> (CLOCK_BITS + AGENT_BITS)


class Shadow:
    """The last writer of each granule, and its readers: one column for each reader that is kept apart."""

    def __init__(self, size: int, columns: int) -> None:
        self.granule, self.shift = LARGEST_GRANULE, 4
        self.size = size
        self.writers = np.zeros(-(-size // LARGEST_GRANULE), np.int64)
        self.readers = np.zeros((columns, len(self.writers)), np.int64)
        self.covered: np.ndarray | None = None
        """Where an atomic operation was the last writer, the last one that was none; None: nowhere."""
        self._columns: dict[tuple[str, int], int] = {}

    def cells(self, offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        """The granules of accesses of `size` bytes, all of the first access first, and how many each has."""
        if size < self.granule:
            self._split(size)
        cells, count = offsets >> self.shift, size >> self.shift
        if count > 1:
            cells = (cells[:, None] + np.arange(count)).ravel()
        return cells, count

    def cells_of(self, extent: Extent) -> np.ndarray:
        """The granules of an operation's bytes, each once."""
        while True:
            marked = np.zeros(len(self.writers), bool)
            marked[extent.offsets >> self.shift] = True
            if extent.size > self.granule:
                last = (extent.offsets + extent.size - 1) >> self.shift
                for step in range(1, extent.size >> self.shift):
                    marked[np.minimum((extent.offsets >> self.shift) + step, last)] = True
            cells = np.flatnonzero(marked)
            if self.granule <= extent.size or len(cells) << self.shift <= len(extent.offsets) * extent.size:
                return cells
            self._split(self.granule // 2)

    def column(self, kind: str, number: int) -> int:
        """The column of a reader beside those that every shadow has."""
        found = self._columns.get((kind, number))
        if found is None:
            found = self._columns[kind, number] = len(self.readers)
            self.readers = np.concatenate([self.readers, np.zeros((1, len(self.writers)), np.int64)])
        return found

    def cover(self, cells: np.ndarray, words: np.ndarray) -> None:
        """Keep words of writers that atomic operations are about to take the place of."""
        if self.covered is None:
            self.covered = np.zeros_like(self.writers)
        self.covered[cells] = words

    def _split(self, granule: int) -> None:
        count = self.granule // granule
        self.granule, self.shift = granule, granule.bit_length() - 1
        self.writers = np.repeat(self.writers, count)
        self.readers = np.repeat(self.readers, count, axis=1)
        self.covered = None if self.covered is None else np.repeat(self.covered, count)


class RecentReaders(Shadow):
    """Keeps the last reader, and the last one of another warp: for memory that many threads read and few write."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 2)

    def read(self, cells: np.ndarray, words: np.ndarray) -> None:
        """Note readers of granules."""
        old = self.readers[0, cells]
        other = (agents_of(old) >> 5 != agents_of(words) >> 5) & (old != 0)
        if other.any():
            self.readers[1, cells[other]] = old[other]
        self.readers[0, cells] = words
