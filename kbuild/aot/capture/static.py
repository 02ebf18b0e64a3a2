"""The digest of a kernel in a file, as a captured process makes it of the live one."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.aot.capture.hook.plain import constant, plain
from kbuild.aot.capture.serving.shim.language import TYPES
from kbuild.aot.capture.text import bound_names, chains, from_def, text_digest
from kbuild.compiler.frontend.sources.files import SourceModule, attribute, find_function
from kbuild.compiler.frontend.sources.functions import Plain, SourceFunction, Unresolved
from kbuild.errors import KbuildError

_TYPES = frozenset(TYPES.values())


@dataclass(frozen=True)
class StaticPart:
    """A function that a kernel is or reaches, found in files without executing them."""

    name: str
    file: str
    text: str
    """Its source from `def` on."""
    values: Mapping[str, Any]
    """The constants that it takes from its module."""


def static_digest(path: Path, function: str) -> str:
    """The digest of a kernel in a file and of all that it reaches.  Raises KbuildError where it cannot be read."""
    parts = static_parts(path, function)
    values = [
        f"{name}={json.dumps(value, sort_keys=True)}" for part in parts for name, value in part.values.items()
    ]
    return text_digest((part.text for part in parts), values)


def static_parts(path: Path, function: str) -> list[StaticPart]:
    """The kernel of a file and the functions that it reaches, each once.  Raises KbuildError."""
    waiting, found = [find_function(str(path), function)], dict[tuple[str, int], StaticPart]()
    while waiting:
        one = waiting.pop(0)
        key = (one.file, one.node.lineno)
        if key not in found:
            text = _text(one.file, one.node)
            outside = [*_outside(one, text)]
            values = {name: value for name, value in outside if not isinstance(value, SourceFunction)}
            found[key] = StaticPart(one.name, one.file, text, values)
            waiting += [value for _, value in outside if isinstance(value, SourceFunction)]
    return [*found.values()]


def _text(file: str, node: ast.FunctionDef) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KbuildError(f"{file}: cannot be read: {error}") from None
    return from_def("\n".join(lines[node.lineno - 1 : node.end_lineno]))


def _outside(function: SourceFunction, text: str) -> Iterator[tuple[str, Any]]:
    """The constants and functions that a function takes from its module, as `hook/origin.py` finds them."""
    bound = bound_names(text)
    for name, *members in chains(text):
        if name in bound:
            continue
        chain = [name]
        try:
            value = function.namespace.resolve(name)
            while isinstance(value, SourceModule) and members:
                chain.append(members.pop(0))
                value = attribute(value, chain[-1])
        except (KeyError, Unresolved):
            continue
        value = value.value if isinstance(value, Plain) else value
        if isinstance(value, SourceFunction):
            if not value.library:
                yield value.name, value
        elif (word := getattr(value, "name", None)) in _TYPES:
            yield ".".join(chain), {"dtype": word}
        elif value is not None and constant(value):
            yield ".".join(chain), plain(value)
