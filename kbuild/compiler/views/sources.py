"""A layout as it is asked for on the command line: in kbuild's words, Gluon's or Triton's, or that of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbuild.compiler.frontend.layout_text import layout_of_text
from kbuild.compiler.frontend.sources.functions import Unresolved
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.types import MemDescType, TensorType, bit_width
from kbuild.compiler.layout import LinearLayout, PendingLayout, parse_layout
from kbuild.compiler.layout.gluon import AutoLayout, CoalescedLayout, DistributedLayout, Layout, SharedLayout
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME
from kbuild.compiler.upstream.attributes import AttributeReader
from kbuild.errors import CompileError, KbuildError, Loc, UsageError, nearest, register_source

_GLUON = re.compile(r"(?:\w+\.)*\w+\(")
_TRITON = re.compile(r"#\w+\.\w+")
_SHAPE = re.compile(r"\d+(?:[x,]\d+)*")
_PLACE = re.compile(r"(?P<file>.+):(?P<name>%[\w.$#-]+)")
EXAMPLES = """write, for example, '#blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}', \
'BlockedLayout([1,4], [4,8], [4,1], [1,0])', '#ttg.blocked<{…}>' or 'dump.ttgir:%x'"""
NAME = "<layout>"
_SHAPE_NEEDED = "a layout in words fits tensors of many shapes: say which, as --shape 64x64"
_DUMP = "show the value of a dump of ttgir"


@dataclass(frozen=True)
class ShownLayout:
    """A layout to be shown, and what it is the layout of."""

    text: str
    """As it was asked for."""
    layout: LinearLayout
    element_bits: int
    """Of an element in memory: a truth value takes a byte."""
    element: str
    """The type of the elements."""
    func: Func | None = None
    """The kernel whose value has it."""


def place_of(text: str) -> tuple[str, str] | None:
    """The file and the value that an expression names; None for a layout in words."""
    match = _PLACE.fullmatch(text.strip())
    return (match["file"], match["name"]) if match else None


def parse_shape(text: str) -> tuple[int, ...]:
    """A shape as `64x32` or `64,32`.  Raises `UsageError` for another text."""
    if not _SHAPE.fullmatch(text.replace(" ", "")):
        raise UsageError(f"--shape {text!r}: expected sizes", help="write, for example, --shape 64x32")
    shape = tuple(int(size) for size in re.split("[x,]", text.replace(" ", "")))
    if any(size < 1 or size & (size - 1) or size > 1 << 16 for size in shape):
        raise UsageError(f"--shape {text}: sizes are powers of two up to {1 << 16}")
    return shape


def in_words(text: str, shape: Sequence[int] | None, element: str) -> ShownLayout:
    """The layout that an expression names, of a tensor or tile of a shape; without one, of the layout's own shape.

    Raises `CompileError` at the place of a mistake, `UsageError` for a type of elements that there is none of, and for
    a layout without a shape of its own.
    """
    if element not in BY_SIGNATURE_NAME:
        close = nearest(element, BY_SIGNATURE_NAME)
        raise UsageError(
            f"--type {element}: no such type",
            help=f'did you mean "{close}"?' if close else "write, for example, fp16",
        )
    bits = max(8, BY_SIGNATURE_NAME[element].bits)
    register_source(NAME, text)
    stripped = text.strip()
    try:
        if _TRITON.match(stripped):
            layout = _triton(text, shape)
        elif _GLUON.match(stripped):
            layout = _gluon(stripped, shape)
        else:
            layout = parse_layout(stripped.removeprefix("#"), _known(shape, text))
    except CompileError as error:
        raise CompileError(error.message, error.loc or Loc(NAME, 1), error.help or EXAMPLES) from None
    if isinstance(layout, PendingLayout):
        raise CompileError(f"the layout {stripped} is chosen by the compiler", Loc(NAME, 1), _DUMP)
    if not layout.is_surjective():
        raise CompileError(
            f"the layout does not reach all elements of a tensor of shape {list(layout.shape)}", Loc(NAME, 1)
        )
    return ShownLayout(stripped, layout, bits, element)


def _known(shape: Sequence[int] | None, text: str, layout: Layout | None = None) -> Sequence[int]:
    """The shape that was asked for, or that of the layout."""
    shape = shape or getattr(layout, "shape", None)
    if shape is None:
        raise UsageError(f"{text}: its shape is not known", help=_SHAPE_NEEDED)
    return shape


def _triton(text: str, shape: Sequence[int] | None) -> LinearLayout:
    reader = AttributeReader(text, NAME)
    encoding = reader.encoding()
    if reader.kind != "end":
        reader.fail(f"unexpected text after the layout: {reader.token!r}")
    return encoding.layout_of(_known(shape, text, encoding.author()))


def _gluon(text: str, shape: Sequence[int] | None) -> LinearLayout:
    try:
        written = layout_of_text(text)
    except Unresolved as error:
        raise CompileError(str(error)) from None
    if isinstance(written, AutoLayout | CoalescedLayout):
        raise CompileError(f"{written} is chosen by the compiler", help=_DUMP)
    assert isinstance(written, DistributedLayout | SharedLayout)
    shape = _known(shape, text, written)
    try:
        if written.rank != len(shape):
            raise ValueError(f"it is for {written.rank} axes")
        return written.linear(tuple(shape))
    except (ValueError, IndexError, KbuildError) as error:
        reason = getattr(error, "message", error)
        raise CompileError(f"{written} does not fit a tensor of shape {list(shape)}: {reason}") from None


def of_value(text: str, name: str, module: Module, values: Mapping[str, Value]) -> ShownLayout:
    """The layout of a value of a module.  Raises `UsageError` for a value that has none."""
    value = values.get(name)
    if value is None:
        close = nearest(name, values)
        raise UsageError(
            f"{text}: there is no value {name}", help=f'did you mean "{close}"?' if close else ""
        )
    type_ = value.type
    layout = type_.layout if isinstance(type_, TensorType | MemDescType) else None
    if not isinstance(type_, TensorType | MemDescType) or layout is None:
        reason = (
            "its stage comes before layouts: show a dump of ttgir"
            if isinstance(type_, TensorType)
            else "it has none"
        )
        raise UsageError(f"{text} is {type_}, whose layout cannot be shown: {reason}")
    if isinstance(layout, PendingLayout):
        raise UsageError(f"{text} has a layout that a later pass chooses", help="show a dump of a later pass")
    return ShownLayout(text, layout, max(8, bit_width(type_)), str(type_.element), module.kernel)
