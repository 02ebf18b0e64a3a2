"""PTX text as tokens, and a cursor over them."""

from __future__ import annotations

import bisect
import re
import string
from typing import NoReturn

from kbuild.emulator.ptx.model import PtxError
from kbuild.errors import Loc, register_source

_TOKEN = re.compile(
    r"(?:\s+|//[^\n]*|/\*.*?\*/)*"
    r"(\"[^\"\n]*\""
    r"|0[fF][0-9A-Fa-f]{8}\b|0[dD][0-9A-Fa-f]{16}\b|0[xX][0-9A-Fa-f]+U?|[0-9]+U?\b"
    r"|\.[\w$]+(?:::[\w$]+)*|[A-Za-z_%$][\w$]*"
    r"|[{}()\[\];,:<>@!|=+-]"
    r"|\Z|(.))",
    re.DOTALL,
)

_SINGLE = frozenset(string.ascii_letters + string.digits + "_%$" + "{}()[];,:<>@!|=+-")
"""Tokens of one character."""


class Cursor:
    """The tokens of a text and the place of the next one.  The last token is empty."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.index = 0
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        register_source(file, text)
        matches = list(_TOKEN.finditer(text))
        self.tokens = [match[1] for match in matches]
        self.starts = [match.start(1) for match in matches]
        if any(len(token) == 1 and token not in _SINGLE for token in set(self.tokens)):
            self.index = next(index for index, match in enumerate(matches) if match[2] is not None)
            self.fail(f"unexpected character {self.next!r}")

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.index]

    @property
    def line(self) -> int:
        """1-based line of the next token."""
        return bisect.bisect_left(self.newlines, self.starts[self.index]) + 1

    def fail(self, message: str, help: str = "") -> NoReturn:
        """Raise PtxError at the next token."""
        start, line = self.starts[self.index], self.line
        column = start - (self.newlines[line - 2] + 1 if line > 1 else 0) + 1
        raise PtxError(message, Loc(self.file, line, column, column + max(len(self.next), 1)), help)

    def take(self) -> str:
        """Return the next token and step over it."""
        token = self.tokens[self.index]
        self.index += 1
        return token

    def accept(self, token: str) -> bool:
        """Step over `token` if it is next; returns whether it was."""
        if self.tokens[self.index] == token:
            self.index += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Step over `token`, which must be next."""
        if not self.accept(token):
            self.fail(f"expected {token!r}, found {self.next or 'the end of the text'!r}")

    def name(self) -> str:
        """Return a name, which must be next."""
        token = self.next
        if not token or not (token[0].isalpha() or token[0] in "_%$"):
            self.fail(f"expected a name, found {token or 'the end of the text'!r}")
        return self.take()

    def integer(self) -> int:
        """Return an integer with an optional sign, which must be next."""
        negative = self.accept("-")
        if not self.next[:1].isdigit():
            self.fail(f"expected an integer, found {self.next!r}")
        value = int(self.take().rstrip("U"), 0)
        return -value if negative else value

    def dotted(self) -> str:
        """Return a token that begins with a dot, which must be next, without the dot."""
        if not self.next.startswith("."):
            self.fail(f"expected a directive or a type, found {self.next!r}")
        return self.take()[1:]
