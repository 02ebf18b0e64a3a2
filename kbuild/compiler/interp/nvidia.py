"""The meaning of warpgroup dots and TMA copies in a program of one thread.

Dots compute when they are issued, but show NaN until a wait covers them, and permanently if their tiles have
changed by then. So a missing wait, or a buffer reused too early, changes the results.  TMA copies land when
the barrier that counts their bytes is waited for, and their tiles show NaN until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kbuild.compiler.interp.formats import Array
from kbuild.compiler.interp.machine import Machine, PendingCopy, PendingValue, means
from kbuild.compiler.interp.memory import SharedTile
from kbuild.compiler.interp.tensor import BlockPointer, combine_at, matmul_add
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.nesting import warps_of
from kbuild.compiler.ir.types import DescriptorType, bit_width
from kbuild.compiler.ops.nvidia import (
    AcquireMaps,
    ArriveBarrier,
    AsyncCopyMbarrierArrive,
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    BarrierExpect,
    ClaimMaps,
    FenceAsyncShared,
    InitBarrier,
    InvalBarrier,
    MakeTensorMap,
    ReleaseMaps,
    TmaStoreWait,
    WaitBarrier,
    WarpGroupDot,
    WarpGroupDotWait,
)
from kbuild.errors import InterpretError


class PendingDot(PendingValue):
    """The result of a dot that may not have ended."""

    def __init__(
        self, value: Array, tiles: list[tuple[SharedTile, Array]], previous: PendingValue | None
    ) -> None:
        super().__init__(value)
        self.tiles = tiles
        self.previous = previous

    def end(self) -> None:
        changed = any(not np.array_equal(tile.read(), seen, equal_nan=True) for tile, seen in self.tiles)
        if changed or (self.previous is not None and self.previous.spoiled):
            self.spoiled = True
        self.ended = True


@means(WarpGroupDot)
def warp_group_dot(machine: Machine, op: WarpGroupDot) -> Array | PendingDot:
    tiles: list[tuple[SharedTile, Array]] = []
    operands = []
    for value in (machine[op.a], machine[op.b]):
        if isinstance(value, SharedTile):
            tiles.append((value, value.read()))
            value = tiles[-1][1]
        operands.append(value)
    c = machine.values[op.c]
    start = c.value if isinstance(c, PendingValue) else c
    if op.use_acc is not None and not machine[op.use_acc]:
        c, start = None, np.zeros_like(start)
    total = matmul_add(operands[0], operands[1], start, op.c.type)
    if not op.is_async:
        end_dots(machine, 0)
        return total
    dot = PendingDot(total, tiles, c if isinstance(c, PendingValue) else None)
    machine.dots.append(dot)
    return dot


@means(WarpGroupDotWait)
def warp_group_dot_wait(machine: Machine, op: WarpGroupDotWait) -> tuple[Array, ...]:
    """Those of the last `pendings` dots are passed on as they are, and have not ended."""
    end_dots(machine, op.pendings)
    return tuple(machine.values[value] for value in op.values)


def end_dots(machine: Machine, pendings: int) -> None:
    """End all dots but the last `pendings`."""
    count = max(len(machine.dots) - pendings, 0)
    for dot in machine.dots[:count]:
        dot.end()
    del machine.dots[:count]


@means(FenceAsyncShared)
def fence_async_shared(machine: Machine, op: FenceAsyncShared) -> None:
    pass


_UNIT = 16
"""Bytes at a multiple of which the boxes of tensor maps begin in their rows."""


@dataclass(frozen=True)
class TensorMapValue:
    """A tensor in memory: address, and for each axis its size and the bytes from one index to the next."""

    base: int
    shape: tuple[int, ...]
    pitches: tuple[int, ...]
    fill: float = 0.0
    """The value that is read beyond the tensor."""


@means(ClaimMaps)
def claim_maps(machine: Machine, op: ClaimMaps) -> int:
    return 0


@means(AcquireMaps, ReleaseMaps)
def order_maps(machine: Machine, op: AcquireMaps | ReleaseMaps) -> None:
    pass


@means(MakeTensorMap)
def make_tensor_map(machine: Machine, op: MakeTensorMap) -> TensorMapValue:
    assert isinstance(op.type, DescriptorType)
    size = bit_width(op.type.block) // 8
    return TensorMapValue(
        int(machine[op.base]),
        tuple(int(machine[extent]) for extent in op.shape),
        (*(int(machine[stride]) * size for stride in op.strides), size),
        float("nan") if op.fill_nan else 0.0,
    )


@dataclass
class Counting:
    """A barrier.  A phase that counts copies completes when it is waited for, as late as possible; another one as
    soon as all have arrived."""

    arrivals: int
    """Arrivals that each phase needs."""
    pending: int
    """Those that the phase under way still needs."""
    phase: int = 0
    """The parity of the phase under way."""
    expected: int = 0
    """The bytes that it waits for."""
    copies: list[tuple[SharedTile, Array]] = field(default_factory=list)
    """Those by TMA."""
    threads_copies: list[PendingCopy] = field(default_factory=list)
    """Those of threads that arrive when they have landed."""

    def arrive(self, count: int, op: Op) -> None:
        """So many arrivals.  Raises InterpretError where the phase needs fewer."""
        if count > self.pending:
            raise InterpretError(
                "a barrier is used again before its phase was waited for, or has more arrivals than it was made for: "
                f"{count} where {self.pending} of {self.arrivals} are missing",
                op.loc,
            )
        self.pending -= count
        if not self.pending and not (self.expected or self.copies or self.threads_copies):
            self.advance()

    @property
    def is_complete(self) -> bool:
        """Whether all have arrived, and the bytes of all copies are those that were expected."""
        return not self.pending and self.expected == sum(tile.type.tile_bytes for tile, _ in self.copies)

    def advance(self) -> None:
        """The phase is complete: its copies land."""
        for tile, values in self.copies:
            tile.write(values)
        for copy in self.threads_copies:
            copy.land()
        self.phase, self.pending, self.expected = self.phase ^ 1, self.arrivals, 0
        self.copies, self.threads_copies = [], []


def _places(tile: SharedTile) -> list[tuple[int, int]]:
    return [(id(tile.data), tile.start + 8 * int(offset)) for offset in tile.offsets.reshape(-1)]


def _counting(machine: Machine, tile: SharedTile, op: Op) -> Counting:
    (place,) = _places(tile)
    if place not in machine.counting:
        raise InterpretError(f"{op.op_name} of a barrier that was not made", op.loc)
    return machine.counting[place]


@means(InitBarrier)
def init_barrier(machine: Machine, op: InitBarrier) -> None:
    for place in _places(machine[op.barriers]):
        machine.counting[place] = Counting(op.arrivals, op.arrivals)


@means(InvalBarrier)
def inval_barrier(machine: Machine, op: InvalBarrier) -> None:
    for place in _places(machine[op.barriers]):
        barrier = machine.counting.pop(place, None)
        if barrier is None:
            raise InterpretError(f"{op.op_name} of a barrier that was not made", op.loc)
        if barrier.copies or barrier.expected or barrier.threads_copies:
            raise InterpretError("a barrier ends before the copies that it counts", op.loc)


@means(BarrierExpect)
def barrier_expect(machine: Machine, op: BarrierExpect) -> None:
    if machine[op.predicate]:
        barrier = _counting(machine, machine[op.barrier], op)
        barrier.expected += op.bytes
        barrier.arrive(1, op)


@means(WaitBarrier)
def wait_barrier(machine: Machine, op: WaitBarrier) -> None:
    """The phase completes now, as late as possible."""
    if op.predicate is not None and not machine[op.predicate]:
        return
    barrier = _counting(machine, machine[op.barrier], op)
    phase = int(machine[op.phase])

    def is_waiting() -> bool:
        return phase == barrier.phase and not barrier.is_complete

    if is_waiting() and machine.turns is not None:
        machine.turns.wait(is_waiting, op)
    elif is_waiting():
        raise InterpretError(f"a wait that never ends: {_missing(barrier)}", op.loc)
    if phase == barrier.phase:
        barrier.advance()


def _missing(barrier: Counting) -> str:
    """What a phase that is not complete lacks."""
    bytes_ = sum(tile.type.tile_bytes for tile, _ in barrier.copies)
    if bytes_ != barrier.expected:
        return f"the bytes expected are not those copied: {barrier.expected} and {bytes_}"
    return f"{barrier.pending} of {barrier.arrivals} arrivals are missing"


@means(ArriveBarrier)
def arrive_barrier(machine: Machine, op: ArriveBarrier) -> None:
    """All warps arrive at once, or one thread for all; the tiles that others may overwrite are lost."""
    if machine[op.predicate]:
        barrier = _counting(machine, machine[op.barrier], op)
        barrier.arrive(barrier.arrivals if op.count is None else op.count, op)
        for tile in op.tiles:
            machine[tile].spoil()


@means(AsyncCopyMbarrierArrive)
def async_copy_mbarrier_arrive(machine: Machine, op: AsyncCopyMbarrierArrive) -> None:
    """All threads arrive, each when its copies have landed."""
    barrier = _counting(machine, machine[op.barrier], op)
    barrier.threads_copies += [one for group in (*machine.groups, machine.copies) for one in group]
    if op.no_increment:
        barrier.arrive(32 * warps_of(op), op)


@means(AsyncTmaCopyGlobalToLocal)
def async_tma_copy_global_to_local(machine: Machine, op: AsyncTmaCopyGlobalToLocal) -> None:
    if not machine[op.predicate]:
        return
    barrier = _counting(machine, machine[op.barrier], op)
    tile, type_ = machine[op.dst], op.tile
    addresses, inside = _block(machine, op)
    found = machine.memory.load(addresses[inside], type_.element, op.loc)
    values = np.full(type_.tile_shape, _tensor(machine[op.desc], op).fill, found.dtype)
    values[inside] = found
    tile.spoil()
    barrier.copies.append((tile, values))


def _tensor(
    value: TensorMapValue | BlockPointer, op: AsyncTmaCopyGlobalToLocal | AsyncTmaCopyLocalToGlobal
) -> TensorMapValue:
    """The tensor of a map, or of a descriptor that has none yet."""
    if isinstance(value, TensorMapValue):
        return value
    size = bit_width(op.tile) // 8
    fill = float("nan") if value.padding == "nan" else 0.0
    return TensorMapValue(value.base, value.shape, tuple(stride * size for stride in value.strides), fill)


def _block(
    machine: Machine, op: AsyncTmaCopyGlobalToLocal | AsyncTmaCopyLocalToGlobal
) -> tuple[Array, Array]:
    """The addresses of a tile's elements in the tensor of a map, and which of them lie in it."""
    tensor, shape = _tensor(machine[op.desc], op), op.tile.tile_shape
    begin = int(machine[op.indices[-1]]) * tensor.pitches[-1]
    if begin % _UNIT:
        raise InterpretError(
            f"a box begins at byte {begin} of its rows, which is not a multiple of {_UNIT}", op.loc
        )
    inside = np.ones(shape, bool)
    addresses = np.full(shape, tensor.base, np.int64)
    thin = len(op.indices) - len(shape)
    for axis, (index, size, pitch) in enumerate(zip(op.indices, tensor.shape, tensor.pitches)):
        first = int(machine[index])
        steps = np.indices(shape, np.int64)[axis - thin] if axis >= thin else 0
        inside &= (first + steps >= 0) & (first + steps < size)
        addresses += (first + steps) * pitch
    return addresses, inside


@dataclass
class Outgoing:
    """A copy from a tile to memory that may not have been done."""

    op: AsyncTmaCopyLocalToGlobal
    tile: SharedTile
    seen: Array
    addresses: Array
    inside: Array
    is_read: bool = False

    def read(self) -> None:
        """Read the tile as late as possible, and check that it has not changed."""
        if not self.is_read and not np.array_equal(self.tile.read(), self.seen, equal_nan=True):
            raise InterpretError("a tile is overwritten before TMA has read it", self.op.loc)
        self.is_read = True

    def write(self, machine: Machine) -> None:
        op, addresses, values = self.op, self.addresses[self.inside], self.seen[self.inside]
        if op.kind:
            combine_at(machine, addresses, values, op.kind, op.tile.element, op.loc)
        else:
            machine.memory.store(addresses, values, op.tile.element, op.loc)


@means(AsyncTmaCopyLocalToGlobal)
def async_tma_copy_local_to_global(machine: Machine, op: AsyncTmaCopyLocalToGlobal) -> None:
    tile: SharedTile = machine[op.src]
    addresses, inside = _block(machine, op)
    machine.outgoing.append(Outgoing(op, tile, tile.read(), addresses, inside & bool(machine[op.predicate])))


@means(TmaStoreWait)
def tma_store_wait(machine: Machine, op: TmaStoreWait) -> None:
    count = max(len(machine.outgoing) - op.pendings, 0)
    for copy in machine.outgoing[:count]:
        copy.read()
    if not op.only_reads:
        machine.write_copies(count)
