"""The mistakes in a manifest, each with its line, and the words that messages have for keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kbuild.aot.manifest.model import Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.positions import line_of
from kbuild.errors import Loc, ManifestError, nearest

T = TypeVar("T")
NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
"""A name that is valid in Python, C and file names."""


class ManifestReader:
    """The values of one manifest, their lines, and the mistakes found so far."""

    def __init__(
        self, file: Path, display: str, table: Mapping[str, Any], lines: Mapping[KeyPath, int]
    ) -> None:
        self.root = file.resolve().parent
        self.display = display
        self.table = table
        self.lines = dict(lines)
        self.errors: list[ManifestError] = []
        self.writers: dict[KeyPath, str] = {}
        """The kernel in whose table each key is written that another one takes by `like`."""
        self._noted: set[tuple[int, KeyPath, str]] = set()

    def error(self, path: KeyPath, message: str, help: str = "") -> None:
        """Notes a mistake at a key, or at the nearest key around it that the text has; once for all kernels
        that have it from one."""
        line = line_of(self.lines, path)
        mistake = line, path[2:], message
        if path[:3] in self.writers and mistake in self._noted:
            return
        self._noted.add(mistake)
        text = f"{self._key(path)}: {message}" if path else message
        self.errors.append(ManifestError(text, Loc(self.display, line), help))

    def _key(self, path: KeyPath) -> str:
        """`kernel "name": matrix.dtype[1]` for `("kernel", 0, "matrix", "dtype", 1)`."""
        prefix = ""
        if len(path) >= 2 and path[0] == "kernel" and isinstance(path[1], int):
            entry = self.table["kernel"][path[1]]
            name = entry.get("name") if isinstance(entry, Mapping) else None
            shown = f' "{name}"' if isinstance(name, str) and re.fullmatch(NAME, name) else f"[{path[1]}]"
            writer = self.writers.get(path[:3])
            also = f' (as in "{writer}")' if writer else ""
            prefix, path = f"kernel{shown}{also}", path[2:]
        key = ""
        for part in path:
            key += f"[{part}]" if isinstance(part, int) else f".{shown_key(part)}" if key else shown_key(part)
        return ": ".join(text for text in (prefix, key) if text)

    def at(self, path: KeyPath) -> Any:
        """The manifest's value at a key."""
        value: Any = self.table
        for part in path:
            value = value[part]
        return value

    def also_at(self, path: KeyPath, other: KeyPath) -> None:
        """Mistakes at `other` have the line of `path`."""
        if path in self.lines:
            self.lines.setdefault(other, self.lines[path])


def names_of(key: str) -> list[str]:
    """The arguments that a key is for: `M, N, K` are three."""
    return [name.strip() for name in key.split(",")]


def spread(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose keys may name several arguments each, with a key for every one of them."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        for name in names_of(key):
            found.setdefault(name, value)
    return found


def placed(given: object, read: Sequence[T]) -> list[tuple[KeyPath, T]]:
    """The values read from a list, each with its index in the manifest; a single value has no index."""
    items: list[tuple[KeyPath, Any]] = [((), given)]
    if isinstance(given, list):
        items = [((index,), item) for index, item in enumerate(given)]
    return [(place, item) for place, item in items if any(item is value for value in read)]


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the defaults that it does not give itself.

    Its own keys stay in their order, which names of variants show.  A default stands in front of the next key
    of `defaults` that the table gives, or behind all: where both have one order, so has the whole.
    """
    names, order = list(defaults), list(given)
    for index, name in enumerate(names):
        if name not in given:
            later = next((key for key in names[index + 1 :] if key in given), None)
            order.insert(len(order) if later is None else order.index(later), name)
    return {name: given[name] if name in given else defaults[name] for name in order}


def described(value: object) -> str:
    """A TOML value in a message: short, and on one line."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = ascii(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, str):
        return '"' + text.strip("'\"") + '"'
    return str(value).lower() if isinstance(value, bool) else f"the {type(value).__name__} {text}"


def shown_key(key: str) -> str:
    """A key in a message: as it is where it is a plain word, quoted and escaped otherwise."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,128}", key) else described(key)


def suggestion(word: object, known: Iterable[str]) -> str:
    """Advice for a word that is not known: the nearest known one, or all of them when they are few."""
    known = list(dict.fromkeys(known))
    if close := nearest(str(word)[:128], known):
        return f'did you mean "{close}"?'
    return f"known: {', '.join(known)}" if known else ""


def one_line(value: Value) -> str:
    """A compile-time value as the manifest writes it."""
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
