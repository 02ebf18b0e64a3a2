"""The last step of a build: cubins and their facts become archives, tables, launcher and wheel.

python -m kbuild @assemble .kbuild/package.json       (in the build directory)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.aot import cbuild, tables, wheel
from kbuild.aot.archive import Entry, write_archive
from kbuild.aot.files import write_atomic
from kbuild.aot.identity import bytes_digest, canonical_json
from kbuild.aot.load import load
from kbuild.aot.manifest import Manifest
from kbuild.aot.plan import STATE, Job, manifest_digest
from kbuild.errors import KbuildError, ToolError, render

SHIPPED = ("*.py", "*.pyi", "*.so", "*.kbz", "*.h", "py.typed")
"""Files of the package's directory that go into the wheel."""


@dataclass(frozen=True)
class Built:
    """One variant with what its compilation left in the build directory."""

    job: Job
    facts: dict[str, Any]
    cubin: bytes
    ptx: bytes


@dataclass(frozen=True)
class TableVariant:
    """A variant as `tables.make_table` wants to see it."""

    kernel: str
    arch: str
    args: tuple[tuple[str, str], ...]
    matrix: dict[str, Any]
    config: dict[str, Any]
    conditions: tuple[str, ...]
    num_warps: int
    key: str


@dataclass(frozen=True)
class TableFacts:
    """The facts of a cubin, or of PTX, as `tables.make_table` wants to see them."""

    entry: str
    shared: int
    num_warps: int
    registers: int
    arch: str
    params: tuple[str, ...]
    sha256: str
    kind: str


def assemble(package: Mapping[str, Any], settings: Mapping[str, Any], build: Path = Path()) -> Path:
    """Makes `package/<name>` and the wheel within the build directory; gives the path of the wheel."""
    manifest = load(Path(settings["project"], "kernels.toml"), settings["manifest"])
    if manifest_digest(manifest) != package["manifest"]:
        raise ToolError("kernels.toml changed during the build", hint="run kbuild build again")
    built = [_read(build, file) for file in package["jobs"]]
    directory = build / "package" / manifest.package.name
    shutil.rmtree(directory.parent, ignore_errors=True)
<<<<<<< HEAD
    archives = write_archives(directory / "cubins", manifest, built)
    table = tables.make_table(manifest, table_rows(manifest, built), archives)
    tables.render(table, directory, Path(settings["templates"]))
    launcher = cbuild.build_launcher(directory, settings["cc"])
=======
    rows = write_archives(directory, manifest, built)
    table = tables.make_table(manifest, rows)
    tables.render(directory, table)
    launcher = cbuild.build_launcher(directory, package["cc"])
>>>>>>> launcher
    platform = wheel.platform_tag(Path(launcher).read_bytes())
    name, data = wheel.make_wheel(wheel.read_tree(directory, SHIPPED), manifest.package, platform, package.get("epoch"))
    path = build / "wheel" / name
    shutil.rmtree(path.parent, ignore_errors=True)
    write_atomic(path, data)
    record = {"wheel": f"wheel/{name}", "sha256": bytes_digest(data), "size": len(data)}
    write_atomic(build / STATE / "wheel.json", canonical_json(record))
    return path


def write_archives(directory: Path, manifest: Manifest, built: Sequence[Built]) -> dict[str, str]:
    """Writes `<arch>.kbz` for each architecture; gives the sha256 of their indices by architecture."""
    digests: dict[str, str] = {}
    for arch in manifest.package.archs:
        chosen = [one for one in built if one.job.variant.arch == arch]
        if chosen:
            with_ptx = arch in manifest.package.ptx_archs
            entries = [entry for one in chosen for entry in _entries(one, with_ptx)]
            digests[arch] = write_archive(directory / f"{arch}.kbz", entries)
    return digests


def table_rows(manifest: Manifest, built: Sequence[Built]) -> list[tuple[TableVariant, TableFacts]]:
    """The rows of dispatch in the manifest's order: one per cubin, and one per PTX that is shipped."""
    rows: list[tuple[TableVariant, TableFacts]] = []
    for one in built:
        variant, facts = one.job.variant, one.facts
        grid_args = tuple((argument.name, argument.type) for argument in manifest.kernel(variant.kernel).grid_args)
        row = TableVariant(
            kernel=variant.kernel,
            arch=variant.arch,
            args=variant.signature + grid_args,
            matrix=dict(variant.matrix),
            config={name: value for name, value in variant.constexprs if value is not None},
            conditions=tuple(guard.expression for guard in variant.guards),
            num_warps=variant.num_warps,
            key=key(one),
        )
        for entry in _entries(one, variant.arch in manifest.package.ptx_archs):
            params = tuple(name for name, _ in facts["params"])
            sha256 = bytes_digest(entry.data)
            found = TableFacts(
                entry.entry, entry.shared, entry.num_warps, entry.registers, entry.arch, params, sha256, entry.kind
            )
            rows.append((replace(row, key=entry.key), found))
    return rows


def key(built: Built) -> str:
    """What archive and table call a cubin: kernel and variant, readable."""
    return f"{built.job.variant.kernel}.{built.job.variant.file_name}"


def _entries(built: Built, with_ptx: bool) -> list[Entry]:
    variant, facts = built.job.variant, built.facts

    def entry(name: str, kind: str, data: bytes) -> Entry:
        launch = {"shared": facts["shared"], "num_warps": facts["num_warps"], "registers": facts["registers"]}
        return Entry(name, kind, variant.kernel, str(variant), facts["arch"], facts["entry"], **launch, data=data)

    return [entry(key(built), "cubin", built.cubin)] + [entry(f"{key(built)}.ptx", "ptx", built.ptx)] * with_ptx


def _read(build: Path, file: str) -> Built:
    """A job's results, the cubin held against the digest in its facts."""
    job = Job.decode(json.loads((build / file).read_bytes()))
    facts = json.loads((build / f"{job.stem}.json").read_bytes())
    cubin = (build / f"{job.stem}.cubin").read_bytes()
    if facts["sha256"] != bytes_digest(cubin) or facts["identity"] != job.identity:
        raise ToolError(f"build/{job.stem}.cubin is not what was compiled", hint="run kbuild clean, then kbuild build")
    return Built(job, facts, cubin, (build / f"{job.stem}.ptx").read_bytes())


def main(arguments: list[str]) -> int:
    """Assembles the package that the named file describes; the exit code."""
    settings = json.loads(Path(STATE, "settings.json").read_bytes())
    try:
        assemble(json.loads(Path(arguments[0]).read_bytes()), settings)
    except KbuildError as error:
        print(render(error))
        return 1
    return 0
