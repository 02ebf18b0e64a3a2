"""Issues the loads of a loop iterations before they are needed, so that memory works while the tensor cores
do.

    Before:  scf.for %k … {                         After:  %buffers = ttg.local_alloc : memdesc<3 x 128x32xf16>
               %a = tt.load %p, mask=%m                     async_copy %p0 → buffer 0, commit, async_copy %p1 → buffer 1, commit
               %s = ttg.local_alloc src=%a                  scf.for %k … (%read_slot = 0, %write_slot = 2, %p_ahead) {
               %x = ttg.local_load %s                         ttg.async_wait {num = 1}
               %d = tt.dot %x, …                              async_copy %p_ahead → buffer %write_slot, commit
             }                                                %s = ttg.memdesc_index %buffers, %read_slot
                                                              %x = ttg.local_load %s
                                                              %d = tt.dot %x, …
                                                            }
                                                            ttg.async_wait {num = 0}

A loop without dots whose iterations wait for reductions has its loads an iteration early in registers, where they are
few: `recurrent_loads`.

What a dot by scalar fma reads in another order than memory has it goes through registers instead of a copy: see
`scalar_dots`.

`loads` chooses the loads, `async_copy` those of them that the threads can copy asynchronously, `tensor_maps`
those that TMA can: where it can do all of them, mbarriers take the place of the groups.  `schedule` says how
early they are issued, `expand` rewrites the loop.  `invariant` puts into shared memory what is the same for
all iterations.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import MemDescType, bit_width, layout_of
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.carried import drop_dead_carried
from kbuild.compiler.transforms._support.loops import is_short, trip_count
from kbuild.compiler.transforms.gpu.dot.scalar_dots import goes_through_registers
from kbuild.compiler.transforms.gpu.pipeline.async_copy import can_copy, tile_of
from kbuild.compiler.transforms.gpu.pipeline.budget import (
    is_room_for_more,
    least_other_bytes,
    other_bytes,
)
from kbuild.compiler.transforms.gpu.pipeline.expand import expand
from kbuild.compiler.transforms.gpu.pipeline.invariant import invariant_tiles, keep_in_shared_memory
from kbuild.compiler.transforms.gpu.pipeline.loads import (
    feeds_sum_in_place,
    has_only_sums_in_place,
    last_sum_in_place,
    pipelined_loads,
    recurrent_loads,
)
from kbuild.compiler.transforms.gpu.pipeline.schedule import (
    MIN_STAGES,
    LoopSchedule,
    fitting_stages,
    make_schedule,
    ring_bytes,
)
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import add_tensor_map, note_maps, tma_obstacle
from kbuild.targets.target import Target

MIN_TMA_TRIPS = 4
"""Iterations from which on a loop is worth the time that it takes to fetch tensor maps and set up mbarriers."""
MAX_HELD_REGISTERS = 32
"""32-bit registers per thread in which a loop may hold loads of the next iteration."""
MAX_RECURRENT_REGISTERS = 16
"""The same for a loop without dots."""
MIN_RECURRENT_TRIPS = 4
"""Iterations from which on such a loop is the way through a sequence: one of two or three blocks is part of many programs,
which registers of the next block would keep out."""


@gpu_pass
def pipeline(module: Module, target: Target, stages: int = 0) -> None:
    """Pipeline the innermost loops by their `num_stages`, else the function's; `stages` overrides both."""
    for func in module.functions.values():
        chosen: list[tuple[For, list[Load], int]] = []
        recurrent: list[tuple[For, list[Load]]] = []
        for op in func.body.walk():
            if isinstance(op, For):
                own = op.num_stages if op.num_stages is not None else func.attrs.get("num_stages", 1)
                wanted = stages or own
                loads = (
                    pipelined_loads(op, without_dots=op.num_stages is not None)
                    if wanted >= MIN_STAGES
                    else []
                )
                if loads:
                    chosen.append((op, loads, wanted))
                elif wanted >= MIN_STAGES and (trip_count(op) or MIN_RECURRENT_TRIPS) >= MIN_RECURRENT_TRIPS:
                    recurrent.append((op, _held(recurrent_loads(op), MAX_RECURRENT_REGISTERS)))
        info = AxisInfo(func) if chosen else None
        plans = [
            (loop, _plan(func, loop, loads, wanted, target, info))
            for loop, loads, wanted in chosen
            if info is not None
        ]
        pipelined = [(loop, plan) for loop, plan in plans if plan is not None]
        for loop, plan in pipelined:
            expand(loop, plan.schedule, plan.tiles, plan.maps)
            loop.num_stages = 1
        recurrent = [(loop, held) for loop, held in recurrent if held]
        for loop, held in recurrent:
            expand(loop, make_schedule(loop, [], held, MIN_STAGES), {}, {})
            loop.num_stages = 1
        if pipelined or recurrent:
            drop_dead_carried(func)
        for loop, plan in pipelined:
            keep_in_shared_memory(loop, plan.kept)


class _Plan(NamedTuple):
    """How to pipeline a loop."""

    schedule: LoopSchedule
    tiles: dict[Load, MemDescType]
    """The tiles that the loads are copied into."""
    maps: dict[Load, Value]
    """The tensor maps that the copies use."""
    kept: dict[Load, MemDescType]
    """The tiles of the loads that are the same in every iteration."""


class _Room(NamedTuple):
    """The buffers for which shared memory has room."""

    num_stages: int
    lagging: list[Load]
    kept: dict[Load, MemDescType]
    in_place: bool = False
    issue_after: Op | None = None


def _plan(
    func: Func, loop: For, loads: list[Load], num_stages: int, target: Target, info: AxisInfo
) -> _Plan | None:
    """How to pipeline a loop; None when it stays as it is."""
    tiles = {load: tile_of(load) for load in loads} if target.has("cp_async") else {}
    obstacles = {
        load: reason for load, tile in tiles.items() if (reason := tma_obstacle(load, tile, func, info))
    }
    copyable = [load for load, tile in tiles.items() if can_copy(load, tile, info)]
    trips = trip_count(loop)
    if trips is not None and trips < MIN_TMA_TRIPS and len(copyable) == len(tiles):
        obstacles = dict.fromkeys(tiles, f"its loop runs {trips} times only")
    by_tma = target.has("tma") and bool(tiles) and not obstacles
    tiles = {load: tile for load, tile in tiles.items() if by_tma or load in copyable}
    kept = invariant_tiles(loop, loads) if loop.num_stages is not None and tiles and not by_tma else {}
    can_wait_ahead = not by_tma and not is_short(loop, target)
    room = _fit(func, loop, tiles, kept, num_stages, target, can_wait_ahead)
    while room.num_stages < MIN_STAGES and len(tiles) > 1:  # The largest stays where it is.
        largest = max(tiles, key=lambda load: tiles[load].tile_bytes)
        obstacles[largest] = f"shared memory has no room for {MIN_STAGES} of its tiles"
        del tiles[largest]
        room = _fit(func, loop, tiles, {}, num_stages, target, can_wait_ahead)
    held = _held([load for load in loads if load not in tiles], MAX_HELD_REGISTERS)
    if room.num_stages < MIN_STAGES or not (tiles or held):
        return None
    maps = {load: add_tensor_map(func, load, tile) for load, tile in tiles.items()} if by_tma else {}
    note_maps(func, loads, maps, obstacles)
    # What is in registers goes into the buffer after the one that is read.
    stored = [
        load for load, tile in tiles.items() if goes_through_registers(load, tile) and not room.in_place
    ]
    schedule = make_schedule(loop, list(tiles), held, room.num_stages, room.lagging, by_tma, stored)._replace(
        in_place=room.in_place, issue_after=room.issue_after
    )
    waits_ahead = can_wait_ahead and room.issue_after is not None and schedule.distance > MIN_STAGES
    schedule = schedule._replace(waits_ahead=waits_ahead)
    return _Plan(schedule, tiles, maps, room.kept)


def _fit(
    func: Func,
    loop: For,
    tiles: dict[Load, MemDescType],
    kept: dict[Load, MemDescType],
    wanted: int,
    target: Target,
    can_wait_ahead: bool,
) -> _Room:
    """As many stages as fit.  Tiles that are the same in every iteration stay if one buffer at least fits
    beside them."""
    stage_bytes, kept_bytes = (sum(tile.tile_bytes for tile in some.values()) for some in (tiles, kept))
    lagging = [load for load in tiles if feeds_sum_in_place(load, loop)]
    last_dot = None
    trips = trip_count(loop)
    wanted = wanted if trips is None else min(wanted, trips)
    deeper = wanted
    if lagging and len(lagging) == len(tiles):
        last_dot, lagging = last_sum_in_place(loop), []
        deeper = max(wanted, MIN_STAGES + 1 + (can_wait_ahead and wanted > MIN_STAGES))
    elif lagging and wanted > MIN_STAGES and has_only_sums_in_place(loop) and is_short(loop, target):
        deeper = max(wanted, MIN_STAGES + 2)
    lagging_bytes = sum(tiles[load].tile_bytes for load in lagging)
    if trips is None or deeper <= trips:
        now, more = (ring_bytes(count, stage_bytes, lagging_bytes) + kept_bytes for count in (wanted, deeper))
        wanted = deeper if is_room_for_more(func, loop, now, more, target) else wanted
    own_bytes = ring_bytes(wanted, stage_bytes, lagging_bytes) + kept_bytes
    least_bytes = own_bytes + least_other_bytes(func, loop, list(tiles))
    if own_bytes <= target.limits.shared_bytes // 2 and least_bytes <= target.limits.shared_bytes:
        return _Room(wanted, lagging, kept, issue_after=last_dot)
    room = target.limits.shared_bytes - other_bytes(func, loop, list(tiles))
    if kept:
        num_stages = fitting_stages(wanted, stage_bytes, kept_bytes, room)
        if num_stages >= MIN_STAGES or stage_bytes + kept_bytes <= room:
            in_place = num_stages < MIN_STAGES
            return _Room(
                max(num_stages, MIN_STAGES), [], kept, in_place, issue_after=None if in_place else last_dot
            )
    num_stages = fitting_stages(wanted, stage_bytes, 0, room, lagging_bytes)
    if lagging and num_stages < MIN_STAGES:
        return _Room(fitting_stages(wanted, stage_bytes, 0, room), [], {})
    return _Room(num_stages, lagging, {}, issue_after=last_dot)


def _held(loads: list[Load], most: int) -> list[Load]:
    """The loads that come into registers, if so many are enough to have them early."""
    registers = 0
    for load in loads:
        layout = layout_of(load.result.type)
        count = 1 if layout is None else len(layout.unique_registers())
        registers += -(-count * bit_width(load.result.type) // 32)
    return loads if registers <= most else []
