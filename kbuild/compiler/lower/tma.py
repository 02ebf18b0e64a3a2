"""The copy engine (TMA): blocks of tensors into shared memory, and the mbarriers that count their bytes.

One thread makes the barriers and issues the copies, every thread waits.  A tile wider than its swizzle is copied in boxes,
which lie in shared memory one after another.
"""

from __future__ import annotations

from kbuild.compiler.ir.types import DescriptorType, MemDescType, bit_width
from kbuild.compiler.lower.emit import Emitter
from kbuild.compiler.lower.literals import SHARED_POINTER
from kbuild.compiler.lower.lowering import lower
from kbuild.compiler.lower.shared import descriptor
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncTmaCopyGlobalToLocal,
    BarrierExpect,
    FenceAsyncShared,
    InitBarrier,
    InvalBarrier,
    WaitBarrier,
)
from kbuild.compiler.ops.tensor import Barrier
from kbuild.errors import InternalError

_BARRIER_BYTES = 8
_USERS = (Barrier, ArriveBarrier, AsyncTmaCopyGlobalToLocal, BarrierExpect, WaitBarrier)
"""What uses barriers, or lets other threads do so."""
_WAIT = """{
.reg .pred done;
again${:uid}:
mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
@!done bra again${:uid};
}"""


def _first_thread(emit: Emitter) -> str:
    """Whether this is the thread that speaks for all."""
    if emit.partition == "producer":
        return "true"
    return emit.compare("eq", emit.thread_id(), "0")


@lower(InitBarrier)
def lower_init_barrier(emit: Emitter, op: InitBarrier) -> None:
    """The fence shows the barriers to the copy engine; one is enough for all that are made in a row."""
    assert isinstance(op.barriers.type, MemDescType)
    pointer, _ = descriptor(emit, op.barriers)
    with emit.when(_first_thread(emit)):
        for number in range(op.barriers.type.buffers or 1):
            place = emit.offset_pointer(pointer, number * _BARRIER_BYTES, SHARED_POINTER)
            emit.call("llvm.nvvm.mbarrier.init.shared", "void", [(SHARED_POINTER, place), ("i32", str(op.arrivals))], effect=True)
        if not _fenced_later(op):
            emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)


def _fenced_later(op: InitBarrier) -> bool:
    """Whether the thread comes to another such fence before anybody can use these barriers."""
    following = op.next
    while following is not None and not following.regions and not isinstance(following, _USERS):
        if isinstance(following, InitBarrier | FenceAsyncShared):
            return True
        following = following.next
    return False


@lower(InvalBarrier)
def lower_inval_barrier(emit: Emitter, op: InvalBarrier) -> None:
    assert isinstance(op.barriers.type, MemDescType)
    pointer, _ = descriptor(emit, op.barriers)
    with emit.when(_first_thread(emit)):
        for number in range(op.barriers.type.buffers or 1):
            place = emit.offset_pointer(pointer, number * _BARRIER_BYTES, SHARED_POINTER)
            emit.call("llvm.nvvm.mbarrier.inval.shared", "void", [(SHARED_POINTER, place)], effect=True)


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
    if start or rows != op.tile.tile_shape[0]:
        raise InternalError("a tensor map does not fit its tile", op.loc)
    barrier, _ = descriptor(emit, op.barrier)
    column, *outer = (emit.scalar(index) for index in reversed(op.indices))
    text = _copy(len(op.indices))
    with emit.when(emit.all_of([_first_thread(emit), emit.scalar(op.predicate)])):
        for number in range(op.tile.tile_shape[1] // width):
            place = emit.offset_pointer(pointer, number * rows * width * bit_width(op.tile) // 8, SHARED_POINTER)
            first = emit.add(column, str(number * width))
            operands = [(SHARED_POINTER, place), ("ptr", emit.scalar(op.desc)), *(("i32", index) for index in (first, *outer))]
            constraints = ",".join(["r", "l", *["r"] * len(op.indices), "r"])
            emit.asm(text, constraints, [*operands, (SHARED_POINTER, barrier)], [], effect=True)


def _copy(rank: int) -> str:
    """The instruction for a map of so many axes; its indices start with that along the contiguous one."""
    indices = ", ".join(f"${2 + axis}" for axis in range(rank))
    head = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return f"{head} [$0], [$1, {{{indices}}}], [${2 + rank}];"
