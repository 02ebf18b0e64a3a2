"""Barriers in shared memory (mbarrier): `gl.nvidia.ampere.mbarrier` and `gl.nvidia.hopper.mbarrier`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from kbuild.compiler.layout.gluon import SwizzledSharedLayout
from kbuild.compiler.ops.nvidia import ArriveBarrier, BarrierExpect, InitBarrier, InvalBarrier, WaitBarrier
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon.shared import SharedMemory, allocate_shared_memory
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin, member
from kbuild.compiler.semantic.types import INT1, INT32, INT64
from kbuild.compiler.semantic.values import Tensor, describe

MAX_COUNT = (1 << 20) - 1
"""The most arrivals of a phase, and the most bytes: PTX ISA, "Contents of the mbarrier object"."""
AMPERE, HOPPER = "gl.nvidia.ampere.mbarrier", "gl.nvidia.hopper.mbarrier"


@member(AMPERE)
@dataclass(frozen=True, repr=False)
class MBarrierLayout(SwizzledSharedLayout):
    """The layout of barriers in shared memory."""

    vec: int = 1
    per_phase: int = 1
    max_phase: int = 1
    order: tuple[int, ...] = (0,)


def barrier_of(ctx: BuildContext, value: Any, name: str) -> SharedMemory:
    """The argument that is a barrier; raises CompileError for anything else."""
    if not isinstance(value, SharedMemory) or value.dtype != INT64 or prod(value.shape) != 1:
        several = isinstance(value, SharedMemory) and value.dtype == INT64
        ctx.error(
            f"{ctx.name(name)} is {describe(value)}, which is not a barrier",
            name,
            help="choose one of several barriers: barriers.index(i)"
            if several
            else "make one: gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())",
        )
    return value


def counted(ctx: BuildContext, value: Any, name: str, least: int = 1) -> int:
    """A number known while compiling that a barrier can count."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
        ctx.error(
            f"{name} is {describe(value)}; it is a number known while compiling, from {least} to {MAX_COUNT}",
            name,
        )
    return value


def predicate(ctx: BuildContext, value: Any, name: str = "pred") -> Tensor:
    """A condition of one value."""
    condition = to_tensor(ctx, value, name)
    if condition.shape or not condition.dtype.is_int():
        ctx.error(f"{ctx.name(name)} is {describe(condition)}; it is a condition of one value", name)
    return condition if condition.dtype == INT1 else cast_to(ctx, condition, INT1)


@builtin(HOPPER)
def allocate_mbarrier(ctx: BuildContext, batch=None):
    """A barrier, or `batch` of them, of which `index` chooses one."""
    shape = (1,) if batch is None else (counted(ctx, batch, "batch"), 1)
    return allocate_shared_memory(ctx, INT64, shape, MBarrierLayout())


@builtin(AMPERE)
def init(ctx: BuildContext, mbarrier, count):
    """Makes a barrier each phase of which completes when `count` have arrived."""
    ctx.add(InitBarrier(barrier_of(ctx, mbarrier, "mbarrier").value, counted(ctx, count, "count")))


@builtin(AMPERE)
def invalidate(ctx: BuildContext, mbarrier):
    """Ends a barrier: its memory may be used for something else."""
    ctx.add(InvalBarrier(barrier_of(ctx, mbarrier, "mbarrier").value))


@builtin(AMPERE)
def wait(ctx: BuildContext, mbarrier, phase, pred=True, deps=()):
    """Each thread waits until the barrier's phase of parity `phase` (0 for the first) is complete, if `pred`
    holds.  `deps` are tiles that stay allocated up to here."""
    barrier = barrier_of(ctx, mbarrier, "mbarrier")
    if isinstance(phase, int) and phase not in (0, 1):
        ctx.error(f"phase is {phase}; the parity of a phase is 0 or 1", "phase", help="write phase & 1")
    parity = to_tensor(ctx, phase, "phase")
    if parity.shape or not parity.dtype.is_int():
        ctx.error(f"{ctx.name('phase')} is {describe(parity)}; it is an integer, 0 or 1", "phase")
    tiles = deps if isinstance(deps, tuple) else (deps,)
    for tile in tiles:
        if not isinstance(tile, SharedMemory):
            ctx.error(f"deps holds {describe(tile)}; it is for tiles of shared memory", "deps")
    condition = None if pred is True else predicate(ctx, pred).value
    kept = tuple(tile.value for tile in tiles)
    ctx.add(WaitBarrier(barrier.value, cast_to(ctx, parity, INT32).value, kept, condition))


@builtin(AMPERE, "arrive")
def arrive_once(ctx: BuildContext, mbarrier, *, pred=True):
    """Arrives at a barrier, once for all threads, when each has done what comes before, if `pred` holds."""
    arrive(ctx, mbarrier, pred=pred)


@builtin(HOPPER)
def arrive(ctx: BuildContext, mbarrier, *, count=1, pred=True):
    """Arrives at a barrier, `count` times for all threads, when each has done what comes before, if `pred`
    holds."""
    barrier, times = barrier_of(ctx, mbarrier, "mbarrier"), counted(ctx, count, "count")
    ctx.add(ArriveBarrier(barrier.value, predicate(ctx, pred).value, count=times))


@builtin(HOPPER)
def expect(ctx: BuildContext, mbarrier, bytes, pred=True):
    """Arrives at a barrier once, and has its phase wait for so many bytes of copies by TMA, if `pred` holds."""
    barrier, size = barrier_of(ctx, mbarrier, "mbarrier"), counted(ctx, bytes, "bytes")
    ctx.add(BarrierExpect(barrier.value, predicate(ctx, pred).value, size))
