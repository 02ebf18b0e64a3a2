"""Tensor maps of values, as the driver makes them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping

from kbuild.errors import ToolError
from kbuild.gpu.cuda import entry_point, reaches, refusal
from kbuild.tensor_map import TensorMapType, encoding

MAP_BYTES = 128
MAP_ALIGNMENT = 64
_MAX_RANK = 5
_Long, _Word = ctypes.c_uint64 * _MAX_RANK, ctypes.c_uint32 * _MAX_RANK
_STEPS = _Word(*[1] * _MAX_RANK)
_NO_INTERLEAVE, _PROMOTION_OF_128_BYTES = 0, 2


def put_tensor_map(place: int, map_: TensorMapType, values: Mapping[str, int]) -> None:
    """Make the map of a parameter with these values of the others, for kernels on the current device, at an address of the
    host that `MAP_ALIGNMENT` divides.  Raises `ToolError` where the driver takes no such map, or the memory is not the
    device's."""
    made = encoding(map_, values)
    if not reaches(made.base):
        raise ToolError(f"{_named(map_)}: {made.base:#x} is no address of the device's memory")
    code = _encoder()(
        *(place, made.type, len(made.sizes), made.base),
        *(_Long(*made.sizes), _Long(*made.pitches), _Word(*made.box), _STEPS),
        *(_NO_INTERLEAVE, made.swizzle, _PROMOTION_OF_128_BYTES, made.fill),
    )
    if code:
        raise refusal(_named(map_), code)


@functools.cache
def _encoder() -> Callable[..., int]:
    """That of cuda.bindings puts the map where malloc does, which need not be an address that the driver asks for."""
    place, int_, rank, base = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
    extents, boxes, modes = (_Long, _Long), (_Word, _Word), (int_, int_, int_, int_)
    return entry_point("cuTensorMapEncodeTiled", place, int_, rank, base, *extents, *boxes, *modes)


def _named(map_: TensorMapType) -> str:
    return f"the tensor map of {map_.sources.base} ({map_})"
