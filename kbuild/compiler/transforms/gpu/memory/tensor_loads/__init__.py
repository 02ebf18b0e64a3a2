"""Has TMA do loads through tensor descriptors that threads would do element by element, or far from each other.

Before:
    %x: tensor<64x64xf32, #blocked> = tt.load %p, mask=%m, other=%zeros, desc=%d, indices=[%i, %j]
After:
    %tiles = ttg.local_alloc : memdesc<1 x 64x64xf32, #shared>
    %barriers = ttg.local_alloc : memdesc<1 x 1xi64>
    ttng.init_barrier %barriers
    ttng.barrier_expect %barrier, %true {bytes = 16384}
    ttng.async_tma_copy_global_to_local %d_map, %tile, %barrier, %true, indices=[%i, %j]
    ttng.wait_barrier %barrier, %zero, tiles=[%tile]
    %x: tensor<64x64xf32, #blocked> = ttg.local_load %tile

`pipeline.unpipelined` says which loads.  Those that follow each other with nothing but arithmetic between them have
one barrier, so that their copies are on their way together.  A loop makes the barriers of its loads once, and
carries their phase around.  Where shared memory has no room for the tiles, `threads` has them load.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I1, I32, I64, MemDescType, TensorType
from kbuild.compiler.layout import unswizzled
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import CmpI, Constant, Select, XOrI
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalDealloc, LocalLoad, MemDescIndex
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    WaitBarrier,
)
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.carried import add_carried, yield_more
from kbuild.compiler.transforms.gpu.memory.tensor_loads.threads import load_by_threads
from kbuild.compiler.transforms.gpu.pipeline.loads import forget_descriptor
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import map_of, note_of
from kbuild.compiler.transforms.gpu.pipeline.unpipelined import CopyableLoad, copyable_loads
from kbuild.targets.target import Target

BEYOND = 1 << 30
"""An index beyond any tensor, to which a place in a box may be added."""
ENOUGH = 2
"""Programs on a multiprocessor of which one computes while the other waits for its copies."""
_BARRIERS = MemDescType((1, 1), I64, unswizzled((1,), (0,)))
"""An array of one barrier."""


@gpu_pass
def tensor_loads(module: Module, target: Target) -> None:
    """Replace the loads of a kernel that TMA should do; drop the descriptors of the others."""
    func = module.kernel
    has_descriptors = any(isinstance(op, Load) and op.desc is not None for op in func.body.walk())
    if has_descriptors and target.has("tma"):
        notes: list[str] = []
        left = set[Load]()
        for group in _groups(copyable_loads(func)):
            for part in _fitting(func, group, target):
                notes += _Copies(func, part).expand()
            left.update(load.op for load in group if load.op.parent is not None)
        load_by_threads(func, left, target)
        notes += [f"{load.result.name or 'a load'}: shared memory has no room for its tile" for load in left]
        if notes:
            func.attrs["tma"] = (*func.attrs.get("tma", ()), *notes)
    for other in module.functions.values():
        for op in other.body.walk():
            if isinstance(op, Load):
                forget_descriptor(op)


def _groups(loads: Sequence[CopyableLoad]) -> list[list[CopyableLoad]]:
    """Loads that may start together: between them is nothing but arithmetic and loads, on which their indices do
    not depend."""
    groups: list[list[CopyableLoad]] = []
    for load in loads:
        if not groups or not _may_start_with(load.op, groups[-1][0].op):
            groups.append([])
        groups[-1].append(load)
    return groups


def _may_start_with(load: Load, first: Load) -> bool:
    """Whether the indices of a load can be computed before another one of the same block."""
    between = _between(first, load) if load.parent is first.parent else []
    if not between or any(op.regions or not (op.has(Trait.PURE) or isinstance(op, Load)) for op in between):
        return False
    needed = _sources(load.indices, set[Op]([*between, first]))
    return all(op.has(Trait.PURE) and op.is_speculatable() for op in needed)


def _between(first: Op, last: Op) -> list[Op]:
    """The operations from one to another of the same block, without the latter."""
    found: list[Op] = []
    op: Op | None = first
    while op is not None and op is not last:
        found.append(op)
        op = op.next
    return found if op is last else []


def _sources(values: Sequence[Value], among: set[Op]) -> set[Op]:
    """The operations of some on which values depend."""
    found = set[Op]()
    work = list(values)
    while work:
        op = work.pop().op
        if op is not None and op in among and op not in found:
            found.add(op)
            work += op.operands
    return found


def _fitting(func: Func, group: list[CopyableLoad], target: Target) -> list[list[CopyableLoad]]:
    """The loads of a group for whose tiles there is room: all of them at a time, or one after the other where a
    multiprocessor then holds two programs, no longer one."""
    together = _programs(func, group, target)
    alone = {load: _programs(func, [load], target) for load in group} if together < ENOUGH else {}
    if together and together >= min([ENOUGH, *alone.values()]):
        return [group]
    return [[load] for load in group if alone[load]]


def _programs(func: Func, group: Sequence[CopyableLoad], target: Target) -> int:
    """How many programs a multiprocessor holds at once, by shared memory and threads, with tiles from where the first load
    is to where one is used first; 0 where there is no room for them."""
    build, end = Builder.before(group[0].op), Builder.before(_first_use(group))
    tiles = [build.add(LocalAlloc(_ring(load.tile))) for load in group]
    ends = [end.add(LocalDealloc(tile.result)) for tile in tiles]
    first = func.body.first
    assert first is not None, "a block has a terminator"
    barrier = Builder.before(first).add(LocalAlloc(_BARRIERS))
    ends.append(Builder.before(func.body.terminator).add(LocalDealloc(barrier.result)))
    _, needed = place(demands(func))
    for op in (*ends, *tiles, barrier):
        op.erase()
    return target.limits.programs(needed, func.attrs["num_warps"] + func.attrs.get("extra_warps", 0))


def _first_use(group: Sequence[CopyableLoad]) -> Op:
    """The operation behind the last load before which the copies have to land: the first one that uses a value, or that
    is more than arithmetic."""
    block, op = group[-1].op.parent_block, group[-1].op.next
    users = {ancestor_in(block, user) for load in group for user in load.op.result.users}
    while (
        op is not None and op.next is not None and op not in users and op.has(Trait.PURE) and not op.regions
    ):
        op = op.next
    assert op is not None, "a block has a terminator"
    return op


def _ring(tile: MemDescType) -> MemDescType:
    return MemDescType((1, *tile.tile_shape), tile.element, tile.layout)


class _Copies:
    """Loads whose copies start together, before the first of them."""

    def __init__(self, func: Func, loads: Sequence[CopyableLoad]) -> None:
        self.func, self.loads = func, loads
        self.block = loads[0].op.parent_block
        self.build = Builder.before(loads[0].op)
        between = _between(loads[0].op, loads[-1].op)
        own, given = set[Op](load.op for load in loads), {load.op.result for load in loads}
        self.following: list[Op] = []
        """What stands between the loads and needs what they give."""
        for op in between:
            if op not in own and not given.isdisjoint(op.operands):
                self.following.append(op)
                given.update(op.results)

    def expand(self) -> list[str]:
        """Put copies in the place of the loads; give a note for each."""
        last = self.loads[-1].op
        end = last.next if self.following else _first_use(self.loads)
        assert end is not None, "a block has a terminator"
        made, barrier, phase = self._make_barrier()
        indices = [self._indices(load) for load in self.loads]
        true, zero = self.build.add(Constant.of(1, I1)).result, self._integer(0)
        tiles: list[Value] = []
        for load in self.loads:
            tile = self.build.add(LocalAlloc(_ring(load.tile)), load.op.result.name).result
            tiles.append(self.build.add(MemDescIndex(tile, zero), load.op.result.name).result)
        size = sum(load.tile.tile_bytes for load in self.loads)
        self.build.add(BarrierExpect(barrier, true, size))
        notes: list[str] = []
        for load, tile, place_ in zip(self.loads, tiles, indices):
            map_ = map_of(self.func, load.op, load.make, load.box, load.hints)
            copy = AsyncTmaCopyGlobalToLocal(map_, tile, barrier, true, place_)
            copy.loc = load.op.loc
            self.build.add(copy)
            notes.append(note_of(load.op, map_))
        build = Builder.before(end)
        build.add(WaitBarrier(barrier, phase, tuple(tiles)))
        if not isinstance(self.block.parent, For | Func):
            build.add(InvalBarrier(made))
        dead = [op for load, tile in zip(self.loads, tiles) for op in _read(load, tile, build)]
        for op in self.following:
            op.move_before(end)
        for op in dead:
            op.erase()
        return notes

    def _make_barrier(self) -> tuple[Value, Value, Value]:
        """An array of one barrier, the barrier, and the parity of the phase in which it counts the copies.

        It is made where the copies are, or once before their loop.  What runs once leaves it until the kernel ends: to
        end it, all threads would have to meet.
        """
        loop = self.block.parent
        outside = Builder.before(loop) if isinstance(loop, For) else self.build
        phase = outside.add(Constant.of(0, I32)).result
        made = outside.add(LocalAlloc(_BARRIERS), "barriers").result
        outside.add(InitBarrier(made))
        around = self.block
        if isinstance(loop, For):
            (phase,) = add_carried(loop, [phase], ["phase"])
            last = Builder.before(loop.body.terminator)
            yield_more(loop, [last.add(XOrI(phase, last.add(Constant.of(1, I32)).result)).result])
            around = loop.parent_block
            if not isinstance(around.parent, Func):
                Builder.after(loop).add(InvalBarrier(made))
        if isinstance(around.parent, Func):
            Builder.before(around.terminator).add(LocalDealloc(made))
        return made, self.build.add(MemDescIndex(made, self._integer(0))).result, phase

    def _indices(self, load: CopyableLoad) -> tuple[Value, ...]:
        """The indices of a box, computed before the first load, as many as the map has axes."""
        first = self.loads[0].op
        needed = _sources(load.op.indices, set(_between(first, load.op)))
        for op in [op for op in self.block if op in needed]:
            op.move_before(first)
        found = [self._inside(index, size) for index, size in zip(load.op.indices, load.make.shape)]
        return (*[self._integer(0)] * (load.box.rank - len(found)), *found)

    def _inside(self, index: Value, size: Value) -> Value:
        """An index, beyond the tensor where that has no elements along the axis: the map has one then."""
        if isinstance(size.op, Constant) and size.op.value > 0:
            return index
        empty = self.build.add(CmpI(size, self._integer(0), "eq")).result
        return self.build.add(Select(empty, self._integer(BEYOND), index)).result

    def _integer(self, value: int) -> Value:
        return self.build.add(Constant.of(value, I32)).result


def _read(load: CopyableLoad, tile: Value, build: Builder) -> list[Op]:
    """Have the users of a load read its tile, and erase the load; give the users that nothing needs any more."""
    block = load.op.parent_block
    dead: list[Op] = []
    for user in list(load.op.result.users):
        if isinstance(user, LocalAlloc) and user.result.type == tile.type and user.parent is block:
            user.result.replace_by(tile)
            dead.append(user)
        elif isinstance(user, ConvertLayout) and user.parent is block:
            assert isinstance(user.result.type, TensorType)
            user.result.replace_by(build.add(LocalLoad(tile, user.result.type)).result)
            dead.append(user)
    if len(load.op.result.users) > len(dead):
        load.op.result.replace_by(build.add(LocalLoad(tile, load.op.result.type)).result)
    return [*dead, load.op]
