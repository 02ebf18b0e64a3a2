"""Tensor maps of values, as cuda.core passes them to kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbuild.errors import ToolError
from kbuild.gpu.cuda import asking, core, tensor_map, utils
from kbuild.tensor_map import TensorMapType, element_type, encoding


def descriptor(map_: TensorMapType, values: Mapping[str, int]) -> Any:
    """The map of a parameter with these values of the others.  Raises `ToolError` where the driver takes no such map."""
    made, size = encoding(map_, values), element_type(map_.element)[1]
    shape = made.sizes[::-1]
    strides = (*(pitch // size for pitch in made.pitches[::-1]), 1)
    extent = sum((length - 1) * stride for length, stride in zip(shape, strides)) + 1
    what = f"the tensor map of {map_.sources.base} ({map_})"
    buffer = core.Buffer.from_handle(made.base, extent * size)
    view = utils.StridedMemoryView.from_buffer(buffer, shape, strides, itemsize=size)
    try:
        with asking(what):
            return view.as_tensor_map(
                made.box[::-1],
                data_type=tensor_map.TensorMapDataType(made.type),
                swizzle=tensor_map.TensorMapSwizzle(made.swizzle),
                l2_promotion=tensor_map.TensorMapL2Promotion.L2_128B,
                oob_fill=tensor_map.TensorMapOOBFill(made.fill),
            )
    except ValueError as error:  # What cuda.core checks itself, such as that the memory is the device's.
        raise ToolError(f"{what}: {error}") from None
