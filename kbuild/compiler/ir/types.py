"""The types of the IR: scalars, pointers, tensors, and descriptors of tensors in global and in shared memory.

Types are frozen values with one text each, in Triton's and MLIR's spelling: `f32`, `!tt.ptr<f16>`,
`tensor<128x64xf16, #blocked>`, `!ttg.memdesc<3x128x64xf16, #shared>`.  Integers carry no sign; operations do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.compiler.layout import LinearLayout, gaps_of, moved_up


class Type:
    """Any type of the IR."""


@dataclass(frozen=True)
class IntType(Type):
    """A signless integer; `i1` is the type of conditions and masks."""

    bits: int

    def __str__(self) -> str:
        return f"i{self.bits}"


@dataclass(frozen=True)
class FloatType(Type):
    """A floating-point number, by MLIR's name."""

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    """Stored bits of the significand."""
    bias: int
    """What stored exponents are larger by."""
    specials: str = "ieee"
    """What the last exponent is for: infinity and NaN (`ieee`), numbers and one NaN (`nan`), or numbers (`none`)."""

    @property
    def largest_code(self) -> int:
        """The bits of the largest number; above them are infinity and NaN."""
        last = (1 << self.exponent_bits + self.mantissa_bits) - 1
        return last - {"ieee": 1 << self.mantissa_bits, "nan": 1, "none": 0}[self.specials]

    @property
    def largest(self) -> float:
        """The largest number."""
        exponent, fraction = divmod(self.largest_code, 1 << self.mantissa_bits)
        return (1 + fraction * 2.0**-self.mantissa_bits) * 2.0 ** (exponent - self.bias)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


I1, I8, I16, I32, I64 = (IntType(bits) for bits in (1, 8, 16, 32, 64))
F8E4M3FN = FloatType("f8E4M3FN", 8, 4, 3, 7, "nan")
F8E4M3B15 = FloatType("f8E4M3B15", 8, 4, 3, 15, "none")
"""Triton's own: an f16 without its last seven bits, below 2.  No hardware knows it."""
F8E5M2 = FloatType("f8E5M2", 8, 5, 2, 15)
F16 = FloatType("f16", 16, 5, 10, 15)
BF16 = FloatType("bf16", 16, 8, 7, 127)
F32 = FloatType("f32", 32, 8, 23, 127)
F64 = FloatType("f64", 64, 11, 52, 1023)
FLOATS8 = (F8E4M3FN, F8E4M3B15, F8E5M2)
"""Those of one byte, with which nothing computes."""
SCALARS: dict[str, Type] = {
    str(type_): type_ for type_ in (I1, I8, I16, I32, I64, *FLOATS8, F16, BF16, F32, F64)
}


def scalar(name: str) -> Type:
    """A scalar type by its text: `f16`, as architectures name the elements of their instructions."""
    return SCALARS[name]


@dataclass(frozen=True)
class PointerType(Type):
    """A pointer into global memory; to a tensor, it is a block pointer (`tl.make_block_ptr`)."""

    pointee: Type

    def __str__(self) -> str:
        return f"!tt.ptr<{self.pointee}>"


@dataclass(frozen=True)
class TensorType(Type):
    """A tensor whose dimensions are powers of two; `layout` says which register of which thread holds what
    (ttgir)."""

    shape: tuple[int, ...]
    element: Type
    layout: LinearLayout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __hash__(self) -> int:
        # Without the layout, whose hash takes longer than the comparisons it would save.
        return hash((self.shape, self.element))

    def with_element(self, element: Type) -> TensorType:
        return TensorType(self.shape, element, self.layout)

    def with_layout(self, layout: LinearLayout | None) -> TensorType:
        return TensorType(self.shape, self.element, layout)

    def with_shape(self, shape: Sequence[int], layout: LinearLayout | None) -> TensorType:
        return TensorType(tuple(shape), self.element, layout)

    def __str__(self) -> str:
        return type_text(self, {})


@dataclass(frozen=True)
class DescriptorType(Type):
    """A tensor in global memory that is read and written in blocks (`tl.make_tensor_descriptor`)."""

    block: TensorType

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


@dataclass(frozen=True)
class MemDescType(Type):
    """A tile of shared memory.  Where `layout` has one dimension less than `shape`, dimension 0 counts
    buffers."""

    shape: tuple[int, ...]
    element: Type
    layout: LinearLayout
    """Map from the offset in elements (input `offset`) to coordinates of one buffer.

    Of a subslice, the layout is that of the whole buffer, and the layout's shape is the buffer's: a swizzle
    mixes the slices.  Coordinates count from the slice's start, whose offset is XORed to theirs.
    """

    @property
    def buffers(self) -> int | None:
        """Number of buffers, or None for a single tile."""
        return self.shape[0] if len(self.shape) > self.layout.rank else None

    @property
    def tile_shape(self) -> tuple[int, ...]:
        return self.shape[len(self.shape) - self.layout.rank :]

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Where places stay empty: pairs of an interval and the padding after it, in elements."""
        return gaps_of(self.layout)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one buffer; a truth value takes a whole one.  Gaps do not change where buffers begin beside the
        banks."""
        count, size = 1 << self.layout.bits("offset"), max(bit_width(self.element), 8) // 8
        return (moved_up(count - 1, self.gaps) + 1) * size + 127 & -128 if self.gaps else count * size

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers."""
        return self.tile_bytes * (self.buffers or 1)

    def __str__(self) -> str:
        return type_text(self, {})


def type_text(type_: Type, aliases: dict[LinearLayout, str]) -> str:
    """The text of a type; layouts found in `aliases` print as their alias, others by their shape only."""
    if isinstance(type_, TensorType | MemDescType):
        dimensions = "x".join(str(size) for size in type_.shape)
        alias = aliases.get(type_.layout) if type_.layout is not None else None
        layout = f", {alias}" if alias else (", #layout" if type_.layout is not None else "")
        head = "tensor" if isinstance(type_, TensorType) else "!ttg.memdesc"
        if isinstance(type_, MemDescType) and type_.tile_shape != type_.layout.shape:
            layout += ", " + "x".join(str(size) for size in type_.layout.shape)
        return f"{head}<{dimensions}x{type_text(type_.element, aliases)}{layout}>"
    return str(type_)


_OF_ELEMENTS, _NUMBERS = (TensorType, MemDescType), (IntType, FloatType)
"""A kernel asks a thousand times: making the union of two types takes longer than looking for one in a tuple."""


def element_of(type_: Type) -> Type:
    """The element type of a tensor; a scalar type itself."""
    return type_.element if isinstance(type_, _OF_ELEMENTS) else type_


def shape_of(type_: Type) -> tuple[int, ...]:
    """The shape of a tensor; () for a scalar."""
    return type_.shape if isinstance(type_, TensorType) else ()


def layout_of(type_: Type) -> LinearLayout | None:
    """The layout of a tensor; None for a scalar and in ttir."""
    return type_.layout if isinstance(type_, TensorType) else None


def bit_width(type_: Type) -> int:
    """Bits of a scalar or pointer, or of one element of a tensor."""
    element = element_of(type_)
    if isinstance(element, PointerType):
        return 64
    assert isinstance(element, _NUMBERS), f"{element} has no width"
    return element.bits


def is_float(type_: Type) -> bool:
    return isinstance(element_of(type_), FloatType)


def is_int(type_: Type) -> bool:
    return isinstance(element_of(type_), IntType)


def is_pointer(type_: Type) -> bool:
    return isinstance(element_of(type_), PointerType)


def pointee_of(type_: Type) -> Type:
    """The pointee type of a pointer, or of each pointer of a tensor."""
    element = element_of(type_)
    assert isinstance(element, PointerType), f"{type_} is not a pointer"
    return element.pointee


def is_tensor(type_: Type) -> bool:
    return isinstance(type_, TensorType)


def like(type_: Type, element: Type) -> Type:
    """`element` in the shape and layout of `type_`."""
    return type_.with_element(element) if isinstance(type_, TensorType) else element
