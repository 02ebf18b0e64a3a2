"""Where something is in the user's source, and how a mistake there is reported.

Every message of kbuild points at a line of the user's kernel or at a key of the manifest.  `Loc` names the
place, `KbuildError` carries it, `render` prints it with the source line and a caret:

    kernels/add.py:12:24: error: mask has shape [32], the pointers have shape [32, 64]
        x = tl.load(p, mask=m, other=0.0)
                            ^
    help: write m[:, None] to spread the mask over the second dimension
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


def shown_path(path: str) -> str:
    """A path as messages show it: what lies below the working directory is named from there."""
    try:
        below = os.getcwd().rstrip(os.sep) + os.sep
    except OSError:  # The directory has been removed.
        return path
    return path.removeprefix(below)


@dataclass(frozen=True)
class Loc:
    """A range of one source line, with the chain of inlined calls that led there."""

    file: str
    line: int
    """1-based line number."""
    column: int = 0
    """1-based column of the first character; 0 when only the line is known."""
    end_column: int = 0
    """1-based column after the last character; 0 when unknown or on a later line."""
    function: str = ""
    """Name of the function whose body holds the line."""
    caller: Loc | None = None
    """The call that was inlined to get here, innermost first."""

    def called_from(self, caller: Loc | None) -> Loc:
        """This place, reached through an inlined call at `caller` (appended to the outer end of the chain)."""
        if caller is None:
            return self
        if self.caller is None:
            return replace(self, caller=caller)
        return replace(self, caller=self.caller.called_from(caller))

    def frames(self) -> list[Loc]:
        """The chain of places, outermost call first, this one last."""
        return (self.caller.frames() if self.caller else []) + [self]

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        return f"{shown_path(self.file)}:{self.line}{column}"


class KbuildError(Exception):
    """A mistake of the user's, with its place and, where the fix is known, advice."""

    exit_code = 1

    def __init__(self, message: str, loc: Loc | None = None, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.help = help

    def errors(self) -> Sequence[KbuildError]:
        """The single mistakes that this error stands for."""
        return (self,)

    def __str__(self) -> str:
        return render(self)


class CompileError(KbuildError):
    """The kernel's source is wrong, or asks for what the target cannot do."""


class UsageError(KbuildError):
    """The command line is wrong."""

    exit_code = 2


class ManifestError(KbuildError):
    """The manifest is wrong; `message` begins with the key."""

    exit_code = 2


class ToolError(KbuildError):
    """An outside program (ptxas, ninja, cc) is missing or failed."""


class InterpretError(KbuildError):
    """A kernel failed while it was interpreted: an access out of bounds, a failed assertion, a wrong
    argument."""


class InternalError(KbuildError):
    """An invariant of kbuild is broken: never the user's mistake, always a bug to report."""


class ErrorGroup(KbuildError):
    """All mistakes found in one go."""

    def __init__(self, errors: Iterable[KbuildError]) -> None:
        self._errors = tuple(single for error in errors for single in error.errors())
        super().__init__("\n".join(error.message for error in self._errors))
        self.exit_code = max(error.exit_code for error in self._errors)

    def errors(self) -> Sequence[KbuildError]:
        return self._errors


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known word most similar to an unknown one; empty if none is similar enough (1: the same letters)."""
    import difflib  # Only where there is a mistake to report.

    return next(iter(difflib.get_close_matches(word, known, 1, likeness)), "")


def register_source(file: str, text: str) -> None:
    """Make the lines of a source that is not a file on disk available to `render`."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def render(error: KbuildError) -> str:
    """The text of an error: the inlined calls that led to it, its place, its line with carets, and advice."""
    return "\n".join(_render_single(single) for single in error.errors())


def _render_single(error: KbuildError) -> str:
    if error.loc is None:
        lines = [f"error: {error.message}"]
    else:
        *calls, place = error.loc.frames()
        lines = []
        for call in calls:
            lines.append(f"{call}: in the call made here by {call.function or 'the kernel'}:")
            lines.extend(_excerpt(call))
        lines.append(f"{place}: error: {error.message}")
        lines.extend(_excerpt(place))
    if error.help:
        lines.append(f"help: {error.help}")
    return "\n".join(lines)


def _excerpt(loc: Loc) -> list[str]:
    """The source line of a place, and carets below its range; empty when the source is not available."""
    text = linecache.getline(loc.file, loc.line).rstrip("\n")
    if not text.strip():
        return []
    stripped = text.lstrip()
    lines = ["    " + stripped]
    if loc.column:
        start = max(loc.column - 1 - (len(text) - len(stripped)), 0)
        end = loc.end_column - 1 - (len(text) - len(stripped)) if loc.end_column else start + 1
        lines.append("    " + " " * start + "^" * max(min(end, len(stripped)) - start, 1))
    return lines
