"""From the tree of a text to kbuild's operations: values by name, and the layouts that the text declares.

Every value gets exactly the layout that the text gives it.  Where kbuild's own operation makes its result in another
one (the registers of `tt.expand_dims` follow from those of its operand), a `ttg.convert_layout` follows, which renames
registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Op, Value, op_class
from kbuild.compiler.ir.types import (
    I1,
    I32,
    FloatType,
    IntType,
    MemDescType,
    PointerType,
    TensorType,
    Type,
    is_pointer,
    like,
    pointee_of,
)
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.elementwise import Elementwise
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import AxisAttributes
from kbuild.compiler.upstream.attributes import Dense, ElidedType, TokenType, numbers_in
from kbuild.compiler.upstream.syntax import RawBlock, RawOp, Syntax
from kbuild.errors import InternalError, nearest
from kbuild.targets import Target

AnyOp = TypeVar("AnyOp", bound=Op)
Results = Sequence["Value | None"]
"""The values of an operation's results; None for a token."""
Reading = Callable[["Building", RawOp], Results]
READINGS: dict[str, Reading] = {}
_WARP_GROUP_DOT = re.compile(r"\bttng\.warp_group_dot\b")
_WITHOUT_MEANING = frozenset(
    {
        "async_task_id",
        "contiguity",
        "exact",
        "fastmath",
        "isExact",
        "nneg",
        "nonNeg",
        "overflow",
        "overflowFlags",
    }
)
"""Attributes and words of any operation that say how it was made, or may be optimized."""
_HINTS = {"tt.divisibility": "divisibility", "tt.contiguity": "contiguity", "tt.constancy": "constancy"}


def reads(*names: str) -> Callable[[Reading], Reading]:
    """Register what operations of Triton's become, by their names."""

    def register(reading: Reading) -> Reading:
        READINGS.update(dict.fromkeys(names, reading))
        return reading

    return register


@dataclass(frozen=True)
class Row:
    """An operation of Triton's that is one of kbuild's, part by part."""

    cls: type[Op]
    operands: tuple[str, ...] = ()
    """The fields that the operands fill, in order; those that are missing at the end keep their defaults.  Without any,
    the fields of the class in its order."""
    lists: tuple[str, ...] = ()
    """The fields that lists in brackets fill."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Words before values, and the fields that these fill."""
    words: tuple[str, ...] = ()
    """The fields that bare words fill, in order."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Bare words that set a field to true."""
    attributes: Mapping[str, str | tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    """Attributes, and the fields that they fill; with what makes the one's value of the other's."""
    ignored: frozenset[str] = frozenset()
    """Attributes that change nothing about the meaning."""


class Building:
    """The function that is being built: where operations go, and the values of names."""

    def __init__(self, syntax: Syntax, target: Target, rows: Mapping[str, Row]) -> None:
        self.syntax, self.target, self.rows = syntax, target, rows
        self.has_warp_group_dots = _WARP_GROUP_DOT.search(syntax.text) is not None
        self.values: dict[str, Value | None] = {}
        self.builder = Builder(Block())
        self.entry = self.builder.block
        self.maps: dict[str, RawOp] = {}
        """What makes tensor maps, by the names of their places in memory."""
        self.missing: list[Value] = []
        """The values that a fragment uses and does not define, which become its arguments."""

    # Mistakes

    def fail(self, op: RawOp, message: str, help: str = "") -> NoReturn:
        """Raise `CompileError` at an operation of the text."""
        self.syntax.fail(f"{op.name}: {message}", op.place, help)

    # Values

    def value(self, op: RawOp, name: str, type_: Type | None = None) -> Value:
        """The value of a name that an operation uses."""
        found = self.values.get(name, name)
        if isinstance(found, str):
            if not self.syntax.is_fragment or type_ is None or isinstance(type_, TokenType | ElidedType):
                self.syntax.fail(f"{name} is not defined", op.place)
            found = self.values[name] = self.entry.add_argument(type_, plain_name(name))
            self.missing.append(found)
        if found is None:
            self.fail(op, f"{name} is a token, which has no value here")
        return found

    def operand(self, op: RawOp, index: int) -> Value:
        """The operand at a place."""
        if index >= len(op.operands):
            self.fail(op, f"expected more than {len(op.operands)} operands")
        type_ = self._type_of(op, index)
        found = self.value(op, op.operands[index], type_)
        if type_ is not None and self._is_stated(op, index) and _shape_of(found.type) != _shape_of(type_):
            self.fail(op, f"{op.operands[index]} is {found.type}, and the text says {type_}")
        return found

    def _is_stated(self, op: RawOp, index: int) -> bool:
        """Whether the text gives the type of an operand: some operations give only the first's, or that of all."""
        types, cls = op.operand_types, op_class(op.name)
        is_same = len(types) == 1 and (
            is_pointer(types[0]) or (cls is not None and issubclass(cls, Elementwise))
        )
        return index == 0 or len(types) == len(op.operands) or is_same

    def _type_of(self, op: RawOp, index: int) -> Type | None:
        """The type that the text gives an operand, which only fragments need: of a mask and of what is loaded or stored
        it follows from that of the pointers."""
        types = op.operand_types
        if len(types) == 1 and index and is_pointer(types[0]):
            last = index == len(op.operands) - 1
            is_mask = index == 1 if op.name == "tt.load" else last and index == 2
            return like(types[0], I1 if is_mask else pointee_of(types[0]))
        found = types[min(index, len(types) - 1)] if types else None
        return (
            self.syntax.elided(found, "!tt.ptr") if found is not None and op.name == "tt.advance" else found
        )

    def operands(self, op: RawOp) -> list[Value]:
        return [self.operand(op, index) for index in range(len(op.operands))]

    def listed(self, op: RawOp, items: Sequence[Any], type_: Type = I32) -> tuple[Any, ...]:
        """What stands in brackets: values, or the numbers themselves."""
        return tuple(
            self.value(op, item, type_) if isinstance(item, str) and item.startswith("%") else item
            for item in items
        )

    def bind(self, op: RawOp, results: Results) -> None:
        """Give the names of an operation's results to values."""
        names = [
            f"{name}#{number}" if count > 1 else name for name, count in op.results for number in range(count)
        ]
        if len(names) != len(results) and names:
            self.fail(op, f"has {len(results)} results, and {len(names)} names for them")
        hints = self.hints(op)
        for name, result in zip(names, results):
            if result is not None and hints:
                result = self.builder.add(AxisAttributes(result, **self.spread_hints(hints, result))).result
            self.define(op, name, result)
        if len(op.results) == 1 and op.results[0][1] > 1:
            self.values[op.results[0][0]] = results[0]

    def define(self, op: RawOp, name: str, value: Value | None) -> None:
        if value is not None and not value.name:
            value.name = plain_name(name)
        self.values[name] = value

    def hints(self, op: RawOp) -> dict[str, tuple[int, ...]]:
        """What `tl.multiple_of` and its like have left at an operation."""
        found: dict[str, tuple[int, ...]] = {}
        for key, name in _HINTS.items():
            if isinstance(op.attributes.get(key), Dense):
                found[name] = tuple(numbers_in(op.attributes[key].value))
        return found

    def spread_hints(self, hints: Mapping[str, tuple[int, ...]], value: Value) -> dict[str, tuple[int, ...]]:
        """Hints with a number for each axis of a value, where one was given for all."""
        rank = value.type.rank if isinstance(value.type, TensorType) else 1
        return {name: numbers * rank if len(numbers) == 1 else numbers for name, numbers in hints.items()}

    def result_type(self, op: RawOp, index: int = 0, elided: str = "!ttg.memdesc") -> Type:
        """The type that the text gives a result; `elided` is which one a type without its name is."""
        if index >= len(op.result_types):
            self.fail(op, "expected the type of the result after a colon")
        return self.syntax.elided(op.result_types[index], elided)

    # Operations

    def add(self, op: AnyOp) -> AnyOp:
        return self.builder.add(op)

    def converted(self, value: Value, layout: LinearLayout | None) -> Value:
        """A tensor in a layout; itself where it has it, or where the text is of a stage without layouts."""
        type_ = value.type
        if not isinstance(type_, TensorType) or layout is None or type_.layout == layout:
            return value
        return self.add(ConvertLayout(value, type_.with_layout(layout))).result

    def declared(self, op: RawOp, value: Value, type_: Type) -> Value:
        """A result in the layout of its declared type, of which the rest must be that of the value."""
        own = value.type
        if own == type_:
            return value
        if (
            isinstance(own, TensorType)
            and isinstance(type_, TensorType)
            and own.with_layout(type_.layout) == type_
        ):
            return self.converted(value, type_.layout)
        if isinstance(own, MemDescType) and isinstance(type_, MemDescType) and str(own) == str(type_):
            self.fail(op, "the layout of the result is not the one that follows from the operand's")
        self.fail(op, f"the result is {own}, and the text says {type_}")

    def block(self, raw: RawBlock, types: Sequence[Type | None] | None = None) -> Block:
        """A new block with the arguments of one of the text; those of tokens are left out."""
        block = Block()
        for name, type_ in raw.arguments:
            if isinstance(type_, TokenType):
                self.values[name] = None
            else:
                self.values[name] = block.add_argument(type_, plain_name(name))
        return block

    def fill(self, block: Block, ops: Iterable[RawOp]) -> Block:
        """Build operations at the end of a block."""
        with self.builder.inside(block):
            for op in ops:
                self.op(op)
        return block

    def op(self, op: RawOp) -> None:
        """Build one operation, and name its results."""
        saved, self.builder.loc = self.builder.loc, op.loc
        try:
            self.bind(op, self.read(op))
        except KeyError as missing:
            self.fail(op, f"lacks {missing.args[0]!r}")
        except (AssertionError, AttributeError, InternalError, TypeError, ValueError, IndexError) as error:
            # A rule of kbuild's operations that the text breaks.
            message = error.message if isinstance(error, InternalError) else ""
            self.fail(op, message or "kbuild's operation does not take these operands, types or attributes")
        self.builder.loc = saved

    def read(self, op: RawOp) -> Results:
        if op.name in READINGS:
            return READINGS[op.name](self, op)
        row = self.rows.get(op.name)
        if row is None:
            cls = op_class(op.name)
            if cls is None or not issubclass(cls, Elementwise):
                close = nearest(op.name, [*READINGS, *self.rows])
                self.syntax.fail(
                    f"kbuild does not read {op.name}", op.place, f'did you mean "{close}"?' if close else ""
                )
            row = Row(cls)
        return self.by_row(op, row)

    def by_row(self, op: RawOp, row: Row) -> Results:
        """The operation that a row of the table says."""
        cls = row.cls
        given: dict[str, Any] = {**cls.defaults}
        self._give_operands(op, row, given)
        self._give_words(op, row, given)
        self._give_attributes(op, row, given)
        if "type" in cls.fields:
            given["type"] = self.result_type(op)
        missing = [name for name in cls.fields if name not in given]
        if missing:
            self.fail(op, f"lacks {', '.join(missing)}")
        made = self.add(cls(**given))
        if not op.has_result_types and "type" not in cls.fields:
            return made.results
        return [
            self.declared(op, result, self.result_type(op, index))
            for index, result in enumerate(made.results)
        ]

    def _give_operands(self, op: RawOp, row: Row, given: dict[str, Any]) -> None:
        names = row.operands or tuple(row.cls.operand_fields)
        values = self.operands(op)
        if len(names) == 1 and row.cls.operand_fields[names[0]] == "tuple":
            given[names[0]] = tuple(values)
        elif len(values) > len(names):
            self.fail(op, f"takes up to {len(names)} operands, not {len(values)}")
        else:
            given.update(zip(names, values))
        for word, items in op.groups.items():
            if word not in row.groups:
                self.fail(op, f"kbuild does not know the operand {word!r}")
            if row.groups[word]:
                given[row.groups[word]] = self.value(op, items[0])
        types = op.operand_types[len(op.operands) :] or [I32]
        for name, items in zip(row.lists, op.lists):
            found = self.listed(op, items, types[0])
            given[name] = found if row.cls.operand_fields.get(name) == "tuple" else found[0]

    def _give_words(self, op: RawOp, row: Row, given: dict[str, Any]) -> None:
        fields = iter(row.words)
        for word in op.words:
            if word in row.flags:
                if row.flags[word]:
                    given[row.flags[word]] = True
                continue
            if word in _WITHOUT_MEANING:
                continue
            name = next(fields, None)
            if name is None:
                self.fail(op, f"kbuild does not know {word!r}")
            given[name] = word

    def _give_attributes(self, op: RawOp, row: Row, given: dict[str, Any]) -> None:
        for key, value in op.attributes.items():
            target = row.attributes.get(key)
            if target is None:
                if "." not in key and key not in row.ignored and key not in _WITHOUT_MEANING:
                    self.fail(op, f"kbuild does not know the attribute {key!r}")
            elif isinstance(target, str):
                given[target] = tuple(value) if isinstance(value, list) else value
            else:
                given[target[0]] = target[1](value)


def _shape_of(type_: Type) -> Any:
    """What two types of one value agree in, whatever the layouts; None for types that are more than that."""
    if isinstance(type_, TensorType):
        return type_.shape, type_.element
    return type_ if isinstance(type_, IntType | FloatType | PointerType) else None


def plain_name(name: str) -> str:
    """The name of a value without its marks; "" for one that is only a number."""
    text = name.lstrip("%").split("#")[0].replace("-", "_")
    return "" if text.isdigit() else text
