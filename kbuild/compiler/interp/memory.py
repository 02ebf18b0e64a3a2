"""Memory as kernels see it: one flat address space whose every access is checked, and tiles of shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kbuild.compiler.interp.formats import Array, decode, encode, memory_dtype
from kbuild.compiler.ir.types import MemDescType, Type
from kbuild.errors import InterpretError, Loc

Seen = list[tuple[Array, Type, Loc | None]]
"""Reads: the places in memory, counted in elements of a type."""
ORIGIN = 1 << 40
"""The first address: beyond 32 bits, so that a pointer squeezed into 32 bits is caught."""
_ALIGNMENT = 256
"""Bytes to which arrays are aligned."""
_GAP = 1 << 16
"""Unused bytes between arrays: so many that a row beyond the last one is in none."""


class Trace:
    """The accesses of a launch to memory: filled in by `run`."""

    def __init__(self) -> None:
        self.read: dict[str, np.ndarray] = {}
        """For each array, by its argument's name, which bytes were read."""
        self.written: dict[str, np.ndarray] = {}
        """Which bytes were written."""
        self.conflict = ""
        """The first place to which two programs, or two elements of one store, wrote different values, so that
        the result depends on their order."""
        self.program = 0
        """The number of the program that runs."""


class _Marks:
    """A trace over all of memory, while a launch runs."""

    def __init__(self, trace: Trace, size: int) -> None:
        self.trace = trace
        self.read, self.written = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        self.writer = np.full(size, -1, np.int64)

    def load(self, places: Array, size: int) -> None:
        self.read.view(f"u{size}")[places] = _EVERY_BYTE[size]

    def store(
        self, before: Array, after: Array, places: Array, given: Array, size: int, loc: Loc | None
    ) -> None:
        """`before` and `after` are the elements of memory around a store of `given` to `places`."""
        first = np.atleast_1d(places) * size
        others = (self.writer[first] >= 0) & (self.writer[first] != self.trace.program)
        differs = _bits(before) != _bits(given)
        if not self.trace.conflict and (np.any(others & differs) or np.any(_bits(after) != _bits(given))):
            self.trace.conflict = f"{loc or 'a store'}: different values are written to one place"
        self.written.view(f"u{size}")[places] = _EVERY_BYTE[size]
        self.writer[first] = self.trace.program


def _bits(values: Array) -> Array:
    values = np.ascontiguousarray(np.atleast_1d(values))
    return values.view(f"u{values.dtype.itemsize}")


_EVERY_BYTE = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}
"""An element of so many bytes, each of them marked."""


class GlobalMemory:
    """Arrays at addresses.  `address_of` takes an array in, `write_back` brings its contents out again."""

    def __init__(
        self, arrays: Sequence[np.ndarray], trace: Trace | None = None, names: Sequence[str] = ()
    ) -> None:
        """`names` are those of the arrays, for messages."""
        self.arrays = arrays
        self.names = names or [f"array {number}" for number in range(len(arrays))]
        self.changes = self.changes_before = -1
        """How often the bytes of memory have been changed, and had been when the round of a loop began; -1
        while no loop is watched."""
        self.seen: Seen | None = None
        """What the watched loop has read in this round."""
        self.starts: list[int] = []
        end = _ALIGNMENT
        for array in arrays:
            self.starts.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT + _GAP
        self.bytes = np.zeros(end, np.uint8)
        for start, array in zip(self.starts, arrays):
            self.bytes[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.marks = None if trace is None else _Marks(trace, end)
        self._starts = np.array(self.starts or [0], np.int64)
        self._ends = np.array([s + a.nbytes for s, a in zip(self.starts, arrays)] or [0], np.int64)

    def address_of(self, index: int) -> int:
        """The address of an array's first element."""
        return self.starts[index] + ORIGIN

    def write_back(self) -> None:
        """Copy what the kernel wrote into the arrays."""
        for start, array in zip(self.starts, self.arrays):
            array[...] = self.bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)

    def fill_trace(self, trace: Trace, names: Sequence[str]) -> None:
        """Write into a trace what was read and written of the arrays, by name."""
        assert self.marks is not None
        for name, start, array in zip(names, self.starts, self.arrays):
            trace.read[name] = self.marks.read[start : start + array.nbytes] > 0
            trace.written[name] = self.marks.written[start : start + array.nbytes] > 0

    def begin(self, program: int) -> None:
        """A program begins, or goes on."""
        if self.marks is not None:
            self.marks.trace.program = program
        self.seen = None

    def begin_watching(self) -> None:
        """From now on changes are counted, and what a program reads is recorded."""
        self.changes = max(self.changes, 0)
        self.begin_round()

    def begin_round(self) -> None:
        """A round of a loop that is watched begins."""
        self.changes_before, self.seen = self.changes, []

    def description(self, seen: Seen | None) -> str:
        """The last thing that a loop has read, in words: the element of an array, and its value."""
        if not seen:
            return "it reads nothing"
        places, type_, loc = seen[-1]
        dtype = np.dtype(memory_dtype(type_))
        first = int(np.atleast_1d(places)[0])
        value = decode(self.bytes.view(dtype)[first : first + 1], type_)[0]
        more = f" and {np.size(places) - 1} more" if np.size(places) > 1 else ""
        return f"{loc or 'it'} reads {self.element(first * dtype.itemsize, dtype.itemsize)}{more}, which is {value}"

    def array_of(self, seen: Seen) -> str:
        """The name of the array that a loop has read last."""
        places, type_, _ = seen[-1]
        first = int(np.atleast_1d(places)[0]) * np.dtype(memory_dtype(type_)).itemsize
        return self.names[max(int(np.searchsorted(self._starts, first, "right")) - 1, 0)]

    def element(self, offset: int, size: int) -> str:
        """The element of `size` bytes at an offset, by the name of its array: `x[96]`."""
        number = max(int(np.searchsorted(self._starts, offset, "right")) - 1, 0)
        return f"{self.names[number]}[{(offset - self.starts[number]) // size}]"

    def load(self, addresses: Array, type_: Type, loc: Loc | None) -> Array:
        """The values of a type at addresses (of any shape), all of which must lie within arrays."""
        places = self._places(addresses, memory_dtype(type_), "read", loc)
        if self.seen is not None and np.size(places):
            self.seen.append((places, type_, loc))
        if self.marks is not None:
            self.marks.load(places, np.dtype(memory_dtype(type_)).itemsize)
        return decode(self.bytes.view(memory_dtype(type_))[places], type_)

    def store(
        self, addresses: Array, values: Array, type_: Type, loc: Loc | None, atomic: bool = False
    ) -> None:
        """Write values of a type; of equal addresses the last wins."""
        places = self._places(addresses, memory_dtype(type_), "write", loc)
        memory, given = self.bytes.view(memory_dtype(type_)), encode(values, type_)
        before = memory[places] if self.marks is not None or self.changes >= 0 else None
        memory[places] = given
        if self.changes >= 0 and not np.array_equal(_bits(before), _bits(memory[places])):
            self.changes += 1
        if self.marks is not None:
            given = before if atomic else np.broadcast_to(given, np.shape(places))
            self.marks.store(
                before, before if atomic else memory[places], places, given, memory.dtype.itemsize, loc
            )

    def _places(self, addresses: Array, dtype: type, verb: str, loc: Loc | None) -> Array:
        """Indices of elements, after checking bounds and alignment."""
        size = np.dtype(dtype).itemsize
        offsets = np.asarray(addresses, np.int64) - ORIGIN
        owner = np.maximum(np.searchsorted(self._starts, offsets, "right") - 1, 0)
        wrong = (offsets < self._starts[owner]) | (offsets + size > self._ends[owner])
        if wrong.any():
            self._out_of_bounds(offsets, owner, wrong, size, verb, loc)
        if (offsets % size).any():
            raise InterpretError(
                f"{verb} of {size} bytes at an address that is not a multiple of {size}", loc
            )
        return offsets // size

    def _out_of_bounds(
        self, offsets: Array, owner: Array, wrong: Array, size: int, verb: str, loc: Loc | None
    ) -> None:
        offsets, owner, wrong = (np.atleast_1d(item) for item in (offsets, owner, wrong))
        where = np.argwhere(wrong)[0]
        first, number = int(offsets[tuple(where)]), int(owner[tuple(where)])
        if not self.arrays:
            raise InterpretError(f"{verb} at address {first + ORIGIN:#x}, but the kernel has no arrays", loc)
        raise InterpretError(
            f"{verb} out of bounds: {int(wrong.sum())} of {wrong.size} elements, the first at {where.tolist()}: "
            f"{self.element(first, size)}, of {self.arrays[number].nbytes // size} elements",
            loc,
            "mask the access",
        )


class SharedTile:
    """A view of shared memory: bytes, the offset in bytes where the tile begins, and for each of its elements
    the offset in elements from there.  Views share their bytes."""

    def __init__(self, data: np.ndarray, start: int, offsets: Array, type_: MemDescType) -> None:
        self.data = data
        self.start = start
        self.offsets = offsets
        self.type = type_

    @classmethod
    def allocate(
        cls, type_: MemDescType, data: np.ndarray, start: int, distance: int | None = None
    ) -> SharedTile:
        """A tile, or several `distance` bytes apart, else one after the other, at `start` of some bytes."""
        offsets = tile_offsets(MemDescType(type_.tile_shape, type_.element, type_.layout))
        if type_.buffers is not None:
            size = (distance or type_.tile_bytes) // np.dtype(memory_dtype(type_)).itemsize
            offsets = offsets + np.arange(type_.buffers).reshape(-1, *[1] * offsets.ndim) * size
        return cls(data, start, offsets, type_)

    def view(self, offsets: Array, type_: MemDescType) -> SharedTile:
        return SharedTile(self.data, self.start, offsets, type_)

    def _elements(self) -> Array:
        dtype = memory_dtype(self.type)
        usable = (len(self.data) - self.start) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
        return self.data[self.start : self.start + usable].view(dtype)

    def read(self) -> Array:
        return decode(self._elements()[self.offsets], self.type)

    def write(self, values: Array) -> None:
        self._elements()[self.offsets] = encode(values, self.type)

    def spoil(self) -> None:
        """Fill the tile with a conspicuous value: all bits set is NaN in every floating-point type."""
        dtype = memory_dtype(self.type)
        bits = np.full(1, 0xFF, np.uint8).repeat(np.dtype(dtype).itemsize).view(dtype)[0]
        self._elements()[self.offsets] = bits


class MissingTile(SharedTile):
    """What an index beyond an allocation names: any use but one that its predicate rules out is an error."""

    def __init__(self, type_: MemDescType, message: str, loc: Loc | None) -> None:
        self.type, self.message, self.loc = type_, message, loc

    def __getattr__(self, name: str) -> Any:
        raise InterpretError(self.message, self.loc)


@lru_cache(maxsize=256)
def tile_offsets(type_: MemDescType) -> Array:
    """For each element of a tile, its offset in elements, by the tile's layout."""
    layout = type_.layout
    positions = np.zeros(1, np.int64)
    for basis in layout.bases_of("offset"):
        positions = np.concatenate([positions, positions ^ basis])
    offsets = np.zeros(layout.numel, np.int64)
    # A layout with copies (a subslice's) reaches an element several times: its lowest offset is the element's
    # place.
    offsets[positions[::-1]] = np.arange(len(positions))[::-1]
    offsets = offsets + sum(offsets // interval * padding for interval, padding in type_.gaps)
    return offsets.reshape(type_.tile_shape)
