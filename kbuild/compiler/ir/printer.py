"""The text of the IR.  One form for all operations, so that the parser needs no knowledge of any of them:

    %r: tensor<128xf32, #blocked> = tt.load %p, mask=%m {cache = "ca"}
    %i, %s: i32, f32 = scf.for %lo, %hi, %step, init=[%a, %b] body(%k: i32, %x: i32, %y: f32) {
      …
    }

Required operands come first, in order; optional ones and lists carry their field's name, except that an
operation whose only operands are one list prints it bare (`scf.yield %a, %b`).  Attributes equal to their
default are left out. Layouts print once, as aliases at the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.types import MemDescType, TensorType, Type, type_text
from kbuild.compiler.layout import LinearLayout, describe
from kbuild.errors import Loc


class Notes:
    """Comments in the text: at the end of the first line of an operation, and on lines of their own at the start of a
    block."""

    def __init__(self, texts: Mapping[Op | Block, Sequence[str]]) -> None:
        self.texts = texts

    def beside(self, op: Op) -> str:
        """The comment of an operation, or nothing."""
        found = self.texts.get(op, ())
        return f"  // {'; '.join(found)}" if found else ""

    def within(self, block: Block, indent: str) -> list[str]:
        """The lines at the start of a block."""
        return [f"{indent}// {text}" for text in self.texts.get(block, ())]


_WITHOUT_NOTES = Notes({})


def print_module(module: Module, locations: bool = False, notes: Notes = _WITHOUT_NOTES) -> str:
    """The text of all functions, layout aliases first; with `locations`, each operation's place at its end, and with
    `notes` comments, which readers skip."""
    printer = _Printer(locations, notes)
    bodies = [printer.function(function) for function in module.functions.values()]
    aliases = [f"{alias} = {text}" for text, alias in printer.aliases.items()]
    return "\n".join([*aliases, *([""] if aliases else []), *bodies])


def print_op(op: Op) -> str:
    """The text of one operation, for messages."""
    printer = _Printer(False, _WITHOUT_NOTES)
    printer.op(op, "")
    return "\n".join(printer.lines)


class _Printer:
    def __init__(self, locations: bool, notes: Notes) -> None:
        self.locations, self.notes = locations, notes
        self.aliases: dict[str, str] = {}
        self.by_layout: dict[LinearLayout, str] = {}
        self.lines: list[str] = []
        self.type_texts: dict[Type, str] = {}
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.unnamed = 0

    def function(self, func: Func) -> str:
        self.lines, self.names, self.taken, self.unnamed = [], {}, set(), 0
        arguments = []
        for index, argument in enumerate(func.arguments):
            hints = func.argument_hints[index] if index < len(func.argument_hints) else {}
            suffix = f" {self.attribute(hints)}" if hints else ""
            arguments.append(f"{self.name(argument)}: {self.type(argument.type)}{suffix}")
        attributes = f" attributes {self.attribute(func.attrs)}" if func.attrs else ""
        self.lines.append(
            f"tt.func @{func.name}({', '.join(arguments)}){attributes} {{{self.location(func.loc)}"
        )
        self.lines += self.notes.within(func.body, "  ")
        for op in func.body:
            self.op(op, "  ")
        self.lines.append("}\n")
        return "\n".join(self.lines)

    def op(self, op: Op, indent: str) -> None:
        head = ""
        if op.results:
            names = ", ".join(self.name(result) for result in op.results)
            head = f"{names}: {', '.join(self.type(result.type) for result in op.results)} = "
        line = indent + head + op.op_name
        operands = self.operands(op)
        if operands:
            line += " " + operands
        if op.attribute_fields:
            attributes = {
                name: value
                for name, value in op.attributes.items()
                if name not in op.defaults or op.defaults[name] != value
            }
            if attributes:
                line += " " + self.attribute(attributes)
        note = self.notes.beside(op)
        for field in op.region_fields:
            block: Block = getattr(op, field)
            arguments = ", ".join(
                f"{self.name(argument)}: {self.type(argument.type)}" for argument in block.arguments
            )
            self.lines.append(f"{line} {field}({arguments}) {{{note}")
            self.lines += self.notes.within(block, indent + "  ")
            note = ""
            for inner in block:
                self.op(inner, indent + "  ")
            line = indent + "}"
        self.lines.append(line + self.location(op.loc) + note)

    def operands(self, op: Op) -> str:
        kinds = op.operand_fields
        if set(kinds.values()) <= {"one"}:
            return ", ".join(map(self.name, op.operands))
        parts: list[str] = []
        bare = len(kinds) == 1 and "tuple" in kinds.values()
        for field, kind in kinds.items():
            value = getattr(op, field)
            if kind == "one":
                parts.append(self.name(value))
            elif kind == "optional":
                if value is not None:
                    parts.append(f"{field}={self.name(value)}")
            elif bare:
                parts.extend(self.name(item) for item in value)
            elif value:
                parts.append(f"{field}=[{', '.join(self.name(item) for item in value)}]")
        return ", ".join(parts)

    def name(self, value: Value) -> str:
        known = self.names.get(value)
        if known is None:
            if value.name:
                known, count = value.name, 1
                while known in self.taken:
                    known, count = f"{value.name}_{count}", count + 1
            else:
                known, self.unnamed = str(self.unnamed), self.unnamed + 1
            self.taken.add(known)
            self.names[value] = known
        return "%" + known

    def type(self, type_: Type) -> str:
        text = self.type_texts.get(type_)
        if text is None:
            text = self.type_texts[type_] = self.new_type(type_)
        return text

    def new_type(self, type_: Type) -> str:
        """The text of a type that was not printed yet."""
        if (
            isinstance(type_, TensorType | MemDescType)
            and type_.layout is not None
            and type_.layout not in self.by_layout
        ):
            text = describe(type_.layout)
            if text not in self.aliases:
                family = "shared" if type_.layout.is_shared else text.split("{")[0]
                number, alias = 1, f"#{family}"
                while alias in self.aliases.values():
                    alias, number = f"#{family}{number}", number + 1
                self.aliases[text] = alias
            self.by_layout[type_.layout] = self.aliases[text]
        if isinstance(type_, MemDescType) and type_.buffers is not None:
            tile = MemDescType(type_.tile_shape, type_.element, type_.layout)
            return type_text(tile, self.by_layout).replace("<", f"<{type_.buffers} x ", 1)
        return type_text(type_, self.by_layout)

    def attribute(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, tuple | list):
            return f"[{', '.join(self.attribute(item) for item in value)}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {self.attribute(item)}" for key, item in value.items()) + "}"
        assert isinstance(value, Type), f"attribute {value!r} has no text"
        return self.type(value)

    def location(self, loc: Loc | None) -> str:
        if not self.locations or loc is None:
            return ""
        frames = [
            f"{self.attribute(frame.file)}:{frame.line}:{frame.column}" for frame in reversed(loc.frames())
        ]
        return f" loc({' at '.join(frames)})"
