"""Has TMA do stores and atomics through tensor descriptors.

    Before:  scf.for %tile … {                     After:  %buffer = ttg.local_alloc : memdesc<128x64xf16>
               …                                           scf.for %tile … {
               %y = ttg.convert_layout %x                    …
               tt.store %p, %y, mask=%m {desc}               ttng.tma_store_wait tiles=[%buffer]
             }                                               ttg.local_store %x, %buffer
                                                             ttng.async_tma_copy_local_to_global %map,
                                                             %buffer, indices=[…]
                                                           } ttng.tma_store_wait tiles=[%buffer] {only_reads =
                                                           true}

The threads write a tile of shared memory as they hold it, and one of them starts the copy, which cuts off
what lies beyond the tensor and goes on while the threads do other things.  `choice` says which accesses can
go that way, `orders` for which earlier copies each must wait; here their tiles and waits are placed, as far
as shared memory suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import I1, I32
from kbuild.compiler.ops.elementwise import AndI, CmpI, Constant
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalStore
from kbuild.compiler.ops.nvidia import AsyncTmaCopyLocalToGlobal, TmaStoreWait, WarpSpecialize
from kbuild.compiler.ops.tensor import Barrier
from kbuild.compiler.transforms.gpu.memory.tensor_stores.choice import (
    CopyableStore,
    box_of_warp,
    clear,
    described,
    possible,
    warp_bits,
)
from kbuild.compiler.transforms.gpu.memory.tensor_stores.orders import in_loop, just_before, wait_for
from kbuild.compiler.transforms.gpu.pipeline.own_maps import end_stores
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import MADE, map_of
from kbuild.targets.target import Target
from kbuild.tensor_map import MapSources


@gpu_pass
def tensor_stores(module: Module, target: Target) -> None:
    """Replace the stores and atomics of a kernel that TMA can do; drop the descriptors of the others."""
    func = module.kernel
    accesses = possible(func) if target.has("tma") else []
    chosen: set[Placed] = set()
    notes = []
    everything = [Placed(func, access) for access in accesses]
    # An array is written either only by TMA or only by the threads: nothing orders their writes among each
    # other.
    for base in dict.fromkeys(access.base for access in accesses):
        placed = [placed for placed in everything if placed.access.base == base]
        for one in placed:
            one.take_value()
        if place_all(func, placed, target):
            chosen.update(placed)
        else:
            for one in placed:
                one.give_back_value()
            notes.append(f"{base.name}: shared memory has no room for its tiles, the threads write them")
    ordered = [placed for placed in everything if placed in chosen]
    waits = [placed.first_waits(ordered) for placed in ordered]
    for placed, before in zip(ordered, waits):
        map_ = placed.finish(before)
        notes.append(f"{placed.access.base.name}: written by {map_.name}" + MADE * (map_.op is not None))
    if notes:
        func.attrs["tma"] = (*func.attrs.get("tma", ()), *dict.fromkeys(notes))
    for op in list(func.body.walk()):
        if described(op):
            clear(op)


class Placed:
    """An access that is to be a copy from shared memory: what replaces it, and where its tile is."""

    def __init__(self, func: Func, access: CopyableStore) -> None:
        self.func = func
        self.access = access
        self.type = access.op.value.type
        """Of the value, in the layout in which the threads would write it."""
        self.home = home = _home(access.op)
        self.outermost = ancestor_in(home, access.op)
        self.around = False
        """Whether the tile lives around all loops."""
        # Copies by a map that the kernel makes are one thread's.
        is_given = isinstance(access.tensor, MapSources)
        bits = warp_bits(access) if is_given and _warps_run_free(home) else ()
        box = box_of_warp(access, bits) if bits else None
        self.box, self.warp_bits = (box, bits) if box is not None else (access.box, ())
        self.tile: LocalAlloc | None = None
        self.wait: TmaStoreWait | None = None
        """For the end of the tile's life; None where the tile is another access's."""

    @property
    def is_nested(self) -> bool:
        return self.outermost is not self.access.op

    def take_value(self) -> None:
        """Use the value in the layout in which it was computed: then no memory is needed for another one."""
        op = self.access.op
        while isinstance(conversion := op.value.op, ConvertLayout):
            op.value = conversion.src
            if not conversion.result.users:
                conversion.erase()

    def give_back_value(self) -> None:
        """Let the threads write it after all."""
        op = self.access.op
        if op.value.type != self.type:
            op.value = Builder.before(op).add(ConvertLayout(op.value, self.type)).result

    def is_like(self, other: Placed) -> bool:
        """Whether one tile would do for both, one after the other."""
        same_block = self.access.op.parent is other.access.op.parent
        return same_block and self.access.tile == other.access.tile and self.warp_bits == other.warp_bits

    def set(self, around: bool) -> None:
        """Make the tile, around all loops or right where it is used, and let it live to the end of that
        block."""
        self.remove()
        place, block = (
            (self.outermost, self.home) if around else (self.access.op, self.access.op.parent_block)
        )
        self.tile = Builder.before(place).add(LocalAlloc(self.access.tile))
        self.wait = Builder.before(block.terminator).add(TmaStoreWait((self.tile.result,), only_reads=True))
        self.around = around

    def share(self, other: Placed) -> None:
        """Use the tile of another access."""
        self.remove()
        self.tile, self.around = other.tile, other.around

    def remove(self) -> None:
        if self.wait is not None and self.tile is not None:
            self.wait.erase()
            self.tile.erase()
        self.wait = self.tile = None

    def first_waits(self, everything: Sequence[Placed]) -> list[TmaStoreWait]:
        """The waits before the threads write the tile: for copies that this one may lie over, and the
        last one from here."""
        assert self.tile is not None, "it has been placed"
        accesses = [placed.access for placed in everything]
        near = just_before(self.access, accesses)
        tiles = {placed.access: placed.tile for placed in everything}
        found = []
        complete = wait_for(self.access, accesses)
        if complete is not None:
            found.append(TmaStoreWait((), complete))
        is_used_before = self.wait is None or (self.around and in_loop(self.access.op, self.home))
        again = len(near) if is_used_before else None
        read = next((count for count, other in enumerate(near) if tiles[other] is self.tile), again)
        if read is not None and complete is not None and complete <= read:
            found = [TmaStoreWait((self.tile.result,), complete)]
        elif read is not None:
            found.append(TmaStoreWait((self.tile.result,), read, only_reads=True))
        if found:
            found[-1].by_warp = bool(self.warp_bits)
        return found

    def finish(self, waits: Sequence[TmaStoreWait]) -> Value:
        """After waits, write the tile and start the copy, in place of the access itself; return the map that
        it uses."""
        access, op = self.access, self.access.op
        assert self.tile is not None, "it has been placed"
        build = Builder.before(op)
        for wait in waits:
            build.add(wait)
        build.add(LocalStore(op.value, self.tile.result))
        zero = build.add(Constant.of(0, I32)).result
        indices = (*[zero] * (self.box.rank - len(access.indices)), *access.indices)
        map_ = map_of(self.func, op, access.make, self.box, access.hints)
        if map_.op is not None:
            end_stores(self.func, map_)
        there = _is_there(build, access)
        build.add(
            AsyncTmaCopyLocalToGlobal(map_, self.tile.result, there, indices, access.kind, self.warp_bits)
        )
        if self.wait is not None:
            _merge(self.wait)
        op.erase()
        return map_


def place_all(func: Func, accesses: Sequence[Placed], target: Target) -> bool:
    """Give the accesses to an array tiles, if shared memory has room; around loops where no fewer programs
    run at once then, so that the copies run on under the next iteration."""
    for access in accesses:
        access.set(around=False)
    inside = _programs(func, target)
    for access in accesses:
        if inside and access.is_nested:
            access.set(around=True)
            if _programs(func, target) < inside:
                access.set(around=False)
    return inside > 0 or share_all(func, accesses, target)


def share_all(func: Func, accesses: Sequence[Placed], target: Target) -> bool:
    """Give the accesses to an array tiles, one for all in a block that are alike, if shared memory has room
    for that."""
    for around in (True, False):
        for number, access in enumerate(accesses):
            lender = next((other for other in accesses[:number] if other.is_like(access)), None)
            if lender is None:
                access.set(around and access.is_nested)
            else:
                access.share(lender)
        if _programs(func, target):
            return True
    for access in reversed(accesses):
        access.remove()
    return False


def _programs(func: Func, target: Target) -> int:
    """How many programs a multiprocessor holds at once, by shared memory and threads; 0 where one has too
    little."""
    _, needed = place(demands(func))
    return target.limits.programs(needed, func.attrs["num_warps"] + func.attrs.get("extra_warps", 0))


def _home(op: Op) -> Block:
    """The outermost block whose operations the program's warps run."""
    block = op.parent_block
    while isinstance(block.parent, Op) and not isinstance(block.parent, Func | WarpSpecialize):
        block = block.parent.parent_block
    return block


def _warps_run_free(home: Block) -> bool:
    """Whether nothing makes the program's warps wait for each other: in a kernel with a producer, without
    barriers of its own."""
    return isinstance(home.parent, WarpSpecialize) and not any(isinstance(op, Barrier) for op in home.walk())


def _is_there(build: Builder, access: CopyableStore) -> Value:
    """Whether the tensor has elements at all: no map says so, for the driver requires some."""
    condition: Value | None = None
    zero = build.add(Constant.of(0, I32)).result
    for size in dict.fromkeys(access.make.shape):
        if isinstance(size.op, Constant) and size.op.value > 0:
            continue
        test = build.add(CmpI(size, zero, "ne")).result
        condition = test if condition is None else build.add(AndI(condition, test)).result
    return condition if condition is not None else build.add(Constant.of(1, I1)).result


def _merge(wait: TmaStoreWait) -> None:
    """Merge waits that directly follow each other."""
    before = wait.prev
    if isinstance(before, TmaStoreWait) and before.only_reads and not before.pendings:
        before.tiles = (*before.tiles, *wait.tiles)
        wait.erase()
