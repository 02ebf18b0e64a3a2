"""Tensor maps: the description of an array in global memory for TMA, and its 128 bytes.

The driver's own encoding is not published, and only hardware reads it.  The emulator, and the fake driver
that makes maps for it, use this one (little-endian; bytes not named are zero):

    0    u64     address of the array
    8    u32     which fields are set, one bit each: see `_Bit`
    12   u8      rank - 1
    13   u8      element type, numbered as in the driver's enumeration
    14   u8      interleave (0)
    15   u8      swizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes
    16   u8      fill of what lies outside: 0 zeros, 1 NaN
    17   u8      promotion in the L2 cache (of no effect here)
    24   u64[4]  strides of dimensions 1 to 4 in bytes
    56   u64[5]  sizes of the dimensions in elements, innermost first
    96   u16[5]  sizes of the box in elements
    106  u8[5]   element strides

A map that a kernel builds with `tensormap.replace` starts as 128 zero bytes and has each field set by one
instruction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from kbuild.errors import KbuildError

BYTES = 128
_LAYOUT = struct.Struct("<QI6B6x4Q5Q5H5B17x")
assert _LAYOUT.size == BYTES

ELEMENTS = (
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f64",
    "bf16",
    "f32.ftz",
    "tf32",
    "tf32.ftz",
)
"""Element types in the order of the driver's enumeration."""
_DEVICE_ELEMENTS = (
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f32.ftz",
    "f64",
    "bf16",
    "tf32",
    "tf32.ftz",
)
"""Element types in the order of `tensormap.replace.elemtype`."""
_SIZES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "u64": 8, "s64": 8, "f64": 8}
SWIZZLES = (16, 32, 64, 128)
"""Bytes of a swizzled row by the number of the mode."""

LARGEST_BOX = 228 * 1024
"""Bytes of shared memory that a multiprocessor has, on compute capability 9.0."""


class TensorMapError(KbuildError):
    """A tensor map that the driver would refuse, or that a kernel has not finished."""


class _Bit:
    """Bits of the word that says which fields are set."""

    ADDRESS, RANK, ELEMENT, INTERLEAVE, SWIZZLE, FILL = (1 << number for number in range(6))
    STRIDE, SIZE, BOX, STEP = 6, 10, 15, 20
    """Number of the bit of the first dimension; the others follow."""


@dataclass(frozen=True)
class TensorMap:
    """An array in global memory and the box that one copy moves; dimensions are innermost first."""

    address: int
    element: str
    """One of `ELEMENTS`."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes between neighbours in dimensions 1 and up; dimension 0 is contiguous."""
    box: tuple[int, ...]
    steps: tuple[int, ...]
    """Element strides: of how many elements of the box one is copied; ignored for dimension 0."""
    swizzle: int = 0
    """0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes."""
    fill_nan: bool = False
    interleave: int = 0

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        return _SIZES.get(self.element, 4)

    @property
    def moved(self) -> tuple[int, ...]:
        """Elements of the box that are copied, per dimension."""
        return (self.box[0], *(-(-size // max(step, 1)) for size, step in zip(self.box[1:], self.steps[1:])))

    @property
    def box_bytes(self) -> int:
        """Bytes of the box in shared memory, which is also what an mbarrier counts."""
        return int(np.prod(self.moved)) * self.element_bytes

    def check(self) -> TensorMap:
        """This map.  Raises TensorMapError where it breaks a rule of the driver, naming the field."""
        for holds, message in self._rules():
            if not holds:
                raise TensorMapError(f"tensor map: {message}")
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        rank, size = self.rank, self.element_bytes
        rows = SWIZZLES[self.swizzle] if 0 <= self.swizzle < 4 else 0
        lists = [
            (1 <= rank <= 5, f"the rank is {rank}, possible are 1 to 5"),
            (len(self.strides) == rank - 1, f"{len(self.strides)} strides for rank {rank}"),
            (len(self.box) == rank, f"{len(self.box)} box sizes for rank {rank}"),
            (len(self.steps) == rank, f"{len(self.steps)} element strides for rank {rank}"),
            (self.element in ELEMENTS, f"{self.element} is not an element type"),
            (rows > 0, f"{self.swizzle} is not a swizzle mode"),
        ]
        if not all(holds for holds, _ in lists):
            return lists
        inner = self.box[0] * size
        return [
            (self.address % 16 == 0, f"the address {self.address:#x} is not a multiple of 16"),
            *(
                (1 <= n <= 1 << 32, f"size {n} of dimension {i} is not in 1 to 2^32")
                for i, n in enumerate(self.sizes)
            ),
            *(
                (
                    n % 16 == 0 and 0 <= n < 1 << 40,
                    f"stride {n} of dimension {i} is not a multiple of 16 below 2^40",
                )
                for i, n in enumerate(self.strides, 1)
            ),
            *(
                (1 <= n <= 256, f"box size {n} of dimension {i} is not in 1 to 256")
                for i, n in enumerate(self.box)
            ),
            *(
                (1 <= n <= 8, f"element stride {n} of dimension {i} is not in 1 to 8")
                for i, n in enumerate(self.steps)
            ),
            (self.interleave == 0, f"interleave {self.interleave} is not supported"),
            (inner % 16 == 0, f"the box is {inner} bytes wide, not a multiple of 16"),
            (
                self.box_bytes <= LARGEST_BOX,
                f"the box has {self.box_bytes} bytes, more than the {LARGEST_BOX} allowed",
            ),
            (
                self.swizzle == 0 or inner <= rows,
                f"the box is {inner} bytes wide, the swizzle has rows of {rows}",
            ),
            (
                not self.fill_nan or self.element in ("f16", "f32", "f64", "bf16"),
                f"NaN cannot fill elements of {self.element}",
            ),
            (
                self.element in (*_SIZES, "u32", "s32", "f32", "tf32"),
                f"elements of {self.element} are not supported",
            ),
        ]

    def encode(self) -> bytes:
        """The 128 bytes.  Raises TensorMapError as `check` does."""
        self.check()
        pad = 5 - self.rank
        every = (1 << 6) - 1
        for first, count in (
            (_Bit.STRIDE, self.rank - 1),
            (_Bit.SIZE, self.rank),
            (_Bit.BOX, self.rank),
            (_Bit.STEP, self.rank),
        ):
            every |= ((1 << count) - 1) << first
        return _LAYOUT.pack(
            self.address,
            every,
            self.rank - 1,
            ELEMENTS.index(self.element),
            self.interleave,
            self.swizzle,
            int(self.fill_nan),
            0,
            *self.strides,
            *(0,) * pad,
            *self.sizes,
            *(0,) * pad,
            *self.box,
            *(0,) * pad,
            *self.steps,
            *(0,) * pad,
        )

    @classmethod
    def decode(cls, data: bytes) -> TensorMap:
        """The map in 128 bytes.  Raises TensorMapError where fields were never set, and as `check` does."""
        address, every, last, element, interleave, swizzle, fill, _, *lists = _LAYOUT.unpack(data)
        rank = last + 1
        needed = {
            "address": _Bit.ADDRESS,
            "rank": _Bit.RANK,
            "element type": _Bit.ELEMENT,
            "interleave layout": _Bit.INTERLEAVE,
            "swizzle mode": _Bit.SWIZZLE,
            "fill mode": _Bit.FILL,
        }
        if rank <= 5:
            for name, first, count in (
                ("stride", _Bit.STRIDE, rank - 1),
                ("size", _Bit.SIZE, rank),
                ("box size", _Bit.BOX, rank),
                ("element stride", _Bit.STEP, rank),
            ):
                needed.update(
                    {f"{name} of dimension {i + (name == 'stride')}": 1 << (first + i) for i in range(count)}
                )
        missing = [name for name, bit in needed.items() if not every & bit]
        if missing:
            raise TensorMapError(
                f"tensor map: not set are {', '.join(missing)}", help="is it a tensor map at all?"
            )
        strides, sizes, box, steps = lists[:4], lists[4:9], lists[9:14], lists[14:19]
        name = ELEMENTS[element] if element < len(ELEMENTS) else f"number {element}"
        return cls(
            address,
            name,
            tuple(sizes[:rank]),
            tuple(strides[: rank - 1]),
            tuple(box[:rank]),
            tuple(steps[:rank]),
            swizzle,
            bool(fill),
            interleave,
        ).check()


def replace(data: bytes, field: str, index: int, value: int) -> bytes:
    """The 128 bytes after `tensormap.replace.tile.FIELD` with this ordinal.  Raises TensorMapError for unknown
    fields."""
    address, every, *small = _LAYOUT.unpack(data)
    flat = dict(zip(("rank", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"), range(5)))
    bits = (_Bit.RANK, _Bit.ELEMENT, _Bit.INTERLEAVE, _Bit.SWIZZLE, _Bit.FILL)
    tables = {
        "global_stride": (6, _Bit.STRIDE, 4),
        "global_dim": (10, _Bit.SIZE, 5),
        "box_dim": (15, _Bit.BOX, 5),
        "element_stride": (20, _Bit.STEP, 5),
    }
    if field == "global_address":
        address, every = value, every | _Bit.ADDRESS
    elif field in flat:
        if field == "elemtype":
            if value >= len(_DEVICE_ELEMENTS):
                raise TensorMapError(f"tensor map: {value} is not an element type")
            value = ELEMENTS.index(_DEVICE_ELEMENTS[value])
        small[flat[field]] = value & 0xFF
        every |= bits[flat[field]]
    elif field in tables and 0 <= index < tables[field][2]:
        position, first, _ = tables[field]
        small[position + index] = value & (
            0xFF if field == "element_stride" else 0xFFFF if field == "box_dim" else (1 << 64) - 1
        )
        every |= 1 << (first + index)
    else:
        raise TensorMapError(f"tensor map: no field {field} with the ordinal {index}")
    return _LAYOUT.pack(address, every, *small)
