"""A fake array of a library with DLPack."""

import ctypes
import struct
from collections.abc import MutableSequence
from typing import Any


class DLPackArray:
    """Exports address, device and type as DLPack has them; keeps the requests."""

    def __init__(self, code, bits, device=(2, 1), address=(2 << 40) + 256, lanes=1, shape=(8,)):
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        place = ctypes.addressof(self._shape)
        self._fields = struct.pack(
            "<QiiiBBHQQQQQ", address, *device, len(shape), code, bits, lanes, place, 0, 16, 0, 0
        )
        self._memory = ctypes.create_string_buffer(self._fields)
        self._device = device
        self.asked: MutableSequence[dict[str, Any]] = []

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._memory), b"dltensor", None)
