"""Syntax trees of the project's Python files, each made once however many ask for it."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path


def syntax_tree(file: Path) -> ast.Module:
    """The tree of a file, which is not to be changed; raises OSError, and what `ast.parse` raises."""
    return _parsed(file.read_bytes(), str(file))


@lru_cache(maxsize=1024)
def _parsed(data: bytes, name: str) -> ast.Module:
    return ast.parse(data, filename=name)
