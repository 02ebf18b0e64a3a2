"""What a kernel asks of memory, counted by source line: requests of warps, sectors of global memory, wavefronts of shared
memory, and the fewest that would do.

    sum += a[k * n + i]     neighbours read neighbours      one request of 32 × 4 bytes: 4 sectors, of 4
    sum += a[i * n + k]     neighbours read rows            one request of 32 × 4 bytes: 32 sectors, of 4
    t[i][0]  (float [32])   neighbours read one bank        one request of 32 × 4 bytes: 32 wavefronts, of 1

A request is one instruction of one warp.  Global memory is read and written by sectors of 32 bytes.  Shared memory has 32 banks
of 4 bytes: 8 (16) bytes of each lane are served half a (a quarter) warp at a time, and each such part takes as many wavefronts
as its busiest bank has different words.  Caches are not counted: a sector that is asked for twice counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.engine.memory import Space
from kbuild.emulator.ptx.model import Instruction, PtxModule, own_place
from kbuild.errors import Loc

SECTOR = 32
"""Bytes."""
BANKS, WORD = 32, 4
WARP = 32
SPACES = ("global", "shared", "local", "const")
"""The state spaces that are counted."""
UNITS = {"global": "sectors", "shared": "wavefronts", "local": "sectors", "const": "words"}
"""What an access to each of them takes."""


@dataclass
class AccessCounts:
    """What one kind of access at one line came to."""

    requests: int = 0
    """Instructions of warps; of asynchronous copies and warpgroups, operations."""
    lanes: int = 0
    """Threads that took part."""
    bytes: int = 0
    """What these asked for; what several ask for counts for each."""
    units: int = 0
    """Sectors, wavefronts or words that it took."""
    ideal: int = 0
    """The fewest for the same bytes."""

    def add(self, other: AccessCounts) -> None:
        """Add what other accesses came to."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def excess(self) -> int:
        """Units beyond the fewest: of wavefronts, bank conflicts."""
        return self.units - self.ideal

    @property
    def efficiency(self) -> float:
        """The share of the units that the fewest are; 1 where there are none."""
        return self.ideal / self.units if self.units else 1.0


@dataclass(frozen=True)
class LineCounts:
    """The accesses of one kind at one line of the source."""

    place: Loc | None
    """The line of the kernel's own file; None where the PTX does not say it."""
    kind: str
    """`load`, `store` or `atomic`."""
    space: str
    """One of `SPACES`."""
    counts: AccessCounts


class AccessCounter:
    """An observer that counts accesses by line, kind and space."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str, str], AccessCounts] = {}
        self._instructions: dict[int, Instruction] = {}
        self._module: PtxModule | None = None

    def began(self, launch: Any) -> None:
        """A launch begins: its module says where instructions come from."""
        self._module = launch.program.module

    def accessed(
        self,
        kind: str,
        space: Space,
        offsets: np.ndarray,
        size: int,
        lanes: np.ndarray,
        data: np.ndarray | None,
        site: Any,
    ) -> None:
        """Count one access; arguments as `Observer.accessed`."""
        if space.name not in SPACES or not len(offsets):
            return
        instruction: Instruction = site[1]
        self._instructions[id(instruction)] = instruction
        key = id(instruction), kind, space.name
        counts = self._found.setdefault(key, AccessCounts())
        if _is_bulk(instruction):
            counts.add(_bulk(space.name, offsets, size))
        elif instruction.opcode != "mbarrier":
            counts.add(_counted(kind, space, offsets, size, lanes, site[0].first_thread))

    def lines(self) -> list[LineCounts]:
        """What was counted, in the order of the source."""
        found: dict[tuple[Any, str, str], LineCounts] = {}
        for (number, kind, space), counts in self._found.items():
            place = self._place(self._instructions[number])
            line = Loc(place.file, place.line) if place is not None else None
            entry = found.setdefault((line, kind, space), LineCounts(line, kind, space, AccessCounts()))
            entry.counts.add(counts)
        return sorted((line for line in found.values() if line.counts.requests), key=_order)

    def _place(self, instruction: Instruction) -> Loc | None:
        assert self._module is not None, "nothing is accessed before a launch has begun"
        place = self._module.place(instruction)
        return None if place is None else own_place(place)


def total(lines: list[LineCounts], space: str) -> AccessCounts:
    """The sum over the lines of one space."""
    found = AccessCounts()
    for line in lines:
        if line.space == space:
            found.add(line.counts)
    return found


def _order(line: LineCounts) -> tuple[str, int, int, str]:
    """As the source stands; at one line memory of devices first."""
    place = line.place
    return (place.file if place else "", place.line if place else 0, SPACES.index(line.space), line.kind)


def _is_bulk(instruction: Instruction) -> bool:
    """Whether an instruction moves a block by itself, rather than for each lane: its order of bytes is the hardware's."""
    return instruction.opcode in ("wgmma", "tcgen05") or "bulk" in instruction.modifiers


def _bulk(space: str, offsets: np.ndarray, size: int) -> AccessCounts:
    """What a copy of a block takes: the fewest wavefronts, and the sectors that it touches."""
    asked = len(offsets) * size
    if space == "shared":
        waves = -(-asked // (BANKS * WORD))
        return AccessCounts(1, 1, asked, waves, waves)
    sectors = len(np.unique(offsets // SECTOR))
    return AccessCounts(1, 1, asked, sectors, -(-asked // SECTOR))


def _counted(
    kind: str, space: Space, offsets: np.ndarray, size: int, lanes: np.ndarray, first_thread: int
) -> AccessCounts:
    """What the lanes of some warps ask for."""
    warps = lanes // WARP
    requests = len(np.unique(warps))
    asked = AccessCounts(requests, len(lanes), len(lanes) * size)
    if space.name == "shared":
        asked.units, asked.ideal = _wavefronts(offsets, size, lanes, kind == "atomic")
    elif space.name == "const":
        asked.units, asked.ideal = len(_pairs(warps, offsets // WORD)), requests
    else:
        if space.name == "local":  # The words of threads lie side by side.
            stride = space.stride  # type: ignore[attr-defined]
            inside = offsets - (lanes + first_thread) * stride
            offsets = (inside // WORD * WARP + lanes % WARP) * WORD + inside % WORD
            offsets = (
                offsets if size <= WORD else offsets // (WORD * WARP) * (WORD * WARP) + lanes % WARP * size
            )
        asked.units = len(_pairs(warps, offsets // SECTOR))
        different = _pairs(warps, offsets)
        asked.ideal = int(sum(-(-count * size // SECTOR) for count in _counts_by_first(different)))
    return asked


def _wavefronts(offsets: np.ndarray, size: int, lanes: np.ndarray, every: bool) -> tuple[int, int]:
    """The wavefronts of an access to shared memory, and the fewest: one for each part of a warp.  With `every` also lanes
    that go to one word wait for each other, as those of an atomic operation do."""
    per_part = BANKS * WORD // max(size, WORD)
    parts = lanes // min(per_part, WARP)
    words = (offsets[:, None] + np.arange(0, max(size, WORD), WORD)) // WORD
    rows = np.column_stack([np.repeat(parts, words.shape[1]), words.ravel()])
    if not every:
        rows = np.unique(rows, axis=0)
    banks, counts = np.unique(np.column_stack([rows[:, 0], rows[:, 1] % BANKS]), axis=0, return_counts=True)
    order = np.unique(banks[:, 0], return_index=True)[1]
    return int(np.maximum.reduceat(counts, order).sum()), len(order)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The different pairs of two arrays, in order."""
    return np.unique(np.column_stack([first, second]), axis=0)


def _counts_by_first(pairs: np.ndarray) -> Iterator[int]:
    """How many pairs there are of each first number."""
    yield from np.unique(pairs[:, 0], return_counts=True)[1].tolist()
