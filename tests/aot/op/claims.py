"""Arrays of the fake driver's devices as libraries give them that have other protocols, or say something else."""

from __future__ import annotations

import ctypes
import struct
from typing import Any


class Claims:
    """An array whose interface says something else."""

    def __init__(self, array, **claims: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"strides": None} | claims


class Exported:
    """An array as libraries with DLPack 1 give it, which say what is read-only."""

    def __init__(self, array, is_read_only: bool) -> None:
        entries = array.__cuda_array_interface__
        self.shape = (ctypes.c_int64 * len(entries["shape"]))(*entries["shape"])
        place = ctypes.addressof(self.shape)
        self.memory = ctypes.create_string_buffer(
            struct.pack("<IIQQQ", 1, 0, 0, 0, int(is_read_only))
            + struct.pack("<QiiiBBHQQQ", entries["data"][0], 2, 0, len(self.shape), 2, 32, 1, place, 0, 0)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, max_version: tuple[int, int], stream: int | None = None) -> object:
        assert max_version == (1, 0)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.memory), b"dltensor_versioned", None)


class Older(Exported):
    """One of a library that is older than the keyword."""

    def __dlpack__(self, *, stream: int | None = None) -> object:  # type: ignore[override]
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.memory) + 32, b"dltensor", None)
