"""The CUDA driver through ctypes: just enough to load an image, launch it on numpy arrays, and look at what
it did.

Every buffer lies between two red zones; a kernel that writes outside its arrays is caught.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from zoo import Bits

from kbuild.aot.artifact.tensor_maps import encode
from kbuild.tensor_map import TensorMapType

RED_ZONE = 4096
PATTERN = 0xA5


class Device:
    """One GPU and its primary context."""

    def __init__(self, ordinal: int = 0) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        self.capability = (major.value, minor.value)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.lib, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{name} failed: {(text.value or b'?').decode()}")

    def function(self, image: bytes, name: str, shared: int) -> ctypes.c_void_p:
        """The entry `name` of a cubin, or of PTX, which the driver compiles."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", function, 8, shared)
        return function

    def launch(
        self,
        image: bytes,
        name: str,
        grid: Sequence[int],
        num_warps: int,
        shared: int,
        arguments: Mapping[str, Any],
        types: Mapping[str, str],
        maps: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run a kernel once and give back the arrays it was given, as they are afterwards.  `maps` are the
        types of the tensor maps that it takes besides, as the compiler's metadata lists them.

        Raises RuntimeError for a driver error, AssertionError for a write into a red zone.
        """
        function = self.function(image, name, shared)
        buffers: dict[str, tuple[int, Any]] = {}
        values = [self._parameter(key, arguments[key], types[key], buffers) for key in types]
        named = {key: value.value for key, value in zip(types, values)}
        values += [encode(self.call, map_, named) for map_ in map(TensorMapType.parse, maps) if map_]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values)
        )
        x, y, z = (*grid, 1, 1)[:3]
        try:
            self.call("cuLaunchKernel", function, x, y, z, 32 * num_warps, 1, 1, shared, None, pointers, None)
            self.call("cuCtxSynchronize")
            return {key: self._read(key, address, array) for key, (address, array) in buffers.items()}
        finally:
            for address, _ in buffers.values():
                self.lib.cuMemFree_v2(ctypes.c_uint64(address))

    def _parameter(self, name: str, value: Any, type_text: str, buffers: dict[str, tuple[int, Any]]) -> Any:
        scalar = {
            "i1": ctypes.c_int8,
            "i8": ctypes.c_int8,
            "i16": ctypes.c_int16,
            "i32": ctypes.c_int32,
            "u32": ctypes.c_uint32,
            "i64": ctypes.c_int64,
            "u64": ctypes.c_uint64,
            "fp32": ctypes.c_float,
            "fp64": ctypes.c_double,
        }
        if not type_text.startswith("*"):
            return scalar[type_text.split(":")[0]](value)
        data = np.ascontiguousarray(value.data if isinstance(value, Bits) else value)
        padded = np.full(data.nbytes + 2 * RED_ZONE, PATTERN, np.uint8)
        padded[RED_ZONE : RED_ZONE + data.nbytes] = data.view(np.uint8).ravel()
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(padded.nbytes))
        buffers[name] = (address.value, value)
        self.call(
            "cuMemcpyHtoD_v2", address, padded.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(padded.nbytes)
        )
        return ctypes.c_uint64(address.value + RED_ZONE)

    def _read(self, name: str, address: int, value: Any) -> Any:
        data = value.data if isinstance(value, Bits) else value
        padded = np.empty(data.nbytes + 2 * RED_ZONE, np.uint8)
        place = padded.ctypes.data_as(ctypes.c_void_p)
        self.call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(address), ctypes.c_size_t(padded.nbytes))
        before, after = padded[:RED_ZONE], padded[RED_ZONE + data.nbytes :]
        assert (before == PATTERN).all() and (after == PATTERN).all(), f"the kernel wrote outside of {name}"
        result = padded[RED_ZONE : RED_ZONE + data.nbytes].view(data.dtype).reshape(data.shape).copy()
        return Bits(result, value.type_name) if isinstance(value, Bits) else result
