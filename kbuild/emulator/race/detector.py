"""The race detector: an observer of a launch that tracks the order of accesses and reports unordered ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.agent import Asynchronous
from kbuild.emulator.async_ops.cp_async import Copy
from kbuild.emulator.async_ops.operation import Operation
from kbuild.emulator.async_ops.transfers import Transfer
from kbuild.emulator.async_ops.wgmma import WgmmaOperation
from kbuild.emulator.engine.findings import Finding
from kbuild.emulator.engine.memory import Space
from kbuild.emulator.ptx.model import Instruction
from kbuild.emulator.race.accesses import Actor, Rules, ShadowedSpace
from kbuild.emulator.race.clocks import FENCED, FENCED_GLOBAL, KNOWN, OBSERVED, RELEASED, Clocks
from kbuild.emulator.race.maps import Maps, concerns_maps
from kbuild.emulator.race.operations import PendingOps
from kbuild.emulator.race.order import Order, Release
from kbuild.emulator.race.registers import Check, Unwritten, WgmmaRegisters
from kbuild.emulator.race.reports import Reports
from kbuild.emulator.race.shadow import Shadow
from kbuild.emulator.race.sites import InstructionSite, Sites, is_sequential, scope_of, uses_async_proxy


class _Cluster:
    """The state of one cluster."""

    def __init__(self, clocks: Clocks, order: Order, pending_ops: PendingOps) -> None:
        self.clocks, self.order, self.pending_ops = clocks, order, pending_ops
        self.memories: list[Space] = []
        self.ended = 0


class RaceDetector:
    """Watches one launch (`run(…, observers=[RaceDetector()])`); its findings come with the report.

    `without` are kinds of findings to leave out (see `race.KINDS`; `race.LENIENT` is such a set); `unwritten`
    the numbers of arguments, or the names that `run` gives them, whose bytes the kernel must write before it
    reads them; `earlier` those of arguments that a launch before this one still works on: a kernel with
    `griddepcontrol.wait` must not touch them before a thread has waited.
    """

    def __init__(
        self,
        without: Iterable[str] = (),
        unwritten: Iterable[int | str] = (),
        earlier: Iterable[int | str] = (),
    ) -> None:
        self.without = frozenset(without)
        self.unwritten = _names(unwritten)
        self.earlier = _names(earlier)

    def began(self, launch: Any) -> None:
        """A launch begins."""
        self.sites = Sites()
        self.reports = Reports(launch.program.module, self.without)
        self.rules = Rules(self.sites, self.reports)
        self._clusters: dict[int, tuple[Any, _Cluster]] = {}
        self._wgmmas = WgmmaRegisters(launch.program, self.sites, self.reports)
        self._unwritten = Unwritten(launch.program, self.sites, self.reports)
        self._unwatched: set[int] = launch.program.known.setdefault("unwatched", set())
        """The instructions (by id) that need no check before them."""
        self._memories: dict[int, ShadowedSpace] = {}
        self._announced: dict[tuple[int, int], tuple[InstructionSite, Any]] = {}
        """The instruction that last announced bytes to each mbarrier."""
        self._afar: dict[tuple[int, int], tuple[int, InstructionSite, Any]] = {}
        """The last phase of each mbarrier that another CTA has arrived in, and how."""
        self._releases: dict[tuple[int, int], list[Release]] = {}
        statements = [step.instruction for block in launch.program.blocks for step in block.steps]
        self._planes = FENCED_GLOBAL + 1 if any(map(uses_async_proxy, statements)) else 1
        self._planes = RELEASED + 1 if any(map(concerns_maps, statements)) else self._planes
        self._planes = OBSERVED + 1 if any(map(is_sequential, statements)) else self._planes
        self._maps = Maps(self.rules)
        self._map: tuple[ShadowedSpace, np.ndarray] | None = None
        """The map, written by the kernel, of the copy that is about to be issued."""
        heap = self._heap = launch.global_memory
        waits = any(instruction.name == "griddepcontrol.wait" for instruction in statements)
        unwritten, earlier = (
            _bytes_of(heap, self.unwritten),
            _bytes_of(heap, self.earlier if waits else frozenset()),
        )
        self._memories[id(heap)] = ShadowedSpace(heap, Shadow(len(heap.data), 1), False, unwritten, earlier)

    def findings(self) -> list[Finding]:
        """The findings of the launch."""
        return self.reports.findings()

    # Accesses

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
        if space.name not in ("shared", "global"):
            return
        batch, found = site[0], self.sites.of(site[1])
        reads_map = found.uses_map and kind == "load" and space is self._heap
        if found.asynchronous and not reads_map:
            return
        memory, cluster = self._memory(space, batch.cta), self._cluster(batch.cta.cluster)
        if reads_map:
            threads = lanes + (batch.first_thread + batch.cta.rank * self._threads(batch))
            cells = self._maps.used(memory, offsets, Actor(cluster.clocks, threads, found, batch))
            self._map = None if cells is None else (memory, cells)
            return
        cells, count = memory.shadow.cells(offsets, size)
        threads = lanes + (batch.first_thread + batch.cta.rank * self._threads(batch))
        spread = np.repeat(threads, count) if count > 1 else threads
        actor = Actor(cluster.clocks, spread, found, batch)
        if kind == "load" or (kind == "atomic" and found.instruction.opcode in ("mbarrier", "cp")):
            self._read(memory, cells, actor)
        else:
            if kind == "atomic":
                self.rules.check_written(memory, cells, actor)
            self._write(
                memory, cells, actor, None if data is None else data.reshape(-1, memory.shadow.granule)
            )
        if found.instruction.opcode == "mbarrier":
            barrier = (id(space), int(offsets[0]))
            if found.instruction.modifiers[0] == "init":
                cluster.order.begun(barrier, int(threads[0]))
            elif "expect_tx" in found.instruction.modifiers:
                self._announced[barrier] = (found, batch)
        elif found.publishes_map and kind == "store":
            cluster.clocks.fence(threads[:1], [RELEASED])
        elif found.strong:
            self._order_strong(kind, found, batch, memory, offsets, threads)

    def map_acquired(self, addresses: np.ndarray, site: Any) -> None:
        """`fence.proxy.tensormap::generic.acquire`."""
        batch, _, lanes = site
        threads = lanes + (batch.first_thread + batch.cta.rank * self._threads(batch))
        self._maps.acquired(self._cluster(batch.cta.cluster).clocks, self._heap, addresses, threads)

    def _read(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor) -> None:
        if not self.rules.is_sound_read(memory, cells, actor):
            self.rules.check_earlier(memory, cells, actor, "reads")
            self.rules.check_writers(memory, cells, actor, "reads", None)
            self.rules.check_written(memory, cells, actor)
            self.rules.check_unchanging(memory, cells, actor)
        self.rules.note_read(memory, cells, actor)

    def _write(self, memory: ShadowedSpace, cells: np.ndarray, actor: Actor, data: np.ndarray | None) -> None:
        benign = None
        if data is not None:
            old = memory.space.data[: len(memory.space.data)].reshape(-1, memory.shadow.granule)[cells]
            benign = (old == data).all(1)
        self.rules.check_earlier(memory, cells, actor, "writes")
        self.rules.check_writers(memory, cells, actor, "writes", benign)
        self.rules.check_readers(memory, cells, actor)
        words = self.rules.words(memory, actor, actor.clocks.own(actor.threads))
        self.rules.note_write(memory, cells, actor, words)
        self.rules.check_lanes(memory, cells, actor, words, data)

    def _order_strong(
        self,
        kind: str,
        site: InstructionSite,
        batch: Any,
        memory: ShadowedSpace,
        offsets: np.ndarray,
        threads: np.ndarray,
    ) -> None:
        cluster, place = self._cluster(batch.cta.cluster), (id(memory.space), offsets)
        if site.instruction.opcode == "cp":
            cluster.pending_ops.signals(int(threads[0]), (id(memory.space), int(offsets[0])))
            return
        cluster.order.strong_access(kind, site, batch.cta, place, threads)

    # Asynchronous operations

    def issued(self, operation: Operation) -> None:
        batch, instruction, lanes = operation.site
        cluster, site = self._cluster(batch.cta.cluster), self.sites.of(instruction)
        threads = lanes + (batch.first_thread + batch.cta.rank * self._threads(batch))
        if isinstance(operation, Copy):
            memories = (
                self._memory(operation.reads[0].space, batch.cta),
                self._memory(operation.writes[0].space, batch.cta),
            )
            cluster.pending_ops.copy(operation, Actor(cluster.clocks, threads, site, batch), memories)
        elif operation.kind == "wgmma":
            actor = Actor(
                cluster.clocks, threads[:1], site, batch, cluster.clocks.row_of_warp(int(threads[0]) >> 5)
            )
            cluster.pending_ops.wgmma(operation, actor, self._memory(batch.cta.shared, batch.cta))
            if isinstance(operation, WgmmaOperation):
                self._wgmmas.issued(operation, batch.first + int(lanes[0]) // 32)
        else:
            actor = Actor(cluster.clocks, threads[:1], site, batch)
            self._check_signals(operation, cluster, actor)
            map_, self._map = self._map, None
            cluster.pending_ops.transfer(operation, actor, lambda space: self._memory(space, batch.cta), map_)

    def _check_signals(self, operation: Operation, cluster: _Cluster, actor: Actor) -> None:
        """The mbarriers that a copy will notify must have been made for the asynchronous proxy too."""
        for owner, offset in (
            operation.barriers if isinstance(operation, Transfer) and actor.site.async_proxy else ()
        ):
            ready = cluster.order.made_for((id(owner.shared), offset), int(actor.threads[0]))
            if not ready and self.reports.is_first("mbarrier-fence", actor.site):
                text = f"the mbarrier at shared address {offset:#x} was made without a fence after it that orders copies"
                self.reports.add("mbarrier-fence", text, actor.site, actor.batch, tuple(actor.batch.warps))

    def awaited(self, operation: Operation, threads: np.ndarray, only_reads: bool, site: Any) -> None:
        batch = operation.site[0]
        if isinstance(operation, WgmmaOperation):
            self._wgmmas.awaited(operation, int(threads[0]) // 32)
        self._cluster(batch.cta.cluster).pending_ops.awaited(
            operation, threads + batch.cta.rank * self._threads(batch), only_reads
        )

    def arrived(self, barrier: tuple[Space, int], phase: int, site: Any, operation: Operation | None) -> None:
        batch = site[0]
        cluster, key = self._cluster(batch.cta.cluster), (id(barrier[0]), barrier[1])
        if operation is not None:
            cluster.pending_ops.landed(operation, barrier, cluster.clocks.column(key), phase)
            return
        threads = site[2] + (batch.first_thread + batch.cta.rank * self._threads(batch))
        if site[1].opcode == "cp":
            cluster.pending_ops.signalled(int(threads[0]), key, cluster.clocks.column(key), phase)
        elif "relaxed" not in site[1].modifiers:
            from_afar = barrier[0] is not batch.cta.shared
            if from_afar:
                self._afar[key] = (phase, self.sites.of(site[1]), batch)
            cluster.order.arrived(key, phase, threads, from_afar, "cluster" in site[1].modifiers)

    def passed(self, barrier: tuple[Space, int], phase: int, site: Any) -> None:
        batch = site[0]
        threads = site[2] + (batch.first_thread + batch.cta.rank * self._threads(batch))
        if "relaxed" not in site[1].modifiers:
            key, of_cluster = (id(barrier[0]), barrier[1]), "cluster" in site[1].modifiers
            self._cluster(batch.cta.cluster).order.passed(key, phase, threads, of_cluster)

    def reused(self, barrier: tuple[Space, int], site: Any) -> None:
        found = self.sites.of(site[1])
        if self.reports.is_first("mbarrier-reuse", found):
            text = f"the mbarrier at shared address {barrier[1]:#x} is initialised again without mbarrier.inval before it"
            self.reports.add("mbarrier-reuse", text, found, site[0], tuple(site[0].warps))

    # Barriers and fences

    def came(self, cta: Any, number: int, warps: list[int]) -> None:
        self._cluster(cta.cluster).order.came(cta.rank, number, warps)

    def released(self, cta: Any, number: int, waiting: list[int]) -> None:
        self._cluster(cta.cluster).order.released(cta.rank, number, waiting)

    def cluster_came(self, cta: Any, warps: list[int], releases: bool) -> None:
        self._cluster(cta.cluster).order.cluster_came(cta.rank, warps, releases)

    def cluster_waits(self, cta: Any, warps: list[int], ready: bool) -> None:
        self._cluster(cta.cluster).order.cluster_waits(cta.rank, warps, ready)

    def cluster_released(self, cluster: Any) -> None:
        self._cluster(cluster).order.cluster_released()

    def watch(self, batch: Any, step: Any) -> Check | None:
        """What to call before a step of a batch, with the mask of its lanes; None: nothing."""
        if id(step.instruction) in self._unwatched:
            return None
        wanted = [
            check
            for check in (
                self._ordering(batch, step.instruction),
                self._wgmmas.watch(batch, step.instruction),
                self._unwritten.watch(batch, step.instruction),
            )
            if check is not None
        ]
        if not wanted:
            self._unwatched.add(id(step.instruction))
            return None
        if len(wanted) == 1:
            return wanted[0]

        def all_of_them(where: Any) -> None:
            for check in wanted:
                check(where)

        return all_of_them

    def _ordering(self, batch: Any, instruction: Instruction) -> Check | None:
        """The effect on the order of an instruction that touches no memory."""
        if instruction.name == "griddepcontrol.wait":
            return lambda where: self._cluster(batch.cta.cluster).clocks.waited_for_launches(
                self._active(batch, where)
            )
        if instruction.name == "bar.warp.sync":
            return lambda where: self._cluster(batch.cta.cluster).order.warps_meet(self._active(batch, where))
        if instruction.name.startswith(("fence.proxy.async", "fence.mbarrier_init")):
            planes = [FENCED] if "global" not in instruction.modifiers else []
            planes += [FENCED_GLOBAL] if instruction.modifiers[-1] in ("async", "global") else []
            return lambda where: self._cluster(batch.cta.cluster).clocks.fence(
                self._active(batch, where), planes
            )
        if instruction.name.startswith("fence.proxy.tensormap::generic.release"):
            return lambda where: self._cluster(batch.cta.cluster).clocks.fence(
                self._active(batch, where), [RELEASED]
            )
        if instruction.opcode == "membar" or (
            instruction.opcode == "fence" and instruction.modifiers[0] != "proxy"
        ):
            scope, sequential = scope_of(instruction), is_sequential(instruction)
            return lambda where: self._cluster(batch.cta.cluster).order.fence(
                batch.cta, self._active(batch, where), scope, sequential
            )
        return None

    def ended(self, cta: Any) -> None:
        """The last warp of a CTA has ended."""
        cluster = self._cluster(cta.cluster)
        self._wgmmas.ended(cta)
        self._unwritten.ended(cta)
        cluster.pending_ops.ended(cta, self.reports)
        if len(cta.cluster.ctas) > 1:
            self.rules.check_end(self._memory(cta.shared, cta), cluster.clocks, cta)
            self._check_arrivals(cta, cluster.clocks)
        self._check_announced(cta)
        cluster.ended += 1
        if cluster.ended == len(cta.cluster.ctas):
            del self._clusters[id(cta.cluster)]
            gone = {id(space) for space in cluster.memories}
            for number in gone:
                del self._memories[number]
            for key in [key for key in self._releases if key[0] in gone]:
                del self._releases[key]

    def _check_arrivals(self, cta: Any, clocks: Clocks) -> None:
        """Report arrivals of other CTAs at mbarriers of one that ends, in phases that it has not seen
        complete."""
        for (space, offset), (phase, found, batch) in list(self._afar.items()):
            if space != id(cta.shared):
                continue
            del self._afar[space, offset]
            own = slice(cta.rank * self._threads(batch), (cta.rank + 1) * self._threads(batch))
            seen = clocks.rows[KNOWN, own, clocks.column((space, offset))].max()
            if seen <= phase and self.reports.is_first("ended-peer", found):
                text = f"arrives at the mbarrier at shared address {offset:#x} of CTA {cta.index}, which does not wait for that"
                self.reports.add("ended-peer", text, found, batch, tuple(batch.warps))

    def _check_announced(self, cta: Any) -> None:
        """Report mbarriers of a CTA that still wait for bytes."""
        for agent in cta.agents:
            for offset, missing in agent.barriers.unbalanced() if isinstance(agent, Asynchronous) else ():
                if (id(cta.shared), offset) not in self._announced:
                    continue
                found, batch = self._announced[id(cta.shared), offset]
                if self.reports.is_first("unfinished", found):
                    text = f"the CTA ends while the mbarrier at shared address {offset:#x} is {missing} bytes short"
                    self.reports.add("unfinished", text, found, batch, tuple(batch.warps))

    # State

    @staticmethod
    def _threads(batch: Any) -> int:
        return 32 * batch.cta.warp_count

    def _active(self, batch: Any, where: Any) -> np.ndarray:
        """The threads of the cluster that a mask means."""
        lanes = np.arange(batch.size) if where is True else np.flatnonzero(where)
        return lanes + (batch.first_thread + batch.cta.rank * self._threads(batch))

    def _cluster(self, cluster: Any) -> _Cluster:
        found = self._clusters.get(id(cluster))
        if found is None:
            per_cta = 32 * cluster.ctas[0].warp_count
            clocks = Clocks(len(self.rules.ctas), per_cta * len(cluster.ctas), self._planes)
            made = _Cluster(clocks, Order(clocks, per_cta, self._releases), PendingOps(self.rules, clocks))
            found = self._clusters[id(cluster)] = (cluster, made)
            self.rules.ctas.append([cta.index for cta in cluster.ctas])
        return found[1]

    def _memory(self, space: Space, cta: Any) -> ShadowedSpace:
        memory = self._memories.get(id(space))
        if memory is None:
            warps = cta.warp_count * len(cta.cluster.ctas)
            memory = self._memories[id(space)] = ShadowedSpace(space, Shadow(len(space.data), warps), True)
            self._cluster(cta.cluster).memories.append(space)
        return memory


def _names(arguments: Iterable[int | str]) -> frozenset[str]:
    """The names that memory has for arguments, which are given by number or by name."""
    return frozenset(
        f"argument {argument}" if isinstance(argument, int) else argument for argument in arguments
    )


def _bytes_of(heap: Space, arguments: frozenset[str]) -> np.ndarray | None:
    """The mask of the bytes of global memory that belong to arguments; None where there are none."""
    if not arguments:
        return None
    found = np.zeros(len(heap.data), bool)
    for start, size, name in heap.names:
        if name in arguments:
            found[start : start + size] = True
    return found
