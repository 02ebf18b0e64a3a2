"""A hash of everything in a kernel's sources that its meaning depends on."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kbuild.compiler.frontend.sources.aggregates import AggregateClass
from kbuild.compiler.frontend.sources.files import (
    NamedTupleClass,
    NamespacePackage,
    SourceModule,
    attribute,
    find_function,
)
from kbuild.compiler.frontend.sources.functions import Plain, SourceFunction, Unresolved
from kbuild.compiler.frontend.sources.modules import PythonModule
from kbuild.compiler.semantic.registry import Builtin
from kbuild.errors import CompileError


def source_digest(path: str, function: str, places: bool = False) -> str:
    """The sha256 of a kernel's syntax and of all that it reaches: functions that it calls, constants that it
    uses. Comments, docstrings, places, and the rest of the files do not count.  Places count if requested,
    and where the kernel's decorator says `debug=True`, because its assertions name their lines."""
    return digest_of(find_function(path, function), places)


def digest_of(function: SourceFunction, places: bool = False) -> str:
    """The digest of a function that has been found."""
    hasher = hashlib.sha256()
    with _refusing_depth(function):
        for part in closure(function):
            hasher.update(part.meaning(places or function.debug).encode())
            hasher.update(b"\0")
    return hasher.hexdigest()


@dataclass(frozen=True)
class Part:
    """A function that a kernel is or reaches."""

    function: SourceFunction
    values: tuple[tuple[str, str], ...]
    """The names that it takes from its module, and what they stand for, as text."""

    def meaning(self, places: bool) -> str:
        """The text of all that its meaning depends on but the functions that it reaches."""
        function = self.function
        found = [function.kind, str(function.noinline), _syntax(function.node, places)]
        found += ["debug"] * function.debug + ["gluon"] * function.explicit_layouts
        return "\n".join([*found, *(f"{name}={text}" for name, text in self.values)])


def closure(function: SourceFunction) -> list[Part]:
    """A kernel and the functions of its project that it reaches, each once, callers first.

    Raises CompileError where they nest too deeply.
    """
    parts: dict[tuple[str, int], Part | None] = {}
    with _refusing_depth(function):
        _collect(function, parts)
    return [part for part in parts.values() if part is not None]


@contextmanager
def _refusing_depth(function: SourceFunction) -> Iterator[None]:
    """Within it, syntax that Python cannot walk is a CompileError."""
    try:
        yield
    except RecursionError:
        raise CompileError(
            f"{function.name}, or what it calls, nests too deeply to be compiled", function.loc
        ) from None


def _collect(function: SourceFunction, parts: dict[tuple[str, int], Part | None]) -> None:
    key = (function.file, function.node.lineno)
    if key in parts:
        return
    parts[key] = None  # its place among the others; a function that calls itself ends here
    values: list[tuple[str, str]] = []
    for name, value in sorted(_reached(function).items()):
        if isinstance(value, SourceFunction) and not value.library:
            _collect(value, parts)
            values.append((name, f"function {value.name}"))
        elif isinstance(value, AggregateClass):
            for method in value.functions.values():
                _collect(method, parts)
            values.append((name, f"aggregate {value.name} {value.fields} {sorted(value.constants)}"))
        else:
            values.append((name, _text(value)))
    parts[key] = Part(function, tuple(values))


@lru_cache(maxsize=256)  # A build checks after every compilation that the source is still the same.
def _syntax(node: ast.FunctionDef, places: bool) -> str:
    """The definition without decorators and docstrings, and without places unless requested."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    parts = [node.name, *(ast.dump(part, include_attributes=places) for part in (node.args, *body))]
    return "\n".join(parts)


def _reached(function: SourceFunction) -> dict[str, Any]:
    """The names that a function takes from its module, and members of modules, with what they stand for.
    Decorators are left out: tuners and registries do not change the kernel."""
    found: dict[str, Any] = {}
    for name, members in _named(function.node):
        if members:
            _reach_member(function, name, members, found)
        else:
            _reach(function, name, found)
    return found


@lru_cache(maxsize=256)
def _named(function: ast.FunctionDef) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names that a function reads, and the chains of members that it reads of names: `tl`, and `tl.math`
    as well."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for part in (function.args, *function.body):
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id, ()] = None
            elif isinstance(node, ast.Attribute):
                members = [node.attr]
                inner = node.value
                while isinstance(inner, ast.Attribute):
                    members.insert(0, inner.attr)
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    found[inner.id, tuple(members)] = None
    return tuple(found)


def _reach(function: SourceFunction, name: str, found: dict[str, Any]) -> None:
    try:
        value = function.namespace.resolve(name)
    except KeyError:
        return
    except Unresolved:
        value = "unresolved"  # why would name places on this machine
    if not isinstance(value, SourceModule | NamespacePackage):
        found[name] = value


def _reach_member(
    function: SourceFunction, name: str, members: tuple[str, ...], found: dict[str, Any]
) -> None:
    """`module.name` and `package.module.name`."""
    try:
        value = function.namespace.resolve(name)
        for member in members:
            if not isinstance(value, SourceModule | NamespacePackage | PythonModule):
                return
            value = attribute(value, member)
    except (KeyError, Unresolved):
        return
    if not isinstance(value, SourceModule | NamespacePackage):
        found[".".join([name, *members])] = value


def _text(value: Any) -> str:
    if isinstance(value, Plain):
        return _text(value.value)
    if isinstance(value, Builtin | SourceFunction):
        return f"builtin {value.name}"
    if isinstance(value, NamedTupleClass):
        return f"fields {value.fields}"
    if isinstance(value, tuple):
        return f"({', '.join(_text(item) for item in value)})"
    return str(value) if isinstance(value, PythonModule) else repr(value)
