"""Operations on tensors (`tt`): making, shaping, memory, reduction, dots.

Where operands have layouts, `infer` derives the layout of the result; where it cannot, the type is given.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.traits import PURE, Trait
from kbuild.compiler.ir.types import I32, DescriptorType, PointerType, TensorType, Type, element_of, like
from kbuild.compiler.layout import joined_layout, slice_of, split_layout
from kbuild.errors import InternalError

READS, WRITES = Trait.READS, Trait.WRITES


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType), f"{value} is not a tensor"
    return value.type


# Programs


class GetProgramId(Op, name="tt.get_program_id", traits=PURE):
    """The number of this program along an axis of the grid."""

    axis: int

    def infer(self) -> list[Type]:
        return [I32]


class GetNumPrograms(Op, name="tt.get_num_programs", traits=PURE):
    """The size of the grid along an axis."""

    axis: int

    def infer(self) -> list[Type]:
        return [I32]


# Making and shaping


class MakeRange(Op, name="tt.make_range", traits=PURE):
    """start, start + 1, …, end - 1."""

    start: int
    end: int
    type: Type


class Splat(Op, name="tt.splat", traits=PURE):
    """A tensor filled with a scalar."""

    src: Value
    type: Type


class Unsplat(Op, name="tt.unsplat", traits=PURE):
    """The only element of a tensor of one element."""

    src: Value

    def infer(self) -> list[Type]:
        return [element_of(self.src.type)]


class Broadcast(Op, name="tt.broadcast", traits=PURE):
    """Dimensions of size one repeated to the size in `type`; with layouts, no data moves between threads."""

    src: Value
    type: Type


class ExpandDims(Op, name="tt.expand_dims", traits=PURE):
    """A dimension of size one inserted at `axis`."""

    src: Value
    axis: int

    def infer(self) -> list[Type]:
        type_ = _tensor(self.src)
        shape = (*type_.shape[: self.axis], 1, *type_.shape[self.axis :])
        return [type_.with_shape(shape, type_.layout.expand_dims(self.axis) if type_.layout else None)]


class Reshape(Op, name="tt.reshape", traits=PURE):
    """Another shape over the same elements in row-major order; `allow_reorder` lets the compiler pick any
    order."""

    src: Value
    type: Type
    allow_reorder: bool = False


class Trans(Op, name="tt.trans", traits=PURE):
    """Dimension i of the result is dimension order[i] of `src`."""

    src: Value
    order: tuple[int, ...]

    def infer(self) -> list[Type]:
        type_ = _tensor(self.src)
        shape = tuple(type_.shape[axis] for axis in self.order)
        return [type_.with_shape(shape, type_.layout.transpose(self.order) if type_.layout else None)]


class Join(Op, name="tt.join", traits=PURE):
    """Two tensors side by side along a new last dimension of 2."""

    lhs: Value
    rhs: Value

    def infer(self) -> list[Type]:
        type_ = _tensor(self.lhs)
        return [type_.with_shape((*type_.shape, 2), joined_layout(type_.layout) if type_.layout else None)]


class Split(Op, name="tt.split", traits=PURE):
    """The two halves along the last dimension of 2."""

    src: Value

    def infer(self) -> list[Type]:
        type_ = _tensor(self.src)
        half = type_.with_shape(type_.shape[:-1], split_layout(type_.layout) if type_.layout else None)
        return [half, half]


class AxisAttributes(Op, name="tt.axis_attributes", traits=PURE):
    """`src` itself, with what the author guarantees per dimension (`tl.multiple_of`, `tl.max_contiguous`,
    `tl.max_constancy`); an empty tuple guarantees nothing."""

    src: Value
    divisibility: tuple[int, ...] = ()
    contiguity: tuple[int, ...] = ()
    constancy: tuple[int, ...] = ()

    def infer(self) -> list[Type]:
        return [self.src.type]


class Cat(Op, name="tt.cat", traits=PURE):
    """Two tensors one after the other along dimension 0, in any order of elements."""

    lhs: Value
    rhs: Value
    type: Type


# Memory


class Load(Op, name="tt.load", traits=READS):
    """The pointees of a tensor of pointers, one pointer, or a block pointer; `other` where `mask` is false."""

    ptr: Value
    mask: Value | None = None
    other: Value | None = None
    boundary_check: tuple[int, ...] = ()
    padding: str = ""
    cache: str = ""
    """`.ca`, `.cg`, `.cv` or empty."""
    eviction: str = ""
    """`evict_first`, `evict_last` or empty."""
    volatile: bool = False
    desc: Value | None = None
    """The tensor descriptor of which the pointers and the mask are a block: TMA can do the load."""
    indices: tuple[Value, ...] = ()
    """The place of the block in the descriptor's tensor (i32 each)."""
    axes: tuple[int, ...] = ()
    """The axis of the block for each axis of the result, where they are not the same; others of the block are
    one thick."""

    def infer(self) -> list[Type]:
        element = element_of(self.ptr.type)
        assert isinstance(element, PointerType), f"{self.ptr} is not a pointer"
        return [
            element.pointee
            if isinstance(element.pointee, TensorType)
            else like(self.ptr.type, element.pointee)
        ]

    def has(self, trait: Trait) -> bool:
        """A volatile load must stay and keep its order, like a write."""
        return super().has(trait) or (self.volatile and trait is WRITES)


class Store(Op, name="tt.store", traits=WRITES):
    """`value` to the pointees of `ptr` where `mask` holds; `boundary_check` as for `tt.load`."""

    ptr: Value
    value: Value
    mask: Value | None = None
    boundary_check: tuple[int, ...] = ()
    cache: str = ""
    """`.wb`, `.cg`, `.cs`, `.wt` or empty."""
    eviction: str = ""
    desc: Value | None = None
    """As of `tt.load`, with `indices`."""
    indices: tuple[Value, ...] = ()


class AtomicRMW(Op, name="tt.atomic_rmw", traits=READS | WRITES):
    """Reads, combines, writes; gives the old value.  `kind`: add fadd max umax fmax min umin fmin and or xor
    xchg."""

    ptr: Value
    value: Value
    kind: str
    mask: Value | None = None
    sem: str = "acq_rel"
    """`relaxed`, `acquire`, `release` or `acq_rel`."""
    scope: str = "gpu"
    """`cta`, `gpu` or `sys`."""
    scratch: int | None = None
    desc: Value | None = None
    """As of `tt.load`, with `indices`."""
    indices: tuple[Value, ...] = ()

    def infer(self) -> list[Type]:
        return [self.value.type]


class AtomicCAS(Op, name="tt.atomic_cas", traits=READS | WRITES):
    """Writes `value` where memory equals `compare`; gives the old value."""

    ptr: Value
    compare: Value
    value: Value
    sem: str = "acq_rel"
    scope: str = "gpu"
    scratch: int | None = None

    def infer(self) -> list[Type]:
        return [self.value.type]


Atomic = AtomicRMW | AtomicCAS
"""Operations that read an element and write it as one."""
PointerWrite = Store | Atomic
"""Operations through whose pointers a kernel writes to global memory; others name a descriptor."""


class MakeTensorPtr(Op, name="tt.make_tensor_ptr", traits=PURE):
    """A block pointer: a tile at `offsets` of a tensor of `shape` and `strides` (i64 each) at `base`."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    order: tuple[int, ...]
    type: Type


class Advance(Op, name="tt.advance", traits=PURE):
    """A block pointer moved by `offsets` (i32) elements along each dimension."""

    ptr: Value
    offsets: tuple[Value, ...]

    def infer(self) -> list[Type]:
        return [self.ptr.type]


class MakeTensorDescriptor(Op, name="tt.make_tensor_descriptor", traits=Trait.PURE):
    """A tensor of `shape` (i32 each) and `strides` (i64, in elements, the last one is 1) at `base`, to be
    read and written in blocks.  It meets TMA's requirements: base and strides are divisible by
    16 bytes.  That may not hold where the program would not have run it: it is not speculatable."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    type: Type
    padding: str = "zero"
    """The padding beyond the tensor: `zero` or `nan`."""
    recognised: bool = False
    """Whether the author wrote pointers, of which it was made for the sake of a loop that issues its loads early."""


class DescriptorLoad(Op, name="tt.descriptor_load", traits=READS):
    """The block at `indices` (i32); padding beyond the tensor."""

    desc: Value
    indices: tuple[Value, ...]

    def infer(self) -> list[Type]:
        assert isinstance(self.desc.type, DescriptorType), f"{self.desc} is not a tensor descriptor"
        return [self.desc.type.block]


class DescriptorStore(Op, name="tt.descriptor_store", traits=WRITES):
    """Writes the block at `indices` (i32), as far as it lies in the tensor."""

    desc: Value
    src: Value
    indices: tuple[Value, ...]


class DescriptorReduce(Op, name="tt.descriptor_reduce", traits=READS | WRITES):
    """Combines the block at `indices` (i32) with `src`, each element atomically (relaxed, for the whole GPU),
    as far as it lies in the tensor.  `kind` is one of `tt.atomic_rmw`'s but xchg, or `fmax`, `fmin`."""

    desc: Value
    src: Value
    indices: tuple[Value, ...]
    kind: str


class DescriptorGather(Op, name="tt.descriptor_gather", traits=READS):
    """The elements of each of the tensor's `rows` (a vector of i32) from `column` (i32) on, as many as a block of
    one row has; padding beyond the tensor."""

    desc: Value
    rows: Value
    column: Value

    def infer(self) -> list[Type]:
        return [gathered_type(self.desc, self.rows)]


class DescriptorScatter(Op, name="tt.descriptor_scatter", traits=WRITES):
    """Writes each row of `src` into one of the tensor's `rows` (a vector of i32), from `column` (i32) on, as
    far as it lies in the tensor.  Of rows that are the same, any may be written last."""

    desc: Value
    src: Value
    rows: Value
    column: Value


def gathered_type(desc: Value, rows: Value) -> TensorType:
    """The block that a descriptor of single rows has of several."""
    assert isinstance(desc.type, DescriptorType), f"{desc} is not a tensor descriptor"
    block = desc.type.block
    return TensorType((_tensor(rows).shape[0], block.shape[1]), block.element)


# Dots, reductions, scans


class Dot(Op, name="tt.dot", traits=PURE):
    """a·b + c: matrices, or batches of them.  `atom` names the instruction once one is chosen; empty means
    scalar fma."""

    a: Value
    b: Value
    c: Value
    input_precision: str = "tf32"
    """For f32 operands: `tf32`, `tf32x3`, `bf16x3`, `bf16x6` or `ieee`."""
    max_num_imprecise_acc: int = 0
    atom: str = ""

    def infer(self) -> list[Type]:
        return [self.c.type]


class ReduceReturn(Op, name="tt.reduce.return", traits=Trait.TERMINATOR):
    """Ends the combine function of a reduction or scan."""

    values: tuple[Value, ...]


class Reduce(Op, name="tt.reduce", traits=PURE):
    """Tensors combined along `axis` by an associative function of scalars: `combine(a…, b…)`, in the order of
    the axis."""

    srcs: tuple[Value, ...]
    axis: int
    combine: Block
    any_order: bool = False
    """Whether the function is known to give the same in any order although its code does not show that:
    the best of values with places."""
    scatter: tuple[int, ...] = ()
    """`LinearLayout.scatter` of the results: lanes along the axis hold a part of the results each, not copies of all."""
    scratch: int | None = None
    max_scratch: int | None = None

    def infer(self) -> list[Type]:
        return [self._reduced(_tensor(src)) for src in self.srcs]

    def _reduced(self, type_: TensorType) -> Type:
        if type_.rank == 1:
            return type_.element
        shape = (*type_.shape[: self.axis], *type_.shape[self.axis + 1 :])
        layout = slice_of(type_.layout, self.axis) if type_.layout else None
        return type_.with_shape(shape, layout.scatter(self.scatter) if layout and self.scatter else layout)

    def verify(self) -> None:
        if len(self.combine.arguments) != 2 * len(self.srcs):
            raise InternalError("tt.reduce: combine takes another number of scalars", self.loc)


class MapElementwise(Op, name="tt.map_elementwise", traits=Trait.PURE):
    """A function of scalars, with control flow of its own, applied to `packed` neighbouring elements of tensors of
    one shape at a time: `body(a₀, a₁, …, b₀, b₁, …)` gives the elements of the first result, then of the second.
    It may not end for numbers that the program never gives it: not speculatable."""

    srcs: tuple[Value, ...]
    body: Block
    types: tuple[Type, ...]
    packed: int = 1

    def infer(self) -> list[Type]:
        return list(self.types)

    def verify(self) -> None:
        if len(self.body.arguments) != len(self.srcs) * self.packed:
            raise InternalError("tt.map_elementwise: the function takes another number of scalars", self.loc)


class Scan(Op, name="tt.scan", traits=PURE):
    """Inclusive prefixes along `axis` (suffixes with `reverse`) of an associative function of scalars."""

    srcs: tuple[Value, ...]
    axis: int
    combine: Block
    reverse: bool = False
    scratch: int | None = None
    max_scratch: int | None = None

    def infer(self) -> list[Type]:
        return [src.type for src in self.srcs]


class Gather(Op, name="tt.gather", traits=Trait.PURE):
    """result[i, j] = src[indices[i, j], j] for axis 0, and so on.  An index outside of the axis is an error
    of the program, and must not be introduced by the compiler: not speculatable."""

    src: Value
    indices: Value
    axis: int
    scratch: int | None = None

    def infer(self) -> list[Type]:
        return [_tensor(self.indices).with_element(element_of(self.src.type))]


class Histogram(Op, name="tt.histogram", traits=Trait.PURE):
    """How often each of 0 … n-1 occurs, n being the size of `type`; elements where `mask` is false do not
    count.  Others outside of the range are mistakes, as in `tt.gather`: not speculatable."""

    src: Value
    type: Type
    mask: Value | None = None
    scratch: int | None = None


# Debugging and escape hatches


class Barrier(Op, name="gpu.barrier", traits=WRITES | Trait.COLLECTIVE):
    """All threads of the program wait for each other, or all of its `cluster`; shared and global writes
    before it are seen after it, and barriers in shared memory made before it can be used by the others."""

    cluster: bool = False


class GridDependencyWait(Op, name="gpu.grid_dependency_wait", traits=WRITES | Trait.COLLECTIVE):
    """Waits until the launches before this one have ended, and what they wrote is seen: no access of memory
    moves across."""


class LaunchDependents(Op, name="gpu.launch_dependents", traits=WRITES | Trait.COLLECTIVE):
    """Lets the next launch begin, once all programs have done this or ended."""


class Assert(Op, name="tt.assert", traits=WRITES):
    """Stops the kernel with a message where `condition` is false."""

    condition: Value
    message: str


class Print(Op, name="tt.print", traits=WRITES):
    """Prints `prefix` and the elements of `args`, each with its program and index; `signed` says so of each
    argument."""

    args: tuple[Value, ...]
    prefix: str
    hexadecimal: bool = False
    signed: tuple[bool, ...] = ()


class InlineAsm(Op, name="tt.elementwise_inline_asm", traits=Trait.NONE):
    """PTX applied to `packed` elements at a time of tensors of one shape.  `pure` is false for asm with
    effects.  Its behaviour for operands that the program never gives it is unknown: it is not speculatable.
    """

    args: tuple[Value, ...]
    asm: str
    constraints: str
    types: tuple[Type, ...]
    pure: bool = True
    packed: int = 1

    def has(self, trait: Trait) -> bool:
        return super().has(trait) or trait is (Trait.PURE if self.pure else WRITES)
