"""MLIR's text as a tree of operations, without their meaning.

The operations of Triton's dialects have formats of their own, which all are made of a few things: operands, words,
lists in brackets, attributes, regions, and types after a colon.  So one reader does for nearly all of them: it sorts
what it finds into a `RawOp`, and the tables of `rows` and the modules beside it say what is meant.  Those with a
format that is not made so, such as `scf.for`, are read by `forms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kbuild.compiler.ir.types import Type
from kbuild.compiler.upstream.attributes import AttributeReader
from kbuild.errors import Loc

Place = tuple[int, int]
"""A range of the text."""


@dataclass
class RawBlock:
    """A block: its label, its arguments with their types, its operations."""

    label: str = ""
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Those of the arguments in the source, as far as the text has them."""
    ops: list[RawOp] = field(default_factory=list)


@dataclass
class RawOp:
    """An operation as it is written."""

    name: str
    place: Place
    results: list[tuple[str, int]]
    """Names, and how many values each stands for."""
    operands: list[str] = field(default_factory=list)
    """The values given in order, outside of lists and groups."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """The values after a word: `mask %m`, `deps %a, %b`."""
    lists: list[list[Any]] = field(default_factory=list)
    """What stands in brackets: names of values, and numbers."""
    words: list[str] = field(default_factory=list)
    literals: list[Any] = field(default_factory=list)
    """Numbers and strings among the operands."""
    attributes: dict[str, Any] = field(default_factory=dict)
    operand_types: list[Type] = field(default_factory=list)
    signature: str = ""
    """The text of the types of the operands, which says more than the types: whether integers have signs."""
    result_types: list[Type] = field(default_factory=list)
    """The types after `->` or `to`; those of the operands where no other are given."""
    has_result_types: bool = False
    regions: list[list[RawBlock]] = field(default_factory=list)
    successors: list[tuple[str, list[str]]] = field(default_factory=list)
    """Labels of the blocks that may follow, and the values passed to them."""
    symbol: str = ""
    loc: Loc | None = None


@dataclass
class RawFunction:
    """A function: its arguments with types and attributes, and its blocks."""

    name: str
    place: Place
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Those of the arguments in the source, as far as the text has them."""
    argument_attributes: list[dict[str, Any]] = field(default_factory=list)
    results: list[Type] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    body: list[RawBlock] = field(default_factory=list)
    loc: Loc | None = None


Form = Callable[["Syntax", RawOp], None]
FORMS: dict[str, Form] = {}
QUOTED = '"'
"""In `FORMS`, the reader of operations in MLIR's generic form, whose names are in quotes."""


def form(*names: str) -> Callable[[Form], Form]:
    """Register the reader of operations with a format of their own."""

    def register(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return register


class Syntax(AttributeReader):
    """Reads operations."""

    def __init__(self, text: str, file: str, is_fragment: bool = False) -> None:
        self._locations: dict[str, tuple[Loc | None, str]] = {}
        super().__init__(text, file, is_fragment)

    def region(self) -> list[RawBlock]:
        """`{ … }`: blocks, of which the first may go without a label."""
        self.expect("{")
        return self.blocks("}")

    def blocks(self, closing: str) -> list[RawBlock]:
        """Blocks up to the closing brace, or to the end of the text."""
        blocks = [RawBlock()]
        while not (self.accept(closing) if closing else self.kind == "end"):
            if self.kind == "label":
                block = RawBlock(self.advance())
                if self.at("("):
                    block.arguments = self.arguments(block.names)
                self.expect(":")
                if blocks == [RawBlock()]:
                    blocks = []
                blocks.append(block)
            elif self.kind == "attribute" and self.token in self.places:
                self.skip_alias()
            else:
                blocks[-1].ops.append(self.op())
        return blocks

    def skip_alias(self) -> None:
        """Step over the definition of an alias, which is read where it is used."""
        self.advance()
        self.expect("=")
        if self.at("loc"):
            self.location()
        else:
            self.attribute()  # Types are attributes, too.

    def arguments(self, names: list[str]) -> list[tuple[str, Type]]:
        """`(%a: i32, %b: f32 loc("b"))`; their names in the source are added to `names`."""
        self.expect("(")
        found: list[tuple[str, Type]] = []
        more = not self.accept(")")
        while more:
            name = self.take("value")
            self.expect(":")
            found.append((name, self.type()))
            self.location()
            names.append(self.source_name or name[1:])
            more = self.separated(")")
        return found

    def op(self) -> RawOp:
        """One operation, with the location after it."""
        begin, results = self.start, []
        if self.kind == "value":
            results = self.results()
        place = (self.start, self.position)
        is_quoted = self.kind == "string"
        if is_quoted:
            name = self.advance()[1:-1]
        elif self.kind == "word":
            name = self.advance()
        else:
            self.fail(f"expected an operation, found {self.token or 'the end'!r}", (begin, self.position))
        op = RawOp("tt.return" if name == "return" else name, place, results)
        FORMS.get(QUOTED if is_quoted else op.name, generic)(self, op)
        op.loc = self.location() or self.loc(*place)
        return op

    def results(self) -> list[tuple[str, int]]:
        """`%a, %b:2 =`."""
        found: list[tuple[str, int]] = []
        while True:
            name = self.take("value")
            count = 1
            if self.accept(":"):
                count = int(self.take("number"))
            found.append((name, count))
            if not self.accept(","):
                break
        self.expect("=")
        return found

    def operand_list(self) -> list[str]:
        """`(%a, %b)`; types inside are left out."""
        self.expect("(")
        found: list[str] = []
        more = not self.accept(")")
        while more:
            found.append(self.take("value"))
            if self.accept(":"):
                self.types()
            more = self.separated(")")
        return found

    def bracketed(self) -> list[Any]:
        """`[%a, %b]` or `[0, 16]`."""
        self.expect("[")
        items: list[Any] = []
        more = not self.accept("]")
        while more:
            items.append(self.advance() if self.kind == "value" else self.attribute())
            more = self.separated("]")
        return items

    def labels(self) -> list[tuple[str, list[str]]]:
        """`[^bb1, ^bb2]`: blocks that may follow."""
        self.expect("[")
        found: list[tuple[str, list[str]]] = [(self.take("label"), [])]
        while self.separated("]"):
            found.append((self.take("label"), []))
        return found

    def values(self) -> list[str]:
        """`%a, %b`."""
        found = [self.take("value")]
        while self.at(",") and self.text[self.position :].lstrip().startswith("%"):
            self.advance()
            found.append(self.take("value"))
        return found

    # Types

    def types(self) -> list[Type]:
        """One type or several, in parentheses or not, separated by commas or `*`."""
        if self.at("("):
            return self.types_in_parentheses()
        found = [self.type()]
        while self.at(",", "*") and self.is_type_next():
            self.advance()
            found.append(self.type())
        return found

    def is_type_next(self) -> bool:
        """Whether a type follows the current token: `%x` or an attribute may as well."""
        return self.text[self.position :].lstrip()[:1] not in ("%", "[", "{", "")

    def signature(self, op: RawOp) -> None:
        """The types after the colon."""
        begin = self.start
        op.operand_types = self.types()
        op.signature = self.text[begin : self.start]
        if self.accept("->") or self.accept("to"):
            op.result_types, op.has_result_types = self.types(), True
        else:
            op.result_types = op.operand_types

    # Locations

    source_name = ""
    """The name in the location that was read last: that of a variable in the source."""

    def location(self) -> Loc | None:
        """`loc(…)` if it is here; None where it names no place."""
        self.source_name = ""
        if not self.accept("loc"):
            return None
        self.expect("(")
        found = self.place_named()
        self.expect(")")
        return found

    def place_named(self) -> Loc | None:
        """What stands in the parentheses of `loc`."""
        if self.kind == "attribute":
            return self.location_alias()
        if self.kind == "string":
            return self.file_or_name()
        if self.accept("callsite"):
            self.expect("(")
            callee = self.place_named()
            self.expect("at")
            caller = self.place_named()
            self.expect(")")
            return callee.called_from(caller) if callee is not None else caller
        if self.accept("fused"):
            if self.at("<"):
                self.skip_brackets()
            self.expect("[")
            first = self.place_named()
            while self.accept(","):
                other = self.place_named()
                first = first or other
            self.expect("]")
            return first
        self.take("word")
        return None

    def file_or_name(self) -> Loc | None:
        """`"file.py":12:8`, with an end in newer versions, or `"name"(place)`."""
        text = self.value()
        if self.accept("("):
            found = self.place_named()
            self.source_name = text
            self.expect(")")
            return found
        if not self.accept(":"):
            return None
        line = int(self.take("number"))
        self.expect(":")
        column = int(self.take("number"))
        if self.accept("to"):
            self.expect(":")
            self.take("number")
            if self.accept(":"):
                self.take("number")
        # MLIR counts columns from 0 where Triton makes them, and 1 is the first here.
        return Loc(text, line, column + 1) if line else None

    def location_alias(self) -> Loc | None:
        """The place that the alias here names; read where it is defined."""
        place = self.start, self.position
        alias = self.advance()
        if alias not in self._locations:
            if alias not in self.places:
                self.fail(f"{alias} is not defined", place)
            self._locations[alias] = None, ""  # For a place that leads back to itself.
            with self.elsewhere(self.places[alias]):
                self._locations[alias] = self.location(), self.source_name
        found, self.source_name = self._locations[alias]
        return found


def generic(syntax: Syntax, op: RawOp) -> None:
    """Sort what an operation consists of, up to the next one or its location."""
    while not syntax.begins_statement() and not syntax.at("loc", "}"):
        if syntax.kind == "value":
            op.operands.append(syntax.advance())
        elif syntax.kind in ("string", "number"):
            op.literals.append(syntax.value())
        elif syntax.kind == "symbol":
            op.symbol = syntax.value()
        elif syntax.kind == "word":
            _word(syntax, op)
        elif syntax.at("["):
            if syntax.text[syntax.position :].lstrip().startswith("^"):
                op.successors = syntax.labels()
            else:
                op.lists.append(syntax.bracketed())
        elif syntax.at("("):
            _parentheses(syntax, op)
        elif syntax.at("{"):
            op.attributes.update(syntax.dictionary())
        elif syntax.at("<"):
            _angle(syntax, op)
        elif syntax.accept(":"):
            # `tt.print` names its operands after a colon.
            if syntax.kind != "value":
                syntax.signature(op)
        elif syntax.accept("->"):
            op.result_types, op.has_result_types = syntax.types(), True
        elif not syntax.accept(","):
            return


def _word(syntax: Syntax, op: RawOp) -> None:
    word = syntax.advance()
    if syntax.accept("="):
        if syntax.kind == "value":
            op.groups[word] = syntax.values()
        else:
            op.attributes[word] = syntax.attribute()
    elif syntax.kind == "value" and not syntax.begins_statement():
        op.groups[word] = syntax.values()
    else:
        op.words.append(word)


def _parentheses(syntax: Syntax, op: RawOp) -> None:
    """Operands, or the regions of an operation in quotes."""
    if syntax.text[syntax.position :].lstrip().startswith("{"):
        syntax.expect("(")
        op.regions.append(syntax.region())
        while syntax.accept(","):
            op.regions.append(syntax.region())
        syntax.expect(")")
    else:
        op.operands += syntax.operand_list()


def _angle(syntax: Syntax, op: RawOp) -> None:
    """`<{…}>` are attributes; what else stands in angle brackets qualifies the word before, as in `fastmath<fast>`."""
    if not syntax.text[syntax.position :].startswith("{"):
        syntax.skip_brackets()
        return
    syntax.expect("<")
    op.attributes.update(syntax.dictionary())
    syntax.expect(">")
