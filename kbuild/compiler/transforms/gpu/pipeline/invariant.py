"""Keeps tiles that are the same in every iteration of a pipelined loop in shared memory.

    Before:  scf.for %row … {                        After:  %w0 = tt.load %weight, mask=%m where the loop runs at all
               %w = tt.load %weight, mask=%m                 %tile = ttg.local_alloc src=%w0
               …                                             scf.for %row … {
                                                               %w = ttg.local_load %tile

A persistent layer norm reads weight and bias for every row; from the second level of the cache they come at
less than half of the rate of shared memory, and beside the rows' own traffic.
"""

from __future__ import annotations

from collections.abc import Collection

from kbuild.compiler.analysis.bases import may_be_written
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I1, MemDescType, like
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AndI, CmpI
from kbuild.compiler.ops.gpu import LocalAlloc, LocalLoad
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Load, Splat
from kbuild.compiler.transforms.gpu.pipeline.async_copy import tile_of
from kbuild.compiler.transforms.gpu.pipeline.loads import forget_descriptor, read_with, reads_plain_tile


def invariant_tiles(loop: For, pipelined: Collection[Load]) -> dict[Load, MemDescType]:
    """The tiles of the loads that give the same in every iteration; none in loops with dots, whose buffers
    need the room."""
    if any(isinstance(op, Dot | WarpGroupDot) for op in loop.body.walk()):
        return {}
    return {
        op: tile_of(op)
        for op in loop.body
        if isinstance(op, Load) and op not in pipelined and _is_invariant(loop, op)
    }


def _is_invariant(loop: For, load: Load) -> bool:
    """Whether the address of a tensor is computed before the loop, and nothing is written there inside."""
    if not reads_plain_tile(load):
        return False
    changes = any(
        value.block is loop.body if value.op is None else value.op.parent is loop.body
        for value in read_with(load)
    )
    return not changes and not may_be_written(load.ptr, loop)


def keep_in_shared_memory(loop: For, tiles: dict[Load, MemDescType]) -> None:
    """Load tiles before their loop, once, and read them from shared memory inside."""
    # Loads that only addresses needed have gone with what is issued early.
    tiles = {load: tile for load, tile in tiles.items() if load.parent is not None}
    before = Builder.before(loop)
    runs = before.add(CmpI(loop.lower, loop.upper, "slt")).result if tiles else None
    for load, tile in tiles.items():
        assert runs is not None
        buffer = before.add(LocalAlloc(tile, _loaded_where(load, runs, before)), load.result.name).result
        load.replace_by(Builder.before(load).add(LocalLoad(buffer, load.result.type)))


def _loaded_where(load: Load, runs: Value, before: Builder) -> Value:
    """The value of a load, done early where the loop has iterations: elsewhere its address may be that of
    nothing."""
    early = load.clone()
    forget_descriptor(early)
    wide = before.add(Splat(runs, like(load.result.type, I1))).result
    early.mask = wide if load.mask is None else before.add(AndI(load.mask, wide)).result
    return before.add(early, load.result.name).result
