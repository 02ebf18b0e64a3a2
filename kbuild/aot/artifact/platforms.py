"""The platforms that wheels are for: their tags (PEP 600), and what a launcher needs of them.

The cubins of a wheel run with any processor beside the GPU; the launcher alone is of one machine.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.tags import platform_tags

from kbuild.errors import ToolError, UsageError, nearest

_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
"""By `e_machine`; on both NVIDIA has drivers for Linux, and both have the same sizes and order of bytes."""
MACHINES = tuple(_ELF_MACHINES.values())
_LEGACY = {"manylinux2010": (2, 12), "manylinux2014": (2, 17)}
"""Older names of tags (PEP 571, PEP 599)."""
_OLDEST_GLIBC = 17
"""Not all machines have manylinux tags for a glibc older than 2.17."""
_SYSTEM_LIBRARIES = {
    b"libc.so.6",
    b"libm.so.6",
    b"libdl.so.2",
    b"libpthread.so.0",
    b"librt.so.1",
    b"ld-linux-aarch64.so.1",
    b"ld-linux-x86-64.so.2",
}
"""Libraries that the manylinux policy lets a wheel count on, as far as C needs them."""


@dataclass(frozen=True)
class Platform:
    """A platform that a wheel is requested for: Linux on some machine, with some glibc or a newer one."""

    text: str
    """As it was written."""
    machine: str
    """One of `MACHINES`."""
    glibc: int | None = None
    """The minor version of glibc 2 that is enough; None for as old a one as the launcher runs with."""
    is_manylinux: bool = True
    """Whether the wheel is for all of them, rather than for machines like that of the compiler."""

    @property
    def is_foreign(self) -> bool:
        """Whether it is another machine than this one."""
        return self.machine != this_machine()

    @property
    def zig_target(self) -> str:
        """What `zig cc -target` calls it; there the glibc that it links against goes by its version."""
        return f"{self.machine}-linux-gnu.2.{max(self.glibc or 0, _OLDEST_GLIBC)}"


def parse_platform(text: str) -> Platform:
    """The platform of a machine, `aarch64`, or of a tag, `manylinux_2_28_aarch64`; UsageError for other texts."""
    match = re.fullmatch(r"(?:(linux|manylinux\d{4})_|manylinux_2_(\d+)_)?(\w+)", text)
    if match is None or match[3] not in MACHINES or (match[1] or "linux") not in ("linux", *_LEGACY):
        known = [*MACHINES, *(f"manylinux_2_28_{machine}" for machine in MACHINES)]
        close = nearest(text, known)
        raise UsageError(
            f"--platform {text}: expected {', '.join(known[:-1])} or another manylinux tag of these machines",
            help=f'did you mean "{close}"?' if close else "wheels are for Linux, where NVIDIA has drivers",
        )
    legacy = _LEGACY[match[1]][1] if match[1] in _LEGACY else None
    return Platform(text, match[3], int(match[2]) if match[2] else legacy, match[1] != "linux")


def this_machine() -> str:
    """The machine of this Python, such as `x86_64`."""
    return machine_of(next(tag for tag in platform_tags() if tag.startswith("linux_")))


def machine_of(tag: str) -> str:
    """The machine of a platform tag, whatever its libc: `x86_64`, `win_amd64`."""
    return re.sub(r"^(many|musl)?linux(_\d+_\d+|\d{4})?_", "", tag)


def platform_tag(libraries: Sequence[bytes], platform: Platform | None = None) -> str:
    """The platform tag of a wheel with these shared objects, which one compiler has made: for a platform that was
    requested, or for this machine: then manylinux if nothing in them asks for more, linux otherwise.

    Raises ToolError where they are of another machine, or ask for more than what was requested.
    """
    wanted = platform or Platform("", this_machine())
    found = elf_machine(libraries[0])
    if found != wanted.machine:
        if platform is None:
            text = f"the C compiler makes code for {found}, and this machine is {wanted.machine}"
            raise ToolError(text, help=f"--platform {found} makes a wheel for {found}; or unset CC")
        text = f"--platform is {platform.text}, and the C compiler makes code for {found}"
        raise ToolError(
            text, help=f"set CC to a compiler for {platform.machine}, such as {_example(platform)}"
        )
    versions = (int(version) for data in libraries for version in re.findall(rb"GLIBC_2\.(\d+)", data))
    needed = max([_OLDEST_GLIBC, *versions])
    others = set().union(*map(needed_libraries, libraries)) - _SYSTEM_LIBRARIES
    plain, many = f"linux_{wanted.machine}", f"manylinux_2_{wanted.glibc or needed}_{wanted.machine}"
    if platform is None:
        return many if many in platform_tags() and not others else plain
    if not wanted.is_manylinux:
        return plain
    if wanted.glibc is None:
        return plain if others else many
    if others or needed > wanted.glibc:
        what = ", ".join(sorted(name.decode() for name in others)) or f"glibc 2.{needed}"
        raise ToolError(
            f"--platform is {platform.text}, but the launcher that the C compiler makes needs {what}",
            help=f"--platform {platform.machine} takes what it needs; zig links against older glibcs: pip install ziglang",
        )
    return many


def _example(platform: Platform) -> str:
    return f"{platform.machine}-linux-gnu-gcc"


def elf_machine(data: bytes) -> str:
    """The machine of a 64-bit little-endian ELF file, by its number if it is none of `MACHINES`; ValueError if it
    is not such a file."""
    _require_elf(data)
    (number,) = struct.unpack_from("<H", data, 18)
    return _ELF_MACHINES.get(number, f"ELF machine {number}")


def needed_libraries(data: bytes) -> set[bytes]:
    """The libraries that a 64-bit little-endian ELF file needs; ValueError if it is not such a file."""
    _require_elf(data)
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    needed: set[bytes] = set()
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + index * size) for index in range(count)]
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind != 6:  # SHT_DYNAMIC
            continue
        strings = sections[link][4]
        for place in range(offset, offset + length, 16):
            tag, value = struct.unpack_from("<qQ", data, place)
            if tag == 1:  # DT_NEEDED
                needed.add(data[strings + value : data.index(b"\0", strings + value)])
    return needed


def _require_elf(data: bytes) -> None:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
