"""Adds the barriers that shared memory needs: after writes that other threads read, before memory is used
again.

    Before:  %a = ttg.local_alloc src=%x {offset = 0}      After:  %a = ttg.local_alloc src=%x {offset = 0}
             %y = ttg.local_load %a                                gpu.barrier
                                                                   %y = ttg.local_load %a

What dots of warpgroups read is also fenced, before the barrier: `ttng.fence_async_shared`.
"""

from __future__ import annotations

from kbuild.compiler.analysis.barriers import barrier_analysis
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ops.nvidia import FenceAsyncShared, InitBarrier
from kbuild.compiler.ops.tensor import Barrier
from kbuild.targets.target import Target


@gpu_pass
def barriers(module: Module, target: Target) -> None:
    """Insert `gpu.barrier`, and fences, where accesses of different threads to the same shared memory would
    race."""
    for func in module.functions.values():
        analysis = barrier_analysis(func)
        for op in func.body.walk():
            if isinstance(op, InitBarrier):
                op.fence = op not in analysis.shown
            if op in analysis.fenced:
                Builder.before(op).add(FenceAsyncShared())
            if op in analysis.needed:
                Builder.before(op).add(Barrier())
