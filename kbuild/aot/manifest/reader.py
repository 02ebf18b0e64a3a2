"""Checked access to the values of a manifest, and the collection of the mistakes in it."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.model import RESERVED_NAMES, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.errors import Loc, ManifestError, nearest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Reader:
    """The values of one manifest, their lines, and the mistakes found so far."""

    def __init__(
        self, file: Path, display: str, table: Mapping[str, Any], lines: Mapping[KeyPath, int]
    ) -> None:
        self.root = file.resolve().parent
        self.display = display
        self.table = table
        self.lines = dict(lines)
        self.errors: list[ManifestError] = []

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Notes a mistake at a key, or at the nearest key around it that the text has."""
        nearest = path
        while nearest not in self.lines:
            nearest = nearest[:-1]
        text = f"{self._key(path)}: {message}" if path else message
        self.errors.append(ManifestError(text, Loc(self.display, self.lines[nearest]), hint))

    def _key(self, path: KeyPath) -> str:
        """`kernel "name": matrix.dtype[1]` for `("kernel", 0, "matrix", "dtype", 1)`."""
        prefix = ""
        if len(path) >= 2 and path[0] == "kernel" and isinstance(path[1], int):
            entry = self.table["kernel"][path[1]]
            name = entry.get("name") if isinstance(entry, Mapping) else None
            shown = f' "{name}"' if isinstance(name, str) and _NAME.fullmatch(name) else f"[{path[1]}]"
            prefix, path = f"kernel{shown}", path[2:]
        key = ""
        for part in path:
            key += f"[{part}]" if isinstance(part, int) else f".{shown_key(part)}" if key else shown_key(part)
        return ": ".join(text for text in (prefix, key) if text)

    def keys(
        self, path: KeyPath, table: Mapping[str, Any], known: Iterable[str], required: Iterable[str] = ()
    ) -> None:
        """Checks that a table has known keys only, and all the required ones."""
        known = tuple(known)
        for key in table:
            if key not in known:
                self.error((*path, key), "unknown key", suggestion(key, known))
        for key in required:
            if key not in table:
                self.error(path, f'missing key "{key}"')

    def get(self, path: KeyPath, table: Mapping[str, Any], kind: type, default: Any = None) -> Any:
        """The value under the path's last part if it is of that type; otherwise the default, and a mistake
        noted."""
        key = path[-1]
        if key not in table:
            return default
        value = table[str(key)]
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        self.error(path, f"expected {_TYPE_NAMES[kind]}, found {described(value)}")
        return default

    def tables(self, path: KeyPath, table: Mapping[str, Any]) -> list[tuple[KeyPath, Mapping[str, Any]]]:
        """The tables of an array of tables, with their paths."""
        found: list[tuple[KeyPath, Mapping[str, Any]]] = []
        for index, entry in enumerate(self.get(path, table, list, [])):
            if isinstance(entry, Mapping):
                found.append(((*path, index), entry))
            else:
                self.error((*path, index), f"expected a table, found {described(entry)}")
        return found

    def spread(self, path: KeyPath, table: Mapping[str, Any]) -> dict[str, Any]:
        """A table whose keys may name several arguments each, as `"M, N, K" = "i32"`, with a key for every
        one of them."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            for name in names_of(key):
                if name in found:
                    self.error((*path, key), f"{described(name)} is given twice")
                if (*path, key) in self.lines:
                    self.lines.setdefault((*path, name), self.lines[(*path, key)])
                found.setdefault(name, value)
        return found

    def name(self, path: KeyPath, value: object, reserved: Sequence[str] = RESERVED_NAMES) -> bool:
        """Checks a name that will stand in Python, C and file names."""
        if not isinstance(value, str):
            self.error(path, f"expected a name, found {described(value)}")
        elif not _NAME.fullmatch(value):
            self.error(
                path, f"{described(value)} is not a name", "a name has up to 128 letters, digits and _"
            )
        elif keyword.iskeyword(value) or (value.startswith("__") and value.endswith("__")):
            self.error(path, f'"{value}" is a word of Python')
        elif value in reserved:
            self.error(path, f'"{value}" is a name that kbuild uses itself')
        else:
            return True
        return False


def names_of(key: str) -> list[str]:
    """The arguments that a key is for: `M, N, K` are three."""
    return [name.strip() for name in key.split(",")]


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


_TYPE_NAMES = {
    str: "a string",
    list: "a list",
    dict: "a table",
    int: "an integer",
    bool: "true or false",
    float: "a number",
}


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


def is_value(value: object) -> bool:
    """Whether a TOML value may be a compile-time value: a flag, a finite number, or a string that is a plain
    word or empty."""
    if isinstance(value, str):
        return bool(_NAME.fullmatch(value) or not value) and value not in ("True", "False", "None")
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and -(2**63) <= value < 2**64)


def one_line(value: Value) -> str:
    """A compile-time value as the manifest writes it."""
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
