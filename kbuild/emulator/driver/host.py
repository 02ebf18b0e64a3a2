"""The memory of the process itself, at addresses that a caller of the driver passes."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

from kbuild.emulator.driver.codes import DriverResult, Refused


def read(address: int, size: int) -> bytes:
    """`size` bytes.  Raises Refused for a null pointer."""
    if size and not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to read from")
    return ctypes.string_at(address, size)


def read_bytes(address: int) -> bytes:
    """All up to the first zero byte.  Raises Refused for a null pointer."""
    if not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to a text")
    return ctypes.string_at(address)


def read_text(address: int) -> str:
    """The text up to the first zero byte.  Raises Refused for a null pointer."""
    return read_bytes(address).decode(errors="replace")


def read_file(path: int) -> bytes:
    """The contents of the file whose name lies at an address.  Raises Refused where it cannot be read."""
    name = read_text(path)
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Refused(DriverResult.CUDA_ERROR_FILE_NOT_FOUND, f"{name}: {error.strerror}") from None


def unpack(address: int, format: str) -> tuple[Any, ...]:
    """Numbers, and bytes, in a structure, spelled as the module struct has it, with native alignment."""
    return struct.unpack(format, read(address, struct.calcsize(format)))


def write(address: int, data: bytes) -> None:
    """Put bytes at an address.  Raises Refused for a null pointer."""
    if data and not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to write to")
    ctypes.memmove(address, data, len(data))


def put(address: int, format: str, value: float) -> None:
    """Put one number at an address: `i`, `Q` and so on as the module struct has them."""
    write(address, struct.pack(format, value))


def run(function: int, *words: int) -> None:
    """Call a function of the program with words, which it takes as pointers or smaller integers."""
    ctypes.CFUNCTYPE(None, *(ctypes.c_uint64 for _ in words))(function)(*words)


def size_by(function: int, word: int) -> int:
    """The number of bytes that a function of the program makes of an integer."""
    return ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(function)(word)


_PAGE = 4096


class Page:
    """Memory of the process that the driver has given out."""

    def __init__(self, size: int) -> None:
        self._memory = ctypes.create_string_buffer(size + _PAGE)
        self.address = -(-ctypes.addressof(self._memory) // _PAGE) * _PAGE
        self.size = size
