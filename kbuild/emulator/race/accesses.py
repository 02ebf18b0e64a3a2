"""The rules for accesses: each must know of those before it that touch the same bytes, unless both only read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kbuild.emulator.engine.memory import Space
from kbuild.emulator.race.clocks import FENCED, FENCED_GLOBAL, KNOWN, MBARRIERS, Clocks, Knowledge
from kbuild.emulator.race.reports import Reports
from kbuild.emulator.race.shadow import (
    PENDING,
    Shadow,
    agent_of,
    agents_of,
    clock_of,
    clocks_of,
    pack,
    site_of,
    sites_of,
    some,
)
from kbuild.emulator.race.sites import CLUSTER, CTA, DEVICE, InstructionSite, Sites


@dataclass(eq=False)
class ShadowedSpace:
    """A space with its shadow."""

    space: Space
    shadow: Shadow
    shared: bool
    """Whether it is a CTA's own; its shadow then counts agents within the cluster."""
    unwritten: np.ndarray | None = None
    """bool per byte: which the host has left for the kernel to write first.  None: for shared memory all,
    else none."""
    earlier: np.ndarray | None = None
    """bool per byte: which a launch before this one may work on until a thread has waited for it.  None:
    none."""

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
    """The threads of a cluster that access, with what they know."""

    clocks: Clocks
    threads: np.ndarray
    """One per granule, or one for all."""
    site: InstructionSite
    batch: Any
    together: Knowledge | None = None
    """For a whole warp that reads shared memory at once: what its threads know together."""

    def knows(self, memory: ShadowedSpace, words: np.ndarray, plane: int) -> np.ndarray:
        """Whether the accesses in words come before this."""
        agents, clocks = agents_of(words), clocks_of(words)
        if self.together is not None:
            return self.together.clocks[plane].take(agents) >= clocks
        if memory.shared:
            return self.clocks.knows(self.threads, agents, clocks, plane)
        return self.clocks.knows_any(self.threads, agents, clocks, plane)

    def knows_all(self, memory: ShadowedSpace, word: int, plane: int) -> bool:
        """As `knows`, for one word and a thread or warp that stands for all granules."""
        agent, clock = agent_of(word), clock_of(word)
        if self.together is not None:
            return bool(self.together.clocks[plane, agent] >= clock)
        return memory.shared and bool(self.clocks.rows[plane, self.threads[0], agent] >= clock)

    def thread(self, index: int) -> int:
        """The thread of a granule."""
        return int(self.threads[index if len(self.threads) > 1 else 0])

    def of(self, places: np.ndarray) -> Actor:
        """The same with the threads of some granules."""
        return replace(self, threads=self.threads[places]) if len(self.threads) > 1 else self

    def knows_own(self, memory: ShadowedSpace, words: np.ndarray) -> np.ndarray:
        """Whether the accesses in words are of this cluster, and come before this."""
        agents = agents_of(words) - (0 if memory.shared else self.clocks.base)
        inside = (agents >= 0) & (agents < self.clocks.rows.shape[2])
        return self.clocks.knows(self.threads, np.where(inside, agents, 0), clocks_of(words), KNOWN) & inside

    def beside(self, agents: np.ndarray) -> np.ndarray:
        """Whether threads of the same warps (numbered in the cluster) are on the same side of branches as
        these are."""
        mask = self.batch.stack[-1].mask if self.batch.stack else True
        if mask is True:
            return np.ones(len(agents), bool)
        first = self.batch.first_thread + self.batch.cta.rank * 32 * self.batch.cta.warp_count
        return mask[np.clip(agents - first, 0, len(mask) - 1)]


class Rules:
    """Checks accesses and notes them in shadows."""

    def __init__(self, sites: Sites, reports: Reports) -> None:
        self.sites = sites
        self.reports = reports
        self.ctas: list[list[tuple[int, int, int]]] = []
        """For each cluster, by number, the places of its CTAs in the grid."""

    def words(self, memory: ShadowedSpace, actor: Actor, clocks: np.ndarray | int) -> np.ndarray:
        """The accesses noted, as words."""
        return pack(actor.site.number, actor.threads + (0 if memory.shared else actor.clocks.base), clocks)

    def is_known_writer(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> bool:
        """Whether one thread or copy wrote all of these, and did so before, for the proxy that the actor
        uses.

        Then nothing else that a read checks can be wrong: a shortcut for reads of whole tiles.  Only True is
        conclusive.
        """
        words = memory.shadow.writers.take(cells)
        word = int(words[0])
        if actor.site.strong or word == 0 or np.count_nonzero(words == word) != len(words):
            return False
        if not actor.knows_all(memory, word, KNOWN):
            return False
        return not (actor.site.async_proxy and self.sites.generic[site_of(word)]) or actor.knows_all(
            memory, word, memory.fenced
        )

    def is_sound_read(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> bool:
        """Whether a plain read is of bytes that others wrote before, or of global memory never written: a
        shortcut for most reads.  Only True is conclusive."""
        words = memory.shadow.writers.take(cells)
        if actor.site.strong or actor.site.async_proxy or memory.earlier is not None:
            return False
        if not memory.shared:
            return memory.unwritten is None and not some(words)
        written = np.count_nonzero(words) == len(words)
        return written and np.count_nonzero(actor.knows(memory, words, KNOWN)) == len(words)

    def check_writers(
        self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, action: str, benign: np.ndarray | None
    ) -> None:
        """All writes must come before; `benign` are granules that get the bytes they hold."""
        words = memory.shadow.writers.take(cells)
        bad = ~actor.knows(memory, words, KNOWN)
        if some(bad):
            if actor.site.strong:
                bad &= ~self._competing(memory, words, actor)
            if benign is not None:
                bad &= ~(benign & (clocks_of(words) < PENDING))
            self._conflicts(memory, cells, words, bad, actor, action, "wrote")
        if actor.site.strong and memory.shadow.covered is not None:
            words = memory.shadow.covered[cells]
            bad = ~actor.knows(memory, words, KNOWN) & ~self._competing(memory, words, actor)
            self._conflicts(memory, cells, words, bad, actor, action, "wrote")
        if actor.site.async_proxy:
            unfenced = (
                ~bad
                & self.sites.generic[sites_of(words)]
                & ~actor.knows(memory, words, memory.fenced)
                & (words != 0)
            )
            self._unfenced("proxy-fence", memory, cells, words, unfenced, actor, action)

    def check_map(
        self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, published: np.ndarray
    ) -> None:
        """All writes of a tensor map must come before, and have been `published`."""
        words = memory.shadow.writers[cells]
        unknown = ~actor.knows(memory, words, KNOWN)
        self._conflicts(memory, cells, words, unknown.copy(), actor, "reads", "wrote")
        self._unfenced(
            "tensormap-fence", memory, cells, words, ~unknown & ~published & (words != 0), actor, "reads"
        )

    def check_readers(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        """All reads must come before."""
        readers = memory.shadow.readers[:, cells]
        for words in readers:
            if some(words):
                self._check_readers(memory, cells, actor, words)
        places, words = memory.shadow.crowd(cells)
        if len(places):
            self._check_readers(memory, cells[places], actor.of(places), words)

    def _check_readers(
        self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, words: np.ndarray
    ) -> None:
        """As `check_readers`, of one reader for each granule."""
        bad = ~actor.knows(memory, words, KNOWN)
        if some(bad):
            if actor.site.strong:
                bad &= ~self._competing(memory, words, actor)
            self._conflicts(memory, cells, words, bad, actor, "writes", "read")
        if actor.site.async_proxy:
            unfenced = (
                ~bad
                & self.sites.generic[sites_of(words)]
                & ~actor.knows(memory, words, memory.fenced)
                & (words != 0)
            )
            self._unfenced("proxy-fence-reuse", memory, cells, words, unfenced, actor, "writes")

    def _competing(self, memory: ShadowedSpace, words: np.ndarray, actor: Actor) -> np.ndarray:
        """Which words are strong accesses that may compete with this one: the scope of each holds both
        threads."""
        scopes = np.minimum(self.sites.scopes[sites_of(words)], actor.site.scope)
        per_cta = 32 * actor.batch.cta.warp_count
        agents = agents_of(words) - (0 if memory.shared else actor.clocks.base)
        within = (agents >= 0) & (agents < actor.clocks.threads + MBARRIERS)
        near = np.where(agents // per_cta == actor.threads // per_cta, CTA, CLUSTER)
        return scopes >= np.where(within, near, DEVICE)

    def note_read(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        """Note a read.  Reads of other clusters are kept, whether known or not."""
        words = self.words(memory, actor, actor.clocks.own(actor.threads))
        alone = actor.batch.count == 1 or len(actor.threads) == 1
        columns = 0 if not memory.shared else int(actor.threads[0]) >> 5 if alone else actor.threads >> 5
        memory.shadow.read(columns, cells, words, lambda old: actor.knows_own(memory, old))

    def note_write(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, words: np.ndarray) -> None:
        """Note a write; where it is atomic, the one before it that was not, or not for as many threads, stays
        known."""
        if actor.site.strong:
            old = memory.shadow.writers[cells]
            narrow = (old != 0) & (self.sites.scopes[sites_of(old)] < actor.site.scope)
            if narrow.any():
                memory.shadow.cover(cells[narrow], old[narrow])
        memory.shadow.writers[cells] = words
        memory.shadow.written(cells)

    def check_unchanging(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        """Bytes that are loaded as read-only must not have been written in this launch."""
        if not actor.site.read_only:
            return
        written = memory.shadow.writers[cells]
        if written.any():
            index = int(np.argmax(written != 0))
            other = self.sites.numbered(int(sites_of(written[index])))
            if self.reports.is_first("read-only-load", actor.site, other):
                where = memory.describe(int(cells[index]))
                text = f"{self._who(actor, index)} loads {where} as read-only, which the kernel has written"
                self._add("read-only-load", text, actor, index, other)

    def check_written(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        """Bytes that are read must have been written."""
        if not memory.shared and memory.unwritten is None:
            return
        missing = memory.shadow.writers[cells] == 0
        if memory.unwritten is not None:
            missing &= memory.unwritten[cells << memory.shadow.shift]
        if some(missing):
            index = int(np.argmax(missing))
            if self.reports.is_first("uninitialised-read", actor.site):
                where = memory.describe(int(cells[index]))
                self._add(
                    "uninitialised-read",
                    f"{self._who(actor, index)} reads {where}, which was never written",
                    actor,
                    index,
                )

    def check_earlier(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, action: str) -> None:
        """A thread must have waited for the launches before this one."""
        if memory.earlier is None:
            return
        early = memory.earlier[cells << memory.shadow.shift] & ~actor.clocks.know_launches(actor.threads)
        if early.any():
            index = int(np.argmax(early))
            if self.reports.is_first("before-wait", actor.site):
                where = memory.describe(int(cells[index]))
                text = f"{self._who(actor, index)} {action} {where} before griddepcontrol.wait; an earlier launch may use it"
                self._add("before-wait", text, actor, index)

    def check_end(self, memory: ShadowedSpace, clocks: Clocks, cta: Any) -> None:
        """When a CTA ends, its threads must know what others of the cluster did to its shared memory.

        Arrivals at mbarriers do not count here: a thread that has seen the phase knows them to be over,
        whatever else they order.
        """
        per_cta, batch = 32 * cta.warp_count, cta.batches[0]
        row = clocks.row(slice(cta.rank * per_cta, (cta.rank + 1) * per_cta)).clocks[KNOWN]
        for action, words in [
            ("writes", memory.shadow.writers),
            *(("reads", words) for words in memory.shadow.all_readers()),
        ]:
            agents = agents_of(words)
            late = (words != 0) & (agents // per_cta != cta.rank)
            late[late] = row[agents[late]] < clocks_of(words[late])
            for number in np.unique(sites_of(words[late])).tolist():
                site = self.sites.numbered(number)
                if site.instruction.opcode != "mbarrier" and self.reports.is_first("ended-peer", site):
                    agent = int(agents[late & (sites_of(words) == number)][0])
                    peer = self._name_of(Actor(clocks, np.array([agent]), site, batch), agent, site)
                    text = f"{peer} {action} shared memory of CTA {cta.index}; nothing orders that before the end of the CTA"
                    self.reports.add("ended-peer", text, site, batch, tuple(batch.warps))

    def check_lanes(
        self,
        memory: ShadowedSpace,
        cells: np.ndarray,
        actor: Actor,
        words: np.ndarray,
        data: np.ndarray | None,
    ) -> None:
        """Threads of one instruction must not write different bytes to one place; called when `words` are
        noted."""
        if data is None or not some(memory.shadow.writers.take(cells) != words):
            return
        order = np.argsort(cells, kind="stable")
        same = cells[order][1:] == cells[order][:-1]
        differs = same & (data[order][1:] != data[order][:-1]).any(1)
        if differs.any():
            index = int(order[1:][np.argmax(differs)])
            if self.reports.is_first("race", actor.site, actor.site):
                where = memory.describe(int(cells[index]))
                text = (
                    f"{self._who(actor, index)} and another thread write different values to {where} at once"
                )
                self._add("race", text, actor, index, actor.site)

    def _conflicts(
        self,
        memory: ShadowedSpace,
        cells: np.ndarray,
        words: np.ndarray,
        bad: np.ndarray,
        actor: Actor,
        action: str,
        earlier: str,
    ) -> None:
        """Report accesses that are not ordered."""
        if not some(bad):
            return
        agents = agents_of(words) - (0 if memory.shared else actor.clocks.base)
        near = (
            (agents >> 5 == actor.threads >> 5)
            & (agents < actor.clocks.threads)
            & (clocks_of(words) < PENDING)
        )
        near &= actor.together is None
        if earlier == "read" and not memory.shared:
            bad &= ~(near & actor.beside(agents))  # a warp issues its loads before its later stores
        for kind, chosen in (("race", bad & ~near), ("warp-race", bad & near)):
            self._report_each(
                kind, memory, cells, words, chosen, actor, action, earlier, "nothing orders the two"
            )

    def _unfenced(
        self,
        kind: str,
        memory: ShadowedSpace,
        cells: np.ndarray,
        words: np.ndarray,
        bad: np.ndarray,
        actor: Actor,
        action: str,
    ) -> None:
        """Report accesses that are ordered, but not before the proxy of the later one."""
        if not some(bad):
            return
        earlier = "read" if kind == "proxy-fence-reuse" else "wrote"
        fences = (
            "fence.proxy.tensormap, release and acquire,"
            if kind == "tensormap-fence"
            else "fence.proxy.async"
        )
        reason = f"no {fences} lies between the two"
        self._report_each(kind, memory, cells, words, bad, actor, action, earlier, reason)

    def _report_each(
        self,
        kind: str,
        memory: ShadowedSpace,
        cells: np.ndarray,
        words: np.ndarray,
        bad: np.ndarray,
        actor: Actor,
        action: str,
        earlier: str,
        reason: str,
    ) -> None:
        """Report, of the accesses that are `bad`, the first for each instruction that made the earlier one."""
        numbers = sites_of(words)
        for number in np.unique(numbers[bad]).tolist():
            other = self.sites.numbered(number)
            if self.reports.is_first(kind, actor.site, other):
                index = int(np.argmax(bad & (numbers == number)))
                self._tell(
                    kind,
                    memory,
                    int(cells[index]),
                    words[index],
                    actor,
                    index,
                    action,
                    earlier,
                    reason,
                    other,
                )

    def _tell(
        self,
        kind: str,
        memory: ShadowedSpace,
        cell: int,
        word: Any,
        actor: Actor,
        index: int,
        action: str,
        earlier: str,
        reason: str,
        other: InstructionSite,
    ) -> None:
        where = memory.describe(cell)
        agent = int(agents_of(word)) - (0 if memory.shared else actor.clocks.base)
        first = self._name_of(actor, agent, other)
        if clocks_of(word) >= PENDING:
            first = first if first.startswith("a wgmma") else f"{other.instruction.name} of {first}"
            earlier, reason = (
                {"wrote": "still writes", "read": "still reads"}[earlier],
                "it has not been waited for",
            )
        message = f"{self._who(actor, index)} {action} {where}, which {first} {earlier}; {reason}"
        self._add(kind, message, actor, index, other)

    def _who(self, actor: Actor, index: int) -> str:
        return self._name_of(actor, actor.thread(index), actor.site)

    def _name_of(self, actor: Actor, agent: int, site: InstructionSite) -> str:
        """An agent, numbered from the first of the actor's cluster on, in words."""
        number, local = divmod(agent + actor.clocks.base, actor.clocks.threads + MBARRIERS)
        if local >= actor.clocks.threads:
            is_wgmma = site.instruction.name.startswith("wgmma")
            return "a wgmma that has ended" if is_wgmma else f"the copy {site.instruction.name}"
        cta = actor.batch.cta
        rank, thread = divmod(local, 32 * cta.warp_count)
        index = self.ctas[number][rank]
        where = "" if index == cta.index else f" of CTA {index}"
        if site.instruction.name.startswith("wgmma"):
            return f"a wgmma of warp {thread >> 5}{where}"
        return f"warp {thread >> 5}, lane {thread & 31}{where}"

    def _add(
        self, kind: str, message: str, actor: Actor, index: int, other: InstructionSite | None = None
    ) -> None:
        warps = (actor.thread(index) % (32 * actor.batch.cta.warp_count) >> 5,)
        self.reports.add(kind, message, actor.site, actor.batch, warps, other)
