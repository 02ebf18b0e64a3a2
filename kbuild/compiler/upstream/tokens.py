"""The tokens of MLIR's text, and places in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from kbuild.errors import CompileError, Loc

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\{-\#.*?\#-\})
      | (?P<value>%[\w.$-]+(?:\#\d+)?)
      | (?P<label>\^[\w.$-]+)
      | (?P<symbol>@(?:[\w.$-]+|"[^"\n]*"))
      | (?P<attribute>\#[\w.$]+(?:-[\w.$]+)*)
      | (?P<type>![\w.$]+)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
      | (?P<word>[A-Za-z_][\w.$]*)
      | (?P<mark>->|::|[-(){}\[\]<>=,:*+?|/])""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"%[\w.$-]+(?::\d+)?(?:\s*,\s*%[\w.$-]+(?::\d+)?)*\s*=(?!=)")
_QUOTED_OPERATION = re.compile(r'"[A-Za-z_]\w*\.[\w.]+"\s*\(')


class Tokens:
    """A text, and the token at which reading it has arrived."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.position = 0
        self.start = 0
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token; the text of the one stepped over is returned."""
        previous = self.token
        while True:
            self.start = self.position
            if self.position >= len(self.text):
                self.kind, self.token = "end", ""
                return previous
            match = _TOKEN.match(self.text, self.position)
            if match is None:
                self.position += 1
                self.fail(f"unexpected character {self.text[self.start]!r}")
            self.position = match.end()
            if match.lastgroup != "space":
                self.kind, self.token = str(match.lastgroup), match[0]
                return previous

    def move_to(self, position: int) -> None:
        """Go on at another place of the text."""
        self.position = position
        self.advance()

    @contextmanager
    def elsewhere(self, position: int) -> Iterator[None]:
        """Read at another place of the text for a while."""
        saved = self.position, self.start, self.kind, self.token
        self.move_to(position)
        yield
        self.position, self.start, self.kind, self.token = saved

    def fail(self, message: str, place: tuple[int, int] | None = None, help: str = "") -> NoReturn:
        """Raise `CompileError` at a range of the text, or at the current token."""
        raise CompileError(message, self.loc(*(place or (self.start, self.position))), help)

    def loc(self, start: int, end: int) -> Loc:
        """The location of a range of the text."""
        line = bisect_right(self.lines, start)
        column = start - self.lines[line - 1] + 1
        return Loc(self.file, line, column, column + max(end - start, 1))

    def at(self, *tokens: str) -> bool:
        """Whether the current token is one of these marks or words."""
        return self.kind != "string" and self.token in tokens

    def accept(self, token: str) -> bool:
        """Step over a mark or word if it is here."""
        if self.at(token):
            self.advance()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}, found {self.token or 'the end'!r}")

    def take(self, kind: str) -> str:
        """The text of the current token, which must be of a kind; steps over it."""
        if self.kind != kind:
            self.fail(f"expected a {kind}, found {self.token or 'the end'!r}")
        return self.advance()

    def separated(self, closing: str) -> bool:
        """In a list: whether another item follows, after its comma; the closing token is stepped over."""
        if self.accept(closing):
            return False
        self.expect(",")
        return not self.accept(closing)

    def begins_statement(self) -> bool:
        """Whether the next operation begins here: `%a, %b:2 = …`, `tt.store …` or `"tt.reduce"(…)`."""
        if self.kind == "value":
            return _ASSIGNED.match(self.text, self.start) is not None
        if self.kind == "string":
            return _QUOTED_OPERATION.match(self.text, self.start) is not None
        return self.kind == "word" and ("." in self.token or self.token == "return")

    def skip_brackets(self) -> str:
        """The text between `<` and the matching `>`; both are stepped over."""
        begin, depth = self.position, 0
        while True:
            depth += {"<": 1, ">": -1}.get(self.token if self.kind == "mark" else "", 0)
            if depth == 0:
                text = self.text[begin : self.start]
                self.advance()
                return text
            if self.kind == "end":
                self.fail("expected '>', found the end")
            self.advance()


def unquoted(text: str) -> str:
    """The characters that a string token stands for; MLIR writes others than ASCII's as bytes of UTF-8."""

    def character(match: re.Match[bytes]) -> bytes:
        return (
            bytes([int(match[1], 16)])
            if len(match[1]) == 2
            else {b"n": b"\n", b"t": b"\t"}.get(match[1], match[1])
        )

    return re.sub(rb"\\([0-9A-Fa-f]{2}|.)", character, text[1:-1].encode()).decode(errors="replace")
