"""The rules for accesses: each must know of those before it that touch the same bytes, unless both only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.memory import Space
from kbuild.emulator.race.clocks import FENCED, FENCED_GLOBAL, KNOWN, MBARRIERS, Clocks, Row
from kbuild.emulator.race.reports import Reports
from kbuild.emulator.race.shadow import PENDING, Shadow, agents_of, clocks_of, pack, sites_of
from kbuild.emulator.race.sites import Site, Sites


@dataclass(eq=False)
class Memory:
    """A space with its shadow."""

    space: Space
    shadow: Shadow
    shared: bool
    """Whether it is a CTA's own; its shadow then counts agents within the cluster."""
    unwritten: np.ndarray | None = None
    """bool per byte: which the host has left for the kernel to write first.  None: for shared memory all, else none."""

    @property
    def fenced(self) -> int:
        """The plane of clocks for what fences order."""
        return FENCED if self.shared else FENCED_GLOBAL

    def describe(self, cell: int) -> str:
        """A granule in words."""
        offset = cell << self.shadow.shift
        return f"shared address {offset:#x}" if self.shared else self.space.describe(offset)


@dataclass(frozen=True, eq=False)
class Actor:
    """Who accesses: threads of a cluster, one entry per granule, seen with what they know."""

    clocks: Clocks
    threads: np.ndarray
    site: Site
    convoy: Any
    together: Row | None = None
    """For a whole warp that reads shared memory at once: what its threads know together."""

    def knows(self, memory: Memory, words: np.ndarray, plane: int) -> np.ndarray:
        """Whether what words tell of comes before this."""
        agents, clocks = agents_of(words), clocks_of(words)
        if self.together is not None:
            return self.together.clocks[plane].take(agents) >= clocks
        if memory.shared:
            return self.clocks.knows(self.threads, agents, clocks, plane)
        return self.clocks.knows_any(self.threads, agents, clocks, plane)


class Rules:
    """Checks accesses and notes them in shadows."""

    def __init__(self, sites: Sites, reports: Reports) -> None:
        self.sites = sites
        self.reports = reports
        self.ctas: list[list[tuple[int, int, int]]] = []
        """For each cluster, by number, the places of its CTAs in the grid."""

    def words(self, memory: Memory, actor: Actor, clocks: np.ndarray | int) -> np.ndarray:
        """What is noted of an access."""
        return pack(actor.site.number, actor.threads + (0 if memory.shared else actor.clocks.base), clocks)

    def check_writers(self, memory: Memory, cells: np.ndarray, actor: Actor, action: str, benign: np.ndarray | None) -> None:
        """Everybody who wrote must have done so before; `benign` are granules that get the bytes they hold."""
        words = memory.shadow.writers[cells]
        bad = ~actor.knows(memory, words, KNOWN)
        if bad.any():
            if actor.site.strong:
                bad &= ~self.sites.strong[sites_of(words)]
            if benign is not None:
                bad &= ~(benign & (clocks_of(words) < PENDING))
            self._conflicts(memory, cells, words, bad, actor, action, "wrote")
        if actor.site.strong and memory.shadow.covered is not None:
            words = memory.shadow.covered[cells]
            self._conflicts(memory, cells, words, ~actor.knows(memory, words, KNOWN), actor, action, "wrote")
        if actor.site.async_proxy:
            unfenced = ~bad & self.sites.generic[sites_of(words)] & ~actor.knows(memory, words, memory.fenced) & (words != 0)
            self._unfenced("proxy-fence", memory, cells, words, unfenced, actor, action)

    def check_map(self, memory: Memory, cells: np.ndarray, actor: Actor, published: np.ndarray) -> None:
        """Everybody who wrote a tensor map must have done so before, and have `published` it."""
        words = memory.shadow.writers[cells]
        unknown = ~actor.knows(memory, words, KNOWN)
        self._conflicts(memory, cells, words, unknown.copy(), actor, "reads", "wrote")
        self._unfenced("tensormap-fence", memory, cells, words, ~unknown & ~published & (words != 0), actor, "reads")

    def check_readers(self, memory: Memory, cells: np.ndarray, actor: Actor) -> None:
        """Everybody who read must have done so before."""
        for words in memory.shadow.readers[:, cells]:
            if not words.any():
                continue
            bad = ~actor.knows(memory, words, KNOWN)
            if bad.any():
                if actor.site.strong:
                    bad &= ~self.sites.strong[sites_of(words)]
                self._conflicts(memory, cells, words, bad, actor, "writes", "read")
            if actor.site.async_proxy:
                unfenced = ~bad & self.sites.generic[sites_of(words)] & ~actor.knows(memory, words, memory.fenced) & (words != 0)
                self._unfenced("proxy-fence-reuse", memory, cells, words, unfenced, actor, "writes")

    def note_write(self, memory: Memory, cells: np.ndarray, actor: Actor, words: np.ndarray) -> None:
        """Note a write; where it is atomic, the one before it that was not stays known."""
        if actor.site.strong:
            old = memory.shadow.writers[cells]
            weak = (old != 0) & ~self.sites.strong[sites_of(old)]
            if weak.any():
                memory.shadow.cover(cells[weak], old[weak])
        memory.shadow.writers[cells] = words

    def check_unchanging(self, memory: Memory, cells: np.ndarray, actor: Actor) -> None:
        """What is loaded as read-only must not have been written in this launch."""
        written = memory.shadow.writers[cells]
        if "nc" in actor.site.instruction.modifiers and written.any():
            index = int(np.argmax(written != 0))
            other = self.sites.numbered(int(sites_of(written[index])))
            if self.reports.wants("read-only-load", actor.site, other):
                where = memory.describe(int(cells[index]))
                text = f"{self._who(actor, index)} loads {where} as read-only, which the kernel has written"
                self._add("read-only-load", text, actor, index, other)

    def check_written(self, memory: Memory, cells: np.ndarray, actor: Actor) -> None:
        """Somebody must have written what is read."""
        if not memory.shared and memory.unwritten is None:
            return
        missing = memory.shadow.writers[cells] == 0
        if memory.unwritten is not None:
            missing &= memory.unwritten[cells << memory.shadow.shift]
        if missing.any():
            index = int(np.argmax(missing))
            if self.reports.wants("uninitialised-read", actor.site):
                where = memory.describe(int(cells[index]))
                self._add(
                    "uninitialised-read", f"{self._who(actor, index)} reads {where}, which nobody has written", actor, index
                )

    def check_lanes(self, memory: Memory, cells: np.ndarray, actor: Actor, words: np.ndarray, data: np.ndarray | None) -> None:
        """Threads of one instruction must not write different bytes to one place; called when `words` are noted."""
        other = memory.shadow.writers[cells] != words
        if not other.any() or data is None:
            return
        order = np.argsort(cells, kind="stable")
        same = cells[order][1:] == cells[order][:-1]
        differs = same & (data[order][1:] != data[order][:-1]).any(1)
        if differs.any():
            index = int(order[1:][np.argmax(differs)])
            if self.reports.wants("race", actor.site, actor.site):
                where = memory.describe(int(cells[index]))
                text = f"{self._who(actor, index)} and another thread write different values to {where} at once"
                self._add("race", text, actor, index, actor.site)

    def _conflicts(
        self, memory: Memory, cells: np.ndarray, words: np.ndarray, bad: np.ndarray, actor: Actor, action: str, earlier: str
    ) -> None:
        """Report what is not ordered."""
        if not bad.any():
            return
        numbers = sites_of(words)
        agents = agents_of(words) - (0 if memory.shared else actor.clocks.base)
        near = (agents >> 5 == actor.threads >> 5) & (agents < actor.clocks.threads) & (clocks_of(words) < PENDING)
        near &= actor.together is None
        if earlier == "read" and not memory.shared:
            bad &= ~near  # a warp issues its loads before its later stores
        for kind, chosen in (("race", bad & ~near), ("warp-race", bad & near)):
            for number in np.unique(numbers[chosen]).tolist():
                other = self.sites.numbered(number)
                if self.reports.wants(kind, actor.site, other):
                    index = int(np.argmax(chosen & (numbers == number)))
                    reason = "nothing orders the two"
                    self._tell(kind, memory, int(cells[index]), words[index], actor, index, action, earlier, reason, other)

    def _unfenced(
        self, kind: str, memory: Memory, cells: np.ndarray, words: np.ndarray, bad: np.ndarray, actor: Actor, action: str
    ) -> None:
        """Report what is ordered, but not before the proxy of the later access."""
        if not bad.any():
            return
        numbers, earlier = sites_of(words), "read" if kind == "proxy-fence-reuse" else "wrote"
        fences = "fence.proxy.tensormap, release and acquire," if kind == "tensormap-fence" else "fence.proxy.async"
        for number in np.unique(numbers[bad]).tolist():
            other = self.sites.numbered(number)
            if self.reports.wants(kind, actor.site, other):
                index = int(np.argmax(bad & (numbers == number)))
                reason = f"no {fences} lies between the two"
                self._tell(kind, memory, int(cells[index]), words[index], actor, index, action, earlier, reason, other)

    def _tell(
        self, kind: str, memory: Memory, cell: int, word: Any, actor: Actor, index: int, action: str, earlier: str, reason: str,
        other: Site,
    ) -> None:  # fmt: skip
        where = memory.describe(cell)
        agent = int(agents_of(word)) - (0 if memory.shared else actor.clocks.base)
        first = self._name_of(actor, agent, other)
        if clocks_of(word) >= PENDING:
            first = first if first.startswith("a product") else f"{other.instruction.name} of {first}"
            earlier, reason = {"wrote": "still writes", "read": "still reads"}[earlier], "it has not been waited for"
        message = f"{self._who(actor, index)} {action} {where}, which {first} {earlier}; {reason}"
        self._add(kind, message, actor, index, other)

    def _who(self, actor: Actor, index: int) -> str:
        return self._name_of(actor, int(actor.threads[index]), actor.site)

    def _name_of(self, actor: Actor, agent: int, site: Site) -> str:
        """An agent, numbered from the first of the actor's cluster on, in words."""
        number, local = divmod(agent + actor.clocks.base, actor.clocks.threads + MBARRIERS)
        if local >= actor.clocks.threads:
            is_product = site.instruction.name.startswith("wgmma")
            return "a product that has ended" if is_product else f"the copy {site.instruction.name}"
        cta = actor.convoy.cta
        rank, thread = divmod(local, 32 * cta.warp_count)
        index = self.ctas[number][rank]
        where = "" if index == cta.index else f" of CTA {index}"
        if site.instruction.name.startswith("wgmma"):
            return f"a product of warp {thread >> 5}{where}"
        return f"warp {thread >> 5}, lane {thread & 31}{where}"

    def _add(self, kind: str, message: str, actor: Actor, index: int, other: Site | None = None) -> None:
        warps = (int(actor.threads[index]) % (32 * actor.convoy.cta.warp_count) >> 5,)
        self.reports.add(kind, message, actor.site, actor.convoy, warps, other)
