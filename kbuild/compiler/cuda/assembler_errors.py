"""What ptxas refuses of a kernel in CUDA C++, at the lines of its source: instructions of inline PTX, which NVRTC passes on as
they are, and more shared memory than there is.

    ptxas kernel.ptx, line 32; error : Unknown modifier '.foo'     ▶   k.cu:3:3: error: ptxas: Unknown modifier '.foo'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kbuild.compiler.backend.given_code import GivenCode
from kbuild.errors import CompileError, Loc, ToolError

_AT_LINE = re.compile(r"line (\d+); error\s*: (.*)")
_SHARED = re.compile(
    r"error\s*: Entry function '.*' uses too much shared data \(0x([0-9a-f]+) bytes, 0x([0-9a-f]+) max\)"
)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)


def at_source(
    error: ToolError, code: GivenCode, with_lines: Callable[[], tuple[str, ToolError | None]]
) -> list[CompileError]:
    """The errors of ptxas as errors of the source; none where they are about something else.  `with_lines` gives the same
    code with line information, and what ptxas says of that."""
    if shared := _SHARED.search(error.message):
        needed, most = (int(group, 16) for group in shared.groups())
        text = f"the kernel has {needed} bytes of static shared memory, {most} are allowed"
        help = "more may be dynamic: extern __shared__ in the source, and `shared` in the manifest"
        return [CompileError(text, code.place, help)]
    if not _AT_LINE.search(error.message):
        return []
    ptx, other = with_lines()
    return list(_placed(ptx, (other or error).message)) if other else []


def _placed(ptx: str, said: str) -> Iterator[CompileError]:
    lines, files = ptx.splitlines(), {int(number): name for number, name in _FILE.findall(ptx)}
    for number, text in dict.fromkeys(_AT_LINE.findall(said)):
        before = lines[: int(number)]
        found = next(
            (match for line in reversed(before) if (match := _LOC.match(line)) and match[2] != "0"), None
        )
        if found is not None:
            file, line, column = map(int, found.groups())
            instruction = lines[int(number) - 1].strip() if int(number) <= len(lines) else ""
            yield CompileError(
                f"ptxas: {text}", Loc(files.get(file, "?"), line, column), f"the instruction is {instruction}"
            )
