"""Copies from global to shared memory by `cp.async`: `gl.nvidia.ampere.async_copy`."""

from __future__ import annotations

from kbuild.compiler.ops.gpu import AsyncCommitGroup, AsyncCopyGlobalToLocal, AsyncWait
from kbuild.compiler.ops.nvidia import AsyncCopyMbarrierArrive
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon.mbarrier import barrier_of, counted
from kbuild.compiler.semantic.gluon.shared import SharedMemory
from kbuild.compiler.semantic.memory import EVICTIONS, LOAD_CACHES, as_mask, check_pointer, option
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import PointerDtype
from kbuild.compiler.semantic.values import describe, shape_text

TABLE = "gl.nvidia.ampere.async_copy"


@builtin(TABLE)
def async_copy_global_to_shared(
    ctx: BuildContext, smem, pointer, mask=None, cache_modifier="", eviction_policy="", volatile=False
):
    """Starts to copy what a tensor of pointers points to into a tile of shared memory; zeros where `mask` is false.
    Each thread copies what its part of the tensor points to, 4, 8 or 16 bytes at a time."""
    pointer = check_pointer(ctx, pointer, "async_copy_global_to_shared")
    if not isinstance(smem, SharedMemory):
        ctx.error(f"{ctx.name('smem')} is {describe(smem)}, which is not shared memory", "smem")
    if smem.shape != pointer.shape:
        ctx.error(
            f"{ctx.name('smem')} has shape {shape_text(smem.shape)}, the pointers have shape "
            f"{shape_text(pointer.shape)}",
            "smem",
            help="choose one of several tiles: smem.index(i)" if smem.ir.buffers is not None else "",
        )
    assert isinstance(pointer.dtype, PointerDtype)
    if pointer.dtype.element_ty != smem.dtype:
        ctx.error(
            f"{ctx.name('smem')} is {smem.dtype}, the pointers point to {pointer.dtype.element_ty}", "smem"
        )
    mask = as_mask(ctx, mask, pointer)
    cache = option(ctx, "cache_modifier", cache_modifier, LOAD_CACHES)
    eviction = option(ctx, "eviction_policy", eviction_policy, EVICTIONS)
    mask_value = None if mask is None else mask.value
    ctx.add(AsyncCopyGlobalToLocal(pointer.value, smem.value, mask_value, None, cache, eviction))


@builtin(TABLE)
def mbarrier_arrive(ctx: BuildContext, mbarrier, increment_count=True):
    """Each thread arrives at a barrier when its copies so far have landed.  With `increment_count` the phase first
    needs one arrival more for each; otherwise the barrier's count has to include them."""
    barrier = barrier_of(ctx, mbarrier, "mbarrier")
    ctx.add(AsyncCopyMbarrierArrive(barrier.value, not increment_count))


@builtin(TABLE)
def commit_group(ctx: BuildContext):
    """Closes a group of the copies started since the last one."""
    ctx.add(AsyncCommitGroup())


@builtin(TABLE)
def wait_group(ctx: BuildContext, num_outstanding=0):
    """Waits until at most `num_outstanding` groups are unfinished."""
    ctx.add(AsyncWait(counted(ctx, num_outstanding, "num_outstanding", 0)))
