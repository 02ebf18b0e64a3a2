"""Where the bytes of a wheel are: by kernel, by type and by architecture, and what they were in another wheel.

Equal cubins are stored once (`archive.py`): each of those that share bytes counts an equal part of them, so that
parts add up to the whole.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot.artifact.archive import read_index
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import DTYPES
from kbuild.errors import UsageError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_ELEMENT = re.compile(rf"\b({'|'.join(DTYPES)})\b")


@dataclass(frozen=True)
class Code:
    """The cubin of a variant, or its PTX."""

    variant: str
    """Name of the variant."""
    kind: str
    """`cubin` or `ptx`."""
    kernel: str
    arch: str
    """The architecture that the manifest names."""
    dtype: str
    """What the variant is for: the types among its axes, or else those that its pointers point to."""
    bytes: int
    """In the wheel: its part of what it shares."""
    size: int
    """Unpacked."""
    sha256: str


@dataclass(frozen=True)
class WheelSizes:
    """Where the bytes of a wheel are."""

    name: str
    """Its file name."""
    total: int
    """Bytes of the file."""
    code: tuple[Code, ...]
    """In the order of the archives."""
    other: Mapping[str, int]
    """Bytes of what is not code: `index` of the archives, `launcher`, `Python`, `metadata`, and `project` for the
    project's own files."""
    shared: int
    """Bytes that equal cubins would take if each had its own."""

    @property
    def distinct(self) -> int:
        """How many different cubins and PTX texts there are."""
        return len({one.sha256 for one in self.code})

    def by(self, part: Callable[[Code], str]) -> dict[str, int]:
        """Bytes of the code by one of its properties, the most first."""
        found: dict[str, int] = {}
        for one in self.code:
            found[part(one)] = found.get(part(one), 0) + one.bytes
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def label(one: Code) -> str:
    """A variant's name, and whether it is its PTX that is meant."""
    return f"{one.variant} (PTX)" if one.kind == "ptx" else one.variant


PARTS: Mapping[str, Callable[[Code], str]] = {
    "kernel": lambda one: one.kernel,
    "dtype": lambda one: one.dtype,
    "arch": lambda one: one.arch,
}
"""What bytes are told apart by."""


def wheel_sizes(path: Path) -> WheelSizes:
    """The sizes of a wheel that kbuild has made; UsageError for another file, and for one that is damaged."""
    code: list[Code] = []
    other: dict[str, int] = {}
    shared = 0
    try:
        with zipfile.ZipFile(path) as wheel:
            members = {info.filename: info for info in wheel.infolist() if not info.is_dir()}
            archives = [name for name in members if name.endswith(".kbz")]
            folders = {name.partition("/cubins/")[0] for name in archives}
            for name in archives:
                data = wheel.read(name)
                found, saved = _of_archive(data, Path(name).stem)
                code += found
                shared += saved
                other["index"] = other.get("index", 0) + len(data) - sum(one.bytes for one in found)
    except FileNotFoundError:
        raise UsageError(f"no file {path}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"{path} is not a wheel, or damaged: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: its archives of cubins cannot be read: {error}") from None
    if not archives:
        raise UsageError(f"{path} is not a wheel of kbuild: it has no cubins/*.kbz")
    for name, info in members.items():
        if name not in archives:
            group = _group(name, folders)
            other[group] = other.get(group, 0) + info.compress_size
    total = path.stat().st_size
    other["metadata"] = (
        other.get("metadata", 0) + total - sum(one.bytes for one in code) - sum(other.values())
    )
    return WheelSizes(path.name, total, tuple(code), other, shared)


def _of_archive(data: bytes, arch: str) -> tuple[list[Code], int]:
    """The code of an archive, and the bytes that sharing saves."""
    rows = read_index(data)
    users: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        users.setdefault(row["offset"], []).append(row)
    found: list[Code] = []
    for row in rows:
        sharing = users[row["offset"]]
        part, rest = divmod(row["stored"], len(sharing))
        variant = Variant.parse(row["variant"])
        found.append(
            Code(
                variant=variant.name,
                kind=row["kind"],
                kernel=row["kernel"],
                arch=arch,
                dtype=dtype_of(variant),
                bytes=part + rest * (sharing[0] is row),
                size=row["size"],
                sha256=row["sha256"],
            )
        )
    saved = sum((len(sharing) - 1) * sharing[0]["stored"] for sharing in users.values())
    return found, saved


def dtype_of(variant: Variant) -> str:
    """The types that a variant is for, joined by `+`: those among its axes, or else those of its pointers."""
    axes = [str(value) for _, value in variant.matrix if value in DTYPES]
    elements = [
        found[1] for _, type_ in variant.signature if "*" in type_ and (found := _ELEMENT.search(type_))
    ]
    return "+".join(dict.fromkeys(axes or elements)) or "none"


def _group(name: str, folders: Iterable[str]) -> str:
    if ".dist-info/" in name:
        return "metadata"
    if not any(name.startswith(f"{folder}/") for folder in folders):
        return "project"
    return "launcher" if ".so" in name else "Python"


@dataclass(frozen=True)
class Growth:
    """How the bytes of something changed."""

    name: str
    before: int
    after: int

    @property
    def bytes(self) -> int:
        return self.after - self.before


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> list[Growth]:
    """What changed between two tables of bytes, what grew most first."""
    names = dict.fromkeys((*after, *before))
    found = [Growth(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return sorted(found, key=lambda one: (-one.bytes, one.name))


def largest(sizes: WheelSizes, old: WheelSizes | None, count: int) -> Sequence[Growth]:
    """The kernels and architectures whose code grew most since `old`, or is largest where there is none, with
    whatever else the wheel holds."""
    after, before = (_everything(each) if each else {} for each in (sizes, old))
    return [one for one in growth(before, after) if one.bytes > 0][:count]


def _everything(sizes: WheelSizes) -> dict[str, int]:
    return sizes.by(lambda one: f"{one.kernel} {one.arch}") | dict(sizes.other)


def parse_size(text: str) -> int:
    """A number of bytes such as `50MB`, `47.5 MiB` or `1000000`; ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kKmMgG]?i?[bB])?\s*", text)
    unit = (match[2] or "").lower() if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"expected a size such as 50MB or 47.5MiB, found {text!r}")
    return int(float(match[1]) * _UNITS[unit])
