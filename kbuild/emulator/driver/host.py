"""The memory of the process itself, at addresses that a caller of the driver passes."""

from __future__ import annotations

import ctypes
import struct

from kbuild.emulator.driver.codes import DriverResult, Refused


def read(address: int, size: int) -> bytes:
    """`size` bytes.  Raises Refused for a null pointer."""
    if size and not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to read from")
    return ctypes.string_at(address, size)


def read_text(address: int) -> str:
    """The text up to the first zero byte.  Raises Refused for a null pointer."""
    if not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to a text")
    return ctypes.string_at(address).decode(errors="replace")


def unpack(address: int, format: str) -> tuple[int, ...]:
    """Numbers in a structure, spelled as the module struct has it, with native alignment."""
    return struct.unpack(format, read(address, struct.calcsize(format)))


def write(address: int, data: bytes) -> None:
    """Put bytes at an address.  Raises Refused for a null pointer."""
    if data and not address:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, "a null pointer to write to")
    ctypes.memmove(address, data, len(data))


def put(address: int, format: str, value: float) -> None:
    """Put one number at an address: `i`, `Q` and so on as the module struct has them."""
    write(address, struct.pack(format, value))
