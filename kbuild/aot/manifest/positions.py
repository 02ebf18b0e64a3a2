"""TOML files: their values, and the line of each key and array element.

The TOML reader gives values without places.  `positions` walks the text once, knowing only what decides where a key
begins: comments, strings, brackets and table headers.  The text has been read by the real reader before, so
it is well formed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import tomli

from kbuild.errors import Loc, ManifestError

Path = tuple[str | int, ...]
"""Keys from the top, with indices for elements of arrays: `("kernel", 1, "matrix", "dtype", 0)`."""

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<long>\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5})
      | (?P<string>"(?:\\.|[^"\\\n])*"|'[^'\n]*')
      | (?P<newline>\n)
      | (?P<space>[ \t\r]+)
      | (?P<mark>[\[\]{},=.])
      | (?P<bare>[^\s\#"'\[\]{},=.]+)""",
    re.VERBOSE | re.DOTALL,
)
_LARGEST_FILE = 4 << 20


def read_file(file: FilePath, display: str, help: str = "") -> bytes:
    """The bytes of a file; `display` is how messages call it.  Raises ManifestError, with `help`, where there are
    none."""
    if file.exists() and not file.is_file():  # Also a pipe, which reading would wait for.
        raise ManifestError(f"{display}: not a file", help=help)
    try:
        return file.read_bytes()
    except OSError as error:
        raise ManifestError(f"{display}: {error.strerror or error}", help=help) from None


def parsed(data: bytes, display: str) -> tuple[Mapping[str, Any], Mapping[Path, int]]:
    """The values of a text, and the line of each key.  Raises ManifestError, with the line."""
    if len(data) > _LARGEST_FILE:
        raise ManifestError("the file is larger than 4 MiB", Loc(display, 1))
    try:
        text = data.decode("utf-8-sig")  # Some editors begin a file with a byte order mark.
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ManifestError("the text is not UTF-8", Loc(display, line)) from None
    text = text.replace("\r\n", "\n")
    try:
        return tomli.loads(text), positions(text)
    except tomli.TOMLDecodeError as error:
        match = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        message = str(error)[: match.start()] if match else str(error)
        raise ManifestError(ascii(message)[1:-1], Loc(display, line)) from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"cannot be read: {ascii(str(error))[1:-1]}", Loc(display, 1)) from None


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of a key, or of the nearest one around it that the text has."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


class _Walk:
    """The tokens of a text with their lines, and a cursor."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        self.index = 0
        line = 1
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup or ""
            if kind not in ("comment", "space"):
                self.tokens.append((kind, match.group(), line))
            line += match.group().count("\n")

    def peek(self, ahead: int = 0) -> tuple[str, str, int]:
        index = self.index + ahead
        return self.tokens[index] if index < len(self.tokens) else ("end", "", 0)

    def take(self) -> tuple[str, str, int]:
        token = self.peek()
        self.index += 1
        return token

    def skip_newlines(self) -> None:
        while self.peek()[0] == "newline":
            self.index += 1

    def key(self) -> list[str]:
        """A dotted key, at the cursor."""
        parts: list[str] = []
        while True:
            _, text, _ = self.take()
            parts.append(text[1:-1] if text[:1] in "\"'" else text)
            if self.peek()[1] != ".":
                return parts
            self.take()


def positions(text: str) -> dict[Path, int]:
    """The 1-based line of every table, key and array element of a well-formed TOML text."""
    walk = _Walk(text)
    found: dict[Path, int] = {(): 1}
    counts: dict[Path, int] = {}
    table: Path = ()
    while walk.peek()[0] != "end":
        if walk.peek()[0] == "newline":
            walk.take()
        elif walk.peek()[1] == "[":
            table = _header(walk, found, counts)
        else:
            _key_value(walk, table, found)
    return found


def _header(walk: _Walk, found: dict[Path, int], counts: dict[Path, int]) -> Path:
    """Reads `[a.b]` or `[[a.b]]`; returns the path of the table that begins."""
    line = walk.take()[2]
    is_array = walk.peek()[1] == "["
    if is_array:
        walk.take()
    parts = walk.key()
    while walk.peek()[0] not in ("newline", "end"):
        walk.take()
    path: Path = ()
    for part in parts[:-1]:
        path = _latest((*path, part), counts)
    path = (*path, parts[-1])
    if is_array:
        counts[path] = counts.get(path, -1) + 1
        found.setdefault(path, line)
        path = (*path, counts[path])
    found[path] = line
    return path


def _latest(path: Path, counts: dict[Path, int]) -> Path:
    """The last element, where the path is an array of tables."""
    return (*path, counts[path]) if path in counts else path


def _key_value(walk: _Walk, table: Path, found: dict[Path, int]) -> None:
    line = walk.peek()[2]
    path = table
    for part in walk.key():
        path = (*path, part)
        found.setdefault(path, line)
    walk.take()
    _value(walk, path, found)


def _value(walk: _Walk, path: Path, found: dict[Path, int]) -> None:
    """Reads one value; arrays and inline tables add the places of their elements."""
    opening = walk.peek()[1]
    if opening == "[":
        walk.take()
        index = 0
        while _next_item(walk, "]"):
            found[(*path, index)] = walk.peek()[2]
            _value(walk, (*path, index), found)
            index += 1
    elif opening == "{":
        walk.take()
        while _next_item(walk, "}"):
            _key_value(walk, path, found)
    else:
        while walk.peek()[0] not in ("newline", "end") and walk.peek()[1] not in (",", "]", "}"):
            walk.take()


def _next_item(walk: _Walk, closing: str) -> bool:
    """Moves to the next item of an array or inline table; false, past its end, when there is none."""
    walk.skip_newlines()
    if walk.peek()[1] == ",":
        walk.take()
        walk.skip_newlines()
    if walk.peek()[1] == closing or walk.peek()[0] == "end":
        walk.take()
        return False
    return True
