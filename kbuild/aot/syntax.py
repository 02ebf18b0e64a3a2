"""Syntax trees of the project's Python files, each made once however many ask for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path


def syntax_tree(file: Path) -> ast.Module:
    """The tree of a file, which is not to be changed; raises OSError, and what `ast.parse` raises."""
    return _parsed(file.read_bytes(), str(file))


@lru_cache(maxsize=1024)
def _parsed(data: bytes, name: str) -> ast.Module:
    return ast.parse(data, filename=name)


def module_statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements of a module's top level, also those under `if`, `try` and `with`, and whether conditions decide on them."""
    yield from _statements(tree.body, False)


def _statements(body: Sequence[ast.stmt], is_conditional: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for statement in body:
        yield statement, is_conditional
        if isinstance(statement, ast.If | ast.Try):
            parts = [statement.body, statement.orelse]
            if isinstance(statement, ast.Try):
                parts += [*(handler.body for handler in statement.handlers), statement.finalbody]
            for part in parts:
                yield from _statements(part, True)
        elif isinstance(statement, ast.With):
            yield from _statements(statement.body, is_conditional)


def module_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of a module's top level by name: of several the last one, or of those that conditions decide on the first."""
    found: dict[str, ast.FunctionDef] = {}
    for node, is_conditional in module_statements(tree):
        if isinstance(node, ast.FunctionDef) and not (is_conditional and node.name in found):
            found[node.name] = node
    return found
