"""What the keys of `[package]` may be that other modules define: names, version, licence, ptxas and architectures."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from kbuild.aot.manifest.kinds import Integer, InvalidText, MistakeReporter, Name, OneOf, Shape
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import NAME, described, suggestion
from kbuild.compiler.backend import ptxas_wheels
from kbuild.targets import ARCHS


@dataclass(frozen=True, kw_only=True)
class Architecture(OneOf):
    """Names of architectures, each by itself or with `+ptx`."""

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> int | str | None:
        if isinstance(value, str):
            return super().read(value, path, note)
        return note(path, f"expected a string, found {described(value)}")

    def help(self, value: object) -> str:
        plain = "sm_" + re.sub(r"\W|^sm_|^compute_|\+PTX$", "", str(value)).removesuffix("a")
        is_near = plain in ARCHS or sorted(plain) in [sorted(known) for known in ARCHS]
        return suggestion(plain, ARCHS) if is_near else f"known: {', '.join(ARCHS)}"

    def identity(self, value: str) -> str:
        return value.removesuffix("+ptx")


@dataclass(frozen=True, kw_only=True)
class ModuleName(Name):
    """Names by which a package is imported, with dots between those of the packages around it."""

    @property
    def shape(self) -> Shape:
        return {"type": "string", "pattern": rf"^{NAME}(?:\.{NAME})*$"}

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> str | None:
        parts = value.split(".") if isinstance(value, str) else [value]
        if any(super(ModuleName, self).read(part, path, note) is None for part in parts):
            return None
        if parts[0] in sys.stdlib_module_names:
            return note(path, f'"{parts[0]}" is a module of Python itself, which the package would hide')
        return str(value)


@dataclass(frozen=True, kw_only=True)
class SchemaVersion(Integer):
    """Versions of the manifest's format."""

    def message(self, value: object) -> str:
        return f"schema {value} is not known"


def version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        advice = 'write it as PEP 440 does, such as "0.1.0"'
        raise InvalidText(f"{described(text)} is not a version", advice) from None


def distribution_name(text: str) -> str:
    if not re.fullmatch(r"(?i)[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?", text):
        advice = "it has letters, digits, and -, _ or . between them"
        raise InvalidText(f"{described(text)} is not the name of a distribution", advice)
    return text


def license_expression(text: str) -> str:
    """An SPDX expression as it is normally written: package indexes refuse wheels with anything else."""
    if not text:
        return ""
    # A twentieth of a second.
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        advice = (
            'write it as SPDX does, such as "Apache-2.0", or "LicenseRef-Proprietary" for one of your own'
        )
        raise InvalidText(f"{described(text)} is not a licence expression", advice) from None


def ptxas_series(text: str) -> str:
    if ptxas_wheels.parsed(text) < ptxas_wheels.OLDEST:
        oldest = ".".join(map(str, ptxas_wheels.OLDEST))
        raise InvalidText(
            f"ptxas {text} does not know the PTX that kbuild writes", f"it takes {oldest} or later"
        )
    return text
