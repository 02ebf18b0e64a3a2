"""The text of a function by which it is known again: the digest of its tokens.

Comments, blank lines, indentation and the place in a file do not count, and the same digest comes of every version of
Python, whose syntax trees differ.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator

_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_MARKS = {tokenize.NEWLINE: "\n", tokenize.INDENT: "\t", tokenize.DEDENT: "\r"}
_START, _END = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)


def from_def(text: str) -> str:
    """The text of a function from its `def` on: without indentation and decorators."""
    text = textwrap.dedent(text)
    match = _DEF.search(text)
    return (text[match.start() :] if match else text).rstrip() + "\n"


def text_digest(functions: Iterable[str], values: Iterable[str] = ()) -> str:
    """sha256, in hexadecimal, of the texts of functions, that of the kernel first, and of the constants that they take
    from outside, as `name=value`."""
    hasher = hashlib.sha256()
    first, *others = [_normal(from_def(text)) for text in functions]
    for part in (first, *sorted(set(others)), *sorted(set(values))):
        hasher.update(part.encode("utf-8", "surrogatepass"))
        hasher.update(b"\0")
    return hasher.hexdigest()


def chains(text: str) -> list[tuple[str, ...]]:
    """The names that a function's text reads, each with the members that it reads of it: `tl.math.exp` is one of three.

    Names that the function binds itself are among them.
    """
    try:
        tree = ast.parse(from_def(text))
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: dict[tuple[str, ...], None] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node, members = waiting.pop(), list[str]()
        while isinstance(node, ast.Attribute):
            members.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            found[(node.id, *reversed(members))] = None
        else:
            waiting += ast.iter_child_nodes(node)
    return sorted(found)


def bound_names(text: str) -> set[str]:
    """The names that a function's text binds: its parameters, and what it assigns to."""
    try:
        nodes = [*ast.walk(ast.parse(from_def(text)))]
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return found | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _normal(text: str) -> str:
    """The tokens of a text, whatever stands between them; the text itself where it has none."""
    try:
        return "\x1f".join(_tokens(text))
    except (tokenize.TokenError, SyntaxError):
        return text


def _tokens(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == _START:  # Python 3.12 takes these strings apart, and those before do not.
            start, depth = (start if depth else token.start), depth + 1
        elif token.type == _END:
            depth -= 1
            if not depth:
                yield _between(lines, start, token.end)
        elif not depth and token.type not in _SKIPPED:
            yield _MARKS.get(token.type, token.string)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """What stands between two places, each a line, 1-based, and a column."""
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right]
    return "".join([lines[first - 1][left:], *lines[first : last - 1], lines[last - 1][:right]])
