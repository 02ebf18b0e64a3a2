"""Tiles that the loop reads in all of its iterations, such as the queries of attention, by a ring of their
own.

    scf.for %tile … {                                scf.for %tile …, init=[…] body(…, %slot, %phase) {
      %x = tt.load … {desc}                            ttng.wait_barrier %full[%slot], %phase
      %s = ttg.local_alloc src=%x          becomes     scf.for %k … {  … ttng.warp_group_dot %buffers[%slot], …  }
      scf.for %k … {                                   ttng.arrive_barrier %empty[%slot]
        ttng.warp_group_dot %s, …                      scf.yield …, following(%slot, %phase)
      }                                              }
    }

The producer fills a buffer each time before it goes on to the loop's own tiles: the next comes while the loop
still reads this one, and no barrier keeps the warpgroups together.
"""

from __future__ import annotations

from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.types import I1, I32
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import LocalAlloc, MemDescIndex
from kbuild.compiler.ops.nvidia import WaitBarrier, WarpGroupDot
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
from kbuild.compiler.transforms.gpu.pipeline.async_copy import replace_uses, tile_of
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import is_made_outside, tma_obstacle
from kbuild.compiler.transforms.gpu.warp_specialize.ring import Ring, enclosing_loops


def kept_loads(func: Func, loop: For, info: AxisInfo) -> list[Load]:
    """The loads right around a loop whose tiles only its dots read, and that TMA can do."""
    outer = loop.parent_op
    if not isinstance(outer, For):
        return []
    loads = [op for op in outer.body if isinstance(op, Load) and _is_kept(op, loop)]
    return [
        load
        for load in loads
        if not tma_obstacle(load, tile_of(load), func, info) and is_made_outside(load, func)
    ]


def _is_kept(load: Load, loop: For) -> bool:
    users = list(load.result.users)
    if len(users) != 1 or not isinstance(users[0], LocalAlloc):
        return False
    return all(
        isinstance(reader, WarpGroupDot) and reader.parent is loop.body for reader in users[0].result.users
    )


def consume_kept(ring: Ring, loop: For) -> None:
    """Make the loop wait for the ring's tiles before it begins, read them where they are, and release them
    when it ends."""
    levels = enclosing_loops(loop)[:-1]
    zero = Builder.before(levels[0]).add(Constant.of(0, I32)).result
    inside = [zero, zero]
    for level in levels:
        inside = add_carried(level, inside, ["slot", "phase"])
    slot, phase = inside
    builder = Builder(levels[-1].body, levels[-1].body.first, loop.loc)
    tiles = tuple(builder.add(MemDescIndex(buffer, slot), buffer.name).result for buffer in ring.buffers)
    for load, tile in zip(ring.loads, tiles):
        replace_uses(levels[-1], load, tile)
    builder = Builder.before(loop)
    builder.add(WaitBarrier(builder.add(MemDescIndex(ring.full, slot), ring.full.name).result, phase, tiles))
    builder = Builder.after(loop)
    ring.release(builder, slot, builder.add(Constant.of(1, I1)).result, fenced=False)
    yield_more(levels[-1], ring.following(Builder.before(levels[-1].body.terminator), slot, phase))
    for outer, inner in zip(levels[-2::-1], levels[:0:-1]):
        yield_more(outer, inner.results[-2:])
