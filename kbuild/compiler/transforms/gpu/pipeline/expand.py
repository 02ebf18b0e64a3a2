"""Puts a schedule into effect: a prologue that issues the first loads, and a loop that issues those of later
iterations.

There is no epilogue: operations of iterations beyond the last are masked off, by the same comparison that
makes loops of few iterations, or none, correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import I1, I32, I64, MemDescType, Type, is_tensor, like
from kbuild.compiler.layout import unswizzled
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.elementwise import AddI, AndI, CmpI, Constant, MulI, Select, XOrI
from kbuild.compiler.ops.gpu import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalDealloc,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    MemDescTrans,
)
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    WaitBarrier,
)
from kbuild.compiler.ops.tensor import Load, Splat
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
from kbuild.compiler.transforms._support.slots import following_slot
from kbuild.compiler.transforms.gpu.pipeline.async_copy import replace_uses
from kbuild.compiler.transforms.gpu.pipeline.loads import forget_descriptor
from kbuild.compiler.transforms.gpu.pipeline.schedule import LoopSchedule, Stage
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import is_transposed


@dataclass
class _Progress:
    """One stage, and what it passes from one iteration to the next."""

    stage: Stage
    carried: dict[int, Value]
    """The loop's carried values as they are `lookahead` iterations ahead, by number."""
    queues: dict[Load, list[Value]]
    """Values loaded and not used yet, oldest first."""


def expand(
    loop: For, schedule: LoopSchedule, tiles: dict[Load, MemDescType], maps: dict[Load, Value]
) -> None:
    """Rewrite a loop by its schedule; `tiles` are the tiles that the loads of the asynchronous stage are
    copied into, `maps` their tensor maps where TMA copies them: for all of them, or for none."""
    expansion = _Expansion(loop, schedule, tiles, maps)
    expansion.prologue()
    expansion.steady_state()
    expansion.epilogue()


class _Expansion:
    def __init__(
        self, loop: For, schedule: LoopSchedule, tiles: dict[Load, MemDescType], maps: dict[Load, Value]
    ) -> None:
        self.loop, self.schedule, self.maps = loop, schedule, maps
        self.builder = Builder.before(loop)
        self.progress = [
            _Progress(
                stage,
                {index: loop.init[index] for index in stage.slice.carried},
                {} if stage.asynchronous else {load: [] for load in stage.loads},
            )
            for stage in schedule.stages
        ]
        self.sizes = sorted({schedule.buffers(load) for load in tiles})
        """The sizes of the rings of buffers; each has counters of its own."""
        self.buffers = {load: self._allocate(load, tile) for load, tile in tiles.items()}
        self.barriers = self._make_barriers() if maps else None
        self.early: dict[int, tuple[Value, Value]] = {}

    # The three parts

    def prologue(self) -> None:
        """Issue what would have been issued in the iterations before the first."""
        for time in range(-self.schedule.start, 0):
            for progress in self.progress:
                if time == -progress.stage.use:
                    self._store(progress, {size: self._integer(0) for size in self.sizes})
                iteration = time + progress.stage.lookahead
                if iteration >= 0:
                    slots = (
                        {size: self._integer(iteration) for size in self.sizes}
                        if progress.stage.asynchronous
                        else None
                    )
                    self._issue(progress, *self._early(iteration), slots)
            if time >= -self.schedule.distance:
                self._commit()
        if self.schedule.waits_ahead:
            self.builder.add(AsyncWait(self.schedule.distance - 1))

    def steady_state(self) -> None:
        """Change the loop: wait for this iteration's copies, issue later ones, and use what has arrived."""
        steps = [self._times(self.loop.step, progress.stage.lookahead) for progress in self.progress]
        zero, one = (self._integer(value) for value in (0, 1))
        counts = {size: self._integer(size) for size in self.sizes}
        slots = [(zero, "read_slot") for _ in self.sizes]
        slots += [(self._integer(self.schedule.distance % size), "write_slot") for size in self.sizes]
        if self.barriers is not None:
            slots.append((zero, "phase"))
        carried = slots + list(self._carried_values())
        arguments = add_carried(self.loop, [value for value, _ in carried], [name for _, name in carried])
        slot_arguments = arguments[: 2 * len(self.sizes)]
        read_slots, write_slots = (
            dict(zip(self.sizes, slot_arguments)),
            dict(zip(self.sizes, slot_arguments[len(self.sizes) :])),
        )
        self._receive(iter(arguments[len(slots) :]))
        self.builder = Builder(self.loop.body, self.loop.body.first, self.loop.loc)
        held = {
            load: queue.pop(0) for p in self.progress if not p.stage.use for load, queue in p.queues.items()
        }
        reads: dict[Load, Value] = {}
        if self.buffers:
            if self.barriers is None and not self.schedule.waits_ahead:
                self.builder.add(AsyncWait(self.schedule.distance - 1))
            reads = {
                load: self._at(load, MemDescIndex(buffer, read_slots[self.schedule.buffers(load)]))
                for load, buffer in self.buffers.items()
            }
            if self.barriers is not None:
                barrier = self.builder.add(MemDescIndex(self.barriers, read_slots[self.sizes[-1]])).result
                self.builder.add(WaitBarrier(barrier, arguments[len(slots) - 1], tuple(reads.values())))
        if self.schedule.in_place:
            self._read_all(reads)
        top, last_dot = self.builder, self.schedule.issue_after
        behind = Builder.after(last_dot) if last_dot is not None else top
        if self.schedule.waits_ahead:
            behind.add(AsyncWait(self.schedule.distance - 2))
        if self.schedule.stored:
            self._store_next(read_slots)
        for progress, step in zip(self.progress, steps):
            self.builder = behind if progress.stage.asynchronous else top
            iteration = self.builder.add(AddI(self.loop.induction, step)).result
            predicate = self.builder.add(CmpI(iteration, self.loop.upper, "slt")).result
            self._issue(progress, iteration, predicate, write_slots if progress.stage.asynchronous else None)
        self.builder = behind
        self._commit()
        rings = zip(slot_arguments, self.sizes * 2)
        following = [following_slot(self.builder, slot, zero, one, counts[size]).slot for slot, size in rings]
        if self.barriers is not None:
            phase = arguments[len(slots) - 1]
            turned = self.builder.add(XOrI(phase, one)).result
            wrapped = self.builder.add(CmpI(following[len(self.sizes) - 1], zero, "eq")).result
            following.append(self.builder.add(Select(wrapped, turned, phase)).result)
        yield_more(self.loop, following + [value for value, _ in self._carried_values()])
        if not self.schedule.in_place:
            self._read_all(reads)
        for load, value in held.items():
            load.replace_by(value)

    def epilogue(self) -> None:
        """Wait for the copies of iterations that never come: even masked ones write zeros."""
        self.builder = Builder.after(self.loop)
        if self.barriers is not None:
            self.builder.add(InvalBarrier(self.barriers, tuple(self.buffers.values())))
        elif self.buffers:
            self.builder.add(AsyncWait(0))
        for buffer in self.buffers.values():
            self.builder.add(LocalDealloc(buffer))

    def _read_all(self, reads: dict[Load, Value]) -> None:
        """Read the buffers where the loads are; what is built from now on comes after the last read."""
        for load, buffer in reads.items():
            replace_uses(self.loop, load, buffer)
        for op in self.loop.body:
            if isinstance(op, LocalLoad) and op.src in reads.values():
                self.builder = Builder.after(op)

    # One iteration of one stage

    def _issue(
        self, progress: _Progress, iteration: Value, predicate: Value, slots: dict[int, Value] | None
    ) -> None:
        """Issue a stage's loads for an iteration that exists where `predicate` holds; those that are
        copied into the buffers of these numbers in rings of these sizes."""
        stage, loop = progress.stage, self.loop
        mapping = {
            loop.induction: iteration,
            **{loop.carried[i]: value for i, value in progress.carried.items()},
        }
        for other in self.progress:
            mapping.update(
                {load.result: queue.pop(0) for load, queue in other.queues.items() if load in stage.known}
            )
        for op in stage.slice.ops:
            copy = self.builder.add(op.clone(mapping))
            if isinstance(copy, Load):
                forget_descriptor(copy)
                copy.mask = self._masked(copy.mask, predicate, copy.ptr.type, before=copy)
            elif isinstance(copy, If):
                copy.condition = self._masked(copy.condition, predicate, I1, before=copy)
        barrier = None
        if slots is not None and self.barriers is not None:
            barrier = self.builder.add(MemDescIndex(self.barriers, slots[self.sizes[-1]])).result
            size = sum(_tile_bytes(self.buffers[load]) for load in stage.loads)
            self.builder.add(BarrierExpect(barrier, predicate, size))
        for load in stage.loads:
            if slots is None:
                progress.queues[load].append(mapping[load.result])
            elif barrier is not None:
                indices = tuple(mapping.get(index, index) for index in load.indices)
                destination = self._at(
                    load, MemDescIndex(self.buffers[load], slots[self.schedule.buffers(load)])
                )
                if is_transposed(load):
                    destination = self.builder.add(MemDescTrans(destination, (1, 0))).result
                copy = AsyncTmaCopyGlobalToLocal(self.maps[load], destination, barrier, predicate, indices)
                copy.loc = load.loc
                self.builder.add(copy)
            else:
                self._copy(load, slots[self.schedule.buffers(load)], mapping, predicate)
        progress.carried = {i: mapping.get(loop.yielded[i], loop.yielded[i]) for i in progress.carried}

    def _copy(self, load: Load, slot: Value, mapping: dict[Value, Value], predicate: Value) -> None:
        destination = self._at(load, MemDescIndex(self.buffers[load], slot))
        source = mapping.get(load.ptr, load.ptr)
        own = mapping.get(load.mask, load.mask) if load.mask is not None else None
        mask = self._masked(own, predicate, load.result.type)
        copy = AsyncCopyGlobalToLocal(source, destination, mask, cache=load.cache, eviction=load.eviction)
        copy.loc = load.loc
        self.builder.add(copy)

    def _store_next(self, read_slots: dict[int, Value]) -> None:
        """Store the tiles of the next iteration that have come into registers."""
        zero, one = (self._integer(value) for value in (0, 1))
        following = {
            size: following_slot(self.builder, slot, zero, one, self._integer(size)).slot
            for size, slot in read_slots.items()
        }
        for progress in self.progress:
            self._store(progress, following)

    def _store(self, progress: _Progress, slots: dict[int, Value]) -> None:
        """Store the tiles that have come into registers into their buffers."""
        for load in progress.stage.loads:
            if load in self.schedule.stored:
                slot = slots[self.schedule.buffers(load)]
                destination = self._at(load, MemDescIndex(self.buffers[load], slot))
                self.builder.add(LocalStore(progress.queues[load].pop(0), destination))

    def _masked(self, mask: Value | None, predicate: Value, type_: Type, before: Op | None = None) -> Value:
        """A load's mask, or a branch's condition, and the iteration's predicate."""
        builder = self.builder if before is None else Builder.before(before)
        wide = builder.add(Splat(predicate, like(type_, I1))).result if is_tensor(type_) else predicate
        return wide if mask is None else builder.add(AndI(mask, wide)).result

    # What is carried

    def _carried_values(self) -> Iterator[tuple[Value, str]]:
        """All values that the stages pass to the next iteration, with names."""
        for progress in self.progress:
            for index, value in progress.carried.items():
                yield value, _named(self.loop.carried[index].name, "ahead")
            for load, queue in progress.queues.items():
                for value in queue:
                    yield value, _named(load.result.name, "held")

    def _receive(self, arguments: Iterator[Value]) -> None:
        """Replace the values of `_carried_values` by block arguments, in the same order."""
        for progress in self.progress:
            progress.carried = {index: next(arguments) for index in progress.carried}
            progress.queues = {
                load: [next(arguments) for _ in queue] for load, queue in progress.queues.items()
            }

    # Helpers

    def _make_barriers(self) -> Value:
        """A barrier for each set of buffers."""
        type_ = MemDescType((self.sizes[-1], 1), I64, unswizzled((1,), (0,)))
        barriers = self.builder.add(LocalAlloc(type_), "barriers").result
        self.builder.add(InitBarrier(barriers))
        return barriers

    def _commit(self) -> None:
        """End a group of copies that are waited for as a group."""
        if self.buffers and self.barriers is None:
            self.builder.add(AsyncCommitGroup())

    def _allocate(self, load: Load, tile: MemDescType) -> Value:
        type_ = MemDescType((self.schedule.buffers(load), *tile.tile_shape), tile.element, tile.layout)
        return self._at(load, LocalAlloc(type_))

    def _at(self, load: Load, op: MemDescIndex | LocalAlloc) -> Value:
        """Insert an operation at the place in the source where the load is, and under its name."""
        op.loc = load.loc
        return self.builder.add(op, load.result.name).result

    def _early(self, iteration: int) -> tuple[Value, Value]:
        """The induction value of one of the first iterations, and whether that iteration exists."""
        if iteration not in self.early:
            value = self.loop.lower
            if iteration:
                value = self.builder.add(AddI(value, self._times(self.loop.step, iteration))).result
            self.early[iteration] = value, self.builder.add(CmpI(value, self.loop.upper, "slt")).result
        return self.early[iteration]

    def _times(self, step: Value, count: int) -> Value:
        if isinstance(step.op, Constant):
            return self.builder.add(Constant.of(step.op.value * count, step.type)).result
        if count == 1:
            return step
        return self.builder.add(MulI(step, self.builder.add(Constant.of(count, step.type)).result)).result

    def _integer(self, value: int) -> Value:
        return self.builder.add(Constant.of(value, I32)).result


def _named(name: str, suffix: str) -> str:
    return f"{name}_{suffix}" if name else ""


def _tile_bytes(buffers: Value) -> int:
    assert isinstance(buffers.type, MemDescType)
    return buffers.type.tile_bytes
