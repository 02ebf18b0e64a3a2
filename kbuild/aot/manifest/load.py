"""Reads `kernels.toml`.

Every mistake is reported with its line, and all of them at once:

    kernels.toml:12: kernel "flash_attention": matrix.dtype[1]: unknown type "fp61"; did you mean "fp64"?
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.aot.manifest.configs.write_out import inherit
from kbuild.aot.manifest.expand import survey
from kbuild.aot.manifest.load_kernel import load_kernel
from kbuild.aot.manifest.model import Manifest, Package
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.positions import parsed, read_file
from kbuild.aot.manifest.pyproject import with_project
from kbuild.aot.manifest.reader import ManifestReader, described
from kbuild.aot.manifest.schema import MANIFEST, PACKAGE
from kbuild.aot.manifest.table import checked, record
from kbuild.aot.op.load import load_ops
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import ErrorGroup

MAX_VARIANTS = 100_000
"""The most variants of one manifest; more are taken for a mistake in the matrix."""


def load(file: Path, display: str = "") -> Manifest:
    """The manifest of a file; `display` is how messages call the file.

    Raises ErrorGroup of ManifestError with every mistake found, in order of their lines.
    """
    display = display or str(file)
    data = read_file(file, display, "a project has a kernels.toml; -C DIR names it")
    return load_text(data, file, display)


def load_text(data: bytes, file: Path, display: str) -> Manifest:
    """The manifest of a text, as if it stood in a file; raises as `load`."""
    reader = ManifestReader(file, display, *parsed(data, display))
    inherit(reader)
    values = checked(reader, (), reader.table, MANIFEST)
    package = _package(reader, values["package"]) if "package" in values else None
    kernels = [
        kernel for path, table in values.get("kernel", ()) if (kernel := load_kernel(reader, path, table))
    ]
    _check_names(reader)
    if not reader.errors:
        kernels = load_ops(reader, values["kernel"], kernels)
    if package and not reader.errors:
        _check_expansion(reader, Manifest(package, tuple(kernels)))
    if reader.errors:
        reported = {(str(error.loc), error.message): error for error in reader.errors}
        raise ErrorGroup(sorted(reported.values(), key=lambda error: error.loc.line if error.loc else 0))
    return record(Manifest, MANIFEST, values, package=package, kernels=tuple(kernels))


def _package(reader: ManifestReader, table: Mapping[str, Any]) -> Package:
    path: KeyPath = ("package",)
    values = checked(reader, path, with_project(reader, table), PACKAGE)
    _check_files(reader, values)
    series, min_driver = values.get("ptxas", ""), values.get("min_driver")
    if series and min_driver is not None and (needed := ptxas_wheels.driver_of(series)) > min_driver:
        advice = f'write min_driver = {needed}, or ptxas = "{ptxas_wheels.series_for(min_driver)}"'
        reader.error(
            (*path, "min_driver"),
            f"ptxas {series} makes code for drivers from {needed} on, not {min_driver}",
            advice,
        )
    archs: tuple[str, ...] = values.get("archs", ())
    return record(
        Package,
        PACKAGE,
        values,
        archs=tuple(arch.removesuffix("+ptx") for arch in archs),
        ptx_archs=tuple(arch.removesuffix("+ptx") for arch in archs if arch.endswith("+ptx")),
    )


def _check_files(reader: ManifestReader, values: Mapping[str, Any]) -> None:
    """Notes folders and files that the wheel is to hold and that are not there."""
    for index, folder in enumerate(values.get("packages", ())):
        if not (reader.root / folder).is_dir():
            reader.error(("package", "packages", index), f"no folder {described(folder)}")
        elif not PurePosixPath(folder).name.isidentifier():
            reader.error(
                ("package", "packages", index), f"{described(folder)} cannot be imported: not a name"
            )
    for index, pattern in enumerate(values.get("include", ())):
        if not any(file.is_file() for file in reader.root.glob(pattern)):
            reader.error(("package", "include", index), f"no file matches {described(pattern)}")


def _check_names(reader: ManifestReader) -> None:
    """Notes kernels whose name another has."""
    first: dict[str, int] = {}
    entries = reader.table.get("kernel")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            line = reader.lines[("kernel", first[name])]
            reader.error(("kernel", index, "name"), f"the name is taken by the kernel on line {line}")


def _check_expansion(reader: ManifestReader, manifest: Manifest) -> None:
    """Notes kernels without variants, and too many of them."""
    counts, excluded = survey(manifest)
    count = sum(counts.values())
    forgotten = {point.kernel for point in excluded if not point.is_meant or not count}
    for index, kernel in enumerate(manifest.kernels):
        if not counts[kernel.name] and kernel.name in forgotten:
            reader.error(
                ("kernel", index), "has no variant: every point of its matrix is excluded or has no config"
            )
    if count > MAX_VARIANTS:
        reader.error(("kernel",), f"{count:,} variants in all, at most {MAX_VARIANTS:,} are built")
