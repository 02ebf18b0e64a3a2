"""Programs whose warps do different things: the producer's thread and the program's own warps part at a
branch, and registers go from warps that need few to warps that need many (`setmaxnreg`)."""

from __future__ import annotations

from dataclasses import replace

from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import lower, lower_block
from kbuild.compiler.lower.core.registers import set_registers
from kbuild.compiler.lower.mma.wgmma import group_number
from kbuild.compiler.ops.nvidia import WarpSpecialize
from kbuild.targets.wgmma import GROUP_WARPS, MAX_REGISTERS

_OWN_BARRIER = 1
"""The number of the hardware's barrier at which the program's warps meet while others run beside them."""


@lower(WarpSpecialize)
def lower_warp_specialize(emit: Emitter, op: WarpSpecialize) -> None:
    producing, running, own, after = (emit.new_label(name) for name in ("producer", "issue", "own", "joined"))
    group = group_number(emit)
    emit.branch(producing, emit.compare("eq", group, str(emit.num_warps // GROUP_WARPS)), own)
    with emit.scope():
        emit.start_block(producing)
        for count in op.registers[:1]:
            set_registers(emit, "dec", count)
        first = emit.compare("eq", emit.shift(emit.thread_id(), -5), str(emit.num_warps))
        elected = emit.call("llvm.nvvm.elect.sync", "{i32, i1}", [("i32", "-1")], effect=True)
        chosen = emit.instruction(f"extractvalue {{i32, i1}} {elected}, 1")
        emit.branch(running, emit.all_of([first, chosen]), after)
        emit.start_block(running)
        with emit.run_by(replace(emit.warps, is_one_thread=True)):
            lower_block(emit, op.producer)
        emit.branch(after)
    with emit.scope():
        emit.start_block(own)
        for count in op.registers[1:]:
            set_registers(emit, "inc", count)
        emit.is_short = MAX_REGISTERS in op.registers
        with emit.run_by(replace(emit.warps, barrier=_OWN_BARRIER)):
            lower_block(emit, op.default)
        emit.branch(after)
    emit.is_short = False
    emit.start_block(after)
