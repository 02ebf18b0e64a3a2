"""Programs whose author gives different functions to different warps (`ttg.warp_specialize`).

    entry:    br (warp < num_warps), own, workers
    own:      the kernel's body; at each ttg.warp_specialize:     workers:   for each of them:
                all threads meet                                               all threads meet
                its default                                                    the partition of the warp, if any
                all threads meet                                               all threads meet

What a partition takes from outside it computes from the kernel's arguments, or reads from shared memory after
the first meeting.  Registers are given up before a meeting, and taken after it, so that they are there.

Where control flow decides which of the operations come, the other warps wait for the number of one, or for 0:

    waiting:  all threads meet and count
              the number: 0 → return, 1 → its partitions, all threads meet, → waiting, …
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.scratch import CAPTURE_BYTES
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import Type
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import SHARED_POINTER, llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower, lower_block
from kbuild.compiler.lower.core.registers import set_registers
from kbuild.compiler.lower.core.warps import Warps
from kbuild.compiler.ops.gpu import WarpDismiss, WarpPartition, WarpPartitions, WarpReturn, WarpYield
from kbuild.targets.wgmma import GROUP_WARPS

_MEETING, _OWN_BARRIER, _FIRST_BARRIER = 0, 1, 2
"""The hardware's barriers: of all threads, of the program's warps, and of the first partition."""


def lower_body(emit: Emitter, body: Block) -> None:
    """The body of a kernel: by all warps, or where warps are specialised by the program's."""
    parts = [op for op in body.walk() if isinstance(op, WarpPartitions)]
    if not parts:
        lower_block(emit, body)
        return
    own, workers = emit.new_label("own"), emit.new_label("workers")
    warp = emit.warp_id()
    emit.branch(own, emit.compare("ult", warp, str(emit.num_warps)), workers)
    with emit.branch_of(own, Warps(emit.num_warps, barrier=_OWN_BARRIER)):
        lower_block(emit, body)
    with emit.branch_of(workers, Warps(emit.extra_warps, emit.num_warps)):
        if parts[0].number is None:
            for op in parts:
                _lower_workers(emit, op, warp)
        else:
            _serve(emit, parts, warp)
        emit.line("ret void")


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
    groups = range(-(-emit.num_warps // GROUP_WARPS))
    if op.number is None:
        _change_registers(emit, groups, op.registers_before, op.registers, "dec")
        _meet(emit)
        _change_registers(emit, groups, op.registers_before, op.registers, "inc")
    else:
        _tell(emit, op.number)
        _change_registers(emit, groups, op.registers_before, op.registers)
    lower_block(emit, op.default)
    if op.number is not None:
        _change_registers(emit, groups, op.registers, op.registers_before)
    _meet(emit)
    return Results(emit.registers(value) for value in op.default.terminator.operands)


@lower(WarpDismiss)
def lower_warp_dismiss(emit: Emitter, op: WarpDismiss) -> None:
    _tell(emit, 0)


def _lower_workers(emit: Emitter, op: WarpPartitions, warp: str) -> None:
    """The part of the other warps."""
    groups = _worker_groups(emit, op)
    _change_registers(emit, groups, op.registers_before, op.registers, "dec", warp)
    _meet(emit)
    _change_registers(emit, groups, op.registers_before, op.registers, "inc", warp)
    with emit.scope():
        _lower_partitions(emit, op, warp)
    _meet(emit)


def _serve(emit: Emitter, parts: Sequence[WarpPartitions], warp: str) -> None:
    """The part of the other warps where control flow decides which of the operations come."""
    waiting = emit.new_label("waiting")
    emit.branch(waiting)
    emit.start_block(waiting)
    number = emit.uniform(_tell(emit, 0))
    with emit.scope():
        for op in parts:
            serving, following = emit.new_label("serving"), emit.new_label("next")
            emit.branch(serving, emit.compare("eq", number, str(op.number)), following)
            with emit.scope():
                emit.start_block(serving)
                groups = _worker_groups(emit, op)
                _change_registers(emit, groups, op.registers_before, op.registers, warp=warp)
                _lower_partitions(emit, op, warp)
                _change_registers(emit, groups, op.registers, op.registers_before, warp=warp)
                _meet(emit)
                emit.branch(waiting)
            emit.start_block(following)


def _worker_groups(emit: Emitter, op: WarpPartitions) -> range:
    return range(-(-emit.warps.first // GROUP_WARPS), len(op.registers))


def _lower_partitions(emit: Emitter, op: WarpPartitions, warp: str) -> None:
    """Each partition by its warps; those that have none do nothing."""
    joined = emit.new_label("joined")
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


def _meet(emit: Emitter) -> None:
    """All threads of the launch wait for each other."""
    emit.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", str(_MEETING))])


def _tell(emit: Emitter, number: int) -> str:
    """All threads of the launch meet, and learn the greatest number that any of them told: so many threads hold up
    their hands."""
    raised = emit.compare("ult", emit.thread_id(), str(number)) if number else "false"
    operands = [("i32", str(_MEETING)), ("i1", raised)]
    return emit.call("llvm.nvvm.barrier.cta.red.popc.aligned.all", "i32", operands, effect=True)


def _change_registers(
    emit: Emitter,
    groups: range,
    before: Sequence[int],
    after: Sequence[int],
    direction: str = "",
    warp: str = "",
) -> None:
    """Give up registers (`dec`), or take more (`inc`), each warpgroup its own."""
    changes: dict[tuple[str, int], list[int]] = {}
    for group in groups if after else ():
        if before[group] != after[group]:
            own = "dec" if after[group] < before[group] else "inc"
            changes.setdefault((own, after[group]), []).append(group)
    for (own, count), changing in changes.items():
        if direction not in ("", own):
            continue
        for group in changing[:1] if len(changing) == len(groups) else changing:
            inside = "true"
            if len(changing) < len(groups):
                inside = emit.compare("eq", emit.shift(warp, -(GROUP_WARPS.bit_length() - 1)), str(group))
            with emit.when(inside):
                set_registers(emit, own, count)


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
