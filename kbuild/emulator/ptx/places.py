"""Lines of the source, from the directives `.loc` of a function, with the calls that were inlined to get there.

.loc 1 11 5, function_name $name, inlined_at 1 15 3     line 11, in what line 15 calls
.loc 2 69 9, function_name $name, inlined_at 1 11 5     line 69 of another file, in what line 11 calls, …
"""

from __future__ import annotations

from kbuild.emulator.ptx.model import SourceLine
from kbuild.emulator.ptx.tokens import Cursor


class Places:
    """The places that a function has named so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], SourceLine] = {}

    def read(self, cursor: Cursor, before: SourceLine | None) -> SourceLine | None:
        """The place that a `.loc` names, after that word; the one `before` where it names line 0, which stands for code that
        no line has."""
        file, line, column = cursor.integer(), cursor.integer(), cursor.integer()
        start, last, caller = cursor.starts[cursor.index], 0, None
        while cursor.accept(","):
            word = cursor.name()
            last = cursor.index
            if word == "function_name":
                cursor.name()
                last = cursor.index
                if cursor.accept("+"):
                    cursor.integer()
                    last = cursor.index
            elif word == "inlined_at":
                call = cursor.integer(), cursor.integer(), cursor.integer()
                caller = self._known.get(call) or SourceLine(*call)
                last = cursor.index
            else:
                cursor.fail(f"unknown attribute {word} of .loc")
        end = cursor.starts[last - 1] + len(cursor.tokens[last - 1]) if last else start
        attributes = cursor.text[start + 1 : end].strip() if last else ""
        found = SourceLine(file, line, column, attributes, caller)
        self._known[file, line, column] = found
        return found if line or before is None else before
