"""Tiles that all programs of a cluster copy alike, so that each copies a part of them, for all (multicast).

    producer of a program              becomes, with a cluster of two

    wait until my warps have read      wait until the warps of both have read
    copy B's tile to me                copy one half of B's tile to both of us

The programs of a cluster are neighbours along the grid's first axis.  A tile is the same for them if its
indices are computed from nothing that differs: they use a program's number along that axis only divided by a
multiple of the cluster's size.  Loops have to run equally often in all of them, for they go around their
rings together.

A barrier `empty` then waits for the warps of all programs.  An arrival only says that their dots have ended:
no write of theirs is read by others, so it releases nothing to the cluster, which would take as long as all
stores under way.  Before a program ends, its producer waits at each `empty` once more, because no warp may
arrive in the memory of a program that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import wgmma_mode
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import LocalAlloc, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.neighbours import AXIS, is_same
from kbuild.compiler.transforms.gpu.pipeline.async_copy import tile_of
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import block_shape
from kbuild.compiler.transforms.gpu.warp_specialize.ring import enclosing_loops
from kbuild.errors import CompileError

PATTERN_ROWS = 8
"""Rows after which the swizzle repeats: a part of a tile has whole multiples."""


def shared_loads(func: Func, loop: For, loads: Sequence[Load]) -> list[Load]:
    """The loads of a loop that a cluster's programs do together.

    Raises `CompileError` where the kernel requests clusters and there is no such load: they would only cost
    time.
    """
    programs = func.attrs.get("cluster_size", 1)
    if programs == 1:
        return []
    bounds = [bound for level in enclosing_loops(loop) for bound in (level.lower, level.upper, level.step)]
    if not is_same(bounds, programs):
        raise unused(func, f"how often the loop runs depends on tl.program_id({AXIS})", loop)
    found = [load for load in loads if is_same(load.indices, programs)]
    if not found:
        raise unused(func, f"what the loop copies depends on tl.program_id({AXIS})", loop)
    found = [load for load in found if _feeds_only_dots(load) and _can_be_parted(load, programs)]
    if not found:
        raise unused(
            func, "the tiles in common have too few rows, or are read by other operations than dots", loop
        )
    return found


def unused(func: Func, reason: str, loop: For | None = None) -> CompileError:
    """The error for a cluster without a tile in common."""
    help = f"leave cluster_size out, or have the programs next to each other along axis {AXIS} of the grid read the same tile"
    size = func.attrs["cluster_size"]
    return CompileError(
        f"{func.name}: cluster_size is {size}, but {reason}", loop.loc if loop else func.loc, help
    )


def row_parts(load: Load, programs: int) -> int:
    """In how many parts so many programs copy a tile's rows: one where each copies some of the boxes side by
    side."""
    mode, bits = wgmma_mode(tile_of(load).layout, bit_width(load.result.type)), bit_width(load.result.type)
    assert mode is not None, "TMA can do the load"
    boxes = block_shape(load)[-1] * bits // (8 * mode[0])
    return 1 if boxes % programs == 0 else programs


def _can_be_parted(load: Load, programs: int) -> bool:
    return block_shape(load)[-2] % (PATTERN_ROWS * row_parts(load, programs)) == 0


def _feeds_only_dots(load: Load) -> bool:
    """Whether only dots read a tile, for which threads wait: they have ended when a program says so."""
    views = [user.result for user in load.result.users if isinstance(user, LocalAlloc)]
    is_alone = len(views) == len(list(load.result.users))
    for view in views:
        for user in view.users:
            if isinstance(user, MemDescTrans):
                views.append(user.result)
            elif not isinstance(user, WarpGroupDot):
                is_alone = False
    return is_alone
