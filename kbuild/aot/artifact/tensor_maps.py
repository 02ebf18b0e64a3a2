"""Tensor maps as the driver takes them: its numbers for elements and swizzles, and the maps made of values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kbuild.tensor_map import TensorMapType

_ELEMENTS = {
    "f16": (6, 2),
    "bf16": (9, 2),
    "f32": (7, 4),
    "tf32": (11, 4),
    "i16": (1, 2),
    "i32": (2, 4),
    "s32": (3, 4),
    "i64": (4, 8),
    "s64": (5, 8),
    "f64": (8, 8),
}

SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by its bytes."""


def element_type(name: str) -> tuple[int, int]:
    """CUtensorMapDataType and bytes of an element, by its name in the compiler; all that are not named here
    are single bytes."""
    return _ELEMENTS.get(name, (0, 1))


class Encoding(NamedTuple):
    """What `cuTensorMapEncodeTiled` takes: dimensions innermost first, as the driver has them."""

    type: int
    """CUtensorMapDataType."""
    base: int
    """Address of the tensor."""
    sizes: tuple[int, ...]
    """Elements; a size of zero is taken for one, for the driver takes none."""
    pitches: tuple[int, ...]
    """Bytes from one index to the next, of all dimensions but the first."""
    box: tuple[int, ...]
    swizzle: int
    """CUtensorMapSwizzle."""
    fill: int
    """CUtensorMapFloatOOBfill: zeros, or NaN."""


def encoding(map_: TensorMapType, values: Mapping[str, int]) -> Encoding:
    """A map with the values of the parameters that it is made from."""
    type_, size = element_type(map_.element)
    sources = map_.sources

    def numbers(words: Sequence[str]) -> list[int]:
        return [int(word) if word.isdigit() else int(values[word]) for word in reversed(words)]

    return Encoding(
        type_,
        values[sources.base],
        tuple(max(extent, 1) for extent in numbers(sources.sizes)),
        tuple(stride * size for stride in numbers(sources.strides)),
        map_.box[::-1],
        SWIZZLES[map_.swizzle],
        int(map_.fill_nan),
    )


def encode(
    call: Callable[..., None], map_: TensorMapType, values: Mapping[str, int]
) -> ctypes.Array[ctypes.c_uint8]:
    """A CUtensorMap, at an address that 64 divides; `call` calls a function of the driver."""
    made = encoding(map_, values)
    rank = len(made.sizes)
    memory = (ctypes.c_uint8 * 192)()
    place = (ctypes.c_uint8 * 128).from_buffer(memory, -ctypes.addressof(memory) % 64)
    call(
        "cuTensorMapEncodeTiled",
        place,
        made.type,
        rank,
        ctypes.c_void_p(made.base),
        (ctypes.c_uint64 * rank)(*made.sizes),
        (ctypes.c_uint64 * (rank - 1))(*made.pitches),
        (ctypes.c_uint32 * rank)(*made.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        made.swizzle,
        2,
        made.fill,
    )
    return place
