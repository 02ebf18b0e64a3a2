"""The Python files of a project that its kernels may need, found by their imports: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path


def reached(files: Iterable[Path], root: Path) -> set[Path]:
    """Files below `root`, and all there that these import, directly or through others.

    Modules are looked for as the compiler does: beside the importing file, then in the directories above it.
    """
    waiting, found = list(files), set[Path]()
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_relative_to(root):
            continue
        found.add(file)
        waiting += _imported(file, root)
    return found


def _imported(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return  # The kernel that needs it tells of that.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name.split("."), _above(file, root))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            places = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else _above(file, root)
            for alias in node.names:  # A name may be a module of a package.
                yield from _module([*parts, alias.name], places)


def _above(file: Path, root: Path) -> list[Path]:
    """The directories in which absolute imports are looked for."""
    return [folder for folder in file.parents if folder.is_relative_to(root)]


def _module(parts: list[str], places: Iterable[Path]) -> Iterator[Path]:
    """The files that importing a dotted name reads, packages on the way to it among them."""
    for place in places:
        ways = [place.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
        files = [path for way in ways for path in (way.with_suffix(".py"), way / "__init__.py") if path.is_file()]
        if files:
            yield from files
            return
