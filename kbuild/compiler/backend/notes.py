"""The notes in which ptxas reports that it does not run wgmma as the PTX has it: the code is correct but slower.

    ptxas info : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to … in
    line 412 ptxas info : (C7517) wgmma.wait_group is injected in around line 499 by compiler to …

A line is one of the PTX, in which each dot begins with a mark that numbers it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kbuild.compiler.lower.mma.wgmma import DOT_MARK

_NOTE = re.compile(r"\((C75\d\d)\)\s*(.*)|(wgmma\S* instructions are serialized.*)")
_LINE = re.compile(r" in (?:around )?line (\d+)")
_FUNCTION = re.compile(r" in (?:the |for the )?function '[^']*'| for the function '[^']*'")
_PREAMBLE = "Potential Performance Loss: "


class Note(NamedTuple):
    """One thing that ptxas says of the dots of a kernel."""

    code: str
    """The number of the message, such as `C7514`; empty where it has none."""
    text: str
    """The message, without its places."""
    dot: int | None
    """The number of the dot it is about, in program order; None where ptxas names no line."""

    def __str__(self) -> str:
        return f"{self.text} (ptxas {self.code})" if self.code else f"{self.text} (ptxas)"


def notes_of(report: str, ptx: str) -> tuple[Note, ...]:
    """The notes in a report of ptxas on a PTX text, each once."""
    lines = ptx.splitlines()
    found: dict[Note, None] = {}
    for code, text, bare in _NOTE.findall(report):
        message = text or bare
        line = _LINE.search(message)
        words = _FUNCTION.sub("", _LINE.sub("", message)).removeprefix(_PREAMBLE)
        found[Note(code, " ".join(words.split()), _dot_at(lines, int(line[1])) if line else None)] = None
    return tuple(found)


def _dot_at(lines: list[str], line: int) -> int | None:
    """The dot that a line of the PTX (1-based) belongs to: the last that begins before it, else the first."""
    marks = [
        (number, int(text.rpartition(DOT_MARK)[2]))
        for number, text in enumerate(lines, 1)
        if DOT_MARK in text
    ]
    before = [dot for number, dot in marks if number <= line]
    return before[-1] if before else marks[0][1] if marks else None
