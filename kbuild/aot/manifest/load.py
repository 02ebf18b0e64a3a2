"""Reads `kernels.toml`: the only place that knows TOML.

Every mistake is told with its line, and all of them at once:

    kernels.toml:12: kernel "flash_attention": matrix.dtype[1]: unknown type "fp61"; did you mean "fp64"?
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli
from packaging.version import InvalidVersion, Version

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load_kernel import load_kernel
from kbuild.aot.manifest.model import ARCHS, Kernel, Manifest, Package
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.positions import positions
from kbuild.aot.manifest.reader import Reader, described, suggestion
from kbuild.aot.manifest.schema import MANIFEST, PACKAGE
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import ErrorGroup, Loc, ManifestError

MOST_VARIANTS = 10_000
"""Variants of one manifest; more is taken for a mistake in the matrix."""

_LARGEST_FILE = 4 << 20


def load(file: Path, display: str = "") -> Manifest:
    """The manifest of a file; `display` is how messages call the file.

    Raises ErrorGroup of ManifestError with every mistake found, in order of their lines.
    """
    display = display or str(file)
    reader = Reader(file, display, *_read(file, display))
    reader.keys((), reader.table, MANIFEST.names, MANIFEST.required)
    schema = reader.get(("schema",), reader.table, int, 1)
    if schema != 1:
        reader.error(("schema",), f"schema {schema} is not known", "this kbuild reads schema = 1")
    package = _package(reader)
    kernels = [
        kernel
        for path, table in reader.tables(("kernel",), reader.table)
        if (kernel := load_kernel(reader, path, table))
    ]
    if not reader.table.get("kernel"):
        reader.error((), "no kernel: add a [[kernel]] table")
    _check_together(reader, package, kernels)
    if reader.errors:
        told = {(str(error.loc), error.message): error for error in reader.errors}
        raise ErrorGroup(sorted(told.values(), key=lambda error: error.loc.line if error.loc else 0))
    return Manifest(package, tuple(kernels), schema)


def _read(file: Path, display: str) -> tuple[Mapping[str, Any], Mapping[KeyPath, int]]:
    hint = "a project has a kernels.toml; -C DIR names it"
    if file.exists() and not file.is_file():  # A pipe, too, which reading would wait for.
        raise ManifestError(f"{display}: is no file", hint=hint)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ManifestError(f"{display}: {error.strerror or error}", hint=hint) from None
    if len(data) > _LARGEST_FILE:
        raise ManifestError("the manifest is larger than 4 MiB", Loc(display, 1))
    try:
        text = data.decode("utf-8-sig")  # Some editors begin a file with a byte order mark.
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ManifestError("the text is not UTF-8", Loc(display, line)) from None
    text = text.replace("\r\n", "\n")
    try:
        return tomli.loads(text), positions(text)
    except tomli.TOMLDecodeError as error:
        match = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        message = str(error)[: match.start()] if match else str(error)
        raise ManifestError(ascii(message)[1:-1], Loc(display, line)) from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"cannot be read: {ascii(str(error))[1:-1]}", Loc(display, 1)) from None


def _package(reader: Reader) -> Package:
    path: KeyPath = ("package",)
    table = reader.get(path, reader.table, dict, {})
    reader.keys(path, table, PACKAGE.names, PACKAGE.required if "package" in reader.table else ())
    name = table.get("name", "package")
    reader.name((*path, "name"), name)
    version = reader.get((*path, "version"), table, str, "0")
    try:
        version = str(Version(version))
    except InvalidVersion:
        reader.error(
            (*path, "version"),
            f"{described(version)} is not a version",
            'write it as PEP 440 does, such as "0.1.0"',
        )
    archs, ptx_archs = _archs(reader, (*path, "archs"), table)
    texts = {key: reader.get((*path, key), table, str, "") for key in ("summary", "license")}
    for key, text in texts.items():
        if "\n" in text or not text.isprintable():
            reader.error((*path, key), "expected one line of printable text")
    texts["license"] = _license(reader, (*path, "license"), texts["license"])
    return Package(str(name), version, archs, ptx_archs, **texts, **_ptxas(reader, path, table))


def _ptxas(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> dict[str, Any]:
    """The version of ptxas and the oldest driver, which have to fit each other."""
    series, min_driver = (
        reader.get((*path, "ptxas"), table, str, ""),
        reader.get((*path, "min_driver"), table, int, 0),
    )
    is_given = type(table.get("min_driver")) is int
    if "ptxas" in table and not re.fullmatch(r"\d{1,3}\.\d{1,3}(\.\d{1,4})?", series):
        reader.error(
            (*path, "ptxas"), f"{described(series)} is no version of ptxas", 'write it as "12.9" or "12.9.86"'
        )
        series = ""
    elif series and ptxas_wheels.parsed(series) < ptxas_wheels.OLDEST:
        oldest = ".".join(map(str, ptxas_wheels.OLDEST))
        reader.error(
            (*path, "ptxas"),
            f"ptxas {series} does not know the PTX that kbuild writes",
            f"it takes {oldest} or later",
        )
    elif is_given and not ptxas_wheels.OLDEST_DRIVER <= min_driver <= ptxas_wheels.LAST_DRIVER:
        advice = f"write {ptxas_wheels.OLDEST_DRIVER} to {ptxas_wheels.LAST_DRIVER}"
        reader.error(
            (*path, "min_driver"), f"no ptxas makes code for drivers of {described(min_driver)}", advice
        )
    elif series and is_given and (needed := ptxas_wheels.driver_of(series)) > min_driver:
        advice = f'write min_driver = {needed}, or ptxas = "{ptxas_wheels.series_for(min_driver)}"'
        reader.error(
            (*path, "min_driver"),
            f"ptxas {series} makes code for drivers from {needed} on, not {min_driver}",
            advice,
        )
    return {"ptxas": series, "min_driver": min_driver}


def _license(reader: Reader, path: KeyPath, text: str) -> str:
    """An SPDX expression as it is normally written: package indexes refuse wheels with anything else."""
    if not text:
        return ""
    # A twentieth of a second.
    from packaging.licenses import (
        InvalidLicenseExpression,
        canonicalize_license_expression,
    )

    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        advice = (
            'write it as SPDX does, such as "Apache-2.0", or "LicenseRef-Proprietary" for one of your own'
        )
        reader.error(path, f"{described(text)} is no licence expression", advice)
        return ""


def _archs(
    reader: Reader, path: KeyPath, table: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    archs: list[str] = []
    ptx_archs: list[str] = []
    entries = reader.get(path, table, list, None)
    if entries == []:
        reader.error(path, "no architecture is named", f"known: {', '.join(ARCHS)}")
    for index, entry in enumerate(entries or ()):
        if not isinstance(entry, str):
            reader.error((*path, index), f"expected a string, found {described(entry)}")
            continue
        arch = entry.removesuffix("+ptx")
        if arch not in ARCHS:
            plain = "sm_" + re.sub(r"\W|^sm_|^compute_|\+PTX$", "", arch).removesuffix("a")
            near = plain in ARCHS or (sorted(plain) in [sorted(known) for known in ARCHS])
            advice = suggestion(plain, ARCHS) if near else f"known: {', '.join(ARCHS)}"
            reader.error((*path, index), f"unknown architecture {described(entry)}", advice)
        elif arch in archs:
            reader.error((*path, index), f'"{arch}" is named twice')
        else:
            archs.append(arch)
            ptx_archs += [arch] if entry != arch else []
    return tuple(archs), tuple(ptx_archs)


def _check_together(reader: Reader, package: Package, kernels: Sequence[Kernel]) -> None:
    """Mistakes that only the kernels together show: names taken twice, and the number of variants."""
    first: dict[str, int] = {}
    entries = reader.table.get("kernel")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            line = reader.lines[("kernel", first[name])]
            reader.error(("kernel", index, "name"), f"the name is taken by the kernel on line {line}")
    if reader.errors:
        return
    expansion = expand(Manifest(package, tuple(kernels)))
    forgotten = {point.kernel for point in expansion.excluded if not point.is_meant or not expansion.variants}
    for index, kernel in enumerate(kernels):
        if kernel.name in expansion.kernels_left_out and kernel.name in forgotten:
            reader.error(
                ("kernel", index), "has no variant: every point of its matrix is excluded or has no config"
            )
    if len(expansion.variants) > MOST_VARIANTS:
        reader.error(
            ("kernel",), f"{len(expansion.variants):,} variants in all, at most {MOST_VARIANTS:,} are built"
        )
