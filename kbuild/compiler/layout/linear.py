"""Where each element of a tensor lives: one linear map from hardware bits to coordinates.

A tensor of 16 x 16 elements is spread over the threads of a program: register r of lane l of warp w holds the
element at some coordinate.  In every layout that suits GPUs, that coordinate depends on r, l and w *bit by
bit*: each bit of the hardware index, when set, flips a fixed set of bits of the coordinates.  So a layout is
a list of *bases*, one coordinate per hardware bit, and the element held somewhere is the XOR of the bases of
the bits that are set:

    register = [(0, 1)]                            bit 0 of the register number moves one column
    lane     = [(0, 2), (0, 4), (0, 8), (1, 0), (2, 0)]
    warp     = [(4, 0), (8, 0)]

    register 1, lane 9 = 0b01001, warp 2 = 0b10  ->  (0,1) ^ (0,2) ^ (1,0) ^ (8,0) = (9, 3)

Shared memory is the same thing with one kind of hardware bit, the offset.  An XOR swizzle, which looks like a
formula in other systems, is then just another set of bases.  Four rows of four elements, where row r keeps
column c at c ^ r:

    offset  0  1  2  3    4  5  6  7    8  9 10 11   12 13 14 15
    row     0  0  0  0    1  1  1  1    2  2  2  2    3  3  3  3
    column  0  1  2  3    1  0  3  2    2  3  0  1    3  2  1  0

    offset = [(0, 1), (0, 2), (1, 1), (2, 2)]      offset 6 = 0b0110  ->  (0,2) ^ (1,1) = (1, 3)

Reading a column now touches four different banks.  A basis of zero means that the bit changes nothing: the
two halves hold copies.  All questions ("may these four registers be loaded as one vector?", "does this
conversion stay inside a warp?") are questions of linear algebra over F2, the field of two elements, with XOR
as its addition.

Sizes are powers of two, so a coordinate tuple may be packed into its row-major index (last dimension most
minor): XOR of the packed numbers is XOR of the coordinates.  The class stores these *flat* numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from kbuild.compiler.layout import f2
from kbuild.errors import InternalError

IN_DIMS = ("register", "lane", "warp", "block")
"""Input dimensions of a distributed tensor, least significant first."""
SHARED_DIMS = ("offset", "block")
"""Input dimensions of a tensor in shared memory; an offset counts elements."""

Basis = int | Sequence[int]
"""One basis as the caller may write it: a flat index or a tuple of coordinates."""


@dataclass(frozen=True)
class LinearLayout:
    """A linear map over F2 from hardware bits to tensor coordinates."""

    shape: tuple[int, ...]
    """The tensor's shape: powers of two; () for a scalar."""
    bases: tuple[tuple[str, tuple[int, ...]], ...]
    """For each input dimension, in canonical order, the flat coordinate that each of its bits adds (XOR)."""

    def __post_init__(self) -> None:
        if tuple(dim for dim, _ in self.bases) not in (IN_DIMS, SHARED_DIMS):
            raise InternalError(
                f"a layout has the input dimensions {IN_DIMS} or {SHARED_DIMS}, not {self.bases}"
            )
        for size in self.shape:
            if size < 1 or size & (size - 1):
                raise InternalError(
                    f"the sizes of a layout's shape must be powers of two, not {list(self.shape)}"
                )
        numel = self.numel
        for _, bases in self.bases:
            if bases and not 0 <= min(bases) <= max(bases) < numel:
                raise InternalError(f"a basis lies outside the shape {list(self.shape)}: {self.bases}")

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.bases))

    def __hash__(self) -> int:
        # Layouts are keys of many tables, and that of all of their bases takes long.
        return self._hash

    @staticmethod
    def make(shape: Sequence[int], **bases: Sequence[Basis]) -> LinearLayout:
        """The layout with the given bases (flat or coordinate tuples); dimensions left out have no bits.

        `make(shape, register=…, lane=…, warp=…, block=…)` is a distributed tensor, `make(shape, offset=…)` is
        shared memory.
        """
        shape = tuple(shape)
        dims = SHARED_DIMS if "offset" in bases else IN_DIMS
        if unknown := bases.keys() - set(dims):
            raise InternalError(f"no such input dimensions: {sorted(unknown)}; this layout has {dims}")
        return LinearLayout(
            shape, tuple((dim, tuple(_flat_basis(shape, b) for b in bases.get(dim, ()))) for dim in dims)
        )

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of tensor dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of tensor elements."""
        return prod(self.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        """The input dimensions, in canonical order."""
        return tuple(dim for dim, _ in self.bases)

    @property
    def is_shared(self) -> bool:
        """Whether this is a layout of shared memory."""
        return self.bases[0][0] == "offset"

    def bases_of(self, dim: str) -> tuple[int, ...]:
        """The flat bases of an input dimension; () when the layout lacks it."""
        for name, bases in self.bases:
            if name == dim:
                return bases
        return ()

    def bits(self, dim: str) -> int:
        """Number of bits of an input dimension."""
        return len(self.bases_of(dim))

    def size(self, dim: str) -> int:
        """Number of values of an input dimension: registers of a thread, lanes of a warp, …"""
        return 1 << self.bits(dim)

    def bases_along(self, dim: str, axis: int) -> tuple[int, ...]:
        """For each bit of an input dimension, what it adds to the coordinate of one tensor axis."""
        stride = prod(self.shape[axis + 1 if axis >= 0 else self.rank + axis + 1 :])
        return tuple(basis // stride % self.shape[axis] for basis in self.bases_of(dim))

    # -- the map ---------------------------------------------------------------------------------------------------

    def flat(self, **index: int) -> int:
        """The flat coordinate of a hardware index; dimensions left out are 0."""
        result = 0
        for dim, value in index.items():
            bases = self.bases_of(dim)
            if value >> len(bases):
                raise InternalError(f"{dim} {value} is out of range: this layout has {1 << len(bases)}")
            result ^= f2.apply(bases, value)
        return result

    def coordinates(self, **index: int) -> tuple[int, ...]:
        """The coordinates of a hardware index; dimensions left out are 0."""
        return self.unflatten(self.flat(**index))

    def unflatten(self, flat: int) -> tuple[int, ...]:
        """The coordinates of a flat index."""
        return _unflatten(self.shape, flat)

    def flatten(self, coordinates: Sequence[int]) -> int:
        """The flat index of coordinates."""
        return _flat_basis(self.shape, coordinates)

    def registers(self) -> list[int]:
        """The flat coordinate of every register of the first thread; those of others differ by one XOR."""
        return list(all_sums(self.bases_of("register")))

    def representatives(self) -> tuple[int, ...]:
        """For each register, the lowest-numbered register of the same thread with the same element."""
        return _representatives(self.bases_of("register"))

    def unique_registers(self) -> list[int]:
        """The registers that are not copies of a lower-numbered one."""
        return list(_unique_registers(self.bases_of("register")))

    # -- algebra ---------------------------------------------------------------------------------------------------

    def is_surjective(self) -> bool:
        """Whether every element is somewhere."""
        return 1 << _span(self).dimension == self.numel

    def is_injective(self) -> bool:
        """Whether no element is in two places."""
        return _span(self).dimension == sum(len(bases) for _, bases in self.bases)

    def free_bits(self, dim: str) -> int:
        """The mask of input bits that reach no new element, given the lower bits and the earlier dimensions.

        Where all free bits are 0, each element occurs exactly once: the places that must store a replicated
        tensor.
        """
        return _free_bits(self)[dim]

    def kernel(self) -> list[dict[str, int]]:
        """A basis of the changes of the hardware index that keep the element: how the tensor is replicated."""
        return [
            self.unpack(index) for index in f2.kernel([basis for _, bases in self.bases for basis in bases])
        ]

    def contiguous_per_thread(self, axis: int = -1) -> int:
        """How many elements that follow each other along `axis` consecutive registers of each thread hold, in
        order.

        This is the width, in elements, of the vector accesses that the layout permits in memory contiguous
        along `axis`; the first element of each such vector lies at a multiple of it.
        """
        return _contiguous(self, axis % self.rank) if self.rank else 1

    def find(self, flat: int) -> dict[str, int]:
        """The hardware index that holds an element: its lowest register, then lane, warp and block."""
        index = _span(self).combination(flat)
        if index is None:
            raise InternalError(f"the layout holds no element {self.unflatten(flat)}")
        return self.unpack(index)

    def pack(self, **index: int) -> int:
        """One number for a hardware index: the dimensions' bits one above the other, in canonical order."""
        result = shift = 0
        for dim, bases in self.bases:
            result |= index.get(dim, 0) << shift
            shift += len(bases)
        return result

    def unpack(self, packed: int) -> dict[str, int]:
        """The hardware index of a packed number."""
        result = {}
        for dim, bases in self.bases:
            result[dim] = packed & (1 << len(bases)) - 1
            packed >>= len(bases)
        return result

    def solve(self, destination: LinearLayout) -> Conversion:
        """Where each place of `destination` finds its element in this layout: X with self ∘ X = destination.

        When the element is in several places, the same lane is preferred, then the same warp, then the lowest
        place.
        """
        return _solve(self, destination)

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """Tile this layout with `other`: bits and coordinates of `other` come above those of this layout."""
        if self.rank != other.rank or self.dims != other.dims:
            raise InternalError(
                f"cannot multiply layouts of shapes {list(self.shape)} and {list(other.shape)}"
            )
        shape = tuple(a * b for a, b in zip(self.shape, other.shape))
        low = self._rewrite(shape, lambda coordinates: coordinates)
        high = other._rewrite(
            shape, lambda coordinates: tuple(c * size for c, size in zip(coordinates, self.shape))
        )
        return LinearLayout(shape, tuple((dim, bases + high.bases_of(dim)) for dim, bases in low.bases))

    # -- other views of the tensor ---------------------------------------------------------------------------------

    def transpose(self, order: Sequence[int]) -> LinearLayout:
        """The layout after permuting the axes: axis i of the result is axis order[i] of this one."""
        shape = tuple(self.shape[axis] for axis in order)
        return self._rewrite(shape, lambda coordinates: tuple(coordinates[axis] for axis in order))

    def reshape(self, shape: Sequence[int]) -> LinearLayout:
        """The same elements, in the same row-major order, under another shape."""
        if prod(shape) != self.numel:
            raise InternalError(f"cannot reshape {list(self.shape)} to {list(shape)}")
        return LinearLayout(tuple(shape), self.bases)

    def expand_dims(self, axis: int) -> LinearLayout:
        """The layout after inserting an axis of size 1 at position `axis`."""
        axis %= self.rank + 1
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def drop(self, axis: int, compress: bool = False) -> LinearLayout:
        """The layout of the tensor's projection along `axis`, which is removed: the slice that a reduction
        leaves.

        Bits that moved along the axis become zero bases, so the replication stays visible; `compress` removes
        those of the registers.
        """
        axis %= self.rank
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        result = self._rewrite(shape, lambda coordinates: coordinates[:axis] + coordinates[axis + 1 :])
        return result.remove_zero_bases("register") if compress else result

    def project(self, axis: int) -> LinearLayout:
        """The layout of what `axis` is broadcast from: every place holds the element at 0 of an axis of size
        1."""
        axis %= self.rank
        return self.drop(axis).expand_dims(axis)

    def broadcast(self, shape: Sequence[int]) -> LinearLayout:
        """The layout after repeating axes of size 1, where each thread keeps all copies of what it holds."""
        if any(old not in (1, new) for old, new in zip(self.shape, shape)) or len(shape) != self.rank:
            raise InternalError(f"cannot broadcast {list(self.shape)} to {list(shape)}")
        result = self._rewrite(tuple(shape), lambda coordinates: coordinates)
        added = [
            1 << bit
            for axis in reversed(range(self.rank))
            if self.shape[axis] != shape[axis]
            for bit in axis_bits(shape, axis)
        ]
        return result.with_bases("register", (*result.bases_of("register"), *added))

    def embed(self, shape: Sequence[int]) -> LinearLayout:
        """The layout of the same elements as part, at the origin, of a tensor of a larger shape."""
        return self._rewrite(tuple(shape), lambda coordinates: coordinates)

    def remove_zero_bases(self, dim: str) -> LinearLayout:
        """The layout without those bits of an input dimension that have a zero basis."""
        return self.with_bases(dim, [basis for basis in self.bases_of(dim) if basis])

    def with_bases(self, dim: str, bases: Iterable[Basis]) -> LinearLayout:
        """The layout with other bases for one input dimension."""
        flat = tuple(_flat_basis(self.shape, basis) for basis in bases)
        return LinearLayout(
            self.shape, tuple((name, flat if name == dim else old) for name, old in self.bases)
        )

    def scatter(self, lanes: Sequence[int]) -> LinearLayout:
        """The layout in which lanes divide the registers of which they hold copies: for each bit of the lane number,
        the basis of the register (flat) that it takes over, or 0."""
        bases = {
            "register": tuple(basis for basis in self.bases_of("register") if basis not in lanes),
            "lane": tuple(basis ^ moved for basis, moved in zip(self.bases_of("lane"), lanes, strict=True)),
        }
        return LinearLayout(self.shape, tuple((dim, bases.get(dim, old)) for dim, old in self.bases))

    def map_axis(self, axis: int, change: Callable[[int], int]) -> LinearLayout:
        """The layout after a linear map of the coordinates along one axis."""
        return self._rewrite(self.shape, lambda at: (*at[:axis], change(at[axis]), *at[axis + 1 :]))

    def _rewrite(
        self, shape: tuple[int, ...], change: Callable[[tuple[int, ...]], Sequence[int]]
    ) -> LinearLayout:
        """The layout with every basis's coordinates changed by a linear function."""
        return LinearLayout(
            shape,
            tuple(
                (dim, tuple(_flat_basis(shape, change(_unflatten(self.shape, basis))) for basis in bases))
                for dim, bases in self.bases
            ),
        )


class Conversion(NamedTuple):
    """A linear map from the places of a destination layout to the places of a source layout."""

    source_bits: tuple[tuple[str, int], ...]
    """Number of bits of each input dimension of the source; places of the source are packed in this order."""
    images: tuple[tuple[str, tuple[int, ...]], ...]
    """For each input dimension of the destination, the packed place of the source that each bit adds (XOR)."""

    def part(self, destination_dim: str, source_dim: str) -> tuple[int, ...]:
        """What each bit of a destination dimension adds to one source dimension."""
        shift = 0
        for dim, bits in self.source_bits:
            if dim == source_dim:
                return tuple(place >> shift & (1 << bits) - 1 for place in dict(self.images)[destination_dim])
            shift += bits
        return ()

    def source(self, **index: int) -> dict[str, int]:
        """The place of the source that a place of the destination reads."""
        return {
            source_dim: _xor(f2.apply(self.part(dim, source_dim), value) for dim, value in index.items())
            for source_dim, _ in self.source_bits
        }

    def keeps(self, kept: str) -> bool:
        """Whether every place reads from a source place with the same `kept` (lane, warp, …) as its own."""
        return all(
            part == (1 << bit if dim == kept else 0)
            for dim, _ in self.images
            for bit, part in enumerate(self.part(dim, kept))
        )


def axis_bits(shape: Sequence[int], axis: int) -> range:
    """The positions, in a flat index, of the bits of one axis."""
    start = (prod(shape[axis + 1 :]) - 1).bit_length()
    return range(start, start + (shape[axis] - 1).bit_length())


def _flat_basis(shape: Sequence[int], basis: Basis) -> int:
    if isinstance(basis, int):
        return basis
    if len(basis) != len(shape):
        raise InternalError(f"coordinates {tuple(basis)} do not fit the shape {list(shape)}")
    flat = 0
    for coordinate, size in zip(basis, shape):
        flat = flat * size + coordinate
    return flat


def _unflatten(shape: Sequence[int], flat: int) -> tuple[int, ...]:
    coordinates = []
    for size in reversed(shape):
        coordinates.append(flat % size)
        flat //= size
    return tuple(reversed(coordinates))


def _xor(values: Iterable[int]) -> int:
    result = 0
    for value in values:
        result ^= value
    return result


def all_sums(vectors: Sequence[int]) -> Iterator[int]:
    """The linear map given by `vectors` at 0, 1, 2, …"""
    sums = [0]
    for vector in vectors:
        sums += [vector ^ known for known in sums]
    return iter(sums)


@lru_cache(maxsize=1024)
def _representatives(registers: tuple[int, ...]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(first.setdefault(flat, register) for register, flat in enumerate(all_sums(registers)))


@lru_cache(maxsize=1024)
def _unique_registers(registers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(register for register, first in enumerate(_representatives(registers)) if register == first)


@lru_cache(maxsize=4096)
def _span(layout: LinearLayout) -> f2.Span:
    return f2.Span(basis for _, bases in layout.bases for basis in bases)


@lru_cache(maxsize=4096)
def _free_bits(layout: LinearLayout) -> Mapping[str, int]:
    span = f2.Span()
    return {
        dim: sum(1 << position for position, basis in enumerate(bases) if not span.add(basis))
        for dim, bases in layout.bases
    }


@lru_cache(maxsize=4096)
def _contiguous(layout: LinearLayout, axis: int) -> int:
    field = axis_bits(layout.shape, axis)
    dim, bases = layout.bases[0]
    count = 0
    while count < min(len(bases), len(field)) and bases[count] == 1 << field[count]:
        count += 1
    # Any other bit that moves inside the vector would start it in the middle, and the vector would wrap
    # around there.
    others = [*bases[count:], *(basis for name, rest in layout.bases if name != dim for basis in rest)]
    moved = 0
    for basis in others:
        moved |= basis
    while count and moved >> field[0] & (1 << count) - 1:
        count -= 1
        moved |= bases[count]
    return 1 << count


@lru_cache(maxsize=4096)
def _solve(source: LinearLayout, destination: LinearLayout) -> Conversion:
    if source.shape != destination.shape:
        raise InternalError(
            f"layouts of different shapes: {list(source.shape)} and {list(destination.shape)}"
        )
    span = _span(source)
    place = 1
    own: dict[str, list[tuple[int, int]]] = {}
    for dim, bases in source.bases:
        own[dim] = [(place << position, basis) for position, basis in enumerate(bases)]
        place <<= len(bases)
    images = []
    for dim, bases in destination.bases:
        found = []
        for position, basis in enumerate(bases):
            # Staying in the same lane (warp, block) costs nothing if lower-ranking bits can make up the
            # difference: then the difference is expressed by places below this bit's dimension.
            if dim != "register" and position < len(own.get(dim, ())):
                bit, held = own[dim][position]
                rest = span.combination(basis ^ held)
                if rest is not None and rest < own[dim][0][0]:
                    found.append(rest | bit)
                    continue
            combination = span.combination(basis)
            if combination is None:
                raise InternalError(
                    f"the source layout lacks element {source.unflatten(basis)} of {list(source.shape)}"
                )
            found.append(combination)
        images.append((dim, tuple(found)))
    return Conversion(tuple((dim, len(bases)) for dim, bases in source.bases), tuple(images))
