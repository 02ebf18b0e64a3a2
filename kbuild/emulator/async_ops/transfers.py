"""Bulk and tensor copies: loads that an mbarrier tracks, and stores that threads commit in groups and wait
for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.mbarrier import Barriers
from kbuild.emulator.async_ops.operation import ByteExtent, Operation, notify
from kbuild.emulator.async_ops.timing import Timing
from kbuild.emulator.async_ops.tma import reduce_elements, rounded
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import Memory


@dataclass(eq=False)
class Transfer(Operation):
    """One copy of elements from `reads[0]` to each of `writes`."""

    inside: np.ndarray | None = None
    """For a load: which elements of the destination have a source; the others are filled.  None: all."""
    fill: int = 0
    """Bits of an element without a source."""
    element: str = ""
    """Type of the elements, where a load rounds them to it."""
    barriers: tuple[tuple[Barriers, int], ...] = ()
    """The mbarriers (owner, offset) to notify when all bytes of a destination have landed."""
    reduction: tuple[str, str] | None = None
    """Operation and element type, where the destination is combined with the source."""
    thread: int = 0
    group: int = 0
    """For a store: the group of the thread that it belongs to."""
    data: np.ndarray | None = None
    """The bytes that were read and not written yet."""
    written: bool = False
    read_awaited: bool = False

    def check(self) -> None:
        """Raise Fault for bytes out of bounds or misaligned."""
        for extent in (*self.reads, *self.writes):
            extent.check()


class Transfers:
    """The bulk copies that the threads of one CTA have issued."""

    def __init__(self, memory: Memory, timing: Timing) -> None:
        self.memory = memory
        self.timing = timing
        self.loads: list[Transfer] = []
        """Those under way."""
        self.stores: list[Transfer] = []
        """Those that have not been waited for entirely."""
        self.committed: dict[int, int] = {}
        """Groups that each thread has committed."""

    def load(self, transfer: Transfer) -> None:
        """Begin a copy that mbarriers track.  Raises Fault for bytes out of bounds."""
        transfer.check()
        for owner, offset in transfer.barriers:
            owner.at(offset)
        notify(self.memory.observers, "issued", transfer)
        if self.timing.lands_at_issue():
            self._land(transfer)
            return
        for extent in transfer.writes:
            extent.poison()
        self.loads.append(transfer)

    def store(self, transfer: Transfer) -> None:
        """Begin a copy or reduction to global memory in the open group of its thread.  Raises Fault for bytes
        out of bounds."""
        transfer.check()
        transfer.group = self.committed.get(transfer.thread, 0)
        notify(self.memory.observers, "issued", transfer)
        if self.timing.lands_at_issue():
            self._take(transfer)
        if transfer.data is not None and self.timing.lands_at_issue():
            self._put(transfer)
        self.stores.append(transfer)

    def commit(self, threads: np.ndarray) -> None:
        """`cp.async.bulk.commit_group`."""
        for thread in threads.tolist():
            self.committed[thread] = self.committed.get(thread, 0) + 1

    def wait(self, threads: np.ndarray, allowed: int, only_reads: bool, site: Any) -> None:
        """All but the last `allowed` groups of these threads have been read (`only_reads`), or are complete."""
        if not self.stores:
            return
        limits = {thread: self.committed.get(thread, 0) - allowed for thread in threads.tolist()}
        remaining = []
        for transfer in self.stores:
            due = transfer.group < limits.get(transfer.thread, -1)
            if due and not (only_reads and transfer.read_awaited):
                self._take(transfer)
                transfer.read_awaited = True
                if not only_reads:
                    self._put(transfer)
                notify(
                    self.memory.observers, "awaited", transfer, np.array([transfer.thread]), only_reads, site
                )
            if only_reads or not due:
                remaining.append(transfer)
        self.stores = remaining

    def land(self) -> bool:
        """Let one load take effect.  False where none is under way."""
        if not self.loads:
            return False
        self._land(self.loads.pop(self.timing.choose(len(self.loads))))
        return True

    def finish(self) -> None:
        """The CTA has ended: its stores complete.  Raises Fault for copies that still use its shared memory."""
        own = self.memory.spaces["shared"]
        for transfer in self.loads:
            if all(extent.space is not own for extent in transfer.writes):
                continue
            raise Fault(
                "bulk-unfinished",
                f"the CTA ends while a copy into its shared memory is under way: {transfer.site[1]}",
            )
        for transfer in self.stores:
            if not transfer.read_awaited:
                raise Fault(
                    "bulk-unfinished",
                    f"the CTA ends without waiting until its shared memory has been read: {transfer.site[1]}"
                    " needs cp.async.bulk.commit_group and cp.async.bulk.wait_group.read after it",
                )
            self._put(transfer)
        self.stores.clear()

    def _land(self, transfer: Transfer) -> None:
        """Read, write, and notify the mbarriers."""
        self._take(transfer)
        self._put(transfer)
        for (owner, offset), extent in zip(transfer.barriers, transfer.writes):
            phase = owner.complete(offset, len(extent.offsets) * extent.size)
            notify(self.memory.observers, "arrived", (owner.shared, offset), phase, transfer.site, transfer)

    def _take(self, transfer: Transfer) -> None:
        if transfer.data is not None or transfer.written:
            return
        source = transfer.reads[0]
        self._tell_access("load", source, None, transfer)
        found = rounded(transfer.element, source.space.view(source.size)[source.offsets // source.size])
        if transfer.inside is not None:
            whole = np.zeros(len(transfer.inside), found.dtype)
            if transfer.fill:
                whole[:] = transfer.fill
            whole[transfer.inside] = found
            found = whole
        transfer.data = found

    def _put(self, transfer: Transfer) -> None:
        if transfer.written:
            return
        self._take(transfer)
        assert transfer.data is not None
        for extent in transfer.writes:
            if extent.space.ended:
                raise Fault(
                    "ended-peer",
                    f"lands in shared memory of a CTA of the cluster that has ended: {transfer.site[1]}",
                )
            view, places = extent.space.view(extent.size), extent.offsets // extent.size
            data = transfer.data
            if transfer.reduction is not None:
                data = reduce_elements(*transfer.reduction, view[places], data)
            self._tell_access("store" if transfer.reduction is None else "atomic", extent, data, transfer)
            view[places] = data
        transfer.data, transfer.written = None, True

    def _tell_access(
        self, kind: str, extent: ByteExtent, data: np.ndarray | None, transfer: Transfer
    ) -> None:
        if not len(extent.offsets):
            return
        lanes = np.full(len(extent.offsets), transfer.site[2][0])
        raw = None if data is None else np.ascontiguousarray(data).view(np.uint8).reshape(-1, extent.size)
        for observer in self.memory.observers:
            observer.accessed(kind, extent.space, extent.offsets, extent.size, lanes, raw, transfer.site)
