"""Programs as trees: expressions with types, statements, and the whole, which prints itself as a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from random_programs.arrays import Argument
from random_programs.types import Type


class Expr:
    """A typed expression: pieces of text and other expressions."""

    __slots__ = ("parts", "type")

    def __init__(self, type_: Type, *parts: str | Expr) -> None:
        self.type = type_
        self.parts = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def walk(self) -> Iterator[Expr]:
        """This and all expressions within."""
        yield self
        for part in self.parts:
            if isinstance(part, Expr):
                yield from part.walk()


def rigid(value: Expr) -> str:
    """An expression as mere text, which shrinking leaves as it is."""
    return str(value)


class Line:
    """The text of a statement's head, with the expressions in it."""

    def __init__(self, *parts: str | Expr) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


@dataclass
class Statement:
    """`head`, and for compound statements what is indented below it; `others` are `elif` and `else`."""

    head: Line
    defines: tuple[tuple[str, Type], ...] = ()
    """The variables it assigns."""
    body: list[Statement] | None = None
    others: list[tuple[Line, list[Statement]]] = field(default_factory=list)
    is_fixed: bool = False
    """Whether it must stay where it is: the step of a `while`."""
    is_guard: bool = False
    """Whether what is in it is defined only there."""

    def lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}{self.head}"
        if self.body is not None:
            yield from block_lines(self.body, indent + "    ")
        for head, block in self.others:
            yield f"{indent}{head}"
            yield from block_lines(block, indent + "    ")

    @property
    def blocks(self) -> list[list[Statement]]:
        return ([] if self.body is None else [self.body]) + [block for _, block in self.others]

    def walk(self) -> Iterator[Statement]:
        yield self
        for block in self.blocks:
            for statement in block:
                yield from statement.walk()

    def heads(self) -> list[Line]:
        return [self.head, *(head for head, _ in self.others)]


def block_lines(block: list[Statement], indent: str) -> Iterator[str]:
    """The lines of a block, which may not be empty in Python."""
    if not block:
        yield f"{indent}pass"
    for statement in block:
        yield from statement.lines(indent)


@dataclass
class Helper:
    """A function that the kernel calls."""

    name: str
    parameters: tuple[tuple[str, Type], ...]
    body: list[Statement]
    returns: Line

    def lines(self) -> Iterator[str]:
        yield "@triton.jit"
        yield f"def {self.name}({', '.join(name for name, _ in self.parameters)}):"
        yield from (line for line in block_lines(self.body, "    ") if self.body)
        yield f"    return {self.returns}"


@dataclass
class Program:
    """A kernel with everything a launch needs."""

    name: str
    arguments: list[Argument]
    helpers: list[Helper]
    body: list[Statement]
    grid: tuple[int, ...]
    num_warps: int
    num_stages: int

    def source(self) -> str:
        """The text of the kernel and its helpers, without the arguments that it does not use."""
        used = self.used_arguments()
        lines = ["import triton", "import triton.language as tl", ""]
        for helper in self.helpers:
            lines += ["", *helper.lines(), ""]
        lines += ["", "@triton.jit", f"def kernel({', '.join(argument.name for argument in used)}):"]
        return "\n".join([*lines, *block_lines(self.body, "    "), ""])

    def used_arguments(self) -> list[Argument]:
        """The arguments whose names occur."""
        names = {
            name for statement in self.statements() for line in statement.heads() for name in words(str(line))
        }
        return [argument for argument in self.arguments if argument.name in names]

    def statements(self) -> Iterator[Statement]:
        for statement in self.body:
            yield from statement.walk()


def words(text: str) -> set[str]:
    """The identifiers of a text."""
    found, word = set(), ""
    for letter in text + " ":
        if letter.isalnum() or letter == "_":
            word += letter
        elif word:
            found.add(word)
            word = ""
    return found
