"""Gives tiles that threads fill in every iteration three buffers, so that a dot of warpgroups reads one while
the next is filled.

Before:  scf.for … (%held) {                        After:  %buffers = ttg.local_alloc : memdesc<3x128x32xf16>
           %next = tt.load …                                scf.for … (%held, %slot) {
           %tile = ttg.local_alloc src=%held                  %next = tt.load …
           %d = ttng.warp_group_dot %tile, …                  %tile = ttg.memdesc_index %buffers, %slot
           scf.yield %next                                    ttg.local_store %held, %tile
         }                                                    %d = ttng.warp_group_dot %tile, …
                                                              scf.yield %next, (%slot + 1) mod 3
                                                            }

These are the loads that the asynchronous copies cannot do (`pipeline`): their values are loaded an iteration
early and held in registers.  A single tile may only be filled once all warps have read it: each iteration has
two barriers and waits for its dot. With three, the dot of one iteration is in flight while the next fills its
tile, and one barrier is enough: a warp that has passed it has waited for the dot of the iteration before the
last, and no warp reads that tile any more.  Dots of single warps (mma.sync) end before the next instruction
that needs them, and would only pay for the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import I32, MemDescType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import LocalAlloc, LocalStore, MemDescIndex, MemDescSubslice, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
from kbuild.compiler.transforms._support.slots import following_slot
from kbuild.compiler.transforms.gpu.pipeline.loads import is_only_yielded
from kbuild.targets import Target

_BUFFERS = 3
"""One that is filled, one that a dot in flight reads, and one that slower warps may still read."""


@gpu_pass
def alternate_tiles(module: Module, target: Target) -> None:
    for func in module.functions.values():
        for loop in [op for op in func.body.walk() if isinstance(op, For)]:
            tiles = [
                tile
                for op in loop.body
                if isinstance(op, Load) and (tile := _filled_tile(op, loop)) is not None
            ]
            if tiles and _fits(func, tiles, target):
                _alternate(loop, tiles)


def _filled_tile(load: Load, loop: For) -> LocalAlloc | None:
    """The tile that the next iteration fills with what `load` loads, if only dots that can stay in flight
    read it."""
    terminator = loop.body.terminator
    if dict(load.result.users) != {terminator: 1}:
        return None
    number = loop.yielded.index(load.result)
    users = list(loop.carried[number].users)
    if len(users) != 1 or loop.results[number].users:
        return None
    (tile,) = users
    if isinstance(tile, LocalAlloc) and tile.parent is loop.body and _is_read_in_flight(tile.result, loop):
        return tile
    return None


def _is_read_in_flight(view: Value, loop: For) -> bool:
    def is_in_flight(user: object) -> bool:
        if isinstance(user, (MemDescTrans, MemDescSubslice)):
            return _is_read_in_flight(user.result, loop)
        return isinstance(user, WarpGroupDot) and is_only_yielded(user, loop)

    return all(map(is_in_flight, view.users))


def _fits(func: Func, tiles: Sequence[LocalAlloc], target: Target) -> bool:
    _, taken = place(demands(func))
    more = (_BUFFERS - 1) * sum(_type_of(tile).tile_bytes for tile in tiles)
    return taken + more <= target.limits.shared_bytes // target.thresholds.alternating_programs


def _type_of(tile: LocalAlloc) -> MemDescType:
    assert isinstance(tile.type, MemDescType)
    return tile.type


def _alternate(loop: For, tiles: Sequence[LocalAlloc]) -> None:
    before = Builder.before(loop)
    zero, one, count = (before.add(Constant.of(number, I32)).result for number in (0, 1, _BUFFERS))
    buffers = [before.add(LocalAlloc(_buffers_type(tile)), tile.result.name).result for tile in tiles]
    (slot,) = add_carried(loop, [zero], ["slot"])
    for tile, buffer in zip(tiles, buffers):
        _fill(tile, buffer, slot)
    end = Builder.before(loop.body.terminator)
    yield_more(loop, [following_slot(end, slot, zero, one, count).slot])


def _buffers_type(tile: LocalAlloc) -> MemDescType:
    type_ = _type_of(tile)
    return MemDescType((_BUFFERS, *type_.tile_shape), type_.element, type_.layout)


def _fill(tile: LocalAlloc, buffer: Value, slot: Value) -> None:
    """Store what `tile` is made of in the present buffer instead."""
    assert tile.src is not None
    build = Builder.before(tile)
    view = build.add(MemDescIndex(buffer, slot), tile.result.name).result
    build.add(LocalStore(tile.src, view))
    tile.result.replace_by(view)
    tile.erase()
