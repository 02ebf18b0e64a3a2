"""Which lines of PTX and SASS come from which lines of the source.

.loc 1 91 20                              in PTX: what follows is of line 91, column 20, of file 1
//## File ".nv_debug_ptx_txt", line 44    in nvdisasm's text: what follows is of line 44 of the PTX
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kbuild.aot.report.pipeline import Place
from kbuild.compiler.backend.elf import sections
from kbuild.errors import ToolError

_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_MARK = re.compile(r'\s*//## File "(.*)", line (\d+)')
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*(?:/\*.*\*/)?")
_PTX = ".nv_debug_ptx_txt"
"""The section of a cubin with the text that ptxas was given, and the name of that text in its line table."""
_DOT = re.compile(r"(?:^|\s)[HQIB]GMMA\.")
_LABEL = re.compile(r"(\.L_x_\d+):")


@dataclass(frozen=True)
class PtxLine:
    """A line of PTX that is shown."""

    text: str
    number: int
    """Its line in the text that was compiled."""
    place: Place | None
    first: int
    """The line on which its instruction begins: some take several, and ptxas names the last one."""


@dataclass(frozen=True)
class SassLine:
    """An instruction of machine code, or a label."""

    text: str
    address: str
    """In hexadecimal; empty for a label."""
    ptx: int
    """The line of the PTX that it comes from, as in `PtxLine.number`; 0 where that is not known."""


def ptx_lines(text: str) -> list[PtxLine]:
    """The lines of a PTX text but its line table."""
    files = {match[1]: match[2] for match in map(_FILE.match, text.splitlines()) if match}
    found: list[PtxLine] = []
    place: Place | None = None
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LOC.match(line):
            name, row, column = files.get(match[1], ""), int(match[2]), int(match[3])
            place = Place(name, row, column) if row else None  # Line 0: of no line in particular.
        elif line.strip() == "}" or line.lstrip().startswith("."):
            # Neither declarations nor the end are of a line.
            if not line.lstrip().startswith((".file", ".section")):
                found.append(PtxLine(line, number, None, number))
        elif line.strip() and not line.lstrip().startswith("//"):
            first = found[-1].first if is_open and found else number
            found.append(PtxLine(line, number, place, first))
            is_open = line.partition("//")[0].rstrip()[-1:] not in (";", ":", "{", "}")
    return found


def sass_lines(text: str, shift: Sequence[int] = ()) -> Iterator[SassLine]:
    """The instructions in what `nvdisasm -gp -c` prints; `shift` says of each line that ptxas was given, from 0 on,
    which line of the PTX it is."""
    ptx = 0
    for line in text.splitlines():
        if match := _MARK.match(line):
            if match[1] == _PTX:
                number = int(match[2])
                ptx = shift[number - 1] if 0 < number <= len(shift) else 0 if shift else number
        elif match := _INSTRUCTION.fullmatch(line):
            yield SassLine(match[2], match[1], ptx)
        elif match := _LABEL.fullmatch(line.strip()):
            yield SassLine(f"{match[1]}:", "", 0)


def with_dots(sass: Sequence[SassLine], ptx: Sequence[PtxLine]) -> list[SassLine]:
    """The same with the lines of asynchronous dots, of which ptxas writes none: they keep the order of the PTX, so that
    the first is the first there."""
    dots = [line.number for line in ptx if "wgmma.mma_async" in line.text]
    places = [place for place, line in enumerate(sass) if _DOT.search(line.text)]
    found = list(sass)
    if len(dots) == len(places):
        for place, number in zip(places, dots):
            found[place] = replace(found[place], ptx=number)
    return found


def assembled_lines(cubin: bytes, ptx: str) -> list[int]:
    """For each line that ptxas was given, the line of a PTX text that it is, 0 for none: `cubin.assemble` may add
    lines.

    Empty where a cubin does not have the text.
    """
    try:
        given = next(section.data for section in sections(cubin) if section.name == _PTX)
    except (ToolError, StopIteration):
        return []
    own = ptx.splitlines()
    found: list[int] = []
    place = 0
    for line in given.decode(errors="replace").split("\0"):
        words = line.split()
        # ptxas keeps the numbers of comments and of its own line table, but not their text.
        if not words or (place < len(own) and own[place].split() == words):
            place += 1
            found.append(place if place <= len(own) else 0)
        elif place < len(own) and _is_left_out(own[place]):
            place += 1
            found.append(place)
        else:
            found.append(0)
    return found


def _is_left_out(line: str) -> bool:
    return line.lstrip().startswith(("//", ".loc", ".file"))


def code_of(cubin: bytes) -> bytes:
    """The machine code of a cubin."""
    return b"".join(section.data for section in sections(cubin) if section.name.startswith(".text."))
