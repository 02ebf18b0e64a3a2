"""How much shared memory a loop leaves for buffers."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.allocation import demands, least_bytes
from kbuild.compiler.analysis.liveness import Interval, Liveness
from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.analysis.tensor_registers import loop_words
from kbuild.compiler.ir.core import Func, Op
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms.gpu.pipeline.async_copy import needs_other
from kbuild.targets.target import Target

_OTHER_WORDS = 48
"""Registers of a thread for addresses and counters, besides those of a loop's tensors."""


def least_other_bytes(func: Func, loop: For, copied: Sequence[Load]) -> int:
    """What `other_bytes` are at least: where data moves in rounds, and tiles share memory that are not in use at the
    same time."""
    liveness, replaced = Liveness(func), _replaced(copied)
    life = Interval(liveness.start[loop], liveness.end[loop])
    found = demands(func, liveness)
    return least_bytes([each for each in found if each.life.overlaps(life) and each.op not in replaced])


def _replaced(copied: Sequence[Load]) -> set[Op]:
    """The allocations that copies take the place of."""
    return {user for load in copied if not needs_other(load) for user in load.result.users}


def other_bytes(func: Func, loop: For, copied: Sequence[Load]) -> int:
    """Shared memory in use during a loop, other than that of the loads to be copied."""
    replaced = _replaced(copied)
    liveness = Liveness(func)
    life = Interval(liveness.start[loop], liveness.end[loop])
    size = 0
    for allocation, interval in liveness.intervals.items():
        type_ = allocation.result.type
        if interval.overlaps(life) and allocation not in replaced:
            assert isinstance(type_, MemDescType)
            size += type_.size_bytes
    scratch = [
        scratch_bytes(op, func.attrs["num_warps"])
        for op in loop.body.walk()
        if "scratch" in op.attribute_fields
    ]
    return size + max(scratch, default=0)


def is_room_for_more(func: Func, loop: For, now: int, more: int, target: Target) -> bool:
    """Whether `more` bytes of buffers cost no program of a multiprocessor that has several by `now` bytes, or leave two
    there: one copy alone on its way seldom lands before the dots need it."""
    limits, warps = target.limits, func.attrs["num_warps"]
    registers = min(int(loop_words(loop)) + _OTHER_WORDS, limits.registers)
    before, after = (limits.programs(size, warps, registers) for size in (now, more))
    return after >= min(before, 2)
