"""The versions of ptxas that are installed, which of them is taken, and the drivers that run what it makes.

NVIDIA ships ptxas in a wheel for each major version of CUDA, with a place of its own:
`nvidia/cuda_nvcc/bin/ptxas` of `nvidia-cuda-nvcc-cu12`, `nvidia/cu13/bin/ptxas` of `nvidia-cuda-nvcc` 13.
Both may be there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from kbuild.errors import ToolError
from kbuild.targets import PtxasGuarantees

TESTED = ("13.5", "12.9")
"""The versions that kbuild is tested with, the preferred one first (docs/performance.md says why)."""
OLDEST = (12, 4)
"""The first version that knows the PTX that kbuild writes, 8.4."""

_FIRST_WITH = {
    "keeps_operands": (13, 3),  # Release notes of CUDA 13.3
    "sees_dots_write": (13, 0),  # By experiment: docs/performance.md
}
"""The first version that gives each of the `PtxasGuarantees`."""
_FIRST_DRIVERS = {12: 525, 13: 580}
"""The oldest driver, by its branch, that loads the cubins of each major version of ptxas: those of CUDA's
first minor version (CUDA Compatibility, "Minor version compatibility")."""
OLDEST_DRIVER = min(_FIRST_DRIVERS.values())
"""The first branch of drivers that any code of ptxas runs on."""
LAST_DRIVER = 9999
"""The last number that counts as a branch of drivers."""

DRIVERS = {
    11000: 450,
    11010: 455,
    11020: 460,
    11030: 465,
    11040: 470,
    11050: 495,
    11060: 510,
    11070: 515,
    11080: 520,
    12000: 525,
    12010: 530,
    12020: 535,
    12030: 545,
    12040: 550,
    12050: 555,
    12060: 560,
    12080: 570,
    12090: 575,
    13000: 580,
    13010: 590,
}
"""The branch of drivers that came with a version of CUDA, by `cuDriverGetVersion`: 1000 * major + 10 * minor."""


class Installed(NamedTuple):
    """A ptxas of a wheel."""

    version: tuple[int, ...]
    path: str

    @property
    def name(self) -> str:
        """The version as it is written: `12.9.86`."""
        return ".".join(map(str, self.version))


def parsed(version: str) -> tuple[int, ...]:
    """The numbers of a version; empty for text that is not a version."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else ()


def guarantees_of(version: str) -> PtxasGuarantees:
    """What may be expected of a version of ptxas."""
    return PtxasGuarantees(**{name: parsed(version) >= first for name, first in _FIRST_WITH.items()})


def driver_of(version: str) -> int:
    """The oldest driver, by its branch, that loads the cubins of a version of ptxas."""
    major = (parsed(version) or (max(_FIRST_DRIVERS),))[0]
    return _FIRST_DRIVERS[min(max(major, min(_FIRST_DRIVERS)), max(_FIRST_DRIVERS))]


def cuda_of(driver: int) -> int:
    """The newest version of CUDA, as `cuDriverGetVersion` has it, that a branch of drivers came with; 0 for
    older ones."""
    return max((cuda for cuda, branch in DRIVERS.items() if branch <= driver), default=0)


def is_of(version: tuple[int, ...], series: str) -> bool:
    """Whether a version belongs to a series, such as 12.9.86 to 12.9."""
    wanted = parsed(series)
    return version[: len(wanted)] == wanted


def installed(ask: Callable[[str], str], entries: Iterable[str] | None = None) -> list[Installed]:
    """Every ptxas in a wheel of Python's path, the newest first; `ask` returns the version of one that
    no wheel's RECORD names."""
    found: dict[str, Installed] = {}
    for entry in sys.path if entries is None else entries:
        root = Path(entry or ".")
        for path in sorted(root.glob("nvidia/*/bin/ptxas")):
            if path.is_file() and os.access(path, os.X_OK):
                resolved = str(path.resolve())
                if resolved not in found:
                    found[resolved] = Installed(
                        parsed(recorded_version(str(path)) or ask(str(path))), str(path)
                    )
    return sorted(found.values(), key=lambda one: (one.version, one.path), reverse=True)


def recorded_version(path: str) -> str:
    """The version of the wheel that a ptxas was installed from; empty where none is found."""
    file = Path(path)
    if file.parent.name != "bin" or len(file.parents) < 4:
        return ""
    root = file.parents[3]
    line = f"\n{file.relative_to(root).as_posix()},".encode()
    for record in sorted(root.glob("nvidia_cuda_nvcc*.dist-info/RECORD")):
        if line in b"\n" + record.read_bytes():
            return record.parent.name.removesuffix(".dist-info").rpartition("-")[2]
    return ""


def choose(found: Iterable[Installed], series: str = "", min_driver: int = 0) -> Installed:
    """The ptxas to use of those that are installed.

    `series` asks for a version (`12.9`), `min_driver` for code that a branch of drivers loads; of what is
    left, those of `TESTED` come first, then the newest.  Raises `ToolError` where none will do.
    """
    found = sorted(found, reverse=True)
    fit = [one for one in found if is_of(one.version, series)]
    fit = [one for one in fit if not min_driver or driver_of(one.name) <= min_driver]
    if fit:
        return next((one for wanted in TESTED for one in fit if is_of(one.version, wanted)), fit[0])
    wanted = f" {series}" if series else f" for drivers from {min_driver} on" if min_driver else ""
    there = f"; there is {', '.join(one.name for one in found)}" if found else ""
    command = install(series or series_for(min_driver))
    raise ToolError(
        f"ptxas{wanted} is not installed{there}",
        help=f"{command}, or name one: KBUILD_PTXAS, or ptxas= in Python",
    )


def series_for(driver: int) -> str:
    """The tested version whose code runs on a branch of drivers; the preferred one for 0."""
    return next((series for series in TESTED if not driver or driver_of(series) <= driver), TESTED[-1])


def install(series: str) -> str:
    """The command that installs a version."""
    major = (parsed(series) or (12,))[0]
    package = f"nvidia-cuda-nvcc-cu{major}" if major < 13 else "nvidia-cuda-nvcc"
    return f'pip install "{package}=={series}{".*" if series.count(".") < 2 else ""}"'
