"""CUDA C++ as tokens: enough of the language's lexis to find kernels, their parameters and what they include.

    __global__ void f(int n) // comment      ▶  word __global__, word void, word f, mark (, word int, word n, mark )
    #include "tile.cuh"                      ▶  directive #include "tile.cuh"

Comments are left out, but for their place before a token, where they may be its documentation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)")
  | (?P<text>(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[\w.']|(?<=[eEpP])[+-])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<space>[ \t\r\f\v]+|\\\r?\n)
  | (?P<line>\n)
  | (?P<mark>::|->|<<<|>>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"#(?:[^\n\\/\"]|\\\r?\n|\\.|\"(?:[^\"\\\n]|\\.)*\"|/(?![/*]))*")


@dataclass(frozen=True)
class Token:
    """One token, and where it stands."""

    kind: str
    """`word`, `number`, `text`, `mark` or `directive`."""
    text: str
    """As written; of a directive the whole logical line, with single spaces."""
    line: int
    """1-based."""
    column: int
    """1-based."""
    comment: str = ""
    """The comment that stands directly before it, as written."""


@lru_cache(maxsize=64)
def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text.  Whatever it is, it has some: what is no C++ is for the compiler to refuse."""
    found: list[Token] = []
    place, line, start_of_line, is_first, comment = 0, 1, 0, True, ""
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None, "a mark takes any character"
        kind, whole = match.lastgroup or "", match[0]
        kind = "text" if kind in ("raw", "fence") else kind
        if is_first and whole == "#":
            directive = _DIRECTIVE.match(text, place)
            assert directive is not None, "it begins so"
            kind, whole = "directive", directive[0]
        if kind == "comment":
            comment = _joined(comment, whole)
        elif kind not in ("space", "line"):
            shown = re.sub(r"(?:\\\r?\n|\s)+", " ", whole).strip() if kind == "directive" else whole
            found.append(Token(kind, shown, line, place - start_of_line + 1, comment))
            comment, is_first = "", False
        elif kind == "line":
            is_first = True
            if text[place - 1 : place] == "\n":  # A line between a comment and the token.
                comment = ""
        place += len(whole)
        breaks = whole.count("\n")
        if breaks:
            line += breaks
            start_of_line = place - len(whole) + whole.rindex("\n") + 1
    return tuple(found)


def _joined(before: str, comment: str) -> str:
    """Comments of one line each that follow each other are one."""
    return f"{before}\n{comment}" if before.startswith("//") and comment.startswith("//") else comment


def comment_text(comment: str) -> str:
    """The words of a comment, without what marks it."""
    if comment.startswith("//"):
        lines = [line.strip().lstrip("/").removeprefix("!") for line in comment.splitlines()]
    else:
        inner = comment.removeprefix("/*").removesuffix("*/").lstrip("*!")
        lines = [re.sub(r"^\s*\*", "", line) for line in inner.splitlines()]
    return "\n".join(line.strip() for line in lines).strip()
