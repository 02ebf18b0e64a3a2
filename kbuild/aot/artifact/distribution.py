"""What a wheel says of itself, and what it holds of the project besides the kernels.

    [project] of pyproject.toml, [package] of kernels.toml ─▶ METADATA, entry_points.txt
    licence files                                          ─▶ licenses/
    package.packages, package.include                      ─▶ the project's own modules and data

PEP 621 and PEP 639 define `[project]`; pyproject-metadata checks it and writes METADATA.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from kbuild.aot.manifest.model import Package
from kbuild.aot.manifest.pyproject import FILE, SHARED, PyProject, read_pyproject
from kbuild.errors import ErrorGroup, KbuildError, Loc, ManifestError

if TYPE_CHECKING:
    from pyproject_metadata import StandardMetadata

_LICENSES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*")
"""Licence files where `[project]` names none, as setuptools has them."""
_REQUIRES_PYTHON = ">=3.10"
IGNORED = ".gitignore"
"""In the folder of an editable installation's kernels: the names of the files that it has put there."""


@dataclass(frozen=True)
class Distribution:
    """A wheel but for its kernels."""

    name: str
    """As file names have it: lower case, and `_` for what stands between words."""
    version: str
    headers: str
    """Of METADATA, each ending with a newline."""
    description: str
    """The text below them: the readme; empty where there is none."""
    entry_points: str
    """The file `entry_points.txt`; empty where there are none."""
    licenses: Mapping[str, bytes]
    """Licence files, by their paths in the project."""
    files: Mapping[str, bytes]
    """The project's own files, by their paths in the wheel."""
    roots: tuple[str, ...]
    """Folders of the project, relative to it, from which `files` are imported."""
    sources: frozenset[Path]
    """The readme, the licence files, and those behind `files`."""

    @property
    def info(self) -> str:
        """The folder with the wheel's metadata."""
        return f"{self.name}-{self.version}.dist-info"

    def versioned(self, version: str) -> Distribution:
        """The same of another version."""
        if version == self.version:
            return self
        header = f"\nVersion: {Version(version)}\n"
        return replace(
            self, version=version, headers=re.sub(r"\nVersion: .*\n", header, self.headers, count=1)
        )

    @property
    def project(self) -> str:
        """The name as the project writes it."""
        return next(line[6:] for line in self.headers.splitlines() if line.startswith("Name: "))

    @property
    def digest(self) -> str:
        """A digest of all of it."""
        total = hashlib.sha256()
        for text in (self.info, self.headers, self.description, self.entry_points):
            total.update(repr(text).encode())
        for path, data in [*sorted(self.licenses.items()), *sorted(self.files.items())]:
            total.update(repr((path, hashlib.sha256(data).digest())).encode())
        return total.hexdigest()


def read_distribution(root: Path, package: Package) -> Distribution:
    """The distribution of the project in a folder.

    Raises ErrorGroup of ManifestError, with lines of pyproject.toml, for what `[project]` must not say.
    """
    given = read_pyproject(root)
    metadata = _metadata(root, package, given)
    headers, _, description = str(metadata.as_rfc822()).partition("\n\n")
    licenses = {file.as_posix(): root / file for file in metadata.license_files or ()}
    own = {path: file for file, path in _own_files(root, package)}
    readme = metadata.readme.file if metadata.readme else None
    groups = {
        "console_scripts": metadata.scripts,
        "gui_scripts": metadata.gui_scripts,
        **metadata.entrypoints,
    }
    return Distribution(
        name=canonicalize_name(metadata.name).replace("-", "_"),
        version=package.version,
        headers=headers.rstrip("\n") + "\n",
        description=description,
        entry_points=_entry_points(groups),
        licenses={path: file.read_bytes() for path, file in licenses.items()},
        files={path: file.read_bytes() for path, file in own.items()},
        roots=tuple(sorted({str(PurePosixPath(folder).parent) for folder in package.packages})),
        sources=frozenset([*licenses.values(), *own.values(), *([root / readme] if readme else ())]),
    )


def _metadata(root: Path, package: Package, given: PyProject | None) -> StandardMetadata:
    # With the email package a twentieth of a second, which only what makes a wheel should take.
    from pyproject_metadata import ConfigurationError, StandardMetadata

    project: dict[str, Any] = dict(given.project) if given else {}
    values = {
        "name": package.distribution or package.name,
        "version": package.version,
        "description": package.summary,
        "license": package.license,
    }
    project |= {key: value for key, value in values.items() if value}
    dynamic = project.pop("dynamic", [])
    project.setdefault("requires-python", _REQUIRES_PYTHON)
    found = sorted(file.name for pattern in _LICENSES for file in root.glob(pattern) if file.is_file())
    if found and not isinstance(project.get("license"), Mapping):  # PEP 639 forbids both.
        project.setdefault("license-files", found)
    errors = list(_dynamic_errors(dynamic, given))
    try:
        metadata = StandardMetadata.from_pyproject(
            {"project": project}, root, all_errors=True, allow_extra_keys=False
        )
    except Exception as error:
        if not isinstance(error, ConfigurationError) and not hasattr(error, "exceptions"):
            raise
        errors += [_located(one, given) for one in getattr(error, "exceptions", (error,))]
        raise ErrorGroup(errors) from None
    if errors:
        raise ErrorGroup(errors)
    return metadata


def _dynamic_errors(dynamic: object, given: PyProject | None) -> Iterator[KbuildError]:
    """Fields that `[project]` leaves to kbuild and that kernels.toml has no key for."""
    known = [name for name in SHARED.values() if name != "name"]
    for name in dynamic if isinstance(dynamic, list) else ():
        if name not in known and given:
            line = given.line(("project", "dynamic"))
            help = f"kernels.toml may give {', '.join(known)}"
            yield ManifestError(f'project.dynamic: kbuild does not find out "{name}"', Loc(FILE, line), help)


def _located(error: Exception, given: PyProject | None) -> KbuildError:
    """An error of pyproject-metadata with the line of its key."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", str(getattr(error, "key", None) or "project"))
    path = tuple(int(index) if index else name for index, name in parts)
    return ManifestError(str(error).replace('"', "'"), Loc(FILE, given.line(path)) if given else None)


def _entry_points(groups: Mapping[str, Mapping[str, str]]) -> str:
    texts = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in sorted(entries.items()))
        for group, entries in sorted(groups.items())
        if entries
    ]
    return "\n".join(texts)


def _own_files(root: Path, package: Package) -> Iterator[tuple[Path, str]]:
    """The files that `packages` and `include` name, each once, with its path in the wheel.

    Left out are bytecode, hidden files, and what an editable installation has put beside the project's modules.
    """
    bases = {root / folder: (root / folder).parent for folder in package.packages}
    wanted = [(file, base) for folder, base in bases.items() for file in sorted(folder.rglob("*"))]
    for pattern in package.include:
        for file in sorted(root.glob(pattern)):
            wanted.append((file, next((base for base in bases.values() if base in file.parents), root)))
    seen = {name for base in bases.values() for name in _put_there(base, package)}
    for file, base in wanted:
        relative = file.relative_to(base)
        is_kept = not any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if is_kept and relative.suffix != ".pyc" and file.is_file() and relative.as_posix() not in seen:
            seen.add(relative.as_posix())
            yield file, relative.as_posix()


def _put_there(base: Path, package: Package) -> list[str]:
    """The files in the project that editable installations made, from `base`, as their .gitignore lists them."""
    listed = base / package.path / IGNORED
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    return [package.path + line for line in lines if line.startswith("/")]
