"""Which devices run which code, by NVIDIA's rules of compatibility (CUDA C++ Programming Guide, "Application
Compatibility").

A compute capability is one number, 10 · major + minor: 90 is 9.0, and 120 is 12.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kbuild.errors import UsageError

_ARCH = re.compile(r"sm_(\d+)([af]?)")
_NEWEST = 9999
"""Above every compute capability: PTX also runs on devices that do not exist yet."""


@dataclass(frozen=True)
class Devices:
    """The devices that run some code: those from one compute capability to another."""

    first: int
    last: int

    @property
    def are_alike(self) -> bool:
        """Whether they are of one compute capability."""
        return self.first == self.last

    def have(self, capability: int) -> bool:
        return self.first <= capability <= self.last


def devices_of(arch: str, is_ptx: bool = False) -> Devices:
    """The devices that run code for an architecture: cubins run on their own major version from their own minor
    one on, PTX on everything newer besides.  The suffix `a` binds both to one capability, `f` to one major
    version."""
    capability, suffix = _split(arch)
    if suffix == "a":
        return Devices(capability, capability)
    return Devices(capability, _NEWEST if is_ptx and not suffix else capability // 10 * 10 + 9)


def capability_of(arch: str) -> int:
    """The compute capability that an architecture is named after: 90 of `sm_90` and `sm_90a`."""
    return _split(arch)[0]


def _split(arch: str) -> tuple[int, str]:
    found = _ARCH.fullmatch(arch)
    if found is None:
        raise UsageError(
            f"unknown architecture {arch!r}", help="architectures are named like sm_90 and sm_90a"
        )
    return int(found[1]), found[2]
