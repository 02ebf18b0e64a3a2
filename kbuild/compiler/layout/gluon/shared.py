"""The layouts of tiles in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from kbuild.compiler.layout.gluon.base import Bases, Numbers, Shape, SharedLayout, check_bases, check_numbers
from kbuild.compiler.layout.linear import LinearLayout, axis_bits
from kbuild.compiler.layout.named import swizzled
from kbuild.compiler.layout.padded import PaddedLayout

BOX = 256
"""Elements along an axis that one instruction of TMA may copy."""


@dataclass(frozen=True, repr=False)
class NVMMASharedLayout(SharedLayout):
    """A tile as TMA writes it and `wgmma` reads it, in the swizzle of 128, 64, 32 or 0 (none) bytes."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2  # type: ignore[assignment]
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: Bases = ()

    def check(self) -> None:
        if self.swizzle_byte_width not in (0, 32, 64, 128):
            raise ValueError(f"swizzle_byte_width is {self.swizzle_byte_width}; it is 0, 32, 64 or 128")
        if self.element_bitwidth not in (8, 16, 32, 64):
            raise ValueError(f"element_bitwidth is {self.element_bitwidth}; it is 8, 16, 32 or 64")
        if self.fp4_padded:
            raise ValueError("fp4_padded is for tensor cores of sm_100 and newer")

    @staticmethod
    def get_default_for(
        block_shape: Any,
        dtype: Any,
        transposed: bool = False,
        fp4_padded: bool = False,
        cga_layout: Any = None,
    ) -> NVMMASharedLayout:
        """That of the widest swizzle which a block of this shape has room for."""
        shape = tuple(block_shape)
        along = (*shape[1:], *shape[:1]) if transposed else shape
        row, bits = along[-1], dtype.primitive_bitwidth
        swizzle = next((width for width in (128, 64, 32) if row * bits // 8 % width == 0), 0)
        if len(shape) < 2 or prod(along[:-1]) < 8:
            swizzle = 0
        return NVMMASharedLayout(swizzle, bits, len(shape), transposed, fp4_padded, cga_layout or ())

    def linear(self, shape: Shape) -> LinearLayout:
        if not self.transposed:
            return _as_tma_writes(shape, self.element_bitwidth, self.swizzle_byte_width)
        made = _as_tma_writes((*shape[1:], shape[0]), self.element_bitwidth, self.swizzle_byte_width)
        return made.transpose((len(shape) - 1, *range(len(shape) - 1)))


@dataclass(frozen=True, repr=False)
class SwizzledSharedLayout(SharedLayout):
    """`vec` neighbours along order[0] stay together, in a place that is XORed with the row's phase: rows along
    order[1], of which `per_phase` share one of `max_phase` phases."""

    vec: int
    per_phase: int
    max_phase: int
    order: Numbers
    cga_layout: Bases = ()

    def check(self) -> None:
        check_numbers("order", self.order, len(self.order), False)
        if sorted(self.order) != list(range(self.rank)):
            raise ValueError(f"order {list(self.order)} is not a permutation of 0 … {self.rank - 1}")
        for name in ("vec", "per_phase", "max_phase"):
            check_numbers(name, (getattr(self, name),), 1, True)

    @property
    def rank(self) -> int:
        return len(self.order)

    def linear(self, shape: Shape) -> LinearLayout:
        return swizzled(shape, self.vec, self.per_phase, self.max_phase, self.order)


@dataclass(frozen=True, repr=False)
class SharedLinearLayout(SharedLayout):
    """A tile by its bases: for each bit of the offset, the coordinates that it adds."""

    offset_bases: Bases
    block_bases: Bases = ()
    alignment: int = 16

    def check(self) -> None:
        if self.block_bases:
            raise ValueError("block_bases are for tiles of several programs; a tile belongs to one here")
        if not self.offset_bases or any(len(basis) != self.rank for basis in self.offset_bases):
            raise ValueError("offset_bases are coordinates of one length")

    @staticmethod
    def of(layout: LinearLayout) -> SharedLinearLayout:
        """A linear layout in these words."""
        return SharedLinearLayout(tuple(layout.unflatten(basis) for basis in layout.bases_of("offset")))

    @property
    def rank(self) -> int:
        return len(self.offset_bases[0])

    def linear(self, shape: Shape) -> LinearLayout:
        check_bases("offset_bases", self.offset_bases, shape)
        return LinearLayout.make(shape, offset=self.offset_bases)


@dataclass(frozen=True, repr=False)
class PaddedSharedLayout(SharedLayout):
    """A tile of `shape` by its bases, as `SharedLinearLayout`, with gaps: after every interval of elements, as much
    padding."""

    interval_padding_pairs: Bases
    offset_bases: Bases
    block_bases: Bases
    shape: Numbers

    def check(self) -> None:
        if self.block_bases:
            raise ValueError("block_bases are for tiles of several programs; a tile belongs to one here")
        if not self.interval_padding_pairs or any(len(pair) != 2 for pair in self.interval_padding_pairs):
            raise ValueError("interval_padding_pairs is a list of pairs, such as [[64, 8]]")
        for pair in self.interval_padding_pairs:
            check_numbers("interval_padding_pairs", pair, 2, True)
        if len({interval for interval, _ in self.interval_padding_pairs}) != len(self.interval_padding_pairs):
            raise ValueError("interval_padding_pairs has an interval twice")
        check_numbers("shape", self.shape, self.rank, True)
        check_bases("offset_bases", self.offset_bases, self.shape)

    @staticmethod
    def with_identity_for(interval_padding_pairs: Any, shape: Any, order: Any) -> PaddedSharedLayout:
        """That of a dense array in which order[0] is contiguous, but for the gaps."""
        dense = SwizzledSharedLayout(1, 1, 1, order)
        if dense.rank != len(shape):
            raise ValueError(f"order has {dense.rank} numbers, the shape {len(shape)}")
        bases = SharedLinearLayout.of(dense.linear(tuple(shape))).offset_bases
        return PaddedSharedLayout(interval_padding_pairs, bases, (), shape)

    @staticmethod
    def of(layout: PaddedLayout) -> PaddedSharedLayout:
        """A linear layout with gaps in these words."""
        bases = SharedLinearLayout.of(layout).offset_bases
        return PaddedSharedLayout(layout.gaps, bases, (), layout.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def linear(self, shape: Shape) -> LinearLayout:
        if shape != self.shape:
            raise ValueError(f"it is for the shape {list(self.shape)}")
        gaps = tuple((interval, padding) for interval, padding in self.interval_padding_pairs)
        return PaddedLayout.of(LinearLayout.make(shape, offset=self.offset_bases), gaps)


def _as_tma_writes(shape: Shape, bits: int, swizzle_bytes: int) -> LinearLayout:
    """A tile in the order in which TMA copies it: boxes of up to `BOX` elements along each axis, and along the last
    one as wide as the swizzle.  A box is dense, but for the swizzle, which `wgmma_shared` describes."""
    width = swizzle_bytes * 8 // bits or BOX
    rows = prod(shape[:-1])
    if shape[-1] < width if swizzle_bytes else shape[-1] * bits < 128:
        raise ValueError(
            f"a row has {shape[-1] * bits // 8} bytes, at least {swizzle_bytes or 16} are needed"
        )
    if swizzle_bytes and rows < 8:
        raise ValueError(f"a swizzle needs 8 rows, the tile has {rows}")
    last = len(shape) - 1
    box = [min(size, width if axis == last else BOX) for axis, size in enumerate(shape)]
    inside = [
        bit for axis in reversed(range(len(shape))) for bit in axis_bits(shape, axis)[: _bits(box[axis])]
    ]
    outside = [bit for axis in range(len(shape)) for bit in axis_bits(shape, axis)[_bits(box[axis]) :]]
    bases = [1 << bit for bit in (*inside, *outside)]
    chunk, row = _bits(128 // bits), _bits(1024 // bits)
    for position in range(_bits(swizzle_bytes // 16) if swizzle_bytes else 0):
        bases[row + position] ^= bases[chunk + position]
    return LinearLayout.make(shape, offset=bases)


def _bits(size: int) -> int:
    return size.bit_length() - 1
