"""What NVRTC says, as kbuild's own messages: places in the user's files, with the source line and a caret.

k.cu(7): error: identifier "y" is undefined      ▶   k.cu:7:9: error: identifier "y" is undefined
    x = y;                                               x = y;
        ^                                                    ^
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kbuild.errors import CompileError, Loc

_HEAD = re.compile(
    r"(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
    r"(?P<kind>catastrophic error|error|warning|remark)(?: #\d+(?:-D)?)?: (?P<text>.*)"
)
_TRACE = re.compile(
    r'instantiation of (?:function |class |variable )?"(?P<what>.*)" at line (?P<line>\d+)(?: of "?(?P<file>[^"]+?)"?)?$'
)
_INDENT = 2
"""Columns that NVRTC puts before a line of the source."""
NAMES = "__nv_name_map"
"""The file that NVRTC names for mistakes in name expressions."""


@dataclass(frozen=True)
class Diagnostic:
    """One message."""

    kind: str
    """`error` or `warning`."""
    loc: Loc
    message: str
    notes: tuple[str, ...] = ()
    """Lines that belong to it."""

    def error(self) -> CompileError:
        """The message as an error."""
        return CompileError("\n    ".join((self.message, *self.notes)), self.loc)

    def __str__(self) -> str:
        return f"{self.loc}: {self.message}"


def diagnostics(log: str) -> list[Diagnostic]:
    """The errors and warnings of a log, in order."""
    found: list[Diagnostic] = []
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in [*log.splitlines(), ""]:
        match = _HEAD.match(line)
        if match or (line and not line.startswith(" ")):
            found += _made(head, lines)
            head, lines = match, []
        elif line.strip():
            lines.append(line)
    found += _made(head, lines)
    return list(dict.fromkeys(found))


def _made(head: re.Match[str] | None, lines: Sequence[str]) -> Iterator[Diagnostic]:
    """The message of a head, with the lines below it."""
    if head is None or head["kind"] == "remark":
        return
    rest = list(lines)
    column = 0
    caret = next((place for place, line in enumerate(rest) if line.strip() == "^"), 0)
    if caret:  # Below the line of the source.
        column = max(rest[caret].index("^") - _INDENT + 1, 1)
        del rest[caret - 1 : caret + 1]
    trace = [_TRACE.match(line.strip()) for line in rest]
    notes = tuple(
        line.strip()
        for line, one in zip(rest, trace)
        if one is None and line.strip() not in ("detected during:", "detected during")
    )
    calls = [one for one in trace if one is not None]
    loc = Loc(head["file"], int(head["line"]), column, 0, calls[0]["what"] if calls else "")
    # The innermost instantiation comes first; what holds its place is named by the next.
    caller: Loc | None = None
    for call, outer in reversed([*zip(calls, [*calls[1:], None])]):
        caller = Loc(
            call["file"] or head["file"],
            int(call["line"]),
            function=outer["what"] if outer else "",
            caller=caller,
        )
    kind = "warning" if head["kind"] == "warning" else "error"
    yield Diagnostic(kind, loc.called_from(caller), head["text"], notes)


def warnings_in(found: Sequence[Diagnostic], files: Collection[str]) -> tuple[str, ...]:
    """The warnings about some files, each in a line."""
    return tuple(str(one) for one in found if one.kind == "warning" and one.loc.file in files)
