"""Reads the text that `printer` writes; the inverse of it, so every stage can be edited and started from."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NoReturn

from kbuild.compiler.ir.core import Block, Func, Module, Op, Value, op_class
from kbuild.compiler.ir.types import SCALARS, DescriptorType, MemDescType, PointerType, TensorType, Type
from kbuild.compiler.layout import LinearLayout, parse_layout
from kbuild.errors import CompileError, InternalError, KbuildError, Loc, register_source

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<alias>\#\w+)
      | (?P<value>%[\w.$]+)
      | (?P<symbol>@[\w.$]+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<type>!tt\.ptr|!tt\.tensordesc|!ttg\.memdesc|tensor(?=<))
      | (?P<number>-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf\b|nan\b|\d+))
      | (?P<word>[A-Za-z_][\w.]*)
      | (?P<mark>[-(){}\[\]<>=,:])""",
    re.VERBOSE,
)
_RESULTS = re.compile(r"%[\w.$]+(?:\s*,\s*%[\w.$]+)*\s*:")
"""The results of the next operation, after one whose list of operands is empty."""
_WHOLE = re.compile(r"\s*(\d+(?:x\d+)*)")
_SHAPE = re.compile(r"(?:(\d+) x )?((?:\d+x)*)")
_LAYOUT_LINE = re.compile(r"^(#\w+) = (.+)$", re.MULTILINE)


def parse_module(
    text: str, file: str = "<ir>", with_places: bool = False, names: dict[str, Value] | None = None
) -> Module:
    """The module a text describes.  Raises `CompileError` at the place where the text is wrong.

    `with_places` gives each operation without a location that of its line in the text.  `names` gets the values by
    the names that they have there, `%x`; of those in several functions, the first.
    """
    register_source(file, text)
    aliases = {match[1]: match[2] for match in _LAYOUT_LINE.finditer(text)}
    blanked = _LAYOUT_LINE.sub(lambda match: " " * len(match[0]), text)
    parser = _IrParser(blanked, file, aliases, with_places)
    parser.names = names
    module = Module()
    module.add(parser.function())
    while parser.kind != "end":
        module.add(parser.function())
    return module


class _IrParser:
    def __init__(self, text: str, file: str, aliases: dict[str, str], with_places: bool) -> None:
        self.text, self.file, self.aliases, self.with_places = text, file, aliases, with_places
        self.layouts: dict[tuple[str, tuple[int, ...]], LinearLayout] = {}
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.position = 0
        self.values: dict[str, Value] = {}
        self.names: dict[str, Value] | None = None
        self.advance()

    # Tokens

    def advance(self) -> str:
        """Step to the next token; the text of the one stepped over is returned."""
        previous = getattr(self, "token", "")
        while True:
            self.start = self.position
            if self.position >= len(self.text):
                self.kind, self.token = "end", ""
                return previous
            match = _TOKEN.match(self.text, self.position)
            if match is None:
                self.fail(f"unexpected character {self.text[self.position]!r}")
            self.position = match.end()
            if match.lastgroup != "space":
                self.kind, self.token = str(match.lastgroup), match[0]
                return previous

    def fail(self, message: str, place: tuple[int, int] | None = None) -> NoReturn:
        """Raise at a range of the text, or at the current token."""
        raise CompileError(message, self.loc(*(place or (self.start, self.position))))

    def loc(self, start: int, end: int) -> Loc:
        """The location of a range of the text."""
        line = bisect_right(self.lines, start)
        column = start - self.lines[line - 1] + 1
        return Loc(self.file, line, column, column + max(end - start, 1))

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}, found {self.token or 'the end'!r}")

    def take(self, kind: str) -> str:
        if self.kind != kind:
            self.fail(f"expected a {kind}, found {self.token or 'the end'!r}")
        return self.advance()

    # Types and attributes

    def type(self) -> Type:
        if self.kind == "word" and self.token in SCALARS:
            return SCALARS[self.advance()]
        head = self.take("type")
        if self.token != "<":
            self.fail("expected '<'")
        if head == "!tt.ptr":
            self.advance()
            pointee = self.type()
            self.expect(">")
            return PointerType(pointee)
        if head == "!tt.tensordesc":
            self.advance()
            block = self.type()
            if not isinstance(block, TensorType):
                self.fail("a tensor descriptor describes blocks of type tensor<…>")
            self.expect(">")
            return DescriptorType(block)
        match = _SHAPE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        self.advance()
        shape = tuple(int(size) for size in match[2].split("x") if size)
        element = self.type()
        layout = None
        if self.accept(","):
            layout = self.layout(*self.layout_and_shape(shape))
        self.expect(">")
        if head == "tensor":
            return TensorType(shape, element, layout)
        if layout is None:
            self.fail("a memdesc needs a layout")
        return MemDescType((int(match[1]), *shape) if match[1] else shape, element, layout)

    def layout_and_shape(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """The alias of a layout and the shape it is for: another one than the type's where that follows."""
        alias = self.take("alias")
        whole = _WHOLE.match(self.text, self.position) if self.token == "," else None
        if whole is None:
            return alias, shape
        self.position = whole.end()
        self.advance()
        return alias, tuple(int(size) for size in whole[1].split("x"))

    def layout(self, alias: str, shape: tuple[int, ...]) -> LinearLayout:
        if alias not in self.aliases:
            self.fail(f"layout {alias} is not defined at the top")
        if (alias, shape) not in self.layouts:
            try:
                self.layouts[alias, shape] = parse_layout(self.aliases[alias], shape)
            except KbuildError as error:
                self.fail(f"layout {alias}: {error.message}")
        return self.layouts[alias, shape]

    def attribute(self) -> Any:
        if self.kind == "string":
            return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], self.advance()[1:-1])
        if self.kind == "number":
            text = self.advance()
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if self.kind == "word" and self.token in ("true", "false", "none", "inf", "nan"):
            return {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}[
                self.advance()
            ]
        if self.accept("["):
            items: list[Any] = []
            while not self.accept("]"):
                items.append(self.attribute())
                if self.token != "]":
                    self.expect(",")
            return tuple(items)
        if self.token == "{":
            return self.dictionary()
        return self.type()

    def dictionary(self) -> dict[str, Any]:
        self.expect("{")
        result: dict[str, Any] = {}
        while not self.accept("}"):
            key = self.take("word")
            self.expect("=")
            result[key] = self.attribute()
            if self.token != "}":
                self.expect(",")
        return result

    # Functions, blocks and operations

    def function(self) -> Func:
        self.values = {}
        if self.token != "tt.func":
            self.fail("expected tt.func")
        self.advance()
        name = self.take("symbol")[1:]
        body, hints = Block(), []
        self.expect("(")
        while not self.accept(")"):
            self.argument(body)
            hints.append(self.dictionary() if self.token == "{" else {})
            if self.token != ")":
                self.expect(",")
        attrs = self.dictionary() if self.accept("attributes") else {}
        self.expect("{")
        loc = self.location()
        self.operations(body)
        function = Func(name, body, attrs, tuple(hints))
        function.loc = loc
        return function

    def argument(self, block: Block) -> None:
        name = self.take("value")[1:]
        self.expect(":")
        self.define(name, block.add_argument(self.type()))

    def define(self, name: str, value: Value) -> None:
        if name in self.values:
            self.fail(f"%{name} is defined twice")
        value.name = "" if name.isdigit() else name
        self.values[name] = value
        if self.names is not None:
            self.names.setdefault(f"%{name}", value)

    def use(self) -> Value:
        if self.kind == "value" and self.token[1:] not in self.values:
            self.fail(f"{self.token} is not defined")
        return self.values[self.take("value")[1:]]

    def operations(self, block: Block) -> None:
        """The operations up to and with the closing brace."""
        while not self.accept("}"):
            block.append(self.op())

    def op(self) -> Op:
        names: list[str] = []
        types: list[Type] = []
        if self.kind == "value":
            names.append(self.advance()[1:])
            while self.accept(","):
                names.append(self.take("value")[1:])
            self.expect(":")
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
            self.expect("=")
        cls = op_class(self.token)
        if self.kind != "word" or cls is None:
            self.fail(f"unknown operation {self.token!r}")
        place = (self.start, self.position)
        self.advance()
        given: dict[str, Any] = {**cls.defaults}
        self.operands(cls, given)
        if self.token == "{":
            for key, value in self.dictionary().items():
                if key not in cls.attribute_fields:
                    self.fail(f"{cls.op_name} has no attribute {key!r}")
                given[key] = value
        for field in cls.region_fields:
            self.expect(field)
            given[field] = self.region()
        missing = [field for field in cls.fields if field not in given and field not in ("type", "types")]
        if missing:
            self.fail(f"{cls.op_name} lacks {', '.join(missing)}")
        op = object.__new__(cls)
        op._create({**given, "types": types})
        self.check_types(op, names, types, place)
        op.loc = self.location() or (self.loc(*place) if self.with_places else None)
        for name, result in zip(names, op.results):
            self.define(name, result)
        return op

    def check_types(self, op: Op, names: list[str], types: list[Type], place: tuple[int, int]) -> None:
        """Fail at `place` unless the types given are those that follow from the operands."""
        try:
            expected = (
                types if "types" in op.fields else types[:1] if "type" in op.fields else list(op.infer())
            )
        except (AssertionError, InternalError) as error:
            self.fail(f"{op.op_name}: {error}", place)
        if "type" in op.fields and not types:
            self.fail(f"{op.op_name} has one result", place)
        if types != expected:
            text = ", ".join(str(type_) for type_ in expected) or "no result"
            self.fail(f"the result of {op.op_name} on these operands is {text}", place)
        if len(names) != len(types):
            self.fail(f"{len(names)} names for {len(types)} types of results", place)

    def operands(self, cls: type[Op], given: dict[str, Any]) -> None:
        required = [field for field, kind in cls.operand_fields.items() if kind == "one"]
        lists = [field for field, kind in cls.operand_fields.items() if kind == "tuple"]
        given.update(dict.fromkeys(lists, ()))
        if list(cls.operand_fields) == lists and len(lists) == 1:
            items = []
            while self.kind == "value" and not _RESULTS.match(self.text, self.start):
                items.append(self.use())
                if not self.accept(","):
                    break
            given[lists[0]] = tuple(items)
            return
        for field in required:
            given[field] = self.use()
            if not self.accept(","):
                return
        while self.kind == "word" and self.token in cls.operand_fields:
            field = self.advance()
            self.expect("=")
            if self.accept("["):
                items = []
                while not self.accept("]"):
                    items.append(self.use())
                    if self.token != "]":
                        self.expect(",")
                given[field] = tuple(items)
            else:
                given[field] = self.use()
            if not self.accept(","):
                return

    def region(self) -> Block:
        block = Block()
        self.expect("(")
        while not self.accept(")"):
            self.argument(block)
            if self.token != ")":
                self.expect(",")
        self.expect("{")
        self.operations(block)
        return block

    def location(self) -> Loc | None:
        if not self.accept("loc"):
            return None
        self.expect("(")
        frames: list[tuple[str, int, int]] = []
        while True:
            file = self.attribute()
            self.expect(":")
            line = int(self.take("number"))
            self.expect(":")
            frames.append((file, line, int(self.take("number"))))
            if not self.accept("at"):
                break
        self.expect(")")
        loc = None
        for file, line, column in reversed(frames):
            loc = Loc(file, line, column, caller=loc)
        return loc
