"""The contents of a cubin: its sections, its architecture, its kernels and their parameters.

A cubin is a 64-bit ELF file (System V ABI, chapters 4 and 5) for machine 190.  What NVIDIA puts in it is
not documented; the numbers below are those of ptxas 12.8 to 13.5, and tests check them with PTX of known
parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kbuild.compiler.backend.sass import BYTES
from kbuild.errors import ToolError

_MACHINE_CUDA = 190
_SYMBOLS = 2  # SHT_SYMTAB
_FUNCTION = 2  # STT_FUNC
_IS_ENTRY = 0x10  # STO_CUDA_ENTRY, a flag in st_other
_CODE = ".text."
_INFO = ".nv.info."
"""Attributes of a function follow this prefix and its name; its code is in `.text.` and its name."""
_WITH_VALUE = 4  # EIFMT_SVAL: a number of bytes, and these
_PARAMETER = 0x17  # EIATTR_KPARAM_INFO
_THREADS = 0x10  # EIATTR_REQNTID
_PARAMETER_BYTES = 0x19  # EIATTR_CBANK_PARAM_SIZE


class Section(NamedTuple):
    """A section of an ELF file."""

    name: str
    kind: int
    """`sh_type`."""
    link: int
    """`sh_link`: of symbols, the section with their names."""
    data: bytes


class CubinKernel(NamedTuple):
    """A kernel of a cubin."""

    name: str
    parameters: tuple[int, ...]
    """Bytes of each parameter."""
    parameter_bytes: int
    """Bytes of all, with the gaps between them."""
    threads: tuple[int, ...]
    """Threads of a program along each axis, where the PTX fixes them; else empty."""


def require_elf(cubin: bytes) -> None:
    """Raise `ToolError` unless the bytes are a complete ELF file for CUDA."""
    if len(cubin) < 64 or cubin[:5] != b"\x7fELF\x02":
        raise ToolError(f"ptxas wrote {len(cubin)} bytes that are not a 64-bit ELF file")
    (machine,) = struct.unpack_from("<H", cubin, 18)
    if machine != _MACHINE_CUDA:
        raise ToolError(f"ptxas wrote an ELF file for machine {machine}, not for CUDA ({_MACHINE_CUDA})")
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<HH", cubin, 58)
    if start + size * count > len(cubin):
        raise ToolError(f"ptxas wrote a truncated cubin of {len(cubin)} bytes")


def sections(cubin: bytes) -> list[Section]:
    """All sections of an ELF file.  Raises `ToolError` where their places contradict each other."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    try:
        headers = [struct.unpack_from("<IIQQQQI", cubin, start + index * size) for index in range(count)]
        texts = headers[names][4]
        return [
            Section(_text(cubin, texts + name), kind, link, cubin[offset : offset + length])
            for name, kind, _, _, offset, length, link in headers
        ]
    except (struct.error, IndexError, ValueError) as error:
        raise ToolError(f"ptxas wrote a damaged cubin of {len(cubin)} bytes: {error}") from None


def code(found: list[Section]) -> Iterator[Section]:
    """The sections that hold machine code."""
    return (section for section in found if section.name.startswith(_CODE))


def instruction_count(cubin: bytes) -> int:
    """Instructions of machine code, with the padding behind them."""
    return sum(len(section.data) for section in code(sections(cubin))) // BYTES


def capability(cubin: bytes) -> int:
    """The architecture that the code is for, as 10 · major + minor: 90 of sm_90 and sm_90a."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    is_old = cubin[8] < 8  # The version of the ABI: 7 of ptxas 12, 8 of ptxas 13.
    return flags & 0xFF if is_old else flags >> 8 & 0xFF


def kernels(found: list[Section]) -> list[CubinKernel]:
    """The kernels of a cubin with these sections.  Raises `ToolError` where they are inconsistent."""
    attributes = {
        section.name.removeprefix(_INFO): section.data for section in found if section.name.startswith(_INFO)
    }
    try:
        return [_kernel(name, attributes.get(name, b"")) for name in _entries(found)]
    except (struct.error, IndexError, ValueError) as error:
        raise ToolError(f"ptxas wrote a damaged cubin: {error}") from None


def _entries(found: list[Section]) -> Iterator[str]:
    for section in found:
        if section.kind == _SYMBOLS:
            for name, info, other in struct.iter_unpack("<IBB18x", section.data):
                if info & 0xF == _FUNCTION and other & _IS_ENTRY:
                    yield _text(found[section.link].data, name)


def _kernel(name: str, attributes: bytes) -> CubinKernel:
    sizes: dict[int, int] = {}
    total, threads = 0, ()
    for attribute, value in _attributes(attributes):
        if attribute == _PARAMETER:
            ordinal, word = struct.unpack("<4xH2xI", value)
            sizes[ordinal] = word >> 18
        elif attribute == _PARAMETER_BYTES:
            (total,) = struct.unpack("<H", value)
        elif attribute == _THREADS:
            threads = struct.unpack("<III", value)
    return CubinKernel(name, tuple(size for _, size in sorted(sizes.items())), total, threads)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each attribute's number and value: two bytes, or as many as these two say."""
    place = 0
    while place < len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, place)
        end = place + 4 + (length if form == _WITH_VALUE else 0)
        yield attribute, data[place + 4 : end] if form == _WITH_VALUE else data[place + 2 : place + 4]
        place = end


def _text(data: bytes, place: int) -> str:
    return data[place : data.index(b"\0", place)].decode("utf-8", "replace")
