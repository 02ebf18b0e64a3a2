"""TMA: blocks of tensors into shared memory, and the mbarriers that count their bytes.

One thread makes the barriers and issues the copies, every thread waits.  A tile wider than its swizzle is
copied in boxes, which lie in shared memory one after another.
"""

from __future__ import annotations

from itertools import product

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import DescriptorType, MemDescType, bit_width
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import SHARED_POINTER
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.memory.shared_memory import descriptor, offset_of
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    TmaStoreWait,
    WaitBarrier,
)
from kbuild.errors import InternalError

LANE_BITS = 5
"""The number of lane bits in a thread's number; the others are the warp's."""
_BARRIER_BYTES = 8
_WAIT = """{
.reg .pred done;
again${:uid}:
mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
@!done bra again${:uid};
}"""


def _first_thread(emit: Emitter) -> str:
    """Whether this is the thread that issues for all."""
    if emit.partition == "producer":
        return "true"
    return emit.compare("eq", emit.thread_id(), "0")


def _call_for_each(emit: Emitter, barriers: Value, name: str, *rest: tuple[str, str]) -> None:
    """Call a function without a result for the address of each barrier of an array, with the same further arguments."""
    assert isinstance(barriers.type, MemDescType)
    pointer, _ = descriptor(emit, barriers)
    for number in range(barriers.type.buffers or 1):
        place = emit.offset_pointer(pointer, number * _BARRIER_BYTES, SHARED_POINTER)
        emit.call(name, "void", [(SHARED_POINTER, place), *rest], effect=True)


@lower(InitBarrier)
def lower_init_barrier(emit: Emitter, op: InitBarrier) -> None:
    with emit.when(_first_thread(emit)):
        _call_for_each(emit, op.barriers, "llvm.nvvm.mbarrier.init.shared", ("i32", str(op.arrivals)))
        if op.fence:
            emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)


@lower(InvalBarrier)
def lower_inval_barrier(emit: Emitter, op: InvalBarrier) -> None:
    with emit.when(_first_thread(emit)):
        _call_for_each(emit, op.barriers, "llvm.nvvm.mbarrier.inval.shared")


@lower(BarrierExpect)
def lower_barrier_expect(emit: Emitter, op: BarrierExpect) -> None:
    pointer, _ = descriptor(emit, op.barrier)
    with emit.when(emit.all_of([_first_thread(emit), emit.scalar(op.predicate)])):
        text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};"
        emit.asm(text, "r", [(SHARED_POINTER, pointer)], [], effect=True)


@lower(WaitBarrier)
def lower_wait_barrier(emit: Emitter, op: WaitBarrier) -> None:
    pointer, _ = descriptor(emit, op.barrier)
    emit.asm(_WAIT, "r,r", [(SHARED_POINTER, pointer), ("i32", emit.scalar(op.phase))], [], effect=True)


@lower(AsyncTmaCopyGlobalToLocal)
def lower_async_tma_copy(emit: Emitter, op: AsyncTmaCopyGlobalToLocal) -> None:
    assert isinstance(op.desc.type, DescriptorType)
    *_, rows, width = op.desc.type.block.shape
    pointer, start = descriptor(emit, op.dst)
    row_parts = op.tile.tile_shape[0] // rows
    if start or rows * row_parts != op.tile.tile_shape[0] or row_parts not in (1, op.programs):
        raise InternalError("a tensor map does not fit its tile", op.loc)
    barrier, _ = descriptor(emit, op.barrier)
    column, *outer = (emit.scalar(index) for index in reversed(op.indices))
    boxes, box_bytes = op.tile.tile_shape[1] // width, op.tile.tile_shape[0] * width * bit_width(op.tile) // 8
    if row_parts > 1:
        outer[0] = emit.add(outer[0], emit.mul(_rank(emit), str(rows)))
        pointer = emit.offset_pointer(
            pointer, emit.mul(_rank(emit), str(box_bytes // row_parts)), SHARED_POINTER
        )
    elif op.programs > 1:
        boxes //= op.programs
        column = emit.add(column, emit.mul(_rank(emit), str(boxes * width)))
        pointer = emit.offset_pointer(pointer, emit.mul(_rank(emit), str(boxes * box_bytes)), SHARED_POINTER)
    with emit.when(emit.all_of([_first_thread(emit), emit.scalar(op.predicate)])):
        for number in range(boxes):
            place = emit.offset_pointer(pointer, number * box_bytes, SHARED_POINTER)
            first = emit.add(column, str(number * width))
            operands = [
                (SHARED_POINTER, place),
                ("ptr", emit.scalar(op.desc)),
                *(("i32", index) for index in (first, *outer)),
            ]
            operands += [
                (SHARED_POINTER, barrier),
                *[("i16", str((1 << op.programs) - 1))] * (op.programs > 1),
            ]
            constraints = ",".join(["r", "l", *["r"] * len(op.indices), "r", *["h"] * (op.programs > 1)])
            emit.asm(_copy(len(op.indices), op.programs > 1), constraints, operands, [], effect=True)


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
        with emit.when(_first_thread(emit)):
            _copy_boxes(emit, op)
        return
    emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)
    emit.warp_barrier()
    (leader,) = emit.asm("elect.sync _|$0, 0xffffffff;", "=b", [], ["i1"], effect=True)
    with emit.when(leader):
        _copy_boxes(emit, op)


def _copy_boxes(emit: Emitter, op: AsyncTmaCopyLocalToGlobal) -> None:
    """The boxes that one thread copies: all, or those of its warp."""
    assert isinstance(op.desc.type, DescriptorType)
    tile = op.tile
    pointer, start = descriptor(emit, op.src)
    if start:
        raise InternalError("a copy from a part of a tile", op.loc)
    box, shape = op.desc.type.block.shape[-tile.layout.rank :], tile.tile_shape
    thin = len(op.indices) - len(shape)
    corners = [tile.layout.unflatten(1 << bit) for bit in op.warp_bits]
    number = emit.thread_id()
    first = [emit.scalar(index) for index in op.indices]
    for axis in range(len(shape)):
        own = linear(emit, number, [0] * LANE_BITS + [corner[axis] for corner in corners])
        first[thin + axis] = emit.add(first[thin + axis], own)
    images = [offset_of(tile.layout, corner) * bit_width(tile) // 8 for corner in corners]
    pointer = emit.offset_pointer(pointer, linear(emit, number, [0] * LANE_BITS + images), SHARED_POINTER)
    others = sum(1 << bit for bit in op.warp_bits)
    text = _store(len(first), op.kind)
    constraints = ",".join(["l", *["r"] * (len(first) + 1)])
    with emit.when(emit.scalar(op.predicate)):
        for corner in product(*(range(0, size, step) for size, step in zip(shape, box))):
            if tile.layout.flatten(corner) & others:
                continue
            place = emit.offset_pointer(
                pointer, offset_of(tile.layout, corner) * bit_width(tile) // 8, SHARED_POINTER
            )
            indices = [emit.add(index, str(by)) for index, by in zip(first, (*[0] * thin, *corner))]
            operands = [("ptr", emit.scalar(op.desc)), *(("i32", index) for index in reversed(indices))]
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
