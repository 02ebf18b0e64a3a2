"""The last step of a build: cubins and their facts become archives, tables, launcher and wheel."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot import cbuild, rendering, tables, wheel
from kbuild.aot.archive import Entry, write_archive
from kbuild.aot.descriptors import expanded
from kbuild.aot.files import write_atomic
from kbuild.aot.identity import bytes_digest, canonical_json
from kbuild.aot.load import load
from kbuild.aot.manifest import Manifest
from kbuild.aot.matrix import Variant
from kbuild.aot.plan import LAUNCHER, STATE, Job, manifest_digest
from kbuild.errors import ToolError

SHIPPED = ("*.py", "*.pyi", "*.so", "*.kbz", "*.h", "py.typed")
"""Files of the package's directory that go into the wheel."""


@dataclass(frozen=True)
class Built:
    """One variant with what its compilation left in the build directory."""

    job: Job
    facts: dict[str, Any]
    cubin: bytes
    ptx: bytes


def assemble(package: Mapping[str, Any], settings: Mapping[str, Any], build: Path = Path()) -> Path:
    """Makes `package/<name>` and the wheel within the build directory; gives the path of the wheel."""
    manifest = load(Path(settings["project"], "kernels.toml"), settings["manifest"])
    if manifest_digest(manifest) != package["manifest"]:
        raise ToolError("kernels.toml changed during the build", hint="run kbuild build again")
    built = [_read(build, file) for file in package["jobs"]]
    directory = build / "package" / manifest.package.name
    shutil.rmtree(directory.parent, ignore_errors=True)
    table = tables.make_table(manifest, write_archives(directory / "cubins", manifest, built))
    rendering.render(directory, table)
    launcher = cbuild.build_launcher(directory, package["cc"], build / LAUNCHER)
    platform = wheel.platform_tag(Path(launcher).read_bytes())
    name, data = wheel.make_wheel(wheel.read_tree(directory, SHIPPED), manifest.package, platform, package.get("epoch"))
    path = build / "wheel" / name
    shutil.rmtree(path.parent, ignore_errors=True)
    write_atomic(path, data)
    record = {"wheel": f"wheel/{name}", "sha256": bytes_digest(data), "size": len(data)}
    write_atomic(build / STATE / "wheel.json", canonical_json(record))
    return path


def write_archives(directory: Path, manifest: Manifest, built: Sequence[Built]) -> list[tuple[Variant, dict[str, Any]]]:
    """Writes `<arch>.kbz` for each architecture; gives the variants with their facts, which say where the code is.

    Added to the facts of compilation are `archive` (name without suffix), `archive_sha256` (of its index), `key`, and
    `ptx_key` where the PTX is shipped too; `params` have the types of the signature.
    """
    places: dict[str, dict[str, Any]] = {}
    for arch in manifest.package.archs:
        chosen = [one for one in built if one.job.variant.arch == arch]
        if chosen:
            with_ptx = arch in manifest.package.ptx_archs
            entries = [entry for one in chosen for entry in _entries(one, with_ptx)]
            places[arch] = {"archive": arch, "archive_sha256": write_archive(directory / f"{arch}.kbz", entries)}
    rows: list[tuple[Variant, dict[str, Any]]] = []
    for one in built:
        variant = one.job.variant
        types = {name: type_.partition(":")[0] for name, type_, _ in expanded(variant.signature)}
        facts = one.facts | places[variant.arch] | {"key": key(one)}
        facts["params"] = [(name, types.get(name, type_)) for name, type_ in facts["params"]]
        facts |= {"ptx_key": f"{key(one)}.ptx"} if variant.arch in manifest.package.ptx_archs else {}
        rows.append((variant, facts))
    return rows


def key(built: Built) -> str:
    """What archive and table call a cubin: kernel and variant, readable."""
    return f"{built.job.variant.kernel}.{built.job.variant.file_name}"


def _entries(built: Built, with_ptx: bool) -> list[Entry]:
    variant, facts = built.job.variant, built.facts

    def entry(name: str, kind: str, data: bytes) -> Entry:
        launch = {"shared": facts["shared"], "num_warps": facts["warps"], "registers": facts["registers"]}
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
