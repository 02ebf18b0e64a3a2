"""Programs whose author gives different functions to different warps (`ttg.warp_specialize`).

    entry:    br (warp < num_warps), own, workers
    own:      the kernel's body; at each ttg.warp_specialize:     workers:   for each of them:
                all threads meet                                               all threads meet
                its default                                                    the partition of the warp, if any
                all threads meet                                               all threads meet

What a partition takes from outside it computes from the kernel's arguments, or reads from shared memory after
the first meeting.  Registers are given up before a meeting, and taken after it, so that they are there.
"""

from __future__ import annotations

from kbuild.compiler.analysis.scratch import CAPTURE_BYTES
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import Type
from kbuild.compiler.lower.core.emit import Emitter, Warps
from kbuild.compiler.lower.core.literals import SHARED_POINTER, llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower, lower_block
from kbuild.compiler.lower.core.registers import set_registers
from kbuild.compiler.ops.gpu import WarpPartition, WarpPartitions, WarpReturn, WarpYield
from kbuild.targets.wgmma import GROUP_WARPS

_MEETING, _OWN_BARRIER, _FIRST_BARRIER = 0, 1, 2
"""The hardware's barriers: of all threads, of the program's warps, and of the first partition."""


def lower_body(emit: Emitter, body: Block) -> None:
    """The body of a kernel: by all warps, or where warps are specialised by the program's."""
    parts = [op for op in body if isinstance(op, WarpPartitions)]
    if not parts:
        lower_block(emit, body)
        return
    own, workers = emit.new_label("own"), emit.new_label("workers")
    count, warp = emit.num_warps, _warp_number(emit)
    emit.branch(own, emit.compare("ult", warp, str(count)), workers)
    with emit.branch_of(own, Warps(count, barrier=_OWN_BARRIER)):
        lower_block(emit, body)
    with emit.branch_of(workers, Warps(emit.extra_warps, count)):
        for op in parts:
            _lower_workers(emit, op, warp)
        emit.line("ret void")


def _warp_number(emit: Emitter) -> str:
    """The number of the thread's warp in the launch, as a value that ptxas knows to be the same in a warp."""
    number = emit.shift(emit.thread_id(), -5)
    operands = [("i32", "-1"), ("i32", number), ("i32", "0"), ("i32", "31")]
    return emit.call("llvm.nvvm.shfl.sync.idx.i32", "i32", operands)


@lower(WarpPartitions)
def lower_warp_partitions(emit: Emitter, op: WarpPartitions) -> Results:
    """The part of the program's warps."""
    for number, value in enumerate(op.captures):
        kind = _memory_type(value.type)
        with emit.when(emit.compare("eq", emit.thread_id(), "0")):
            register = emit.scalar(value)
            if kind != llvm_type(value.type):
                register = emit.instruction(f"zext {llvm_type(value.type)} {register} to {kind}")
            emit.line(f"store {kind} {register}, {SHARED_POINTER} {_place(emit, op, number)}")
    own = range(-(-emit.num_warps // GROUP_WARPS))
    _change_registers(emit, op, own, is_before=True)
    _meet(emit)
    _change_registers(emit, op, own, is_before=False)
    lower_block(emit, op.default)
    _meet(emit)
    return Results(emit.registers(value) for value in op.default.terminator.operands)


def _lower_workers(emit: Emitter, op: WarpPartitions, warp: str) -> None:
    """The part of the other warps."""
    groups = range(-(-emit.warps.first // GROUP_WARPS), len(op.registers))
    _change_registers(emit, op, groups, is_before=True, warp=warp)
    _meet(emit)
    _change_registers(emit, op, groups, is_before=False, warp=warp)
    joined = emit.new_label("joined")
    with emit.scope():
        for number, part in enumerate(sorted(op.workers, key=lambda part: part.first or 0)):
            assert part.first is not None, "place_partitions has run"
            label, following = emit.new_label("partition"), emit.new_label("next")
            emit.branch(label, emit.compare("ult", warp, str(part.first + part.num_warps)), following)
            with emit.branch_of(label, Warps(part.num_warps, part.first, _FIRST_BARRIER + number)):
                for place, argument in enumerate(part.body.arguments):
                    emit.bind(argument, [_captured(emit, op, place, argument)])
                lower_block(emit, part.body)
                emit.branch(joined)
            emit.start_block(following)
        emit.branch(joined)
    emit.start_block(joined)
    _meet(emit)


def _meet(emit: Emitter) -> None:
    """All threads of the launch wait for each other."""
    emit.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", str(_MEETING))])


def _change_registers(
    emit: Emitter, op: WarpPartitions, groups: range, is_before: bool, warp: str = ""
) -> None:
    """Give up registers before a meeting, and take more after it, each warpgroup its own."""
    changes: dict[tuple[int, int], list[int]] = {}
    for group in groups if op.registers else ():
        old, new = op.registers_before[group], op.registers[group]
        if new < old if is_before else new > old:
            changes.setdefault((old, new), []).append(group)
    for (_, new), changing in changes.items():
        for group in changing[:1] if len(changing) == len(groups) else changing:
            inside = "true"
            if len(changing) < len(groups):
                inside = emit.compare("eq", emit.shift(warp, -(GROUP_WARPS.bit_length() - 1)), str(group))
            with emit.when(inside):
                set_registers(emit, "dec" if is_before else "inc", new)


def _memory_type(type_: Type) -> str:
    """The LLVM type in which a captured scalar lies in memory."""
    kind = llvm_type(type_)
    return "i8" if kind == "i1" else kind


def _place(emit: Emitter, op: WarpPartitions, number: int) -> str:
    assert op.scratch is not None, "shared memory has been allocated"
    return emit.shared_pointer(op.scratch + CAPTURE_BYTES * number)


def _captured(emit: Emitter, op: WarpPartitions, number: int, argument: Value) -> str:
    """A captured scalar, read from shared memory."""
    kind = _memory_type(argument.type)
    register = emit.effect(f"load {kind}, {SHARED_POINTER} {_place(emit, op, number)}")
    if kind == llvm_type(argument.type):
        return register
    return emit.instruction(f"trunc {kind} {register} to {llvm_type(argument.type)}")


@lower(WarpPartition, WarpYield, WarpReturn)
def lower_part(emit: Emitter, op: WarpPartition | WarpYield | WarpReturn) -> None:
    """The operation around takes care of them."""
