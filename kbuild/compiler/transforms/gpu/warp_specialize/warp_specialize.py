"""Gives the copies of a loop to a thread of their own, so that the warps that multiply do nothing else.

    Before:  scf.for %k … {                        After:  %tiles = ttg.local_alloc : memdesc<4 x 128x64xf16>
               %a = tt.load %p {desc}                      %full, %empty = ttg.local_alloc; ttng.init_barrier; gpu.barrier
               %s = ttg.local_alloc src=%a                 ttng.warp_specialize producer {
               %d = ttng.warp_group_dot %s, …                scf.for %k … {
             }                                                 ttng.wait_barrier %empty[%slot]
             tt.store %c, …                                    ttng.barrier_expect %full[%slot];  copy → %tiles[%slot]
                                                             }
                                                           } default {
                                                             scf.for %k … {
                                                               ttng.wait_barrier %full[%slot]
                                                               %d = ttng.warp_group_dot %tiles[%slot], …
                                                               ttng.arrive_barrier %empty[%slot - 1]
                                                             }
                                                             tt.store %c, …
                                                           }

The whole function becomes the `default` part; the producer repeats the loops around the loads and the
arithmetic of their indices (`producer`).  The ring of buffers goes on from one run of the loop to the next
(`ring`), so that in a persistent kernel the next tile's copies run under the end of this one; so does one for
tiles that are loaded around the loop and read all through it (`kept`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbuild.compiler.analysis.allocation import ALIGNMENT
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import I32, MemDescType
from kbuild.compiler.ops.control import For, Return, Yield
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpSpecialize
from kbuild.compiler.ops.tensor import Barrier, GridDependencyWait, Load
from kbuild.compiler.transforms._support.carried import drop_dead_carried
from kbuild.compiler.transforms._support.loops import is_short
from kbuild.compiler.transforms.gpu.pipeline.async_copy import tile_of
from kbuild.compiler.transforms.gpu.pipeline.budget import other_bytes
from kbuild.compiler.transforms.gpu.pipeline.loads import feeds_sum_in_place, pipelined_loads
from kbuild.compiler.transforms.gpu.pipeline.schedule import MIN_STAGES, fitting_stages
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import (
    add_tensor_map,
    is_made_outside,
    note_maps,
    tma_obstacle,
)
from kbuild.compiler.transforms.gpu.warp_specialize.clusters import row_parts, shared_loads, unused
from kbuild.compiler.transforms.gpu.warp_specialize.kept import consume_kept, kept_loads
from kbuild.compiler.transforms.gpu.warp_specialize.producer import Skeleton
from kbuild.compiler.transforms.gpu.warp_specialize.registers import share_out
from kbuild.compiler.transforms.gpu.warp_specialize.ring import Ring, enclosing_loops, make_ring
from kbuild.targets.target import Target
from kbuild.targets.wgmma import GROUP_WARPS

PRODUCER_WARPS = GROUP_WARPS
"""Registers are given and taken by whole warpgroups."""
MAX_WARPS = 8
"""With more, a thread has too few registers at the start for the largest dots."""
_BARRIER_ARRAYS = 6
"""The most that there can be: full and empty, of tiles released early, late, and when the loop has ended."""


@gpu_pass
def warp_specialize(module: Module, target: Target) -> None:
    """Specialise the warps of kernels with a loop that requests it, or is faster so, where TMA can do its
    loads."""
    for func in module.functions.values():
        num_warps = func.attrs["num_warps"]
        loops = [op for op in func.body.walk() if isinstance(op, For) and _has_dots(op)]
        loops = [loop for loop in loops if loop.warp_specialize] or loops
        if target.has("tma") and not num_warps % GROUP_WARPS and num_warps <= MAX_WARPS and len(loops) == 1:
            _specialize(func, loops[0], target)
        if "cluster_size" in func.attrs and "extra_warps" not in func.attrs:
            raise unused(func, "it has no loop whose dots read only what a warp of its own can copy")


def _has_dots(loop: For) -> bool:
    return any(isinstance(op, WarpGroupDot) for op in loop.body)


def _specialize(func: Func, loop: For, target: Target) -> None:
    """Split a function at its loop, unless something stands in the way."""
    loads = pipelined_loads(loop, without_dots=False)
    tiles = {load: tile_of(load) for load in loads}
    waits = [op for op in func.body.walk() if isinstance(op, GridDependencyWait)]
    if any(wait.parent is not func.body for wait in waits):
        return
    if not loads:
        return
    info = AxisInfo(func)
    if any(
        tma_obstacle(load, tile, func, info) or not is_made_outside(load, func)
        for load, tile in tiles.items()
    ):
        return
    kept = kept_loads(func, loop, info)
    skeleton = Skeleton(loop, [index for load in (*loads, *kept) for index in load.indices])
    counts = _buffers(func, loop, tiles, kept, target)
    if not skeleton.is_possible or counts[0] < MIN_STAGES:
        return
    shared = shared_loads(func, loop, loads)
    if not (shared or loop.warp_specialize or _pays(loop, tiles, counts[0], target)):
        return
    before = Builder.before(next(iter(func.body)))
    rings = _rings(func, loop, tiles, counts, shared, before)
    around = (
        [_ring(func, kept, {load: tile_of(load) for load in kept}, counts[2], False, (), before)]
        if kept
        else []
    )
    meeting = before.add(Barrier(cluster=bool(shared)))
    producer = _producer(func, skeleton, rings, around)
    # Each thread waits for itself, and the producer has to before its first copy.
    if waits and producer.first is not None:
        Builder.before(producer.first).add(GridDependencyWait())
    # ptxas requires one wait for both dots: the tile of the first is released after the last has ended.
    for ring in rings:
        ring.consume(loop)
    for ring in around:
        consume_kept(ring, loop)
    drop_dead_carried(func)
    loop.num_stages = 1
    most = func.attrs.get("max_registers")
    registers = share_out(loop, func.attrs["num_warps"], PRODUCER_WARPS, target.limits.register_file, most)
    default = Block()
    while not isinstance(meeting.next, Return):
        assert meeting.next is not None, "a function ends in its return"
        default.append(meeting.next.detach())
    default.append(Yield(()))
    Builder.after(meeting).add(WarpSpecialize(producer, default, registers)).loc = loop.loc
    func.attrs["extra_warps"] = PRODUCER_WARPS


def _pays(loop: For, tiles: Mapping[Load, MemDescType], count: int, target: Target) -> bool:
    """Whether a loop that does not request it is faster so: its iterations are so short that a barrier in
    each costs something, its dots sum up in place, so that only the copies keep their warps from issuing
    them, and its buffers leave room for one program in a multiprocessor, so that no other fills the gaps."""
    in_place = all(feeds_sum_in_place(load, loop) for load in tiles)
    is_alone = 2 * count * sum(tile.tile_bytes for tile in tiles.values()) > target.limits.shared_bytes
    return in_place and is_alone and is_short(loop, target)


def _buffers(
    func: Func, loop: For, tiles: Mapping[Load, MemDescType], kept: Sequence[Load], target: Target
) -> tuple[int, int, int]:
    """How many buffers the rings have, that of tiles which are released at once and that of those which dots
    go on reading: as many as the loop has stages, or as fit, and one more in the second if there is room; and
    that of tiles which the whole loop reads, two if there is still room.  What follows the loop has memory of
    its own only if the next run of the loop may start under it."""
    wanted = loop.num_stages if loop.num_stages is not None else func.attrs.get("num_stages", 1)
    kept_bytes = sum(tile_of(load).tile_bytes for load in kept)
    other = (
        other_bytes(func, enclosing_loops(loop)[0], [*tiles, *kept])
        + kept_bytes
        + _BARRIER_ARRAYS * ALIGNMENT
    )
    stage_bytes = sum(tile.tile_bytes for tile in tiles.values())
    late_bytes = sum(tile.tile_bytes for load, tile in tiles.items() if feeds_sum_in_place(load, loop))
    count = fitting_stages(max(wanted, MIN_STAGES), stage_bytes, other, target.limits.shared_bytes)
    left = target.limits.shared_bytes - count * stage_bytes - other
    one_more = late_bytes <= left and late_bytes < stage_bytes
    return count, count + one_more, 1 + (kept_bytes <= left - one_more * late_bytes)


def _rings(
    func: Func,
    loop: For,
    tiles: Mapping[Load, MemDescType],
    counts: Sequence[int],
    shared: Sequence[Load],
    builder: Builder,
) -> list[Ring]:
    """The rings of a loop: one for the tiles that are released at once, one for those that dots go on
    reading."""
    rings = []
    for late, count in zip((False, True), counts):
        loads = [load for load in tiles if feeds_sum_in_place(load, loop) == late]
        if loads:
            rings.append(_ring(func, loads, tiles, count, late, shared, builder))
    return rings


def _ring(
    func: Func,
    loads: Sequence[Load],
    tiles: Mapping[Load, MemDescType],
    count: int,
    late: bool,
    shared: Sequence[Load],
    builder: Builder,
) -> Ring:
    together = [load for load in loads if load in shared]
    programs = func.attrs["cluster_size"] if together else 1
    maps = [
        add_tensor_map(func, load, tiles[load], row_parts(load, programs if load in together else 1))
        for load in loads
    ]
    note_maps(func, loads, dict(zip(loads, maps)), {}, together)
    types = [tiles[load] for load in loads]
    return make_ring(builder, loads, types, maps, count, late, func.attrs["num_warps"], programs, together)


def _producer(func: Func, skeleton: Skeleton, rings: Sequence[Ring], around: Sequence[Ring]) -> Block:
    """The function that fills the rings, those of `around` each time before the loop begins."""
    block = Block()
    builder = Builder(block)
    state = [builder.add(Constant.of(value, I32)).result for _ in (*rings, *around) for value in (0, 1)]
    split = 2 * len(rings)

    def issue(inner: Builder, mapping: dict[Value, Value], state: list[Value]) -> list[Value]:
        return [*_issue(rings, inner, mapping, state[:split]), *state[split:]]

    def begin(inner: Builder, mapping: dict[Value, Value], state: list[Value]) -> list[Value]:
        return [*state[:split], *_issue(around, inner, mapping, state[split:])]

    state = skeleton.copy(func.body, block, state, issue, begin)
    for ring, slot, phase in zip(rings, state[::2], state[1::2]):
        if ring.shared:
            ring.drain(builder, slot, phase, isinstance(skeleton.loop.parent_op, For))
    block.append(Yield(()))
    return block


def _issue(
    rings: Sequence[Ring], builder: Builder, mapping: dict[Value, Value], state: Sequence[Value]
) -> list[Value]:
    """Fill a buffer of each ring; return the positions in the rings after that."""
    following: list[Value] = []
    for ring, slot, phase in zip(rings, state[::2], state[1::2]):
        following += ring.issue(builder, mapping, slot, phase)
    return following
