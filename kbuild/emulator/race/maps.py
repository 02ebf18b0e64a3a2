"""The rule for tensor maps that a kernel writes: TMA reads them through a proxy of its own.

    writes of the map ─▶ fence.proxy.tensormap::generic.release ─ order ─▶
    fence.proxy.tensormap::generic.acquire [map] ─▶ copy

And it reads a map until the copy has ended, so that it must not be written again before.

`tensormap.cp_fenceproxy` writes a map and releases it at once.  What a thread knows to be released is a plane
of its clocks; an acquire keeps that for one map, and counts for copies that come after it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from kbuild.emulator.engine.memory import Space
from kbuild.emulator.ptx.model import Instruction
from kbuild.emulator.race.accesses import Actor, Rules, ShadowedSpace
from kbuild.emulator.race.clocks import KNOWN, MBARRIERS, RELEASED, Clocks, Knowledge
from kbuild.emulator.race.shadow import agents_of, clocks_of

_KEPT = 4
"""Acquires of a map that are kept of each thread."""
_STEP = 2
"""Of the words of a map of 8 bytes: the shadow's granules are twice as long."""


@dataclass(frozen=True, eq=False)
class _Acquire:
    """A fence for one map."""

    clock: int
    """Of the thread, when it came to the fence."""
    row: Knowledge
    """What the thread knew then."""


def concerns_maps(instruction: Instruction) -> bool:
    """Whether a kernel with this instruction may write maps as the rule requires."""
    return instruction.opcode == "tensormap" or instruction.name.startswith("fence.proxy.tensormap")


class Maps:
    """The tensor maps in global memory of one launch, by their offsets."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._acquired: dict[int, dict[int, list[_Acquire]]] = defaultdict(lambda: defaultdict(list))
        """For each map and thread, by its number among those of all clusters."""

    def acquired(self, clocks: Clocks, heap: Space, addresses: np.ndarray, threads: np.ndarray) -> None:
        """Threads of a cluster have come to `fence.proxy.tensormap::generic.acquire`."""
        for address, thread in zip(addresses.tolist(), threads.tolist()):
            one = np.array([thread])
            kept = self._acquired[address - heap.base][thread + clocks.base]
            kept.append(_Acquire(int(clocks.own(one)[0]), clocks.row(one)))
            del kept[:-_KEPT]
        clocks.tick(threads)

    def used(self, memory: ShadowedSpace, offsets: np.ndarray, actor: Actor) -> np.ndarray | None:
        """A thread has a copy read a map.  Gives the granules of one that the kernel has written."""
        cells, _ = memory.shadow.cells(offsets[::_STEP], 8 * _STEP)
        actor = Actor(actor.clocks, np.full(len(cells), actor.threads[0]), actor.site, actor.batch)
        words = memory.shadow.writers[cells]
        if not words.any():
            return None
        self.rules.check_map(memory, cells, actor, self._published(int(offsets[0]), words, actor))
        return cells

    def _published(self, offset: int, words: np.ndarray, actor: Actor) -> np.ndarray:
        """The mask of writes that were released before an acquire of the map that comes before this."""
        found = np.zeros(len(words), bool)
        for agent, acquires in self._acquired.get(offset, {}).items():
            for acquire in acquires:
                known = actor.clocks.knows_any(
                    actor.threads[:1], np.array([agent]), np.array([acquire.clock]), KNOWN
                )
                if known[0]:
                    found |= _released(acquire.row, words, actor.clocks.threads + MBARRIERS)
        return found


def _released(row: Knowledge, words: np.ndarray, size: int) -> np.ndarray:
    """The mask of writes that are released according to a row; `size` is that of a cluster's numbers."""
    found = np.zeros(len(words), bool)
    for index, (agent, clock) in enumerate(zip(agents_of(words).tolist(), clocks_of(words).tolist())):
        number, local = divmod(agent, size)
        clocks = row.clocks if number == row.number else row.foreign.get(number)
        found[index] = clocks is not None and local < clocks.shape[1] and clocks[RELEASED, local] >= clock
    return found
