"""The last step of a build: cubins and their facts become archives, tables, launcher and wheel; or, of a shard, the
part that `merge.py` joins with others.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.aot import toolchain
from kbuild.aot.artifact import record, rendering, sbom, tables, wheel
from kbuild.aot.artifact.archive import ArchiveEntry, Packed, Place, write_archive
from kbuild.aot.artifact.distribution import Distribution, read_distribution
from kbuild.aot.artifact.partial import partial_package
from kbuild.aot.artifact.platforms import Platform, parse_platform, platform_tag
from kbuild.aot.build import records
from kbuild.aot.build.launcher import build_launcher
from kbuild.aot.build.plan import (
    LAUNCHER,
    LAUNCHER_JOB,
    LAUNCHER_RECORD,
    WHEEL,
    Job,
    made_of,
    manifest_digest,
)
from kbuild.aot.identity import bytes_digest, digest
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest, Package
from kbuild.aot.shards.shard import Shard
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import ToolError
from kbuild.targets import devices_of
from kbuild.tensor_map import TensorMapType

SHIPPED = ("*.py", "*.pyi", "*.so", "*.kbz", "*.h", "*.cmake", "py.typed")
"""Files of the package's directory that go into the wheel."""
PART = ".part"
"""The suffix of a part of a build."""
_LONGEST_LABEL = 60
"""Characters of kernels' names in that of a part."""


@dataclass(frozen=True)
class Built:
    """One variant with what its compilation made."""

    variant: Variant
    facts: dict[str, Any]
    cubin: bytes
    ptx: bytes | None
    """PTX that newer GPUs run; None where there is none."""


@dataclass(frozen=True)
class Contents:
    """All that a wheel is packed from but the programs that pack it."""

    manifest: Manifest
    """The project's; its package is that of all architectures."""
    inputs: Mapping[str, Any]
    """What `project.py` says that the package is made of."""
    archs: tuple[str, ...]
    """The architectures that the wheel is for."""
    rows: Sequence[tuple[Variant, dict[str, Any]]]
    """The variants, as `write_archives` returns them."""
    distribution: Distribution
    """The project's, of all architectures."""
    llvm: Mapping[str, str]
    """The versions of llvmlite and its LLVM."""


def assemble(package: bytes, settings: Mapping[str, Any], build: Path = Path()) -> Path:
    """Makes `package/<name>` and the wheel, or the part, within the build directory; returns the path of that."""
    fields = json.loads(package)
    project = Path(settings["project"])
    manifest = load(project / "kernels.toml", settings["manifest"])
    if manifest_digest(manifest) != fields["manifest"]:
        raise ToolError("kernels.toml changed during the build", help="run kbuild build again")
    # Before anything is read: the files, when they are read, are compared with these.
    is_part = "part" in fields
    jobs = [_job(build, file) for file in fields["jobs"]]
    identity = made_of(bytes_digest(package), _records(build, jobs, is_part))
    if not is_part:
        _made(build, LAUNCHER_JOB, LAUNCHER_RECORD)
    built = [_read(build, job, manifest) for job in jobs]
    distribution = read_distribution(project, manifest.package)
    if distribution.digest != fields["inputs"]["distribution"]:
        raise ToolError("the project's own files changed during the build", help="run kbuild build again")
    directory = build / "package" / manifest.package.path
    shutil.rmtree(build / "package", ignore_errors=True)
    contents = Contents(
        manifest,
        fields["inputs"],
        tuple(fields["archs"]),
        write_archives(directory / "cubins", manifest, built),
        distribution,
        toolchain.llvm_versions(),
    )
    if is_part:
        name, data = pack_part(contents, build / "package", record.Coverage.decode(fields["part"]))
    else:
        asked = fields["inputs"]["platform"]
        platform = parse_platform(asked) if asked else None
        name, data = pack(contents, build / "package", fields["cc"], platform, (build / LAUNCHER).parent)
    path = build / "wheel" / name
    shutil.rmtree(path.parent, ignore_errors=True)
    package_files = wheel.read_tree(directory, ["*"], build)
    facts = {"wheel": f"wheel/{name}", "sha256": bytes_digest(data), "size": len(data)}
    records.write(build, WHEEL, {f"wheel/{name}": data, **package_files}, identity, facts)
    return path


def pack(
    contents: Contents,
    folder: Path,
    cc: Sequence[str],
    platform: Platform | None = None,
    cores: Path | None = None,
) -> tuple[str, bytes]:
    """The name and the bytes of the wheel; `folder` has its archives, and gets the rest of the package.

    `cc` is the C compiler, for `platform` where that is not this one, and `cores` the folder with the object files of
    the libraries, which it makes if there is none.
    """
    package = partial_package(contents.manifest.package, contents.archs)
    manifest = replace(contents.manifest, package=package)
    distribution = contents.distribution.versioned(package.version)
    directory = folder / package.path
    versions = {str(facts["ptxas_version"]) for _, facts in contents.rows}
    nvrtc = {str(facts["nvrtc_version"]) for _, facts in contents.rows if facts["nvrtc_version"]}
    driver = driver_of(package, versions)
    rendering.render(directory, tables.make_table(manifest, contents.rows, driver))
    symbol = rendering.symbol_of(package.name)
    libraries = build_launcher(directory, cc, cores, platform.machine if platform else "", symbol)
    tag = platform_tag([library.read_bytes() for library in libraries], platform)
    compiler, compiler_version = toolchain.compiler_version(cc)
    tools = {
        "kbuild": __version__,
        "ptxas": ", ".join(sorted(versions)),
        **({"nvrtc": ", ".join(sorted(nvrtc))} if nvrtc else {}),
        compiler: compiler_version,
        **contents.llvm,
    }
    epoch, sources = contents.inputs["epoch"], contents.inputs["sources"]
    information = {sbom.FILE: sbom.bill_of_materials(distribution, sources, tools, epoch)}
    if package.archs != contents.manifest.package.archs:
        information[record.FILE] = record.encode(_recorded(contents))
    files = wheel.read_tree(directory, SHIPPED, folder)
    return wheel.make_wheel(files, package, distribution, tag, epoch, driver, information)


def pack_part(contents: Contents, folder: Path, part: record.Coverage) -> tuple[str, bytes]:
    """The name and the bytes of a part of a build; `folder` has its archives.

    It is laid out as a wheel, but for what needs the facts of all cubins: tables, launcher and metadata.
    """
    package, project = contents.manifest.package, contents.distribution
    version = partial_package(package, contents.archs).version
    entries = {
        **wheel.read_tree(folder / package.path, ["*.kbz"], folder),
        **project.files,
        **{f"{project.info}/licenses/{path}": data for path, data in project.licenses.items()},
        f"{project.info}/{record.FILE}": record.encode(_recorded(contents, part)),
    }
    name = "-".join([project.name, version, *_label(part.kernels), Shard.parse(part.shard).label])
    return f"{name}{PART}", wheel.packed(entries, project.info, contents.inputs["epoch"])


def _label(kernels: Sequence[str]) -> list[str]:
    """The kernels that a part is of, for its name; none where it is of all."""
    text = "+".join(kernels)
    if len(text) > _LONGEST_LABEL:
        text = f"{len(kernels)}kernels_{digest(list(kernels))[:8]}"
    return [text] if text else []


def _recorded(contents: Contents, part: record.Coverage | None = None) -> record.Record:
    """What the wheel of some architectures, or a part, says of its build, for `merge`."""
    project = contents.distribution
    distribution = {
        "name": project.name,
        "version": project.version,
        "headers": project.headers,
        "description": project.description,
        "entry_points": project.entry_points,
        "licenses": sorted(project.licenses),
        "files": sorted(project.files),
    }
    inputs = {**contents.inputs, "llvm": contents.llvm}
    return record.Record(
        inputs,
        contents.manifest,
        distribution,
        contents.archs,
        contents.rows,
        part,
        zlib.ZLIB_RUNTIME_VERSION,
    )


def write_archives(
    directory: Path,
    manifest: Manifest,
    built: Sequence[Built],
    packed: Mapping[str, Packed] | None = None,
) -> list[tuple[Variant, dict[str, Any]]]:
    """Writes `<arch>.kbz` for each architecture; returns the variants with their facts, which say where the
    code is.

    Added to the facts of compilation are `archive` (name without suffix), `archive_sha256` (of its index),
    `key` and `place`, and `ptx_key` and `ptx_place` where the PTX is shipped too; `params` have the types of
    the signature, those of `portable` as well.  `packed` are blobs that are compressed already, as for
    `archive.encode`.
    """
    archives: dict[str, dict[str, Any]] = {}
    places: dict[str, dict[str, Place]] = {}
    for arch in manifest.package.archs:
        chosen = [one for one in built if one.variant.arch == arch]
        if chosen:
            entries = [entry for one in chosen for entry in _entries(one, manifest)]
            index, by_key = write_archive(directory / f"{arch}.kbz", entries, packed)
            archives[arch] = {"archive": arch, "archive_sha256": index}
            places[arch] = by_key
    rows: list[tuple[Variant, dict[str, Any]]] = []
    for one in built:
        variant = one.variant
        found, name = places[variant.arch], key(one)
        facts: dict[str, Any] = _typed(one.facts, variant) | archives[variant.arch]
        facts |= {"key": name, "place": found[name]}
        if "portable" in facts:
            facts["portable"] = _typed(facts["portable"], variant)
        if _ships_ptx(one, manifest):
            facts |= {"ptx_key": f"{name}.ptx", "ptx_place": found[f"{name}.ptx"]}
        rows.append((variant, facts))
    return rows


def _typed(facts: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """Facts whose parameters have the types of the signature; a tensor map, which may have the name of its tensor, keeps its
    own."""
    types = {name: type_.partition(":")[0] for name, type_, _ in expanded(variant.signature)}
    params = [
        (name, type_ if TensorMapType.parse(type_) else types.get(name, type_))
        for name, type_ in facts["params"]
    ]
    return facts | {"params": params}


def _ships_ptx(built: Built, manifest: Manifest) -> bool:
    """Whether the PTX of a variant goes into the package."""
    return built.ptx is not None and built.variant.arch in manifest.package.ptx_archs


def driver_of(package: Package, versions: Iterable[str]) -> int:
    """The branch of drivers from which on the cubins of these versions of ptxas run; later, where the manifest
    says so.

    Raises ToolError where the manifest asks for an earlier one.
    """
    needed, version = max((ptxas_wheels.driver_of(version), version) for version in versions)
    requested = package.min_driver
    if requested and needed > requested:
        raise ToolError(
            f"package.min_driver is {requested}, but ptxas {version} made code for drivers from {needed} on",
            help=f'write min_driver = {needed}, or ptxas = "{ptxas_wheels.series_for(requested)}"',
        )
    return max(needed, requested)


def key(built: Built) -> str:
    """The name of a cubin in archive and table: kernel and variant, readable."""
    return f"{built.variant.kernel}.{built.variant.file_name}"


def _entries(built: Built, manifest: Manifest) -> list[ArchiveEntry]:
    variant = built.variant

    def entry(name: str, kind: str, data: bytes, facts: Mapping[str, Any]) -> ArchiveEntry:
        launch = {"shared": facts["shared"], "num_warps": facts["warps"], "registers": facts["registers"]}
        return ArchiveEntry(
            name, kind, variant.kernel, str(variant), facts["arch"], facts["entry"], **launch, data=data
        )

    entries = [entry(key(built), "cubin", built.cubin, built.facts)]
    if built.ptx is not None and _ships_ptx(built, manifest):
        entries.append(entry(f"{key(built)}.ptx", "ptx", built.ptx, built.facts.get("portable", built.facts)))
    return entries


def _job(build: Path, file: str) -> Job:
    return Job.decode(json.loads((build / file).read_bytes()))


def _records(build: Path, jobs: Sequence[Job], is_part: bool) -> list[bytes]:
    """The records of what the package is made of, the launcher's first, which a part has not."""
    names = [*([] if is_part else [LAUNCHER_RECORD]), *(job.record for job in jobs)]
    return [(build / name).read_bytes() for name in names]


def _made(build: Path, job: str, record: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The record of a job, and its files; ToolError unless they are what it made."""
    found = records.read(build, record, bytes_digest((build / job).read_bytes()))
    if found is None:
        raise ToolError(
            f"build/{record}: this record or one of its files has changed since it was made",
            help="run kbuild build again",
        )
    return found


def _read(build: Path, job: Job, manifest: Manifest) -> Built:
    """A job's results; PTX only where it is shipped, for not to hold that of ten thousand variants."""
    facts, files = _made(build, job.file, job.record)
    ptx = files.get(job.portable_ptx)
    if ptx is None and not devices_of(facts["arch"], is_ptx=True).are_alike:
        ptx = files[f"{job.stem}.ptx"]
    if job.variant.arch not in manifest.package.ptx_archs:
        ptx = None
    return Built(job.variant, facts, files[f"{job.stem}.cubin"], ptx)
