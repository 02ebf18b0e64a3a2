"""How much shared memory a loop leaves for buffers."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.liveness import Interval, Liveness
from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms.gpu.pipeline.async_copy import needs_other


def other_bytes(func: Func, loop: For, copied: Sequence[Load]) -> int:
    """Shared memory in use during a loop, other than that of the loads to be copied."""
    replaced = {user for load in copied if not needs_other(load) for user in load.result.users}
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
