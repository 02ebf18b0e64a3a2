"""`kbuild merge`: from wheels of some architectures and parts of builds to the wheel of all that they have.

    demo-1.0+sm80-….whl ──┐  check that they are of one build (record.py),
    demo-1.0+sm90-1of2.part ┼▶ and have each variant once (complete.py) ──▶ archives, rows ──▶ pack ──▶ demo-1.0-….whl
    demo-1.0+sm90-2of2.part ┘

The wheel is that of one build of these architectures, byte for byte: cubins and facts come from the parts, and all
else is made again by `assemble.pack`, which makes it in a build too.
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
from kbuild.aot.artifact.archive import Packed, decode
from kbuild.aot.artifact.distribution import Distribution
from kbuild.aot.artifact.platforms import Platform, machine_of, parse_platform, this_machine
from kbuild.aot.build.assemble import PART, Built, Contents, pack, write_archives
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.launcher import core_commands, core_objects
from kbuild.aot.build.plan import launcher_job, manifest_digest
from kbuild.aot.files import write_files
from kbuild.aot.identity import FileDigests, bytes_digest, kbuild_identity, templates_digest
from kbuild.aot.shards.complete import check_complete, places_of
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
    """A wheel, or a part of a build, that is joined with others."""

    name: str
    """Its file name, for messages."""
    platform: str
    """The platform tag of a wheel; empty for a part, which is of none."""
    record: record.Record
    files: Mapping[str, bytes]
    """What it holds."""

    @property
    def information(self) -> str:
        """The folder with its metadata, ending with a slash."""
        return next(name for name in self.files if name.endswith(f".dist-info/{record.FILE}")).removesuffix(
            record.FILE
        )


def merge(
    parts: Sequence[Path],
    folder: Path,
    environment: Mapping[str, str],
    asked: str = "",
    cache: Cache | None = None,
) -> Path:
    """Joins wheels of some architectures and parts of builds, and writes the wheel that they make into `folder`; its
    path.

    `asked` is the platform of a wheel that is made of parts alone, this machine where it is empty; `cache` may have the
    proper parts of the libraries.  Raises UsageError for what is not of one build or not all of it, and ToolError where
    there is no C compiler.
    """
    if len(parts) < 2 and not all(path.suffix == PART for path in parts):
        raise UsageError("merge takes two wheels or more", help="such as dist/*+sm80*.whl dist/*+sm90*.whl")
    found = [read(path) for path in parts]
    check(found)
    platform = _platform(found, asked)
    cc = toolchain.find_cc(environment, platform)
    built, packed = _built(found)
    first = found[0]
    manifest = first.record.manifest
    archs = {arch for part in found for arch in part.record.archs}
    inputs = {**first.record.inputs, "platform": asked or _asked(found)}
    llvm = inputs.pop("llvm")
    with tempfile.TemporaryDirectory(prefix="kbuild-merge-") as place:
        contents = Contents(
            manifest,
            inputs,
            tuple(arch for arch in manifest.package.archs if arch in archs),
            write_archives(Path(place, manifest.package.path, "cubins"), manifest, built, packed),
            _distribution(first),
            llvm,
        )
        command = [cc.path, *cc.arguments]
        cores = (
            None if platform and platform.is_foreign else _cores(command, cache or Cache(None), Path(place))
        )
        name, data = pack(contents, Path(place), command, platform, cores)
    write_files({folder / name: data})
    return folder / name


def _cores(cc: Sequence[str], cache: Cache, place: Path) -> Path:
    """A folder with the object files of what is the same for all packages, by the job that a build has for them."""
    digest = FileDigests(place / "digests.json").get(Path(cc[0]))
    package = {"templates": templates_digest(), "cc_digest": digest, "launcher": core_commands(cc)}
    objects = core_objects(launcher_job(package), cache, place)
    write_files({place / "cores" / name: data for name, data in objects.items()})
    return place / "cores"


def _asked(parts: Sequence[Part]) -> str | None:
    """The platform that the wheels were built for on request."""
    return next((part.record.inputs["platform"] for part in parts if part.platform), None)


def _platform(parts: Sequence[Part], asked: str) -> Platform | None:
    """The platform of the wheel to make, where it is not simply this machine; UsageError if it is not that of the
    wheels."""
    wheel = next((part for part in parts if part.platform), None)
    if wheel is None:
        return parse_platform(asked) if asked else None
    if asked:
        raise UsageError(
            f"--platform {asked}: {wheel.name} is for {wheel.platform} already",
            help="leave it out, or merge parts alone",
        )
    known, machine = _asked(parts), machine_of(wheel.platform)
    if not known and machine != this_machine():
        known = machine
    return parse_platform(known) if known else None


def read(path: Path) -> Part:
    """A wheel of some architectures, or a part; UsageError for another file, and for one that is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    except FileNotFoundError:
        raise UsageError(f"no file {path}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"{path.name} is not a {_kind(path)}, or damaged: {error}") from None
    _check_files(path.name, files)
    information = [name for name in files if name.endswith(f".dist-info/{record.FILE}")]
    if len(information) != 1:
        raise UsageError(
            f"{path.name} is no wheel of some architectures: it has no .dist-info/{record.FILE}",
            help="merge takes parts of kbuild build --shard, and wheels of kbuild wheel --arch; a wheel of all the "
            "manifest's architectures is whole",
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
    return Part(path.name, "" if found.part else path.stem.rpartition("-")[2], found, files)


def _kind(path: Path) -> str:
    return "part" if path.suffix == PART else "wheel"


def _unreadable(name: str, why: str) -> str:
    return f"{name}: its .dist-info/{record.FILE} was written by another kbuild: {why}"


def _check_files(wheel: str, files: Mapping[str, bytes]) -> None:
    """UsageError unless a wheel has the files that its RECORD lists, as they were."""
    listed = next((name for name in files if name.endswith(".dist-info/RECORD")), None)
    if listed is None:
        raise UsageError(f"{wheel} is not a {_kind(Path(wheel))}: it has no .dist-info/RECORD")
    lines = files[listed].decode(errors="replace").splitlines()
    digests = {row[0]: row[1] for row in csv.reader(lines, strict=False) if len(row) == 3}
    for name in sorted({*files, *digests}):
        found = hashlib.sha256(files.get(name, b"")).digest()
        text = f"sha256={base64.urlsafe_b64encode(found).rstrip(b'=').decode()}"
        if name not in files or (name != listed and digests.get(name) != text):
            raise UsageError(f"{wheel} is damaged: {name} is not what its RECORD says", help="build it again")


def check(parts: Sequence[Part]) -> None:
    """UsageError unless all are of one build by this kbuild, and together have each variant of their architectures
    once."""
    first = parts[0]
    wheels = [part for part in parts if part.platform]
    for name, text in _INPUTS.items():
        compared = wheels if name == "platform" else parts
        for part in compared[1:]:
            mine, other = part.record.inputs[name], compared[0].record.inputs[name]
            if mine != other:
                said = _difference(name, text, mine, other, compared[0])
                raise UsageError(f"{part.name} {said}", help=_REPEAT)
    for part in wheels[1:]:
        if machine_of(part.platform) != machine_of(wheels[0].platform):
            raise UsageError(
                f"{part.name} is for {part.platform}, and {wheels[0].name} for {wheels[0].platform}",
                help="merge the wheels of each platform by themselves",
            )
    made_by, this = first.record.inputs["kbuild"], kbuild_identity()
    if made_by != this:
        version = made_by["version"]
        by = f"kbuild {version}" if version != this["version"] else f"another kbuild {version}"
        raise UsageError(
            f"{first.name} was made by {by}, and this is kbuild {this['version']}",
            help="merge with the kbuild that has built the parts",
        )
    check_complete([(part.name, part.record) for part in parts])


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


def _built(parts: Sequence[Part]) -> tuple[list[Built], dict[str, Packed]]:
    """The variants of all parts in the order of one build, and their code as it is compressed, where this machine would
    compress it to the same; UsageError where a part lacks code that it lists."""
    manifest = parts[0].record.manifest
    kernels = {kernel.name: place for place, kernel in enumerate(manifest.kernels)}
    archs = {arch: place for place, arch in enumerate(manifest.package.archs)}
    found: list[tuple[tuple[int, int, int], Built]] = []
    packed: dict[str, Packed] = {}
    for part in parts:
        entries: dict[tuple[str, str], bytes] = {}
        for arch in part.record.archs:
            name = f"{manifest.package.path}/cubins/{arch}.kbz"
            if name not in part.files:  # The manifest excludes all its variants, or the shard has none.
                continue
            try:
                of_arch, blobs = decode(part.files[name])
            except ValueError as error:
                raise UsageError(f"{part.name} is damaged: {name}: {error}", help="build it again") from None
            entries |= {(arch, entry.key): entry.data for entry in of_arch}
            packed |= blobs if part.record.zlib == zlib.ZLIB_RUNTIME_VERSION else {}
        for (variant, facts), place in zip(part.record.rows, places_of(part.record)):
            code = entries.get((variant.arch, facts["key"]))
            ptx = entries.get((variant.arch, facts.get("ptx_key", "")))
            if code is None or bytes_digest(code) != facts["sha256"] or ("ptx_key" in facts and ptx is None):
                raise UsageError(
                    f"{part.name} is damaged: it lacks cubins of {variant.arch}: {variant.name}",
                    help="build it again",
                )
            order = kernels[variant.kernel], archs[variant.arch], place
            found.append((order, Built(variant, facts, code, ptx)))
    return [built for _, built in sorted(found, key=lambda item: item[0])], packed


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
