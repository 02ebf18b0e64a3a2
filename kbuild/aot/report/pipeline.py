"""The IR after every pass, as differences from the pass before.

    copy 3, drop 1, add 2 lines, copy …       and   %7 is called %5 from here on

Values without a name are numbered as they are printed, so that a pass which removes one operation renumbers all after
it.  Such lines count as copied: the numbers that changed are told apart, and the page applies them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = re.compile(r"(\d+)_(\w+)\.(ttir|ttgir)")
_LOCATION = re.compile(r" loc\(([^()]*)\)$")
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NUMBER = re.compile(r"%(\d+)\b")


@dataclass(frozen=True)
class Place:
    """A place in the source."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Stage:
    """The text of a module after a pass."""

    name: str
    """The pass; `start` for what the first one gets."""
    stage: str
    """`ttir` or `ttgir`."""
    lines: tuple[str, ...]
    """Without locations."""
    places: tuple[tuple[Place, ...], ...]
    """Of each line where it comes from: the innermost place first, then the calls that led there."""


def stages_of(folder: Path) -> list[Stage]:
    """What `compile(dump=…)` has left in a folder, in the order of the passes."""
    found: list[Stage] = []
    for path in sorted(folder.iterdir()):
        if match := _FILE.fullmatch(path.name):
            rows = [_split(line) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]
            found.append(
                Stage(match[2], match[3], tuple(line for line, _ in rows), tuple(place for _, place in rows))
            )
    return found


def _split(line: str) -> tuple[str, tuple[Place, ...]]:
    """A line and its location."""
    match = _LOCATION.search(line)
    if match is None:
        return line, ()
    frames = _FRAME.findall(match[1])
    return line[: match.start()], tuple(Place(file, int(row), int(column)) for file, row, column in frames)


def encoded(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """The stages as values for JSON: the first with its `lines`, each other with `edits` and `numbers` that make it of
    the one before, neither where it is the same."""
    found: list[dict[str, Any]] = []
    before: Sequence[str] = ()
    for stage in stages:
        entry: dict[str, Any] = {"name": stage.name, "stage": stage.stage}
        if not found:
            entry["lines"] = list(stage.lines)
        elif tuple(before) != stage.lines:
            entry |= difference(before, stage.lines)
        found.append(entry)
        before = stage.lines
    return found


def difference(before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """What makes `after` of `before`: `edits`, each of lines to copy, lines to drop, and lines to add; and `numbers`,
    the values that copied lines call otherwise."""
    old, new = [_NUMBER.sub("%_", line) for line in before], [_NUMBER.sub("%_", line) for line in after]
    numbers: dict[str, str] = {}
    edits: list[tuple[int, int, list[str]]] = []
    copied = 0
    for tag, first, last, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            for place in range(last - first):
                if _renumbered(before[first + place], after[start + place], numbers):
                    copied += 1
                else:
                    edits.append((copied, 1, [after[start + place]]))
                    copied = 0
        else:
            edits.append((copied, last - first, list(after[start:end])))
            copied = 0
    changed = {old: new for old, new in numbers.items() if old != new}
    return {"edits": edits} | ({"numbers": changed} if changed else {})


def _renumbered(before: str, after: str, numbers: dict[str, str]) -> bool:
    """Whether a line is the other but for numbers that are what `numbers` says, which learns them where it says
    nothing."""
    pairs = list(zip(_NUMBER.findall(before), _NUMBER.findall(after)))
    known = dict(numbers)
    for old, new in pairs:
        if known.setdefault(old, new) != new:
            return False
    numbers |= known
    return True


def applied(before: Sequence[str], entry: dict[str, Any]) -> list[str]:
    """The lines after a pass: what the page does with an entry of `encoded`."""
    if "lines" in entry:
        return list(entry["lines"])
    numbers = entry.get("numbers", {})
    found: list[str] = []
    place = 0

    def copy(count: int) -> None:
        for line in before[place : place + count]:
            found.append(_NUMBER.sub(lambda match: f"%{numbers.get(match[1], match[1])}", line))

    for copied, dropped, added in entry.get("edits", ()):
        copy(copied)
        found += added
        place += copied + dropped
    copy(len(before) - place)
    return found
