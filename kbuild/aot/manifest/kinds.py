"""The kinds of values that a key of the manifest may have.  Each reads a value, reports what is wrong with it,
and describes the legal values in JSON Schema and in words."""

from __future__ import annotations

import keyword
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kbuild.aot.manifest.model import RESERVED_NAMES, TYPE_WORDS, is_same
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import NAME, described, one_line, suggestion
from kbuild.options import Option

Shape = Mapping[str, Any]
"""A fragment of JSON Schema."""


class MistakeReporter(Protocol):
    """Records a mistake: its place, the message and some advice."""

    def __call__(self, path: KeyPath, message: str, help: str = "", /) -> None: ...


class InvalidText(Exception):
    """Raised by `Text.form` for a text that it rejects."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message, self.help = message, help


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """Values of one kind."""

    refusal: str = ""
    """The message for other values, with `{}` for the value; by default what was expected and what was found."""
    advice: str = ""
    """How to fix it."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The values, in JSON Schema."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The values, in words: in a message after "expected", and in the docs."""

    @property
    def blank(self) -> Any:
        """The value in place of one that is missing or wrong."""
        return None

    def identity(self, value: Any) -> Any:
        """The key by which two values of a list count as equal."""
        return value

    @abstractmethod
    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> Any:
        """The value as records have it; None, with the mistakes noted, where it is not of this kind."""

    def takes(self, value: object) -> bool:
        """Whether a value is of this kind."""
        return self.read(value, (), lambda *_: None) is not None

    def refuse(self, value: object, path: KeyPath, note: MistakeReporter) -> None:
        """Note that a value is not of this kind."""
        note(path, self.message(value), self.help(value))

    def help(self, value: object) -> str:
        """How to fix such a value."""
        return self.advice

    def message(self, value: object) -> str:
        """The message for a value that is not of this kind."""
        template = self.refusal or f"expected {self.words}, found {{}}"
        return template.replace("{}", described(value))


@dataclass(frozen=True)
class Pattern:
    """A pattern that a whole text has to match."""

    regex: str
    refusal: str = ""
    """The message for texts that do not, which `{}` stands for; by default that of the kind."""
    advice: str = ""
    """How to fix it."""


@dataclass(frozen=True, kw_only=True)
class Text(Kind):
    """Strings."""

    what: str = "a string"
    """What they are called."""
    patterns: tuple[Pattern, ...] = ()
    """All have to match; the first that does not is reported."""
    one_line: bool = False
    """Whether it is printed somewhere, and so has to be on one line."""
    form: Callable[[str], str] = str
    """The normal form of a text; raises `InvalidText`."""

    @property
    def shape(self) -> Shape:
        if not self.patterns:
            return {"type": "string"}
        *others, last = (pattern.regex for pattern in self.patterns)
        return {"type": "string", "pattern": f"^{''.join(f'(?=(?:{one})$)' for one in others)}(?:{last})$"}

    @property
    def words(self) -> str:
        return self.what

    @property
    def blank(self) -> str:
        return ""

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> str | None:
        if not isinstance(value, str):
            return self.refuse(value, path, note)
        for pattern in self.patterns:
            if not re.fullmatch(pattern.regex, value):
                message = pattern.refusal.replace("{}", described(value)) or self.message(value)
                return note(path, message, pattern.advice or self.advice)
        if self.one_line and not value.isprintable():
            return note(path, "expected one line of printable text")
        try:
            return self.form(value)
        except InvalidText as refusal:
            return note(path, refusal.message, refusal.help)


@dataclass(frozen=True, kw_only=True)
class TextOrTuple(Text):
    """Strings, and lists of them for the elements of a tuple, which `with_elements` writes out before."""

    @property
    def shape(self) -> Shape:
        of_elements = {"anyOf": [super().shape, {"type": "array", "minItems": 1}]}
        return {"anyOf": [super().shape, {"type": "array", "items": of_elements, "minItems": 1}]}


@dataclass(frozen=True, kw_only=True)
class Name(Kind):
    """Names that are valid in Python, C and file names."""

    @property
    def shape(self) -> Shape:
        return {"type": "string", "pattern": f"^{NAME}$"}

    @property
    def words(self) -> str:
        return "a name"

    @property
    def blank(self) -> str:
        return ""

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> str | None:
        if not isinstance(value, str):
            self.refuse(value, path, note)
        elif not re.fullmatch(NAME, value):
            note(path, f"{described(value)} is not a name", "a name has up to 128 letters, digits and _")
        elif keyword.iskeyword(value) or (value.startswith("__") and value.endswith("__")):
            note(path, f'"{value}" is a word of Python')
        elif value in RESERVED_NAMES:
            note(path, f'"{value}" is a name that kbuild uses itself')
        else:
            return value
        return None


@dataclass(frozen=True, kw_only=True)
class Integer(Kind):
    """Integers between two."""

    minimum: int
    maximum: int

    @property
    def shape(self) -> Shape:
        if self.minimum == self.maximum:
            return {"const": self.minimum}
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    @property
    def words(self) -> str:
        return f"an integer, {self.minimum} to {self.maximum}"

    def help(self, value: object) -> str:
        return self.advice or (f"write {self.minimum} to {self.maximum}" if self.refusal else "")

    @property
    def blank(self) -> int:
        return 0

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool):
            note(path, f"expected an integer, found {described(value)}")
        elif not self.minimum <= value <= self.maximum:
            self.refuse(value, path, note)
        else:
            return value
        return None


@dataclass(frozen=True, kw_only=True)
class OneOf(Kind):
    """Some values and no others."""

    values: tuple[int | str, ...]
    suggests: bool = False
    """Whether the advice is the nearest of them."""

    @property
    def shape(self) -> Shape:
        return {"const": self.values[0]} if len(self.values) == 1 else {"enum": list(self.values)}

    @property
    def words(self) -> str:
        return " or ".join(one_line(value) for value in self.values)

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> int | str | None:
        if any(is_same(known, value) for known in self.values):  # type: ignore[arg-type]
            return value  # type: ignore[return-value]
        self.refuse(value, path, note)
        return None

    def help(self, value: object) -> str:
        return suggestion(value, map(str, self.values)) if self.suggests else self.advice


@dataclass(frozen=True, kw_only=True)
class Scalar(Kind):
    """Flags, numbers and strings, where others say which."""

    @property
    def shape(self) -> Shape:
        return {"type": ["boolean", "number", "string"]}

    @property
    def words(self) -> str:
        return "a flag, a number or a string"

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> bool | int | float | str | None:
        if isinstance(value, bool | int | float | str):
            return value
        self.refuse(value, path, note)
        return None


def dotted_type(value: object) -> str:
    """The manifest's word for a type that is written as in Python, such as `tl.float16`; empty for all else."""
    module, _, name = value.rpartition(".") if isinstance(value, str) else ("", "", "")
    return TYPE_WORDS.get(name, "") if module in ("tl", "gl", "torch", "triton.language") else ""


def is_layout(text: str) -> bool:
    """Whether a text is meant for a layout of Gluon: `gl.BlockedLayout([1], [32], [4], [0])`."""
    return text.strip().startswith("gl.") and not dotted_type(text)


def layout_text(text: str, path: KeyPath, note: MistakeReporter) -> str | None:
    """The text of a layout in its normal form; None, with the mistake noted, where it is none."""
    # Most manifests have none, and the frontend takes longer to import than they to load.
    from kbuild.compiler.frontend.layout_text import Unresolved, layout_of_text

    try:
        return f"gl.{layout_of_text(text)}".replace(" ", "")
    except Unresolved as error:
        note(path, str(error), 'write, for example, "gl.BlockedLayout([1], [32], [4], [0])"')
        return None


@dataclass(frozen=True, kw_only=True)
class ConstexprKind(Scalar):
    """Compile-time values: flags, finite numbers, strings that are a plain word or empty, and layouts of Gluon as
    text."""

    @property
    def words(self) -> str:
        return "a flag, a finite number, a plain word or a layout"

    def help(self, value: object) -> str:
        word = dotted_type(value)
        return f'write the type as "{word}"' if word else super().help(value)

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> bool | int | float | str | None:
        if isinstance(value, str) and is_layout(value):
            return layout_text(value, path, note)
        if isinstance(value, str):
            is_legal = (re.fullmatch(NAME, value) or not value) and value not in ("True", "False", "None")
        elif isinstance(value, float):
            is_legal = math.isfinite(value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**64:
            note(path, f"expected a number of 64 bits, found {described(value)}")
            return None
        else:
            is_legal = isinstance(value, int)
        if is_legal:
            return value  # type: ignore[return-value]
        self.refuse(value, path, note)
        return None


@dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """Values of run-time scalars: numbers, or of integers whole ones and expressions."""

    is_integer: bool

    @property
    def shape(self) -> Shape:
        return {"type": ["integer", "string"] if self.is_integer else "number"}

    @property
    def words(self) -> str:
        return "an integer or an expression" if self.is_integer else "a number"

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> int | float | str | None:
        if isinstance(value, int | str if self.is_integer else int | float) and not isinstance(value, bool):
            return value
        self.refuse(value, path, note)
        return None


@dataclass(frozen=True, kw_only=True)
class Positive(Kind):
    """Finite numbers above zero."""

    @property
    def shape(self) -> Shape:
        return {"type": "number", "exclusiveMinimum": 0}

    @property
    def words(self) -> str:
        return "a number above zero"

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.refuse(value, path, note)
        return None


@dataclass(frozen=True, kw_only=True)
class Setting(Kind):
    """Values of an option of the compiler."""

    option: Option

    @property
    def shape(self) -> Shape:
        return self.option.schema

    @property
    def words(self) -> str:
        return self.option.expected

    @property
    def blank(self) -> bool | int | str | None:
        return self.option.default

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> bool | int | str | None:
        if self.option.is_legal(value):
            return value  # type: ignore[return-value]
        if type(value) is not self.option.kind and not self.refusal:
            word = {bool: "true or false", int: "an integer", str: "a string"}[self.option.kind]
            note(path, f"expected {word}, found {described(value)}")
        else:
            self.refuse(value, path, note)
        return None


@dataclass(frozen=True, kw_only=True)
class ListOf(Kind):
    """Lists of values of one kind; wrong ones are left out."""

    item: Kind
    what: str = "a list"
    """What they are called."""
    least: int = 0
    most: int | None = None
    lengths: str = ""
    """The message for a list that is too short or too long: `{}` stands for its length."""
    or_one: bool = False
    """Whether a single value may stand for a list of one."""
    unique: bool = False
    """Whether no value may be there twice."""
    alike: bool = False
    """Whether all values are of one type."""

    @property
    def shape(self) -> Shape:
        limits = {"minItems": self.least, "maxItems": self.most, "uniqueItems": self.unique}
        found = {"type": "array", "items": self.item.shape} | {
            name: value for name, value in limits.items() if value
        }
        return {"anyOf": [self.item.shape, found]} if self.or_one else found

    @property
    def words(self) -> str:
        return self.what

    @property
    def blank(self) -> tuple[()]:
        return ()

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            if not self.or_one:
                self.refuse(value, path, note)
                return None
            found = self.item.read(value, path, note)
            return None if found is None else (found,)
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            shown = "an empty list" if not value else f"{len(value)} values"
            message = self.lengths.replace("{}", str(len(value)))
            note(path, message or f"expected {self.words}, found {shown}", self.advice)
        kept: list[Any] = []
        for index, item in enumerate(value):
            place = (*path, index)
            found = self.item.read(item, place, note)
            if found is None:
                continue
            if self.alike and kept and type(found) is not type(kept[0]):
                note(place, f"{one_line(found)} is of another type than {described(kept[0])} before it")
            elif self.unique and self.item.identity(found) in map(self.item.identity, kept):
                note(place, f"{one_line(self.item.identity(found))} is named twice")
            kept.append(found)
        return tuple(kept)


@dataclass(frozen=True, kw_only=True)
class Nothing(Kind):
    """No values: a key that is kept for later, or does not belong here."""

    @property
    def shape(self) -> Shape:
        return {"not": {}}

    @property
    def words(self) -> str:
        return "nothing"

    def read(self, value: object, path: KeyPath, note: MistakeReporter) -> None:
        self.refuse(value, path, note)
