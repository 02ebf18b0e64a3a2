"""Arrays of other libraries: where they lie, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kbuild.gpu.cuda import core, device_of, utils

HOST = -1
_ON_GPU = (2, 13)
"""DLPack's numbers for memory of a GPU, and for managed memory."""


class ArrayView(NamedTuple):
    """What is known of an array."""

    address: int
    device: int | None
    """The ordinal of its device; HOST for memory of the host that devices do not reach, None where it does not say."""
    dtype: str = ""
    """The name of its elements' type; empty where that is not known."""
    shape: tuple[int, ...] | None = None
    """Sizes, where they were asked for and are known."""
    strides: tuple[int, ...] | None = None
    """Elements from one index to the next; None where they lie one after the other, or were not asked for."""
    stream: int | None = None
    """The stream whose work is to be waited for."""


def view_of(value: Any, with_shape: bool = True) -> ArrayView | None:
    """What is known of an array; None where the value is none."""
    if value is None or type(value) is int:
        return None
    if isinstance(value, core.Buffer):
        return _view_of_buffer(value)
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):  # A tensor of torch.
        if not with_shape:
            return ArrayView(value.data_ptr(), _ordinal(value.device), _name(value.dtype))
        shape, strides = tuple(value.shape), tuple(value.stride())
        return ArrayView(value.data_ptr(), _ordinal(value.device), _name(value.dtype), shape, strides)
    interface = getattr(value, "__cuda_array_interface__", None)
    has_dlpack = hasattr(value, "__dlpack_device__")
    if interface is None and not has_dlpack:
        return None
    dtype = _name(getattr(value, "dtype", ""))
    # An interface without a stream, such as JAX's of version 2, does not say when its array is written.
    if interface is not None and ("stream" in interface or not has_dlpack):
        return _view_of_interface(interface, dtype)
    kind, device = value.__dlpack_device__()
    if int(kind) not in _ON_GPU:
        return ArrayView(0, HOST, dtype)
    # Its producer lets this stream wait for what writes the array, and a launch waits for this stream.
    stream = int(core.LEGACY_DEFAULT_STREAM.handle)
    view = utils.StridedMemoryView.from_dlpack(value, stream_ptr=stream)
    return ArrayView(view.ptr, int(device), dtype, tuple(view.shape), view.strides, stream)


@lru_cache(256, typed=True)
def _name(dtype: Any) -> str:
    """The name of a type of elements, from what a library has for it."""
    return str(dtype).removeprefix("torch.")


@lru_cache(256)
def _ordinal(device: Any) -> int | None:
    """The ordinal of a device of torch."""
    return device.index if device.type == "cuda" else HOST


def _view_of_buffer(buffer: Any) -> ArrayView:
    if buffer.is_closed:
        return ArrayView(0, None)
    if not buffer.is_device_accessible:
        return ArrayView(int(buffer.handle), HOST)
    # All devices reach memory of the host that is mapped for one.
    return ArrayView(int(buffer.handle), None if buffer.is_host_accessible else buffer.device_id)


def _view_of_interface(interface: Mapping[str, Any], dtype: str) -> ArrayView:
    address, shape = interface["data"][0], tuple(interface["shape"])
    size = int(interface["typestr"][2:])
    strides = interface.get("strides")
    return ArrayView(
        address,
        device_of(address) if address else None,
        dtype,
        shape,
        None if strides is None else tuple(stride // size for stride in strides),
        interface.get("stream"),
    )
