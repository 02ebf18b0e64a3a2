"""Barriers in shared memory (mbarrier): one thread makes them and announces bytes, every thread waits."""

from __future__ import annotations

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import SHARED_POINTER
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.memory.shared_memory import descriptor
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncCopyMbarrierArrive,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    WaitBarrier,
)

_BARRIER_BYTES = 8
_WAIT = """{
.reg .pred done;
again${:uid}:
mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;
@!done bra again${:uid};
}"""
_WAIT_WITHOUT_SUSPENSION = """{
.reg .pred done;
again${:uid}:
mbarrier.test_wait.parity.shared.b64 done, [$0], $1;
@!done nanosleep.u32 20;
@!done bra again${:uid};
}"""
"""For architectures where no instruction suspends a thread until a phase is complete."""

_ARRIVE_AT = """{
.reg .b32 there;
mapa.shared::cluster.u32 there, $0, $1;
mbarrier.arrive.shared::cluster.b64 _, [there];
}"""
"""Arrives at the barrier that lies at an address in a program of the cluster."""


def first_thread(emit: Emitter) -> str:
    """Whether this is the thread that issues for all."""
    if emit.warps.is_one_thread:
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
    with emit.when(first_thread(emit)):
        _call_for_each(emit, op.barriers, "llvm.nvvm.mbarrier.init.shared", ("i32", str(op.arrivals)))
        if op.fence and emit.target.has("tma"):
            emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)


@lower(InvalBarrier)
def lower_inval_barrier(emit: Emitter, op: InvalBarrier) -> None:
    with emit.when(first_thread(emit)):
        _call_for_each(emit, op.barriers, "llvm.nvvm.mbarrier.inval.shared")


@lower(BarrierExpect)
def lower_barrier_expect(emit: Emitter, op: BarrierExpect) -> None:
    pointer, _ = descriptor(emit, op.barrier)
    with emit.when(emit.all_of([first_thread(emit), emit.scalar(op.predicate)])):
        text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};"
        emit.asm(text, "r", [(SHARED_POINTER, pointer)], [], effect=True)


@lower(WaitBarrier)
def lower_wait_barrier(emit: Emitter, op: WaitBarrier) -> None:
    pointer, _ = descriptor(emit, op.barrier)
    wait = _WAIT if emit.target.has("tma") else _WAIT_WITHOUT_SUSPENSION
    with emit.when("true" if op.predicate is None else emit.scalar(op.predicate)):
        emit.asm(wait, "r,r", [(SHARED_POINTER, pointer), ("i32", emit.scalar(op.phase))], [], effect=True)


@lower(AsyncCopyMbarrierArrive)
def lower_async_copy_mbarrier_arrive(emit: Emitter, op: AsyncCopyMbarrierArrive) -> None:
    pointer, _ = descriptor(emit, op.barrier)
    suffix = ".noinc" if op.no_increment else ""
    text = f"cp.async.mbarrier.arrive{suffix}.shared.b64 [$0];"
    emit.asm(text, "r", [(SHARED_POINTER, pointer)], [], effect=True)


@lower(ArriveBarrier)
def lower_arrive_barrier(emit: Emitter, op: ArriveBarrier) -> None:
    """One thread arrives for all, which have met; or one lane of each warp does, once all of them are there:
    waiting for dots has already brought them together.

    In a cluster there is a lane for each program, and it releases nothing to the others: an arrival at
    another program's barrier without a scope is ordered within this one alone."""
    pointer, _ = descriptor(emit, op.barrier)
    if op.count is not None:
        with emit.when(emit.all_of([first_thread(emit), emit.scalar(op.predicate)])):
            count = f", {op.count}" if op.count > 1 else ""
            text = f"mbarrier.arrive.shared.b64 _, [$0]{count};"
            emit.asm(text, "r", [(SHARED_POINTER, pointer)], [], effect=True)
        return
    if not op.by_dots:
        emit.warp_barrier()
    lane = emit.lane_id()
    if op.programs > 1:
        with emit.when(emit.all_of([emit.compare("ult", lane, str(op.programs)), emit.scalar(op.predicate)])):
            emit.asm(_ARRIVE_AT, "r,r", [(SHARED_POINTER, pointer), ("i32", lane)], [], effect=True)
        return
    with emit.when(emit.all_of([emit.compare("eq", lane, "0"), emit.scalar(op.predicate)])):
        text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
        emit.asm(text, "r", [(SHARED_POINTER, pointer)], [], effect=True)
