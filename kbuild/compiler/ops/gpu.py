"""Operations of the GPU level (`ttg`): layouts changed, shared memory, asynchronous copies."""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.traits import PURE, Trait
from kbuild.compiler.ir.types import MemDescType, TensorType, Type
from kbuild.errors import InternalError

READS, WRITES = Trait.READS, Trait.WRITES


class ConvertLayout(Op, name="ttg.convert_layout", traits=PURE):
    """The same tensor in another layout.  `scratch`, here as elsewhere, is the place in bytes of the shared
    memory that the lowering needs, set by the pass `allocate`; None when it needs none.  With `max_scratch` it takes
    no more bytes than that, and moves the data in rounds; set by the same pass, where there is no room for
    all at once."""

    src: Value
    type: Type
    scratch: int | None = None
    max_scratch: int | None = None


class SetAutoLayout(Op, name="gluon.set_auto_layout", traits=PURE):
    """`src`, whose layout is `auto`, in the layout that is found for it: the pass `resolve_layouts` gives `src`
    that layout, and leaves no such operation."""

    src: Value
    type: Type


class OpaqueCopy(Op, name="ttg.again", traits=PURE):
    """A copy of 16-bit elements that later stages cannot recognize: they do not reuse values computed from `src`
    for the result.  Results with different `number`s (1 to 15) are also independent of each other."""

    src: Value
    number: int

    def infer(self) -> list[Type]:
        return [self.src.type]


class LocalAlloc(Op, name="ttg.local_alloc", traits=WRITES):
    """Shared memory, filled from `src` when given.  Alive to the last use of the descriptor or a view of it.

    `offset` is its place in bytes, set by the pass `allocate`, and so is `pitch`, the bytes from one buffer to the
    next, where tiles of other allocations lie between them.
    """

    type: Type
    src: Value | None = None
    offset: int | None = None
    pitch: int | None = None

    @property
    def distance(self) -> int:
        """Bytes from one buffer to the next."""
        assert isinstance(self.type, MemDescType)
        return self.type.tile_bytes if self.pitch is None else self.pitch

    @property
    def size_bytes(self) -> int:
        """Bytes from the beginning of the first buffer to the end of the last."""
        assert isinstance(self.type, MemDescType)
        return self.distance * ((self.type.buffers or 1) - 1) + self.type.tile_bytes


class LocalDealloc(Op, name="ttg.local_dealloc", traits=WRITES):
    """Ends the life of an allocation explicitly: after a loop whose copies may still be on their way."""

    src: Value


class LocalLoad(Op, name="ttg.local_load", traits=READS):
    """A tile of shared memory into registers."""

    src: Value
    type: Type


class LocalStore(Op, name="ttg.local_store", traits=WRITES):
    """A tile of registers into shared memory."""

    value: Value
    dst: Value


class LocalDot(Op, name="ttg.local_dot", traits=READS):
    """a·b + c by scalar fma, summed in the order of k.  `a` and `b` are in shared memory, of which a thread
    reads what its elements of the result need, for a few values of k at a time."""

    a: Value
    b: Value
    c: Value

    def infer(self) -> list[Type]:
        return [self.c.type]


class MemDescIndex(Op, name="ttg.memdesc_index", traits=PURE):
    """Buffer number `index` of an allocation of several, which lie `pitch` bytes apart, or one after another."""

    src: Value
    index: Value
    pitch: int | None = None

    def infer(self) -> list[Type]:
        type_ = self.src.type
        assert isinstance(type_, MemDescType)
        return [MemDescType(type_.tile_shape, type_.element, type_.layout)]


class MemDescSubslice(Op, name="ttg.memdesc_subslice", traits=PURE):
    """The tile of `type`'s shape at constant `offsets` of a buffer, multiples of that shape; the layout stays
    that of the whole buffer."""

    src: Value
    offsets: tuple[int, ...]
    type: Type


class MemDescTrans(Op, name="ttg.memdesc_trans", traits=PURE):
    """The same memory with dimensions permuted."""

    src: Value
    order: tuple[int, ...]

    def infer(self) -> list[Type]:
        type_ = self.src.type
        assert isinstance(type_, MemDescType) and type_.buffers is None
        shape = tuple(type_.shape[axis] for axis in self.order)
        return [MemDescType(shape, type_.element, type_.layout.transpose(self.order))]


class MemDescReshape(Op, name="ttg.memdesc_reshape", traits=PURE):
    """The same memory under another shape, elements in row-major order."""

    src: Value
    shape: tuple[int, ...]

    def infer(self) -> list[Type]:
        type_ = self.src.type
        assert isinstance(type_, MemDescType) and type_.buffers is None
        return [MemDescType(self.shape, type_.element, type_.layout.reshape(self.shape))]


class MemDescReinterpret(Op, name="ttg.memdesc_reinterpret", traits=PURE):
    """The same memory as tiles of another type."""

    src: Value
    type: Type


TILE_VIEWS = (MemDescIndex, MemDescSubslice, MemDescTrans)
"""Those of `VIEWS` that passes make themselves: a buffer, a part of a tile, or its transpose."""
VIEWS = (*TILE_VIEWS, MemDescReshape, MemDescReinterpret)
"""Operations whose result names the memory that `src` names, or a part of it."""


class AsyncCopyGlobalToLocal(Op, name="ttg.async_copy_global_to_local", traits=READS | WRITES):
    """cp.async: the pointees of `src` into the tile `dst`; `other` (zero if absent) where `mask` is false."""

    src: Value
    dst: Value
    mask: Value | None = None
    other: Value | None = None
    cache: str = ""
    eviction: str = ""

    @property
    def src_type(self) -> TensorType:
        assert isinstance(self.src.type, TensorType)
        return self.src.type


class AsyncCommitGroup(Op, name="ttg.async_commit_group", traits=WRITES):
    """Closes a group of the asynchronous copies issued by each thread since the last one."""


class AsyncWait(Op, name="ttg.async_wait", traits=WRITES):
    """Waits until at most `num` of this thread's groups are unfinished.  Other threads' copies need a barrier
    after it."""

    num: int


class WarpPartitions(Op, name="ttg.warp_specialize", traits=WRITES):
    """Several programs at once, each by warps of its own: `default` by the program's warps, which ends in
    `ttg.warp_yield` with the results, and each `ttg.warp_partition` of `partitions` by further warps.  All
    threads meet before it begins and after it ends.  `captures` are the values that partitions get as
    arguments, by shared memory; others from outside they compute for themselves.

    `registers` says how many a thread has meanwhile in each warpgroup of the launch, and `registers_before` how
    many it has before; they are empty before the pass `place_partitions`, and where all keep what they have.  Where
    control flow decides whether it runs, and how often, the other warps know it by its `number`, from 1.
    """

    captures: tuple[Value, ...]
    default: Block
    partitions: Block
    types: tuple[Type, ...] = ()
    registers_before: tuple[int, ...] = ()
    registers: tuple[int, ...] = ()
    number: int | None = None
    scratch: int | None = None

    @property
    def workers(self) -> list[WarpPartition]:
        """The partitions, in order."""
        return [op for op in self.partitions if isinstance(op, WarpPartition)]

    def verify(self) -> None:
        """The results are what the default yields, and each partition takes the captures."""
        if [value.type for value in self.default.terminator.operands] != [one.type for one in self.results]:
            raise InternalError(
                "ttg.warp_specialize: `default` yields other types than the results", self.loc
            )
        types = [value.type for value in self.captures]
        for one in self.workers:
            if [argument.type for argument in one.body.arguments] != types:
                raise InternalError(
                    "ttg.warp_specialize: a partition takes other types than the captures", one.loc
                )


class WarpPartition(Op, name="ttg.warp_partition", traits=WRITES):
    """What `num_warps` warps besides the program's run: `body`, which ends in `ttg.warp_return`.  The author
    requests so many `registers` of a thread; `first` is the number of the first warp in the launch, once the
    pass `place_partitions` has chosen it."""

    body: Block
    num_warps: int
    registers: int | None = None
    first: int | None = None


class WarpYield(Op, name="ttg.warp_yield", traits=Trait.TERMINATOR):
    """Ends the default of a `ttg.warp_specialize` with its results."""

    values: tuple[Value, ...]


class WarpReturn(Op, name="ttg.warp_return", traits=Trait.TERMINATOR):
    """Ends a partition of a `ttg.warp_specialize`, or the list of them."""


class WarpDismiss(Op, name="ttg.warp_dismiss", traits=WRITES):
    """No `ttg.warp_specialize` with a number follows: the warps that wait for one end."""


class WarpIf(Op, name="ttg.warp_if", traits=Trait.COLLECTIVE):
    """Each warp does `body` if `condition` (a tensor of i1) holds for any element that it has, and takes what
    `body` yields; the others take `otherwise`.  `body` is elementwise, and yields `otherwise` for elements
    whose condition does not hold: so which elements share a warp makes no difference."""

    condition: Value
    otherwise: tuple[Value, ...]
    body: Block

    def infer(self) -> list[Type]:
        return [value.type for value in self.otherwise]
