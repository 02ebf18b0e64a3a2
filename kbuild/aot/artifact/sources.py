"""The files of a project that its kernels may need, found by their imports and includes: nothing is executed."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kbuild.aot.identity import bytes_digest
from kbuild.aot.manifest.model import language_of
from kbuild.aot.syntax import syntax_tree
from kbuild.compiler.cuda.includes import closure
from kbuild.compiler.frontend.sources import lookup
from kbuild.errors import UsageError
from kbuild.options import CUDA


def reached(files: Iterable[Path], root: Path, include: Collection[str] = ()) -> set[Path]:
    """Files below `root`, and all files there that these import or include, directly or indirectly, where the compiler
    looks for them; `include` as `Kernel.include`."""
    waiting, found = list(files), set[Path]()
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_relative_to(root):
            continue
        found.add(file)
        waiting += _included(file, root, include) if language_of(file.name) == CUDA else _imported(file, root)
    return found


def digests(names: Iterable[str], root: Path, include: Collection[str] = ()) -> dict[str, str]:
    """The sha256 of the files of these names below `root`, and of all that they import or include there, by name."""
    root = Path(os.path.abspath(root))
    found = {
        file.relative_to(root).as_posix(): file
        for file in reached([root / name for name in names], root, include)
    }
    return {name: bytes_digest(file.read_bytes()) for name, file in sorted(found.items())}


def _included(file: Path, root: Path, include: Collection[str]) -> Iterator[Path]:
    """The headers of a kernel in CUDA C++; one that cannot be read, the kernel that needs it reports."""
    try:
        yield from (Path(os.path.abspath(name)) for name in closure(str(file), include, str(root)).files)
    except UsageError:
        return


def _imported(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = syntax_tree(file)
    except (SyntaxError, ValueError, RecursionError):
        return  # The kernel that needs it reports that.
    folder = str(file.parent)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(_places(folder, 0, alias.name))
        elif isinstance(node, ast.ImportFrom):
            places = _places(folder, node.level, node.module or "")
            yield from _files(places)
            if place := places[-1]:  # A name may be a module of a package.
                yield from _files(os.path.join(place, alias.name) for alias in node.names)


def _places(folder: str, level: int, name: str) -> list[str | None]:
    """The paths of a module's parent packages and its own; None for those that are not among the files."""
    parts = name.split(".")
    wanted = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return [
        lookup.relative(folder, level, part) if level else lookup.absolute(folder, part) for part in wanted
    ]


def _files(places: Iterable[str | None]) -> Iterator[Path]:
    return (Path(path) for place in places if place and (path := lookup.module_file(place)))
