"""What a build is asked for, and what its plan is made from: tools, sources, manifest, and the rest of the package."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot import toolchain
from kbuild.aot.artifact import sources
from kbuild.aot.artifact.distribution import read_distribution
from kbuild.aot.artifact.platforms import parse_platform
from kbuild.aot.build.cache import CAPACITY
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.build.launcher import core_commands, foreign_headers
from kbuild.aot.build.plan import HEADERS, STATE, manifest_digest
from kbuild.aot.environment import Remote
from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import (
    FileDigests,
    bytes_digest,
    compiler_digest,
    digest,
    kbuild_identity,
    templates_digest,
)
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.manifest.tuned import FILE as TUNED
from kbuild.aot.shards.shard import Shard
from kbuild.errors import ErrorGroup, KbuildError
from kbuild.options import DEFAULTS, CompileOptions


@dataclass(frozen=True)
class BuildOptions:
    """The request for a build."""

    project: Path
    """Directory with the manifest."""
    environment: Mapping[str, str]
    """Where tools are found, and what they run with."""
    archs: tuple[str, ...] = ()
    """Architectures to build for; all of the manifest when empty."""
    kernels: tuple[str, ...] = ()
    """Kernels to build, without a package; all, with it, when empty."""
    shard: Shard | None = None
    """The variants to build of those of `archs` and `kernels`; they become a part that `merge` joins with others, and no
    package."""
    jobs: int = 0
    """Steps at a time; 0 leaves it to ninja."""
    keep_going: bool = False
    """Whether to go on with other variants when one fails."""
    platform: str = ""
    """The platform of the wheel, `aarch64` or `manylinux_2_28_aarch64`; this machine when empty."""
    compile: CompileOptions = DEFAULTS
    """Options for all variants in addition to the manifest's, such as `debug` and `strict`."""
    verbose: bool = False
    """Whether failures show where in kbuild they happened."""
    dry_run: bool = False
    """Whether to stop before anything is compiled."""
    cache: Path | None = None
    """Directory of the cache; None for no cache."""
    capacity: int = CAPACITY
    """Bytes that the cache may have."""
    remote: Remote | None = None
    """What is shared with other machines."""
    dist: Path | None = None
    """Where to put the wheel; `dist` of the project when None."""
    epoch: int | None = None
    """SOURCE_DATE_EPOCH."""
    display: str = "kernels.toml"
    """The manifest's name in messages."""
    compiler: str = ""
    """The function that compiles, as `module:function`; kbuild's when empty."""
    source_digest: str = ""
    """The function that gives the digest of a kernel's source closure; kbuild's when empty."""

    @property
    def packs(self) -> bool:
        """Whether what is compiled is packed, into a wheel or a part."""
        return not self.kernels or self.shard is not None

    @property
    def is_whole(self) -> bool:
        """Whether all variants of the manifest are built."""
        return not self.archs and not self.kernels and self.shard is None


@dataclass(frozen=True)
class PlanInputs:
    """What a plan is made from besides variants and sources."""

    ptxas: toolchain.Tool
    tools: Mapping[str, str]
    """Digests of ptxas and LLVM, by their names."""
    compiler: str
    """Digest of the compiler."""
    kbuild: Mapping[str, str]
    """This kbuild, as `kbuild_identity` gives it."""
    package: Mapping[str, Any] | None
    """The inputs of the package, as for `plan`; None where none is made."""


def plan_inputs(options: BuildOptions, manifest: Manifest, directory: Path) -> PlanInputs:
    """What a plan is made from besides variants and sources."""
    ptxas = toolchain.find_ptxas(options.environment, manifest.package.ptxas, manifest.package.min_driver)
    digests = FileDigests(directory / STATE / "digests.json")
    tools = tool_digests(digests, ptxas)
    compiler = compiler_digest()
    kbuild = kbuild_identity(compiler)
    package = None
    if options.packs:
        made_of = _package_inputs(options, manifest, tools, kbuild)
        package = {"archs": archs_of(options, manifest), "inputs": made_of}
        package |= _launcher(options, directory, digests) if not options.shard else {}
    write_if_changed(directory / STATE / "digests.json", digests.record())
    return PlanInputs(ptxas, tools, compiler, kbuild, package)


def request_of(options: BuildOptions, manifest: Manifest, inputs: PlanInputs) -> str:
    """Digest of all that the plan of a build is made from; empty where a source cannot be read, as planning reports.

    `manifest` is the one with the tuned configurations.
    """
    asked = options.compile.requested()
    kernels = [kernel for kernel in manifest.kernels if not options.kernels or kernel.name in options.kernels]
    with_places = {
        kernel.name
        for kernel in kernels
        if any(config.options.changed(asked).names_lines for config in kernel.configs)
    }
    try:
        sources = source_digests(options, manifest, {kernel.name for kernel in kernels})
        places = source_digests(options, manifest, with_places, True) if with_places else {}
    except KbuildError:
        return ""
    return digest(
        {
            "manifest": manifest_digest(manifest),
            "asked": [options.archs, options.kernels, options.shard.text if options.shard else "", asked],
            "strict": options.compile.strict,
            "sources": [sources, places],
            "compiler": [options.compiler, options.source_digest, inputs.compiler],
            "kbuild": inputs.kbuild,
            "tools": inputs.tools,
            "package": inputs.package,
        }
    )


def _launcher(options: BuildOptions, directory: Path, digests: FileDigests) -> dict[str, Any]:
    """What the launcher of a package is compiled from, and how."""
    platform = parse_platform(options.platform) if options.platform else None
    cc = toolchain.find_cc(options.environment, platform)
    headers = foreign_headers(platform.machine) if platform and platform.is_foreign else {}
    for name, data in headers.items():
        write_if_changed(directory / HEADERS / name, data)
    return {
        "templates": templates_digest(),
        "cc": [cc.path, *cc.arguments],
        "cc_digest": digests.get(Path(cc.path)),
        "launcher": core_commands([cc.path, *cc.arguments], HEADERS if headers else ""),
    }


def _package_inputs(
    options: BuildOptions, manifest: Manifest, tools: Mapping[str, str], kbuild: Mapping[str, str]
) -> dict[str, Any]:
    """What a package is made of, whatever the architectures; wheels where it is the same can be joined."""
    table = options.project / TUNED
    return {
        "project": manifest.package.distribution or manifest.package.name,
        "version": manifest.package.version,
        "kbuild": kbuild,
        "manifest": manifest_digest(manifest),
        "tuned": bytes_digest(table.read_bytes()) if table.is_file() else None,
        "sources": _source_digests(options, manifest),
        "options": options.compile.requested(),
        "tools": tools,
        "distribution": read_distribution(options.project, manifest.package).digest,
        "epoch": options.epoch,
        "platform": options.platform or None,
    }


def _source_digests(options: BuildOptions, manifest: Manifest) -> dict[str, str]:
    """The digests of all files that the kernels are made of.  Those with the same folders for headers are asked about together:
    kernels of a library reach much the same modules."""
    together: dict[tuple[str, ...], list[str]] = {}
    for kernel in manifest.kernels:
        together.setdefault(tuple(kernel.include), []).extend(kernel.sources)
    return {
        name: found
        for include, names in together.items()
        for name, found in sources.digests(names, options.project, include).items()
    }


def archs_of(options: BuildOptions, manifest: Manifest) -> list[str]:
    """The architectures that are built for, in the manifest's order."""
    return [arch for arch in manifest.package.archs if not options.archs or arch in options.archs]


def tool_digests(digests: FileDigests, ptxas: toolchain.Tool) -> dict[str, str]:
    """The digests of ptxas and LLVM, by their names."""
    return {tool.name: digests.get(Path(tool.path)) for tool in (ptxas, toolchain.find_llvm())}


def closure_digests(
    options: BuildOptions, manifest: Manifest, variants: Collection[Variant]
) -> tuple[dict[str, str], dict[str, str]]:
    """The digests of the source closures of the kernels of some variants, by kernel, and, of those whose cubins name source
    lines, digests that know these."""
    sources = source_digests(options, manifest, {variant.kernel for variant in variants})
    with_places = {variant.kernel for variant in variants if variant.options.names_lines}
    return sources, source_digests(options, manifest, with_places, True) if with_places else {}


def source_digests(
    options: BuildOptions, manifest: Manifest, wanted: Collection[str], places: bool = False
) -> dict[str, str]:
    """The digest of each wanted kernel's source closure, by kernel; with the places of its statements if
    asked for."""
    function = resolve(options.source_digest)
    found: dict[str, str] = {}
    errors: list[KbuildError] = []
    for kernel in manifest.kernels:
        if kernel.name in wanted:
            try:
                found[kernel.name] = function(*kernel.source_in(options.project, places))
            except KbuildError as error:
                errors.append(error)
    if errors:
        raise ErrorGroup(errors)
    return found
