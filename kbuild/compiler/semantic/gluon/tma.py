"""Blocks of tensors copied by TMA: `gl.nvidia.hopper.tma`."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Value
from kbuild.compiler.layout.gluon import NVMMASharedLayout
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    FenceAsyncShared,
    TmaStoreWait,
)
from kbuild.compiler.semantic import descriptor as of_tl
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon.mbarrier import barrier_of, counted, predicate
from kbuild.compiler.semantic.gluon.shared import SharedMemory
from kbuild.compiler.semantic.memory import index_values
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.values import TensorDescriptor, describe, shape_text

TABLE = "gl.nvidia.hopper.tma"
PATTERN_ROWS = 8
"""Rows after which a swizzle repeats."""


def _checked(
    ctx: BuildContext, desc: Any, coord: Any, tile: Any, name: str
) -> tuple[Value, Value, tuple[Value, ...]]:
    """Descriptor, tile and coordinates of a copy; raises CompileError where they do not fit each other."""
    if not isinstance(desc, TensorDescriptor) or desc.layout is None:
        ctx.error(
            f"{ctx.name('tensor_desc')} is {describe(desc)}, which is not a tensor descriptor",
            "tensor_desc",
            help='give the argument a type such as "tensordesc<fp16[64, 64],NVMMASharedLayout(128, 16)>"',
        )
    if not isinstance(tile, SharedMemory):
        ctx.error(f"{ctx.name(name)} is {describe(tile)}, which is not shared memory", name)
    if tile.shape != desc.block.shape:
        ctx.error(
            f"{ctx.name(name)} has shape {shape_text(tile.shape)}, the descriptor's blocks have shape "
            f"{shape_text(desc.block.shape)}",
            name,
            help="choose one of several tiles: .index(i)" if tile.ir.buffers is not None else "",
        )
    if tile.dtype != desc.block.element_ty:
        ctx.error(f"{ctx.name(name)} is {tile.dtype}, the descriptor {desc.block.element_ty}", name)
    if tile.layout != desc.layout:
        ctx.error(
            f"{ctx.name(name)} has the layout {tile.layout}, the descriptor {ctx.name('tensor_desc')} "
            f"has {desc.layout}",
            name,
            help="allocate the memory with the descriptor's layout: desc.layout",
        )
    if not isinstance(coord, tuple) or len(coord) != desc.rank:
        ctx.error(f"coord is {describe(coord)}, the block has {desc.rank} dimensions", "coord")
    indices = index_values(ctx, coord, "coord", wide=False)
    return of_tl.described_value(ctx, desc), tile.value, tuple(item.value for item in indices)


@builtin(TABLE)
def async_copy_global_to_shared(ctx: BuildContext, tensor_desc, coord, barrier, result, pred=True):
    """Starts to copy the block at `coord` into the tile `result`, zeros (or NaN) beyond the tensor, if `pred` holds.
    Its bytes count for the phase of `barrier` that is under way."""
    desc, tile, indices = _checked(ctx, tensor_desc, coord, result, "result")
    counting = barrier_of(ctx, barrier, "barrier").value
    ctx.add(AsyncTmaCopyGlobalToLocal(desc, tile, counting, predicate(ctx, pred).value, indices))


@builtin(TABLE)
def async_copy_shared_to_global(ctx: BuildContext, tensor_desc, coord, src):
    """Starts to copy the tile `src` to the block at `coord`, as far as it lies in the tensor; a group of its own for
    `store_wait`."""
    desc, tile, indices = _checked(ctx, tensor_desc, coord, src, "src")
    ctx.add(AsyncTmaCopyLocalToGlobal(desc, tile, predicate(ctx, True).value, indices))


@builtin(TABLE)
def store_wait(ctx: BuildContext, pendings):
    """Waits until TMA has read the tiles of all copies to global memory but the last `pendings`."""
    ctx.add(TmaStoreWait((), counted(ctx, pendings, "pendings", 0), only_reads=True))


@builtin(TABLE)
def make_tensor_descriptor(
    ctx: BuildContext, base, shape, strides, block_shape, layout, padding_option="zero"
):
    """A descriptor of the tensor of `shape` and `strides` (the last one is 1) at `base`, for blocks of `block_shape`
    that lie in shared memory by `layout`.  Base, shape and strides are arguments of the kernel or constants: its
    launcher makes the tensor map."""
    made = of_tl.make_tensor_descriptor(ctx, base, shape, strides, block_shape, padding_option)
    element = made.block.element_ty
    if not isinstance(layout, NVMMASharedLayout):
        ctx.error(
            f"layout is {describe(layout)}; the layout of a descriptor's blocks is an NVMMASharedLayout",
            "layout",
        )
    if layout.rank != made.rank or layout.element_bitwidth != element.bits:  # type: ignore[union-attr]
        ctx.error(
            f"{layout} does not fit blocks {made.block}",
            "layout",
            help="take gl.NVMMASharedLayout.get_default_for(block_shape, dtype)",
        )
    return TensorDescriptor.make(made.block, made.padding, tuple(made), layout)


@builtin("gl.nvidia.hopper")
def fence_async_shared(ctx: BuildContext, cluster=False):
    """What threads have done with shared memory before comes before what TMA and `wgmma` do with it after the
    threads have met, or one has arrived at a barrier."""
    if cluster:
        ctx.error("cluster is for programs of a cluster; a program is alone here", "cluster")
    ctx.add(FenceAsyncShared())
