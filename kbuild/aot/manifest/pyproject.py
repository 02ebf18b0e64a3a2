"""`pyproject.toml` beside a manifest, where kbuild is its build backend: what `[project]` says holds for
`[package]` as well.

    [project]                      [package]
    name = "fast-norms"            distribution = "fast-norms"
    version = "1.2"                version = "1.2"
    description = "Norms"          summary = "Norms"
    license = "MIT"                license = "MIT"

Of the two tables one gives a value.  Whatever else `[project]` has goes into the wheel as it is
(`artifact/distribution.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.kinds import InvalidText
from kbuild.aot.manifest.package_kinds import version
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.positions import line_of, parsed, read_file
from kbuild.aot.manifest.reader import ManifestReader, described

FILE = "pyproject.toml"
BACKEND = "kbuild.aot.backend"
SHARED = {"distribution": "name", "version": "version", "summary": "description", "license": "license"}
"""Keys of `[package]`, and the keys of `[project]` that mean the same."""


@dataclass(frozen=True)
class PyProject:
    """A `pyproject.toml` that has kbuild make the wheel."""

    project: Mapping[str, Any]
    """The table `[project]`; empty where there is none."""
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest one around it."""
        return line_of(self.lines, path)


def read_pyproject(root: Path) -> PyProject | None:
    """The file of a folder; None where there is none, or where it has another build backend.

    Raises ManifestError where it is not TOML.
    """
    if not (root / FILE).is_file():
        return None
    table, lines = parsed(read_file(root / FILE, FILE), FILE)
    system, project = table.get("build-system"), table.get("project", {})
    if not isinstance(system, Mapping) or system.get("build-backend") != BACKEND:
        return None
    return PyProject(project if isinstance(project, Mapping) else {}, lines)


def with_project(reader: ManifestReader, package: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table `[package]` with the values that `[project]` gives; those in which they differ are noted."""
    found = read_pyproject(reader.root)
    given = (
        {key: found.project[name] for key, name in SHARED.items() if name in found.project} if found else {}
    )
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    for key in texts.keys() & package.keys():
        assert found
        place, mine = ("project", SHARED[key]), package[key]
        if isinstance(mine, str) and _normal(key, mine) != _normal(key, texts[key]):
            reader.error(
                ("package", key),
                f"{FILE}:{found.line(place)} has {'.'.join(place)} = {described(texts[key])}",
                "leave one of them out",
            )
    if "version" not in texts and "version" not in package:
        reader.error(("package",), 'missing key "version"', f"here, or as project.version in {FILE}")
    return {**texts, **package}


def _normal(key: str, text: str) -> str:
    """A form in which values that mean the same are equal."""
    try:
        if key == "distribution":  # PEP 503
            return re.sub(r"[-_.]+", "-", text).lower()
        return version(text) if key == "version" else text
    except InvalidText:
        return text
