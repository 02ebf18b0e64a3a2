"""Small mistakes for kbuild's own modules: each is an edit of one line, found by the syntax (Python) or by
the text (C).

`of_python(text)` and `of_c(text)` list all mutants of a file, by lines; `Mutant.planted(text)` is the file
with one of them. Left out are parts that do not affect a result: documentation, annotations, decorators,
assertions, error messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """A piece of a line, and its replacement."""

    kind: str
    line: int
    """From 1."""
    start: int
    """First character of the piece in its line, from 0."""
    old: str
    new: str

    def planted(self, text: str) -> str:
        lines = text.split("\n")
        lines[self.line - 1] = self.changed(lines[self.line - 1])
        return "\n".join(lines)

    def changed(self, line: str) -> str:
        assert line[self.start : self.start + len(self.old)] == self.old
        return line[: self.start] + self.new + line[self.start + len(self.old) :]


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
_ORDER_IS_ALL_THE_SAME = {
    "min",
    "max",
    "gcd",
    "lcm",
    "isinstance",
    "zip",
    "and_",
    "or_",
    "xor",
    "add",
    "multiply",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "logical_and",
    "logical_or",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "not_equal",
    "array_equal",
}
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def of_python(text: str) -> list[Mutant]:
    """All mutants of a module; ask `parses` of one before it is planted."""
    return sorted(set(_Finder(text).mutants()), key=lambda m: (m.line, m.start, m.kind, m.new))


def parses(text: str) -> bool:
    """Whether a text is Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


class _Finder:
    """Goes through a module's syntax."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.module = ast.parse(text)

    def mutants(self) -> Iterator[Mutant]:
        for node in self._nodes(self.module):
            yield from self._of(node)

    def _nodes(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that may affect a result."""
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(
                node, ast.Assert
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
                is_error = isinstance(child, ast.Call) and isinstance(node, ast.Raise)
                if isinstance(child, ast.AST) and not (
                    is_text or is_error or isinstance(child, ast.JoinedStr)
                ):
                    yield from self._nodes(child)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from self._between("comparison", left, right, *_COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                yield from self._between("operator", left, right, *_OPERATORS[type(op)])
                if isinstance(op, ast.BitOr) and isinstance(left, ast.Name) and isinstance(right, ast.Name):
                    yield from self._whole("dropped case", node, self._text(left))
            case ast.AugAssign(target=target, op=op, value=value) if type(op) in _OPERATORS:
                old, new = _OPERATORS[type(op)]
                yield from self._between("operator", target, value, f"{old}=", f"{new}=")
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between("operator", left, right, *words)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self._whole("guard negated", node, self._text(operand))
            case ast.If(test=test, body=body):
                yield from self._whole("guard negated", test, f"not ({self._text(test)})")
                # The branch that only leaves is a guard; another one is a case.
                kind = "guard dropped" if isinstance(body[-1], _LEAVES) else "dropped case"
                yield from self._whole(kind, test, "False")
            case ast.IfExp(test=test):
                yield from self._whole("guard negated", test, f"not ({self._text(test)})")
            case ast.comprehension(ifs=[test, *_]):
                yield from self._whole("guard dropped", test, "True")
            case ast.match_case(pattern=pattern, guard=None) if (
                not isinstance(pattern, ast.MatchAs) or pattern.pattern
            ):
                yield from self._whole("dropped case", pattern, f"{self._text(pattern)} if False")
            case ast.match_case(guard=ast.expr() as guard):
                yield from self._whole("guard dropped", guard, "True")
            case ast.Constant(value=bool() as value):
                yield from self._whole("constant", node, str(not value))
            case ast.Constant(value=int() as value):
                yield from self._whole("constant", node, str(value + 1))
                if value > 1:
                    yield from self._whole("off by one", node, str(value - 1))
            case ast.Call(func=ast.Name(id="range"), args=arguments):
                last = arguments[-1] if len(arguments) == 1 else arguments[1]
                yield from self._whole("off by one", last, f"{self._text(last)} - 1")
            case ast.Call(func=function, args=[first, second], keywords=[]) if self._ordered(
                function, first, second
            ):
                if first.end_lineno == second.lineno:
                    between = self.lines[first.lineno - 1][first.end_col_offset : second.col_offset]
                    yield from self._span(
                        "swapped arguments", first, second, self._text(second) + between + self._text(first)
                    )
            case ast.Expr(value=ast.Call()):
                yield from self._whole("dropped call", node, "pass")
            case ast.Dict(keys=[_, _, *_] as keys, values=values):
                yield from self._rows(keys, values)
            case ast.Tuple(elts=[_, _, *_] as elements, ctx=ast.Load()) if all(
                isinstance(e, ast.Constant) for e in elements
            ):
                yield from self._rows(elements, elements)

    def _rows(self, firsts: list, lasts: list) -> Iterator[Mutant]:
        """Each row of a table but the last one left out, with its comma."""
        for first, last, following in zip(firsts, lasts, firsts[1:]):
            if first is None or following is None or first.lineno != last.end_lineno:
                continue
            line = self.lines[last.end_lineno - 1]
            end = following.col_offset if following.lineno == last.end_lineno else len(line.rstrip())
            if "#" not in line[last.end_col_offset : end] and line.isascii():
                yield Mutant("dropped case", first.lineno, first.col_offset, line[first.col_offset : end], "")

    def _ordered(self, function: ast.expr, first: ast.expr, second: ast.expr) -> bool:
        name = (
            function.id
            if isinstance(function, ast.Name)
            else function.attr
            if isinstance(function, ast.Attribute)
            else ""
        )
        return (
            name not in _ORDER_IS_ALL_THE_SAME
            and not isinstance(first, ast.Starred)
            and not isinstance(second, ast.Starred)
        )

    def _text(self, node: ast.AST) -> str:
        """The text of a node on one line; for others a text that does not parse, so that they give no mutant."""
        if node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            return ")"
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset]  # type: ignore[attr-defined]

    def _between(self, kind: str, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Mutant]:
        """An operator that stands between two operands on the same line."""
        if left.end_lineno != right.lineno or not self.lines[right.lineno - 1].isascii():  # type: ignore[attr-defined]
            return
        line, end = right.lineno, right.col_offset  # type: ignore[attr-defined]
        place = self.lines[line - 1].find(old, left.end_col_offset, end)  # type: ignore[attr-defined]
        if place >= 0:
            yield Mutant(kind, line, place, old, new)

    def _whole(self, kind: str, node: ast.AST, new: str) -> Iterator[Mutant]:
        yield from self._span(kind, node, node, new)

    def _span(self, kind: str, first: ast.AST, last: ast.AST, new: str) -> Iterator[Mutant]:
        line, end = first.lineno, last.end_lineno  # type: ignore[attr-defined]
        text = self.lines[line - 1]
        if line == end and text.isascii():  # columns count bytes
            old = text[first.col_offset : last.end_col_offset]  # type: ignore[attr-defined]
            if old != new:
                yield Mutant(kind, line, first.col_offset, old, new)  # type: ignore[attr-defined]


_C_EDITS: tuple[tuple[str, str, str], ...] = (
    ("comparison", r"(?<=\s)<=(?=\s)", "<"),
    ("comparison", r"(?<=\s)<(?=\s)", "<="),
    ("comparison", r"(?<=\s)>=(?=\s)", ">"),
    ("comparison", r"(?<=\s)>(?=\s)", ">="),
    ("comparison", r"==", "!="),
    ("comparison", r"!=", "=="),
    ("operator", r"&&", "||"),
    ("operator", r"\|\|", "&&"),
    ("operator", r"(?<=\w )\+(?= \w)", "-"),
    ("operator", r"(?<=\w )-(?= \w)", "+"),
    ("operator", r"(?<=\w )\*(?= \w)", "+"),
    ("operator", r"\+=", "-="),
    ("operator", r"<<", ">>"),
    ("operator", r">>", "<<"),
    ("guard negated", r"!(?=[\w(])", ""),
    ("constant", r"(?<![\w.\"])0(?![\w.x])", "1"),
    ("constant", r"(?<![\w.\"])1(?![\w.x])", "2"),
    ("off by one", r"(?<![\w.\"])([2-9]|[1-9]\d+)(?![\w.x])", ""),
    ("guard dropped", r"(?<=^)(\s*)if \(.*\)(?= (return|goto|continue|break)\b)", ""),
    ("dropped call", r"^(\s+)\w+\([^;{}]*\);$", ""),
)


def of_c(text: str) -> list[Mutant]:
    """All mutants of C text; of templates those of lines that hold nothing to be filled in."""
    found: list[Mutant] = []
    in_comment = False
    for number, line in enumerate(text.split("\n"), 1):
        begins = in_comment or line.lstrip().startswith(("//", "#", "/*", "{%", "{#"))
        in_comment = ("/*" in line or in_comment) and "*/" not in line
        if begins or "{{" in line or "{%" in line or line.lstrip().startswith("*"):
            continue
        code = re.sub(r'"(?:[^"\\]|\\.)*"|//.*|/\*.*?(\*/|$)', lambda part: "\0" * len(part[0]), line)
        for kind, pattern, new in _C_EDITS:
            for part in re.finditer(pattern, code):
                if "\0" not in part[0] or kind in ("dropped call", "guard dropped"):
                    found.append(_c_mutant(kind, number, line, part, new))
    return sorted(found, key=lambda m: (m.line, m.start, m.kind))


def _c_mutant(kind: str, number: int, line: str, part: re.Match[str], new: str) -> Mutant:
    start, old = part.start(), line[part.start() : part.end()]
    if kind == "off by one":
        new = str(int(old) - 1)
    elif kind == "guard dropped":
        new = f"{part[1]}if (0)"
    elif kind == "dropped call":
        new = f"{part[1]};"
    return Mutant(kind, number, start, old, new)
