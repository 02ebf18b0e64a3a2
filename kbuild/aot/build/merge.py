"""`kbuild merge`: from wheels of one project for different architectures to the wheel of all of them.

    demo-1.0+sm80-….whl ─┐  check that they are of one build    archives of cubins, as they are ─┐
    demo-1.0+sm90-….whl ─┴─▶ (record.py)                        rows, in the manifest's order ───┴─▶ pack ─▶ demo-1.0-….whl

The wheel is that of one build of these architectures, byte for byte: cubins and facts come from the wheels, and all
else is made again by `assemble.pack`, which has made them.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot import toolchain
from kbuild.aot.artifact import record
from kbuild.aot.artifact.archive import index_digest
from kbuild.aot.artifact.distribution import Distribution
from kbuild.aot.artifact.platforms import machine_of, parse_platform, this_machine
from kbuild.aot.build.assemble import Contents, pack
from kbuild.aot.build.plan import manifest_digest
from kbuild.aot.files import write_files
from kbuild.aot.identity import kbuild_identity
from kbuild.errors import UsageError

_INPUTS = {
    "project": "is of the project {}, and {} of {}",
    "version": "is of version {}, and {} of {}",
    "kbuild": "was made by another kbuild than {}",
    "manifest": "was built from another kernels.toml than {}",
    "tuned": "was built with another kernels.tune.toml than {}",
    "sources": "was built from other sources than {}",
    "options": "was built with other options than {}",
    "tools": "was built with another ptxas or llvmlite than {}",
    "llvm": "was built with another llvmlite than {}",
    "distribution": "has other files of the project, or other metadata, than {}",
    "epoch": "was built with SOURCE_DATE_EPOCH {}, and {} with {}",
    "platform": "was built with --platform {}, and {} with {}",
}
"""What wheels have in common, in the order in which it is compared, and what is said where they differ."""
_REPEAT = "build both again, from one checkout and with one kbuild"


@dataclass(frozen=True)
class Part:
    """One of the wheels to join."""

    name: str
    """Its file name, for messages."""
    platform: str
    """Its platform tag."""
    record: record.Record
    files: Mapping[str, bytes]
    """What it holds."""

    @property
    def information(self) -> str:
        """The folder with its metadata, ending with a slash."""
        return next(name for name in self.files if name.endswith(f".dist-info/{record.FILE}")).removesuffix(
            record.FILE
        )


def merge(wheels: Sequence[Path], folder: Path, environment: Mapping[str, str]) -> Path:
    """Joins two wheels or more, and writes the one that they make into `folder`; its path.

    Raises UsageError for wheels that are not of one build, and ToolError where there is no C compiler.
    """
    if len(wheels) < 2:
        raise UsageError("merge takes two wheels or more", help="such as dist/*+sm80*.whl dist/*+sm90*.whl")
    parts = [read(path) for path in wheels]
    check(parts)
    first = parts[0]
    manifest = first.record.manifest
    asked = first.record.inputs["platform"]
    machine = machine_of(first.platform)
    if not asked and machine != this_machine():
        asked = machine
    platform = parse_platform(asked) if asked else None
    cc = toolchain.find_cc(environment, platform)
    known = {arch: part for part in parts for arch in part.record.archs}
    archs = tuple(arch for arch in manifest.package.archs if arch in known)
    inputs = dict(first.record.inputs)
    llvm = inputs.pop("llvm")
    with tempfile.TemporaryDirectory(prefix="kbuild-merge-") as place:
        for arch in archs:
            name = f"{manifest.package.path}/cubins/{arch}.kbz"
            if name in known[arch].files:  # Not where the manifest excludes all its variants.
                write_files({Path(place, name): known[arch].files[name]})
        contents = Contents(manifest, inputs, archs, _rows(parts), _distribution(first), llvm)
        name, data = pack(contents, Path(place), [cc.path, *cc.arguments], platform)
    write_files({folder / name: data})
    return folder / name


def read(path: Path) -> Part:
    """A wheel of some architectures; UsageError for another file, and for one that is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    except FileNotFoundError:
        raise UsageError(f"no file {path}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"{path.name} is not a wheel, or damaged: {error}") from None
    _check_files(path.name, files)
    information = [name for name in files if name.endswith(f".dist-info/{record.FILE}")]
    if len(information) != 1:
        raise UsageError(
            f"{path.name} is no wheel of some architectures: it has no .dist-info/{record.FILE}",
            help="merge takes wheels of kbuild wheel --arch; one of all the manifest's architectures is whole",
        )
    try:
        found = record.decode(files[information[0]])
        is_whole = manifest_digest(found.manifest) == found.inputs["manifest"] and set(found.inputs) == {
            *_INPUTS
        }
    except (ValueError, TypeError) as error:
        raise UsageError(_unreadable(path.name, str(error)), help=_REPEAT) from None
    if not is_whole:
        raise UsageError(_unreadable(path.name, "it is incomplete"), help=_REPEAT)
    return Part(path.name, path.stem.rpartition("-")[2], found, files)


def _unreadable(name: str, why: str) -> str:
    return f"{name}: its .dist-info/{record.FILE} was written by another kbuild: {why}"


def _check_files(wheel: str, files: Mapping[str, bytes]) -> None:
    """UsageError unless a wheel has the files that its RECORD lists, as they were."""
    listed = next((name for name in files if name.endswith(".dist-info/RECORD")), None)
    if listed is None:
        raise UsageError(f"{wheel} is not a wheel: it has no .dist-info/RECORD")
    lines = files[listed].decode(errors="replace").splitlines()
    digests = {row[0]: row[1] for row in csv.reader(lines, strict=False) if len(row) == 3}
    for name in sorted({*files, *digests}):
        found = hashlib.sha256(files.get(name, b"")).digest()
        text = f"sha256={base64.urlsafe_b64encode(found).rstrip(b'=').decode()}"
        if name not in files or (name != listed and digests.get(name) != text):
            raise UsageError(f"{wheel} is damaged: {name} is not what its RECORD says", help="build it again")


def check(parts: Sequence[Part]) -> None:
    """UsageError unless the wheels are of one build by this kbuild, for different architectures."""
    first = parts[0]
    for part in parts[1:]:
        for name, text in _INPUTS.items():
            mine, other = part.record.inputs[name], first.record.inputs[name]
            if mine != other:
                raise UsageError(f"{part.name} {_difference(name, text, mine, other, first)}", help=_REPEAT)
        if machine_of(part.platform) != machine_of(first.platform):
            raise UsageError(
                f"{part.name} is for {part.platform}, and {first.name} for {first.platform}",
                help="merge the wheels of each platform by themselves",
            )
    made_by, this = first.record.inputs["kbuild"], kbuild_identity()
    if made_by != this:
        version = made_by["version"]
        by = f"kbuild {version}" if version != this["version"] else f"another kbuild {version}"
        raise UsageError(
            f"{first.name} was made by {by}, and this is kbuild {this['version']}",
            help="merge with the kbuild that has built the wheels",
        )
    seen: dict[str, Part] = {}
    for part in parts:
        for arch in part.record.archs:
            if arch in seen:
                raise UsageError(
                    f"{part.name} and {seen[arch].name} both have {arch}",
                    help="give one wheel for each architecture",
                )
            seen[arch] = part
        _check_archives(part)


def _difference(name: str, text: str, mine: Any, other: Any, first: Part) -> str:
    """What is said of an input that two wheels do not have in common."""
    values = ("none" if value is None else value for value in (mine, other))
    said = (
        text.format(next(values), first.name, next(values))
        if text.count("{}") == 3
        else text.format(first.name)
    )
    if name == "sources":
        differing = sorted(path for path in {*mine, *other} if mine.get(path) != other.get(path))
        said += f": {', '.join(differing)}"
    return said


def _check_archives(part: Part) -> None:
    """UsageError unless the wheel has the cubins that its rows name."""
    folder = part.record.manifest.package.path
    for variant, facts in part.record.rows:
        archive = part.files.get(f"{folder}/cubins/{facts['archive']}.kbz", b"")
        if variant.arch not in part.record.archs or index_digest(archive) != facts["archive_sha256"]:
            raise UsageError(
                f"{part.name} is damaged: it lacks cubins of {variant.arch}", help="build it again"
            )


def _rows(parts: Sequence[Part]) -> list[Any]:
    """The variants of all wheels in the order of one build: by kernel, then by architecture, as written."""
    manifest = parts[0].record.manifest
    kernels = [kernel.name for kernel in manifest.kernels]
    rows = [row for part in parts for row in part.record.rows]
    return sorted(
        rows, key=lambda row: (kernels.index(row[0].kernel), manifest.package.archs.index(row[0].arch))
    )


def _distribution(part: Part) -> Distribution:
    """The project's distribution, with its files from the wheel; UsageError if these are not all."""
    fields = dict(part.record.distribution)
    licenses, files = fields.pop("licenses"), fields.pop("files")
    try:
        found = Distribution(
            **fields,
            licenses={name: part.files[f"{part.information}licenses/{name}"] for name in licenses},
            files={name: part.files[name] for name in files},
            roots=(),
            sources=frozenset(),
        )
    except KeyError as error:
        raise UsageError(f"{part.name} is damaged: it lacks {error.args[0]}", help="build it again") from None
    if found.digest != part.record.inputs["distribution"]:
        raise UsageError(
            f"{part.name} is damaged: its files of the project have changed", help="build it again"
        )
    return found
