"""Programs whose warps do different things: the producer's thread and the program's own warps part at a
branch, and registers go from warps that need few to warps that need many (`setmaxnreg`)."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import SHARED_POINTER
from kbuild.compiler.lower.core.lowering import lower, lower_block
from kbuild.compiler.lower.memory.shared_memory import descriptor
from kbuild.compiler.lower.mma.wgmma import group_number
from kbuild.compiler.ops.nvidia import ArriveBarrier, WarpSpecialize
from kbuild.targets.wgmma import GROUP_WARPS, MAX_REGISTERS

_ARRIVE_AT = """{
.reg .b32 there;
mapa.shared::cluster.u32 there, $0, $1;
mbarrier.arrive.shared::cluster.b64 _, [there];
}"""
"""Arrives at the barrier that lies at an address in a program of the cluster."""


@lower(WarpSpecialize)
def lower_warp_specialize(emit: Emitter, op: WarpSpecialize) -> None:
    producing, running, own, after = (emit.new_label(name) for name in ("producer", "issue", "own", "joined"))
    group = group_number(emit)
    emit.branch(producing, emit.compare("eq", group, str(emit.num_warps // GROUP_WARPS)), own)
    with emit.scope():
        emit.start_block(producing)
        _set_registers(emit, "dec", op.registers[:1])
        first = emit.compare("eq", emit.shift(emit.thread_id(), -5), str(emit.num_warps))
        elected = emit.call("llvm.nvvm.elect.sync", "{i32, i1}", [("i32", "-1")], effect=True)
        chosen = emit.instruction(f"extractvalue {{i32, i1}} {elected}, 1")
        emit.branch(running, emit.all_of([first, chosen]), after)
        emit.start_block(running)
        emit.partition = "producer"
        lower_block(emit, op.producer)
        emit.branch(after)
    with emit.scope():
        emit.start_block(own)
        _set_registers(emit, "inc", op.registers[1:])
        emit.partition, emit.is_short = "default", MAX_REGISTERS in op.registers
        lower_block(emit, op.default)
        emit.branch(after)
    emit.partition, emit.is_short = "", False
    emit.start_block(after)


def _set_registers(emit: Emitter, direction: str, counts: Sequence[int]) -> None:
    for count in counts:
        emit.call(
            f"llvm.nvvm.setmaxnreg.{direction}.sync.aligned.u32", "void", [("i32", str(count))], effect=True
        )


@lower(ArriveBarrier)
def lower_arrive_barrier(emit: Emitter, op: ArriveBarrier) -> None:
    """One lane of each warp arrives, once all of them are there: waiting for dots has already brought them
    together.

    In a cluster there is a lane for each program, and it releases nothing to the others: an arrival at
    another program's barrier without a scope is ordered within this one alone."""
    pointer, _ = descriptor(emit, op.barrier)
    if not op.by_dots:
        emit.warp_barrier()
    lane = emit.lane_id()
    if op.programs > 1:
        with emit.when(emit.all_of([emit.compare("ult", lane, str(op.programs)), emit.scalar(op.predicate)])):
            emit.asm(_ARRIVE_AT, "r,r", [(SHARED_POINTER, pointer), ("i32", lane)], [], effect=True)
        return
    with emit.when(emit.all_of([emit.compare("eq", lane, "0"), emit.scalar(op.predicate)])):
        emit.asm(
            "mbarrier.arrive.shared::cta.b64 _, [$0];", "r", [(SHARED_POINTER, pointer)], [], effect=True
        )
