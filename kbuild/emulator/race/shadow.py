"""The last access to each byte: one word per granule of a space and kind of access.

A word holds the instruction, the thread or mbarrier that the access counts for, and its clock.  Granules
begin at 16 bytes and are split when a smaller access comes.

Of readers, a shadow keeps the last one in each of its columns.  One that another replaces is
forgotten where the other knows it: a thread that knows the other knows both.  Otherwise it goes to a crowd
of readers beside the columns, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kbuild.emulator.async_ops.operation import ByteExtent

CLOCK_BITS, AGENT_BITS = 20, 28
PENDING = 1 << (CLOCK_BITS - 1)
"""Clocks from here on stand for operations under way, which no thread knows yet."""
_CLOCK, _AGENT = (1 << CLOCK_BITS) - 1, (1 << AGENT_BITS) - 1
_WHO = _AGENT << CLOCK_BITS
LARGEST_GRANULE = 16
_NOBODY = np.zeros(0, np.int64)
_UNSORTED = 1 << 18
"""Readers of a crowd that may wait to be sorted."""


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


def clock_of(word: int) -> int:
    return word & _CLOCK


def agent_of(word: int) -> int:
    return word >> CLOCK_BITS & _AGENT


def site_of(word: int) -> int:
    return word >> (CLOCK_BITS + AGENT_BITS)


def some(marks: np.ndarray) -> bool:
    """Whether any is true: as `any`, which takes five times as long for few."""
    return bool(np.count_nonzero(marks))


class Shadow:
    """The last writer of each granule, and its readers: one column for each reader that is kept apart."""

    def __init__(self, size: int, columns: int) -> None:
        self.granule, self.shift = LARGEST_GRANULE, 4
        self.size = size
        self.writers = np.zeros(-(-size // LARGEST_GRANULE), np.int64)
        self.readers = self._room = np.zeros((columns, len(self.writers)), np.int64)
        """The columns, and as many as there is room for."""
        self.covered: np.ndarray | None = None
        """Where an atomic operation was the last writer, the last write that was not atomic; None: nowhere."""
        self._columns: dict[tuple[str, int], int] = {}
        self._crowd = Crowd(len(self.writers))

    def read(
        self,
        columns: np.ndarray | int,
        cells: np.ndarray,
        words: np.ndarray,
        ordered: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Note readers of granules; `ordered` says which words of earlier ones they know."""
        one = isinstance(columns, int)
        readers, places = (self.readers[columns], cells) if one else (self.readers, (columns, cells))
        old = readers[places]
        if some(old):
            lost = (old != 0) & ((old ^ words) & _WHO != 0)
            if some(lost):
                lost &= ~ordered(old)
                self._crowd.add(cells[lost], old[lost])
        readers[places] = words
        beside = readers[places] != words
        if some(beside):
            self._crowd.add(cells[beside], np.broadcast_to(words, beside.shape)[beside])

    def crowd(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The readers of granules that are not in a column: for each its place in `cells`, and its word."""
        return self._crowd.among(cells)

    def all_readers(self) -> Iterator[np.ndarray]:
        """The words of all readers."""
        yield from self.readers
        yield self._crowd.words()

    def written(self, cells: np.ndarray) -> None:
        """Granules have been written by a thread that knew their readers: a thread that knows the writer knows
        these."""
        self._crowd.forget(cells)

    def cells(self, offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        """The granules of accesses of `size` bytes, all of the first access first, and how many each has."""
        if size < self.granule:
            self._split(size)
        cells, count = offsets >> self.shift, size >> self.shift
        if count > 1:
            cells = (cells[:, None] + np.arange(count)).ravel()
        return cells, count

    def cells_of(self, extent: ByteExtent) -> np.ndarray:
        """The granules of an operation's bytes, each once."""
        if self.granule in extent.known:
            return extent.known[self.granule]
        while True:
            marked = np.zeros(len(self.writers), bool)
            marked[extent.offsets >> self.shift] = True
            if extent.size > self.granule:
                last = (extent.offsets + extent.size - 1) >> self.shift
                for step in range(1, extent.size >> self.shift):
                    marked[np.minimum((extent.offsets >> self.shift) + step, last)] = True
            cells = np.flatnonzero(marked)
            if self.granule <= extent.size or len(cells) << self.shift <= len(extent.offsets) * extent.size:
                extent.known[self.granule] = cells
                return cells
            self._split(self.granule // 2)

    def column(self, kind: str, number: int) -> int:
        """The column of a reader beside those that every shadow has."""
        found = self._columns.get((kind, number))
        if found is None:
            found = self._columns[kind, number] = len(self.readers)
            if found == len(self._room):
                self._room = np.zeros((2 * found, len(self.writers)), np.int64)
                self._room[:found] = self.readers
            self.readers = self._room[: found + 1]
        return found

    def cover(self, cells: np.ndarray, words: np.ndarray) -> None:
        """Keep words of writers that atomic operations are about to replace."""
        if self.covered is None:
            self.covered = np.zeros_like(self.writers)
        self.covered[cells] = words

    def _split(self, granule: int) -> None:
        count = self.granule // granule
        self.granule, self.shift = granule, granule.bit_length() - 1
        self.writers = np.repeat(self.writers, count)
        self.readers = self._room = np.repeat(self.readers, count, axis=1)
        self.covered = None if self.covered is None else np.repeat(self.covered, count)
        self._crowd.split(count)


class Crowd:
    """Words of any number of readers of each granule."""

    def __init__(self, size: int) -> None:
        self._here = np.zeros(size, bool)
        """Granules with readers."""
        self._any = False
        """Whether any ever had."""
        self._cells, self._words = np.zeros(0, np.int64), np.zeros(0, np.int64)
        """By granule, then by agent."""
        self._new: list[tuple[np.ndarray, np.ndarray]] = []
        self._count = 0

    def add(self, cells: np.ndarray, words: np.ndarray) -> None:
        """Readers of granules."""
        if not len(cells):
            return
        self._here[cells] = self._any = True
        self._new.append((cells, words))
        self._count += len(cells)
        if self._count > _UNSORTED:
            self._sort()

    def among(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each reader of some granules its place in `cells`, and its word."""
        places = np.flatnonzero(self._here[cells]) if self._any else _NOBODY
        if not len(places):
            return places, places
        self._sort()
        wanted = cells[places]
        first, last = np.searchsorted(self._cells, wanted), np.searchsorted(self._cells, wanted, "right")
        counts = last - first
        index = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(places, counts), self._words[index]

    def words(self) -> np.ndarray:
        """The words of all readers."""
        self._sort()
        return self._words

    def forget(self, cells: np.ndarray) -> None:
        """Granules that have no readers any more."""
        if self._any:
            self._here[cells] = False

    def split(self, count: int) -> None:
        """Each granule has been split into `count`."""
        self._sort()
        self._here = np.repeat(self._here, count)
        cells = (self._cells[:, None] * count + np.arange(count)).ravel()
        order = np.argsort(
            cells, kind="stable"
        )  # Granules with several readers have become several runs of granules.
        self._cells, self._words = cells[order], np.repeat(self._words, count)[order]

    def _sort(self) -> None:
        """Sort new words into place: of each agent the last word, and nothing of granules without readers."""
        if not self._new:
            return
        cells = np.concatenate([self._cells, *(cells for cells, _ in self._new)])
        words = np.concatenate([self._words, *(words for _, words in self._new)])
        kept = self._here[cells]
        cells, words = cells[kept], words[kept]
        order = np.lexsort((clocks_of(words), agents_of(words), cells))
        cells, words = cells[order], words[order]
        last = np.ones(len(cells), bool)
        last[:-1] = (cells[1:] != cells[:-1]) | (agents_of(words[1:]) != agents_of(words[:-1]))
        self._cells, self._words = cells[last], words[last]
        self._new, self._count = [], 0
