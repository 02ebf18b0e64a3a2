"""Operations of NVIDIA's newer architectures (`ttng`): wgmma, TMA and mbarriers."""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I32, DescriptorType, MemDescType, Type

READS, WRITES = Trait.READS, Trait.WRITES


class WarpGroupDot(Op, name="ttng.warp_group_dot", traits=READS | Trait.COLLECTIVE):
    """a·b + c by wgmma: `a` a tile of shared memory or a tensor, `b` a tile of shared memory, `atom` the
    instruction.

    With `is_async` the result is available, and the operands may be overwritten, only after a
    `ttng.warp_group_dot_wait` that covers it; until then it may be passed on, and be `c` of another such
    dot.

    With `swapped` the instruction computes bᵀ·aᵀ + cᵀ, whose transpose this is: then `a` is a tile of shared
    memory, and `b` a tensor, so that memory may have its rows where the instruction wants columns.

    Where `use_acc` (i1) is given and false, `c` counts as zeros, whatever it is.
    """

    a: Value
    b: Value
    c: Value
    atom: str
    is_async: bool = False
    input_precision: str = "tf32"
    max_num_imprecise_acc: int = 0
    swapped: bool = False
    use_acc: Value | None = None

    def infer(self) -> list[Type]:
        return [self.c.type]

    def has(self, trait: Trait) -> bool:
        """A dot in flight is ordered with the waits, like a write."""
        return super().has(trait) or (self.is_async and trait is WRITES)


class WarpGroupDotWait(Op, name="ttng.warp_group_dot_wait", traits=WRITES | Trait.COLLECTIVE):
    """Waits until at most `pendings` of the warpgroup's dots are in flight.  `values` are results of dots
    that have ended then, and must be used through the results of this operation."""

    values: tuple[Value, ...] = ()
    pendings: int = 0

    def infer(self) -> list[Type]:
        return [value.type for value in self.values]


class FenceAsyncShared(Op, name="ttng.fence_async_shared", traits=WRITES):
    """What the thread has written to shared memory becomes visible to the units that read it asynchronously, wgmma
    and TMA, once they start after a barrier."""


class InitBarrier(Op, name="ttng.init_barrier", traits=WRITES):
    """Makes barriers in shared memory (mbarrier) of all elements of `barriers`; each completes a phase when
    so many `arrivals` have come, of threads or of warps, and the bytes of every `ttng.barrier_expect`, which
    is an arrival too."""

    barriers: Value
    arrivals: int = 1
    fence: bool = True
    """Whether a fence follows, which makes them visible to TMA; the pass `barriers` leaves out what another
    one does."""


class InvalBarrier(Op, name="ttng.inval_barrier", traits=WRITES):
    """Ends barriers, so that their memory may be used for something else.  Each copy into `tiles` that they
    count has been waited for."""

    barriers: Value
    tiles: tuple[Value, ...] = ()


class BarrierExpect(Op, name="ttng.barrier_expect", traits=WRITES):
    """The barrier's phase completes when `bytes` have arrived from now on, where `predicate` holds."""

    barrier: Value
    predicate: Value
    bytes: int


class WaitBarrier(Op, name="ttng.wait_barrier", traits=WRITES):
    """Each thread waits until the barrier's phase of parity `phase` (i32, 0 for the first) is complete, where
    `predicate` holds.  The copies that it counts, into `tiles`, are seen then, and need no other barrier."""

    barrier: Value
    phase: Value
    tiles: tuple[Value, ...] = ()
    predicate: Value | None = None


class ArriveBarrier(Op, name="ttng.arrive_barrier", traits=WRITES | Trait.COLLECTIVE):
    """Each warp, where `predicate` holds, signals at the barrier that it is done with `tiles`: others may
    overwrite them. `by_dots` says that only dots have read them, for which the warp has waited.
    With several `programs` it signals at the same barrier of each program of the cluster, whose copies write
    them.

    With a `count`, one thread arrives so many times for all, once each has done what comes before."""

    barrier: Value
    predicate: Value
    tiles: tuple[Value, ...] = ()
    by_dots: bool = False
    programs: int = 1
    count: int | None = None


class AsyncCopyMbarrierArrive(Op, name="ttng.async_copy_mbarrier_arrive", traits=WRITES):
    """Each thread arrives at the barrier when all of its asynchronous copies (`ttg.async_copy…`) so far have landed.
    Such an arrival counts only if the barrier was made for it: without `no_increment` the phase first needs one
    more."""

    barrier: Value
    no_increment: bool = False


class WarpSpecialize(Op, name="ttng.warp_specialize", traits=WRITES):
    """Two programs at once, each by warps of its own, which meet at barriers in shared memory alone:
    `default`, by the program's warps, and `producer`, by one thread of a further warpgroup.  `registers`,
    where given, says how many a thread of the producer's warps keeps and how many one of the others gets."""

    producer: Block
    default: Block
    registers: tuple[int, ...] = ()


class ClaimMaps(Op, name="ttng.claim_maps", traits=WRITES):
    """The number of a place in global memory for `maps` tensor maps, which no other program has before this one
    releases it."""

    maps: int

    def infer(self) -> list[Type]:
        return [I32]


class ReleaseMaps(Op, name="ttng.release_maps", traits=WRITES):
    """Leaves the `place` of a `ttng.claim_maps` to other programs.  All copies by its maps have landed."""

    place: Value


class MakeTensorMap(Op, name="ttng.make_tensor_map", traits=WRITES):
    """The tensor map of a tensor of `shape` (i32 each) and `strides` (i64, in elements, of all axes but the last,
    where they are neighbours) at `base`, for copies of boxes that the same thread starts after a `ttng.acquire_maps`.
    It is number `number` of those at `place`, and what was there before is lost: no copy by it may be on its way."""

    place: Value
    number: int
    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    type: Type
    swizzle: int
    """Bytes of a swizzled row in shared memory; 0 for none."""
    element: str
    """Type of the elements, as in `TensorMapType`."""
    fill_nan: bool = False
    """Whether NaN is read beyond the tensor, instead of zero."""
    scratch: int | None = None

    @property
    def box(self) -> tuple[int, ...]:
        """Elements along each axis that one copy moves."""
        assert isinstance(self.type, DescriptorType)
        return self.type.block.shape


class AcquireMaps(Op, name="ttng.acquire_maps", traits=WRITES):
    """Copies that start from now on see `maps` as they were made last."""

    maps: tuple[Value, ...]


class AsyncTmaCopyGlobalToLocal(Op, name="ttng.async_tma_copy_global_to_local", traits=READS | WRITES):
    """The block at `indices` (i32) of the tensor map `desc` into the tile `dst`, zeros beyond the tensor,
    where `predicate` holds; its bytes arrive at `barrier`.

    With several `programs`, those of a cluster do it together: each copies a part into the same tile of all
    of them, where its bytes arrive at the same barrier; a part of the rows where a box has fewer than the
    tile, else of the boxes side by side."""

    desc: Value
    dst: Value
    barrier: Value
    predicate: Value
    indices: tuple[Value, ...]
    programs: int = 1

    @property
    def tile(self) -> MemDescType:
        assert isinstance(self.dst.type, MemDescType)
        return self.dst.type


class AsyncTmaCopyLocalToGlobal(Op, name="ttng.async_tma_copy_local_to_global", traits=READS | WRITES):
    """The tile `src` into the block at `indices` (i32) of the tensor map `desc`, as far as it lies in the
    tensor, where `predicate` holds; with a `kind` (of `tt.atomic_rmw`) combined with it, each element
    atomically.  The tile is read up to the `ttng.tma_store_wait` that names it.

    One thread copies all of it; with `warp_bits` each warp copies what it has written itself: that whose flat
    index in the tile has the bits of the warp's number at those places.  Then no warp waits for another."""

    desc: Value
    src: Value
    predicate: Value
    indices: tuple[Value, ...]
    kind: str = ""
    warp_bits: tuple[int, ...] = ()

    @property
    def tile(self) -> MemDescType:
        assert isinstance(self.src.type, MemDescType)
        return self.src.type


class TmaStoreWait(Op, name="ttng.tma_store_wait", traits=WRITES):
    """Waits until at most `pendings` of the copies to global memory are unfinished; with `only_reads`, until
    the tiles of the others have been read.  What reads `tiles` is among those; the thread that started the
    copies waits, so that others may write the tiles after a barrier, or those of its warp at once if it was
    `by_warp`."""

    tiles: tuple[Value, ...] = ()
    pendings: int = 0
    only_reads: bool = False
    by_warp: bool = False
