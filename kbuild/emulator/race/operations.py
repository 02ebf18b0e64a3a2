"""The rules for operations that take effect later: the bytes that they touch are touched from issue to wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.cp_async import Copy
from kbuild.emulator.async_ops.operation import ByteExtent, Operation
from kbuild.emulator.race.accesses import Actor, Rules, ShadowedSpace
from kbuild.emulator.race.clocks import Clocks
from kbuild.emulator.race.reports import Reports
from kbuild.emulator.race.shadow import PENDING, pack


@dataclass(eq=False)
class Noted:
    """What was noted of an operation in one shadow: words of clocks that no thread knows."""

    memory: ShadowedSpace
    cells: np.ndarray
    words: np.ndarray
    """One for each granule, or one for all; so are the threads."""
    threads: np.ndarray
    """The thread of the cluster that each granule counts for."""
    granule: int
    column: int | None = None
    """Of the readers; None: the granules are written."""
    base: int = 0
    """What the numbers of agents begin at, where the shadow counts those of all clusters."""

    def settle(
        self, agents: np.ndarray | int, clocks: np.ndarray | int, site: int, chosen: np.ndarray | None = None
    ) -> None:
        """Count the granules that nothing else was noted at as touched at clocks of agents from now on."""
        self.follow()
        shadow = self.memory.shadow
        old = shadow.writers if self.column is None else shadow.readers[self.column]
        same = old.take(self.cells) == self.words
        if chosen is not None:
            same &= chosen if len(chosen) == len(same) else np.repeat(chosen, len(same) // len(chosen))
        new = pack(site, self.base + agents, clocks)
        if new.size == 1:
            old[self.cells[same] if np.count_nonzero(same) < len(same) else self.cells] = new
            return
        if len(new) != len(same):
            new = np.repeat(new, len(same) // len(new))
        old[self.cells[same]] = new[same]

    @property
    def open(self) -> bool:
        """Whether some granules still count as being touched."""
        self.follow()
        old = self.memory.shadow.writers if self.column is None else self.memory.shadow.readers[self.column]
        return bool((old[self.cells] == self.words).any())

    def follow(self) -> None:
        """Number the granules again where the shadow has split them."""
        count = self.granule // self.memory.shadow.granule
        if count > 1:
            self.cells = (self.cells[:, None] * count + np.arange(count)).ravel()
            if len(self.words) > 1:
                self.words, self.threads = np.repeat(self.words, count), np.repeat(self.threads, count)
            self.granule = self.memory.shadow.granule


@dataclass(eq=False)
class PendingOp:
    """An operation under way."""

    actor: Actor
    reads: list[Noted] = field(default_factory=list)
    writes: list[Noted] = field(default_factory=list)
    """With tensor maps, which are read until the end as well."""


class PendingOps:
    """The operations under way in one cluster."""

    def __init__(self, rules: Rules, clocks: Clocks) -> None:
        self.rules = rules
        self.clocks = clocks
        self.pending_ops: dict[int, tuple[Operation, PendingOp]] = {}
        self._count = 0
        self._signals: dict[tuple[int, int], list[list[PendingOp]]] = {}
        """For each thread and mbarrier, the copies that each of its `cp.async.mbarrier.arrive` stands for."""

    def copy(self, operation: Copy, actor: Actor, memories: tuple[ShadowedSpace, ShadowedSpace]) -> None:
        """`cp.async`: one access per thread; `memories` are global and shared."""
        pending_op = self._begin(operation, actor)
        source, target = operation.reads[0], operation.writes[0]
        reading = operation.amounts > 0
        if reading.any():
            threads = actor.threads[reading]
            if len(threads) != len(source.offsets):
                threads = np.repeat(threads[:1], len(source.offsets))
            self._read_now(memories[0], source, replace(actor, threads=threads))
        cells, count = memories[1].shadow.cells(target.offsets, target.size)
        self._write(pending_op, memories[1], cells, replace(actor, threads=np.repeat(actor.threads, count)))

    def transfer(
        self,
        operation: Operation,
        actor: Actor,
        memory_of: Any,
        map_: tuple[ShadowedSpace, np.ndarray] | None,
    ) -> None:
        """A bulk copy of one thread; `map_` are the granules of its tensor map, where the kernel has written that."""
        pending_op = self._begin(operation, actor)
        if map_ is not None:
            pending_op.writes.append(self._note_read(*map_, actor, ("map", int(actor.threads[0]))))
        for extent in operation.reads:
            if not len(extent.offsets):
                continue
            memory = memory_of(extent.space)
            if memory.shared:
                self._read(
                    pending_op, memory, memory.shadow.cells_of(extent), actor, ("bulk", int(actor.threads[0]))
                )
            else:
                self._read_now(memory, extent, actor)
        for extent in operation.writes:
            if len(extent.offsets):
                memory = memory_of(extent.space)
                cells = memory.shadow.cells_of(extent)
                self._write(pending_op, memory, cells, actor)

    def wgmma(self, operation: Operation, actor: Actor, memory: ShadowedSpace) -> None:
        """A wgmma of one warp; `actor` has its first thread."""
        pending_op = self._begin(operation, actor)
        for extent in operation.reads:
            cells = memory.shadow.cells_of(extent)
            self._read(pending_op, memory, cells, actor, ("wgmma", int(actor.threads[0]) >> 5))

    def awaited(self, operation: Operation, threads: np.ndarray, only_reads: bool) -> None:
        """Threads of the cluster have waited for an operation, or for the end of its reading."""
        _, pending_op = self.pending_ops.get(id(operation), (None, None))
        if pending_op is None:
            return
        if operation.kind == "wgmma":
            self._ended(operation, pending_op, threads)
            return
        for noted in pending_op.reads if only_reads else (*pending_op.reads, *pending_op.writes):
            noted.follow()
            chosen = None
            if operation.kind == "copy":
                waiting = np.zeros(self.clocks.threads, bool)
                waiting[threads] = True
                chosen = waiting[noted.threads]
            noted.settle(noted.threads, self.clocks.own(noted.threads), pending_op.actor.site.number, chosen)
        if operation.awaited.all() if isinstance(operation, Copy) else not only_reads:
            del self.pending_ops[id(operation)]

    def _ended(self, operation: Operation, pending_op: PendingOp, threads: np.ndarray) -> None:
        """The threads of a warp have waited for its wgmma: one more has ended."""
        first = int(threads[0])
        column, count = self.clocks.see_wgmma_end(slice(first, first + len(threads)))
        for noted in pending_op.reads:
            noted.settle(column, count, pending_op.actor.site.number)
        del self.pending_ops[id(operation)]

    def landed(self, operation: Operation, barrier: tuple[Any, int], column: int, phase: int) -> None:
        """A copy has brought its bytes to one destination, in a phase of an mbarrier there."""
        _, pending_op = self.pending_ops.get(id(operation), (None, None))
        if pending_op is None:
            return
        for noted in (*pending_op.reads, *pending_op.writes):
            if noted.column is not None or noted.memory.space is barrier[0]:
                noted.settle(column, phase + 1, pending_op.actor.site.number)
        pending_op.writes = [
            noted
            for noted in pending_op.writes
            if noted.column is None and noted.memory.space is not barrier[0]
        ]
        if not pending_op.writes:
            del self.pending_ops[id(operation)]

    def signals(self, thread: int, barrier: tuple[int, int]) -> None:
        """A thread has made an mbarrier wait for its copies so far."""
        mine = [
            pending_op
            for operation, pending_op in self.pending_ops.values()
            if operation.kind == "copy" and (pending_op.actor.threads == thread).any()
        ]
        self._signals.setdefault((thread, hash(barrier)), []).append(mine)

    def signalled(self, thread: int, barrier: tuple[int, int], column: int, phase: int) -> None:
        """Those copies have landed, in a phase of the mbarrier."""
        waiting = self._signals.get((thread, hash(barrier)))
        for pending_op in waiting.pop(0) if waiting else ():
            for noted in pending_op.writes:
                noted.follow()
                noted.settle(column, phase + 1, pending_op.actor.site.number, noted.threads == thread)

    def ended(self, cta: Any, reports: Reports) -> None:
        """A CTA has ended: report copies into its shared memory that were never waited for."""
        for operation, pending_op in list(self.pending_ops.values()):
            if operation.kind == "copy" and pending_op.actor.batch.cta is cta:
                del self.pending_ops[id(operation)]
                if any(noted.open for noted in pending_op.writes) and reports.is_first(
                    "unfinished", pending_op.actor.site
                ):
                    text = "the CTA ends before the copy into its shared memory is waited for"
                    reports.add(
                        "unfinished",
                        text,
                        pending_op.actor.site,
                        pending_op.actor.batch,
                        tuple(pending_op.actor.batch.warps),
                    )

    def _begin(self, operation: Operation, actor: Actor) -> PendingOp:
        self._count = (self._count + 1) % PENDING
        pending_op = PendingOp(actor)
        self.pending_ops[id(operation)] = (operation, pending_op)
        return pending_op

    def _read_now(self, memory: ShadowedSpace, extent: ByteExtent, actor: Actor) -> None:
        """Reads of global memory count as made when issued."""
        if len(actor.threads) == len(extent.offsets) > 1:
            cells, count = memory.shadow.cells(extent.offsets, extent.size)
            threads = np.repeat(actor.threads, count)
        else:
            cells = memory.shadow.cells_of(extent)
            threads = actor.threads[:1]
        actor = replace(actor, threads=threads)
        if not self.rules.is_sound_read(memory, cells, actor):
            self.rules.check_earlier(memory, cells, actor, "reads")
            self.rules.check_writers(memory, cells, actor, "reads", None)
            self.rules.check_written(memory, cells, actor)
        self.rules.note_read(memory, cells, actor)

    def _read(
        self,
        pending_op: PendingOp,
        memory: ShadowedSpace,
        cells: np.ndarray,
        actor: Actor,
        column: tuple[str, int],
    ) -> None:
        if not self.rules.is_known_writer(memory, cells, actor):
            self.rules.check_writers(memory, cells, actor, "reads", None)
            self.rules.check_written(memory, cells, actor)
        pending_op.reads.append(self._note_read(memory, cells, actor, column))

    def _note_read(
        self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, column: tuple[str, int]
    ) -> Noted:
        """An operation begins to read granules."""
        number = memory.shadow.column(*column)
        words = self.rules.words(memory, actor, PENDING + self._count)
        memory.shadow.readers[number, cells] = words
        return Noted(
            memory, cells, words, actor.threads, memory.shadow.granule, number, self._base(memory, actor)
        )

    @staticmethod
    def _base(memory: ShadowedSpace, actor: Actor) -> int:
        return 0 if memory.shared else actor.clocks.base

    def _write(self, pending_op: PendingOp, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        self.rules.check_earlier(memory, cells, actor, "writes")
        self.rules.check_writers(memory, cells, actor, "writes", None)
        self.rules.check_readers(memory, cells, actor)
        words = self.rules.words(memory, actor, PENDING + self._count)
        memory.shadow.writers[cells] = words
        memory.shadow.written(cells)
        base = self._base(memory, actor)
        pending_op.writes.append(Noted(memory, cells, words, actor.threads, memory.shadow.granule, base=base))
