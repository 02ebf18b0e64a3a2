"""A ring of buffers between the producer and the program's warps, with barriers that say which are full and
which are empty.

Barrier `full[i]` completes a phase when the copies into buffer i have landed, `empty[i]` when every warp is
done with it.  Both sides go around the ring with a slot and the parity of the phase, which turns at each
wrap.  The producer's starts at one: to wait for the phase before the first takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.nesting import ancestor_in
from kbuild.compiler.ir.types import I1, I32, I64, MemDescType
from kbuild.compiler.layout import unswizzled
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AddI, CmpI, Constant, Select, XOrI
from kbuild.compiler.ops.gpu import LocalAlloc, LocalLoad, MemDescIndex, MemDescSubslice, MemDescTrans
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncTmaCopyGlobalToLocal,
    BarrierExpect,
    FenceAsyncShared,
    InitBarrier,
    WaitBarrier,
    WarpGroupDot,
)
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
from kbuild.compiler.transforms._support.slots import following_slot
from kbuild.compiler.transforms.gpu.pipeline.async_copy import replace_uses
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import is_transposed


@dataclass(frozen=True)
class Ring:
    """Buffers for those loads of a loop that are needed, and free again, at the same time."""

    loads: tuple[Load, ...]
    maps: tuple[Value, ...]
    """The tensor map of each load."""
    buffers: tuple[Value, ...]
    """The descriptor of each load's buffers."""
    full: Value
    empty: Value
    count: int
    """The number of buffers."""
    is_late: bool
    """Whether dots read a buffer until the next iteration has begun."""
    programs: int = 1
    """Programs of the cluster, where they copy the tiles of some of the loads together."""
    shared: tuple[Load, ...] = ()
    """The loads that they copy together."""

    # The producer's side

    def issue(self, builder: Builder, mapping: dict[Value, Value], slot: Value, phase: Value) -> list[Value]:
        """Wait for a free buffer and fill it; return the next slot and phase.  `mapping` gives the producer's
        copies of values."""
        true = builder.add(Constant.of(1, I1)).result
        builder.add(WaitBarrier(_element(builder, self.empty, slot), phase))
        barrier = _element(builder, self.full, slot)
        builder.add(BarrierExpect(barrier, true, sum(_tile_bytes(buffer) for buffer in self.buffers)))
        for load, map_, buffer in zip(self.loads, self.maps, self.buffers):
            indices = tuple(mapping.get(index, index) for index in load.indices)
            tile = _element(builder, buffer, slot)
            if is_transposed(load):
                tile = builder.add(MemDescTrans(tile, (1, 0))).result
            copy = AsyncTmaCopyGlobalToLocal(
                map_, tile, barrier, true, indices, self.programs if load in self.shared else 1
            )
            copy.loc = load.loc
            builder.add(copy)
        return self.following(builder, slot, phase)

    def drain(self, builder: Builder, slot: Value, phase: Value, is_nested: bool) -> None:
        """Wait until all warps of the cluster have released what they will: none arrives in memory of a
        program that has ended. In the last run of a loop that is not in another, the last buffer is not
        released."""
        for _ in range(self.count - (self.is_late and not is_nested)):
            builder.add(WaitBarrier(_element(builder, self.empty, slot), phase))
            slot, phase = self.following(builder, slot, phase)

    # The side of the program's warps

    def consume(self, loop: For) -> None:
        """Make the loop wait for its tiles, read them where they are, and release them."""
        levels = enclosing_loops(loop)
        zero = Builder.before(levels[0]).add(Constant.of(0, I32)).result
        inside = [zero, zero]
        for level in levels:
            inside = add_carried(level, inside, ["slot", "phase"])
        slot, phase = inside
        fenced = self._receive(loop, slot, phase)
        yield_more(loop, self.following(Builder.before(loop.body.terminator), slot, phase))
        for outer, inner in zip(levels[-2::-1], levels[:0:-1]):
            yield_more(outer, inner.results[-2:])
        if self.is_late:
            builder = Builder.before(_retiring(loop))
            started = builder.add(CmpI(loop.induction, loop.lower, "sgt")).result
            self.release(builder, self._previous(builder, slot), started, fenced)
        # The buffer that is left after the last run of the loop is not filled again.
        if self.is_late and len(levels) > 1:
            after = Builder.after(loop)
            ran = after.add(CmpI(loop.lower, loop.upper, "slt")).result
            self.release(after, self._previous(after, loop.results[-2]), ran, fenced)

    def _receive(self, loop: For, slot: Value, phase: Value) -> bool:
        """Make the loop wait for its tiles; return whether threads read them, so that a fence must come
        before they are released."""
        builder = Builder(loop.body, loop.body.first, loop.loc)
        tiles = [_element(builder, buffer, slot) for buffer in self.buffers]
        for load, tile in zip(self.loads, tiles):
            replace_uses(loop, load, tile)
        readers = _readers(tiles)
        builder = Builder.before(
            min((ancestor_in(loop.body, reader) for reader in readers), key=_order(loop))
        )
        builder.add(WaitBarrier(_element(builder, self.full, slot), phase, tuple(tiles)))
        fenced = any(isinstance(reader, LocalLoad) for reader in readers)
        if not self.is_late:
            builder = Builder.before(_after_reads(loop, readers))
            self.release(builder, slot, builder.add(Constant.of(1, I1)).result, fenced)
        return fenced

    def release(self, builder: Builder, slot: Value, predicate: Value, fenced: bool) -> None:
        if fenced:
            builder.add(FenceAsyncShared())
        tiles = tuple(_element(builder, buffer, slot) for buffer in self.buffers)
        barrier = _element(builder, self.empty, slot)
        builder.add(ArriveBarrier(barrier, predicate, tiles, by_dots=not fenced, programs=self.programs))

    # Around the ring

    def following(self, builder: Builder, slot: Value, phase: Value) -> list[Value]:
        """The slot after this one and its phase."""
        zero, one, size = (builder.add(Constant.of(value, I32)).result for value in (0, 1, self.count))
        following = following_slot(builder, slot, zero, one, size)
        turned = builder.add(XOrI(phase, one)).result
        return [following.slot, builder.add(Select(following.is_inside, phase, turned)).result]

    def _previous(self, builder: Builder, slot: Value) -> Value:
        """The slot before this one; `analysis.slots` recognises the form."""
        zero, one, last = (builder.add(Constant.of(value, I32)).result for value in (0, -1, self.count - 1))
        first = builder.add(CmpI(slot, zero, "eq")).result
        return builder.add(Select(first, last, builder.add(AddI(slot, one)).result)).result


def make_ring(
    builder: Builder,
    loads: Sequence[Load],
    tiles: Sequence[MemDescType],
    maps: Sequence[Value],
    count: int,
    late: bool,
    warps: int,
    programs: int,
    shared: Sequence[Load],
) -> Ring:
    """Allocate buffers, and barriers at which the producer and so many warps meet, of each of the `programs`
    that copy the tiles of the `shared` loads together."""
    buffers = []
    for load, tile in zip(loads, tiles):
        type_ = MemDescType((count, *tile.tile_shape), tile.element, tile.layout)
        buffers.append(builder.add(LocalAlloc(type_), load.result.name).result)
    pair = MemDescType((count, 1), I64, unswizzled((1,), (0,)))
    full, empty = (builder.add(LocalAlloc(pair), name).result for name in ("full", "empty"))
    builder.add(InitBarrier(full, 1))
    builder.add(InitBarrier(empty, warps * programs))
    return Ring(tuple(loads), tuple(maps), tuple(buffers), full, empty, count, late, programs, tuple(shared))


def enclosing_loops(loop: For) -> list[For]:
    """The loops right around a loop, and itself, outermost first."""
    found = [loop]
    while isinstance(outer := found[-1].parent_op, For):
        found.append(outer)
    return found[::-1]


def _retiring(loop: For) -> Op:
    """The operation of the loop before which the dots of the previous iteration have surely ended: dots end
    in order, so it is the first that needs the result of any; or else the loop's end, where one more is in
    flight."""
    dots = [op for op in loop.body if isinstance(op, WarpGroupDot)]
    values = [*loop.carried, *(dot.result for dot in dots)]
    users = (
        ancestor_in(loop.body, user)
        for value in values
        if _is_dot_result(value, loop)
        for user in value.users
    )
    needing = [user for user in users if not isinstance(user, WarpGroupDot)]
    return min(needing, key=_order(loop), default=loop.body.terminator)


def _is_dot_result(value: Value, loop: For) -> bool:
    """Whether a value of the loop's body is the result of a dot, of this iteration or the previous one."""
    made = loop.yielded[value.index - 1] if value.op is None else value
    return isinstance(made.op, WarpGroupDot)


def _readers(tiles: Sequence[Value]) -> list[Op]:
    """The operations that read tiles."""
    readers: list[Op] = []
    views = list(tiles)
    for view in views:
        for user in view.users:
            if isinstance(user, MemDescTrans | MemDescSubslice):
                views.append(user.result)
            elif not isinstance(user, WaitBarrier):
                readers.append(user)
    return readers


def _after_reads(loop: For, readers: Sequence[Op]) -> Op:
    """The operation of the loop before which tiles can be released: where the threads have what they read of
    them, or need the result of a dot of them, for which they have to wait anyway."""
    last = max((ancestor_in(loop.body, reader) for reader in readers), key=_order(loop))
    if isinstance(last, WarpGroupDot):
        return min((ancestor_in(loop.body, user) for user in last.result.users), key=_order(loop))
    assert last.next is not None, "a block ends in its terminator"
    return last.next


def _order(loop: For) -> Callable[[Op], int]:
    """The place of an operation in the loop's body."""
    return {op: number for number, op in enumerate(loop.body)}.__getitem__


def _element(builder: Builder, many: Value, slot: Value) -> Value:
    return builder.add(MemDescIndex(many, slot), many.name).result


def _tile_bytes(buffers: Value) -> int:
    assert isinstance(buffers.type, MemDescType)
    return buffers.type.tile_bytes
