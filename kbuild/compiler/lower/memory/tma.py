"""TMA: blocks of tensors between global and shared memory, whose bytes mbarriers count.

One thread issues the copies.  A tile wider than its swizzle is copied in boxes, which lie in shared memory one
after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import DescriptorType, MemDescType, bit_width
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import SHARED_POINTER
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.memory.mbarriers import first_thread
from kbuild.compiler.lower.memory.shared_memory import descriptor, offset_of
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal, AsyncTmaCopyLocalToGlobal, TmaStoreWait
from kbuild.errors import InternalError

LANE_BITS = 5
"""The number of lane bits in a thread's number; the others are the warp's."""


@lower(AsyncTmaCopyGlobalToLocal)
def lower_async_tma_copy(emit: Emitter, op: AsyncTmaCopyGlobalToLocal) -> None:
    corners = _corners(op.desc, op.tile)
    pointer, start = descriptor(emit, op.dst)
    barrier, _ = descriptor(emit, op.barrier)
    first = [emit.scalar(index) for index in reversed(op.indices)][::-1]
    if op.programs > 1:
        corners, pointer = _own_share(emit, op, corners, first, pointer)
    constraints = ",".join(["r", "l", *["r"] * len(first), "r", *["h"] * (op.programs > 1)])
    with emit.when(emit.all_of([first_thread(emit), emit.scalar(op.predicate)])):
        for corner in corners:
            operands = [
                (SHARED_POINTER, _box_pointer(emit, op, op.tile, (pointer, start), corner)),
                ("ptr", emit.scalar(op.desc)),
                *(("i32", index) for index in _indices(emit, first, corner)),
                (SHARED_POINTER, barrier),
                *[("i16", str((1 << op.programs) - 1))] * (op.programs > 1),
            ]
            emit.asm(_copy(len(first), op.programs > 1), constraints, operands, [], effect=True)


def _corners(desc: Value, tile: MemDescType) -> list[tuple[int, ...]]:
    """Where in a tile the boxes of a tensor map lie."""
    assert isinstance(desc.type, DescriptorType)
    box = desc.type.block.shape[-tile.layout.rank :]
    return list(product(*(range(0, size, step) for size, step in zip(tile.tile_shape, box))))


def _indices(emit: Emitter, first: Sequence[str], corner: Sequence[int]) -> list[str]:
    """The indices of a box in the tensor, that along the contiguous axis first; those of the tile are `first`."""
    moved = [0] * (len(first) - len(corner)) + [*corner]
    return [emit.add(index, str(by)) for index, by in zip(reversed(first), reversed(moved))]


def _box_pointer(
    emit: Emitter, op: Op, tile: MemDescType, place: tuple[str, int], corner: Sequence[int]
) -> str:
    """The address of a box of a tile, which is at a pointer and an offset to XOR."""
    pointer, start = place
    at = offset_of(tile.layout, corner) if any(corner) else 0
    if start & at:
        raise InternalError("a box of a tile's part does not lie where one of the whole does", op.loc)
    return emit.offset_pointer(pointer, (start | at) * bit_width(tile) // 8, SHARED_POINTER)


def _own_share(
    emit: Emitter,
    op: AsyncTmaCopyGlobalToLocal,
    corners: Sequence[tuple[int, ...]],
    first: list[str],
    pointer: str,
) -> tuple[list[tuple[int, ...]], str]:
    """The boxes that a program of a cluster copies for all, as those of the first one, and where the tile would
    begin then; the indices `first` are changed likewise."""
    axis = 0 if any(corner[0] for corner in corners) else 1
    step = op.tile.tile_shape[axis] // op.programs
    corner = (step, 0) if axis == 0 else (0, step)
    axis -= len(op.tile.tile_shape)
    first[axis] = emit.add(first[axis], emit.mul(_rank(emit), str(step)))
    moved = offset_of(op.tile.layout, corner) * bit_width(op.tile) // 8
    pointer = emit.offset_pointer(pointer, emit.mul(_rank(emit), str(moved)), SHARED_POINTER)
    return [one for one in corners if one[axis] < step], pointer


def _copy(rank: int, to_all: bool) -> str:
    """The instruction for a map of so many axes; its indices start with that along the contiguous one."""
    indices = ", ".join(f"${2 + axis}" for axis in range(rank))
    head = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    if to_all:
        return f"{head}.multicast::cluster [$0], [$1, {{{indices}}}], [${2 + rank}], ${3 + rank};"
    return f"{head} [$0], [$1, {{{indices}}}], [${2 + rank}];"


def _rank(emit: Emitter) -> str:
    """The number of this program in its cluster."""
    with emit.at_entry():
        return emit.call("llvm.nvvm.read.ptx.sreg.cluster.ctarank", "i32", [])


@lower(AsyncTmaCopyLocalToGlobal)
def lower_async_tma_store(emit: Emitter, op: AsyncTmaCopyLocalToGlobal) -> None:
    """Box by box, in one group; even an empty copy makes a group, because waits count them."""
    if not op.warp_bits:
        with emit.when(first_thread(emit)):
            _copy_boxes(emit, op)
        return
    emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)
    emit.warp_barrier()
    (leader,) = emit.asm("elect.sync _|$0, 0xffffffff;", "=b", [], ["i1"], effect=True)
    with emit.when(leader):
        _copy_boxes(emit, op)


def _copy_boxes(emit: Emitter, op: AsyncTmaCopyLocalToGlobal) -> None:
    """The boxes that one thread copies: all, or those of its warp."""
    tile = op.tile
    pointer, start = descriptor(emit, op.src)
    whole = [tile.layout.unflatten(1 << bit) for bit in op.warp_bits]
    number = emit.thread_id()
    first = [emit.scalar(index) for index in op.indices]
    thin = len(first) - len(tile.tile_shape)
    for axis in range(len(tile.tile_shape)):
        own = linear(emit, number, [0] * LANE_BITS + [corner[axis] for corner in whole])
        first[thin + axis] = emit.add(first[thin + axis], own)
    images = [offset_of(tile.layout, corner) * bit_width(tile) // 8 for corner in whole]
    pointer = emit.offset_pointer(pointer, linear(emit, number, [0] * LANE_BITS + images), SHARED_POINTER)
    others = sum(1 << bit for bit in op.warp_bits)
    text = _store(len(first), op.kind)
    constraints = ",".join(["l", *["r"] * (len(first) + 1)])
    with emit.when(emit.scalar(op.predicate)):
        for corner in _corners(op.desc, tile):
            if tile.layout.flatten(corner) & others:
                continue
            place = _box_pointer(emit, op, tile, (pointer, start), corner)
            operands = [
                ("ptr", emit.scalar(op.desc)),
                *(("i32", index) for index in _indices(emit, first, corner)),
            ]
            emit.asm(text, constraints, [*operands, (SHARED_POINTER, place)], [], effect=True)
    emit.asm("cp.async.bulk.commit_group;", "", [], [], effect=True)


def _store(rank: int, kind: str) -> str:
    """The instruction for a map of so many axes, copying or combining; the map says whether numbers have
    signs."""
    indices = ", ".join(f"${1 + axis}" for axis in range(rank))
    operation = kind.removeprefix("f").removeprefix("u")
    head = f"cp.reduce.async.bulk.tensor.{rank}d" if kind else f"cp.async.bulk.tensor.{rank}d"
    tail = f"{operation}.tile.bulk_group" if kind else "tile.bulk_group"
    return f"{head}.global.shared::cta.{tail} [$0, {{{indices}}}], [${1 + rank}];"


@lower(TmaStoreWait)
def lower_tma_store_wait(emit: Emitter, op: TmaStoreWait) -> None:
    emit.asm(
        f"cp.async.bulk.wait_group{'.read' if op.only_reads else ''} {op.pendings};", "", [], [], effect=True
    )
    if op.by_warp:
        emit.warp_barrier()
