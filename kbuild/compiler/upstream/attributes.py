"""Types and attributes of MLIR's text: kbuild's types, plain values, and layouts by Triton's names."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.ir.types import (
    I64,
    SCALARS,
    DescriptorType,
    FloatType,
    IntType,
    MemDescType,
    PointerType,
    TensorType,
    Type,
)
from kbuild.compiler.layout import LinearLayout, default_blocked, unswizzled
from kbuild.compiler.layout.encodings import Encoding
from kbuild.compiler.upstream.tokens import Tokens, unquoted
from kbuild.errors import CompileError

_ALIAS = re.compile(r"^[ \t]*([#!][A-Za-z_]\w*)[ \t]*=[ \t]*", re.MULTILINE)
_SHAPE = re.compile(r"\s*((?:\d+\s*x\s*)*)")
_TENSOR = re.compile(r"\s*tensor\b")
_BEING_READ = object()
_UNDEFINED = "undefined"
"""The name of an encoding that a fragment uses and does not define."""
_WORDS = {"true": True, "false": False, "unit": True}


@dataclass(frozen=True)
class TokenType(Type):
    """`!ttg.async.token`: orders asynchronous operations in Triton's IR, as their place in the program does here."""

    def __str__(self) -> str:
        return "!ttg.async.token"


@dataclass(frozen=True)
class FunctionType(Type):
    """`(i32, f32) -> i64`."""

    arguments: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.arguments))}) -> ({', '.join(map(str, self.results))})"


@dataclass(frozen=True)
class ElidedType(Type):
    """A type without its name, `<64x32xf16, #shared, #smem>`: the operation says which it is."""

    start: int
    """Where it begins in the text."""

    def __str__(self) -> str:
        return "<…>"


@dataclass(frozen=True)
class Dense:
    """`dense<…>`: one number, or a nested list of them."""

    value: Any


class AttributeReader(Tokens):
    """Reads types and attributes; layouts may be named by aliases, which stand anywhere in the text."""

    def __init__(self, text: str, file: str, is_fragment: bool = False) -> None:
        self.places = {match[1]: match.end() for match in _ALIAS.finditer(text)}
        self.is_fragment = is_fragment
        self._aliases: dict[str, Any] = {}
        self._layouts: dict[tuple[str, tuple[int, ...]], LinearLayout] = {}
        self._encodings: dict[LinearLayout, dict[str, Encoding]] = {}
        super().__init__(text, file)

    def at_alias(self) -> Any:
        """The attribute that the alias here names; read where it is defined."""
        place = self.start, self.position
        alias = self.advance()
        if alias not in self._aliases:
            if alias not in self.places:
                self.fail(f"{alias} is not defined", place)
            self._aliases[alias] = _BEING_READ
            with self.elsewhere(self.places[alias]):
                self._aliases[alias] = self.attribute()
        if self._aliases[alias] is _BEING_READ:
            self.fail(f"{alias} is defined by itself", place)
        return self._aliases[alias]

    # Types

    def type(self) -> Type:
        """One type; `ElidedType` for one without its name."""
        if self.kind == "word" and self.token == "tensor":
            self.advance()
            return self.tensor()
        if self.kind == "word" and (self.token in SCALARS or self.token == "index"):
            return self.scalar_type(self.advance())
        if self.kind == "word" and self.token[:1] in "su" and self.token[1:] in SCALARS:
            return SCALARS[self.advance()[1:]]  # Operations say which integers have signs.
        if self.at("<"):
            start = self.start
            self.skip_brackets()
            return ElidedType(start)
        if self.kind == "type":
            return self.dialect_type(self.advance())
        what = (
            f"unknown type {self.token!r}"
            if self.kind == "word"
            else f"expected a type, found {self.token or 'the end'!r}"
        )
        self.fail(
            what, help=f"known types: {', '.join(SCALARS)}, tensor, !tt.ptr, !tt.tensordesc, !ttg.memdesc"
        )

    @staticmethod
    def scalar_type(name: str) -> Type:
        """A scalar by its name; `index` has 64 bits."""
        return SCALARS.get(name, I64)

    def dialect_type(self, name: str) -> Type:
        """The rest of a type after its name."""
        if name in ("!ttg.async.token", "!ttg.async_token", "!tt.token"):
            return TokenType()
        if name == "!tt.ptr":
            return self.pointer()
        if name == "!ttg.memdesc":
            return self.memdesc()
        if name == "!tt.tensordesc":
            return self.descriptor()
        if name in self.places:
            with self.elsewhere(self.places[name]):
                return self.type()
        self.fail(
            f"unknown type {name}",
            help="kbuild reads !tt.ptr, !tt.tensordesc, !ttg.memdesc and !ttg.async.token",
        )

    def elided(self, type_: Type, name: str) -> Type:
        """A type of the signature of an operation that says what is meant by one without a name."""
        if not isinstance(type_, ElidedType):
            return type_
        with self.elsewhere(type_.start):
            return self.dialect_type(name)

    def pointer(self) -> PointerType:
        self.expect("<")
        pointee = self.type()
        if self.accept(","):
            self.take("number")  # The address space, which is that of global memory.
        self.expect(">")
        return PointerType(pointee)

    def descriptor(self) -> DescriptorType:
        """`<tensor<64x32xf16>>`; newer versions leave the word out."""
        if not _TENSOR.match(self.text, self.position):
            return DescriptorType(self.tensor(is_descriptor=True))
        self.expect("<")
        self.advance()
        block = self.tensor(is_descriptor=True)
        self.expect(">")
        return DescriptorType(block)

    def shape_and_element(self) -> tuple[tuple[int, ...], Type]:
        """`64x32xf16`, the opening bracket being the current token."""
        if not self.at("<"):
            self.fail("expected '<'")
        match = _SHAPE.match(self.text, self.position)
        assert match is not None
        self.move_to(match.end())
        shape = tuple(int(size) for size in re.findall(r"\d+", match[1]))
        return shape, self.type()

    def require_powers(self, shape: tuple[int, ...], place: tuple[int, int]) -> None:
        if any(size < 1 or size & (size - 1) for size in shape):
            self.fail(f"a tensor of {'x'.join(map(str, shape))} elements: sizes must be powers of two", place)

    def tensor(self, is_descriptor: bool = False) -> TensorType:
        begin = self.start
        shape, element = self.shape_and_element()
        self.require_powers(shape, (begin, self.start))
        layout = None
        if self.accept(","):
            layout = self.layout(shape)
        self.expect(">")
        return TensorType(shape, element, None if is_descriptor else layout)

    def memdesc(self) -> MemDescType:
        """With more axes than its layout, which then count buffers.  A part of a buffer names the whole shape too."""
        shape, element = self.shape_and_element()
        self.expect(",")
        place = (self.start, self.position)
        encoding = self.encoding()
        whole = shape
        while self.accept(","):
            if self.kind == "number":
                match = re.compile(r"\d+(?:x\d+)*").match(self.text, self.start)
                assert match is not None
                whole = tuple(int(size) for size in match[0].split("x"))
                self.move_to(match.end())
            elif not self.accept("mutable"):
                self.memory_space()
        self.expect(">")
        rank = min(self.rank_of(encoding, place, len(shape)), len(shape))
        if len(shape) - rank > 1:
            self.fail(
                f"a memdesc of {len(shape)} axes whose layout has {rank}: kbuild counts buffers along one axis",
                place,
            )
        tile = whole[len(whole) - rank :]
        self.require_powers(tile, place)
        return MemDescType(shape, element, self.laid_out(encoding, tile, place, is_shared=True))

    def memory_space(self) -> None:
        """`#smem`, or what it names."""
        place = (self.start, self.position)
        space = self.encoding()
        if space.name == "tensor_memory":
            self.fail(
                "tensor memory, which Blackwell's tensor cores have: kbuild has no instructions for it", place
            )
        if space.name not in ("shared_memory", _UNDEFINED):
            self.fail(f"kbuild has no use for {space.name}", place, "it uses #ttg.shared_memory")

    # Layouts

    def rank_of(self, encoding: Encoding, place: tuple[int, int], default: int) -> int:
        """The axes of the tiles that an encoding is for."""
        if encoding.name == _UNDEFINED:
            return default
        try:
            return encoding.author().rank
        except CompileError as error:
            self.fail(error.message, place, error.help)

    def layout(self, shape: tuple[int, ...]) -> LinearLayout:
        place = (self.start, self.position)
        return self.laid_out(self.encoding(), shape, place)

    def encoding(self) -> Encoding:
        """A layout by its name, or an alias of one."""
        place = (self.start, self.position)
        if self.kind != "attribute":
            self.fail(f"expected a layout, found {self.token or 'the end'!r}")
        if self.is_fragment and "." not in self.token and self.token not in self.places:
            self.advance()
            return Encoding(_UNDEFINED, {})
        found = self.attribute()
        if not isinstance(found, Encoding):
            self.fail("this is not a layout", place)
        return found

    def laid_out(
        self, encoding: Encoding, shape: tuple[int, ...], place: tuple[int, int], is_shared: bool = False
    ) -> LinearLayout:
        """The layout of a shape; its mistakes are reported at a place of the text.  A fragment may leave out what its
        aliases stand for: then it is a plain one."""
        if encoding.name == _UNDEFINED:
            return (
                unswizzled(shape, [*reversed(range(len(shape)))]) if is_shared else default_blocked(shape, 4)
            )
        key = repr(encoding), shape
        if key not in self._layouts:
            try:
                self._layouts[key] = encoding.layout_of(shape)
                self._encodings.setdefault(self._layouts[key], {})[encoding.name] = encoding
            except CompileError as error:
                self.fail(error.message, place, error.help)
        return self._layouts[key]

    def encoding_of(self, layout: LinearLayout | None, name: str) -> Encoding | None:
        """The encoding of a kind by which the text names a layout; layouts of different kinds may be the same."""
        return self._encodings.get(layout, {}).get(name) if layout is not None else None

    # Attributes

    def attribute(self) -> Any:
        """A plain value, a type or a layout; the type after a number is read with it."""
        value = self.value()
        if isinstance(value, bool | str):
            return value
        if isinstance(value, int | float | Dense) and self.accept(":"):
            return self.typed(value, self.type())
        return value

    def value(self) -> Any:
        """An attribute without the type that may follow."""
        if self.kind == "string":
            return unquoted(self.advance())
        if self.kind == "number":
            text = self.advance()
            if text.startswith("0x"):
                return int(text, 16)
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if self.kind == "symbol":
            return self.advance()[1:].strip('"')
        if self.at("dense"):
            return self.dense()
        if self.at("array"):
            return self.array()
        if self.at("["):
            return self.list()
        if self.at("{"):
            return self.dictionary()
        if self.kind == "attribute":
            return self.named() if "." in self.token else self.at_alias()
        if self.at("("):
            return self.function_type()
        if self.kind == "word" and self.token not in SCALARS and self.token != "tensor":
            word = self.advance()
            return _WORDS.get(word, word)
        return self.type()

    def function_type(self) -> FunctionType:
        """`(i32, f32) -> ()`."""
        arguments = self.types_in_parentheses()
        self.expect("->")
        results = self.types_in_parentheses() if self.at("(") else [self.type()]
        return FunctionType(tuple(arguments), tuple(results))

    def types_in_parentheses(self) -> list[Type]:
        self.expect("(")
        found: list[Type] = []
        more = not self.accept(")")
        while more:
            found.append(self.type())
            more = self.separated(")")
        return found

    def typed(self, value: Any, type_: Type) -> Any:
        """A number as its type means it: hexadecimal integers stand for the bits of a floating-point number."""
        if isinstance(value, Dense):
            element = type_.element if isinstance(type_, TensorType) else type_
            return Dense(self.typed(value.value, element)) if isinstance(value.value, int | float) else value
        if isinstance(type_, FloatType):
            return float_of_bits(value, type_) if isinstance(value, int) else float(value)
        if isinstance(type_, IntType) and isinstance(value, int):
            return value
        return value

    def dense(self) -> Dense:
        self.advance()
        self.expect("<")
        value = self.value()
        self.expect(">")
        return Dense(value)

    def array(self) -> list[Any]:
        """`array<i32: 1, 0>`."""
        self.advance()
        self.expect("<")
        self.type()
        items: list[Any] = []
        if self.accept(":"):
            items.append(self.value())
            while self.accept(","):
                items.append(self.value())
        self.expect(">")
        return items

    def list(self) -> list[Any]:
        self.expect("[")
        items: list[Any] = []
        more = not self.accept("]")
        while more:
            items.append(self.attribute())
            more = self.separated("]")
        return items

    def dictionary(self) -> dict[str, Any]:
        """`{a = 1 : i32, "b.c" = x, unit}`."""
        self.expect("{")
        result: dict[str, Any] = {}
        more = not self.accept("}")
        while more:
            key = unquoted(self.advance()) if self.kind == "string" else self.take("word")
            result[key] = self.attribute() if self.accept("=") or self.accept(":") else True
            more = self.separated("}")
        return result

    def named(self) -> Encoding:
        """`#dialect.name<…>`."""
        short = self.advance().rpartition(".")[2]
        if not self.at("<"):
            return Encoding(short, {})
        start = self.start
        self.advance()
        if not self.at("{", "["):
            self.move_to(start)
            return Encoding(short, {"text": self.skip_brackets()})
        parameters: dict[str, Any] = {}
        if self.accept("["):
            parameters["gaps"] = self.gaps()
            self.accept(",")
        if self.at("{"):
            parameters |= self.dictionary()
        while self.accept(","):
            key = self.take("word")
            self.expect("=")
            parameters[key] = self.attribute()
        self.expect(">")
        return Encoding(short, parameters)

    def gaps(self) -> list[tuple[int, int]]:
        """`[512:+16, …]` past its bracket: intervals of shared memory, and the padding after each."""
        result, more = [], not self.accept("]")
        while more:
            interval = int(self.take("number"))
            self.expect(":")
            self.expect("+")
            result.append((interval, int(self.take("number"))))
            more = self.separated("]")
        return result


def float_of_bits(bits: int, type_: FloatType) -> float:
    """The number of a floating-point type that has certain bits."""
    if type_.bits in (16, 32, 64) and type_.name != "bf16":
        kind = {16: "<He", 32: "<If", 64: "<Qd"}[type_.bits]
        return struct.unpack("<" + kind[2], struct.pack(kind[:2], bits))[0]
    if type_.name == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    exponent = bits >> type_.mantissa_bits & (1 << type_.exponent_bits) - 1
    mantissa = bits & (1 << type_.mantissa_bits) - 1
    sign, bias = (-1.0 if bits >> 7 else 1.0), type_.bias
    if bits & 0x7F > type_.largest_code:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - type_.mantissa_bits)
    return sign * (1 + mantissa / (1 << type_.mantissa_bits)) * 2.0 ** (exponent - bias)


def numbers_in(value: Any) -> Iterator[Any]:
    """The numbers of a nested list."""
    if isinstance(value, list):
        for item in value:
            yield from numbers_in(item)
    else:
        yield value
