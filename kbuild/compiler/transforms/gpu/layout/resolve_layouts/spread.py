"""Layouts on their way through a kernel: from what is known of some values to others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kbuild.compiler.analysis.carried import CarriedGroup, carried_groups
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.layout import derived
from kbuild.compiler.layout.gluon import DistributedLayout, SliceLayout
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Gather, Join, Reduce, Reshape, Split, Trans
from kbuild.compiler.transforms._support.layout_flow import is_pointwise, tensor_operands, tensor_type
from kbuild.errors import CompileError, Loc

_VARYING = (Join, Split, Reshape, Trans)
"""Operations through which several layouts could go: what comes through them gives way to what does not."""


@dataclass(frozen=True)
class Source:
    """A layout that a value should have, and why."""

    author: DistributedLayout
    loc: Loc | None
    """What says so."""
    what: str
    """That in a word, for messages."""
    varies: bool = False
    """Whether it has come through an operation where another would have done as well."""


class Spread:
    """Spreads layouts over the values of a function that lack one."""

    def __init__(self, func: Func, is_open: Callable[[Value], bool]) -> None:
        self.is_open = is_open
        self.found: dict[Value, Source] = {}
        self.work: deque[Value] = deque()
        self.groups: dict[Value, list[CarriedGroup]] = {}
        for op in func.body.walk():
            for group in carried_groups(op):
                for value in (*group.targets, *group.sources()):
                    self.groups.setdefault(value, []).append(group)

    def add(self, value: Value, source: Source) -> None:
        """Give a value a layout.  Raises CompileError where it has another."""
        if not self.is_open(value):
            return
        known = self.found.get(value)
        if known is not None:
            shape = tensor_type(value).shape
            if known.author == source.author or known.author.linear(shape) == source.author.linear(shape):
                return
            if source.varies:
                return
            if not known.varies:
                raise _conflict(value, known, source)
        self.found[value] = source
        self.work.append(value)

    def run(self) -> dict[Value, Source]:
        """The layouts of all values that one reaches."""
        while self.work:
            value = self.work.popleft()
            source = self.found[value]
            for group in self.groups.get(value, ()):
                for other in (*group.targets, *group.sources()):
                    self.add(other, source)
            for user in list(value.users):
                for index, operand in tensor_operands(user):
                    if operand is value:
                        self.through(user, index, source)
            if value.op is not None:
                self.back(value.op, source)
        return self.found

    def through(self, op: Op, index: int, source: Source) -> None:
        """From an operand to what has to fit it."""
        author = _result_author(op, index, source.author)
        if author is not None:
            moved = _moved(op, author, source)
            for result in op.results:
                self.add(result, moved)
        if is_pointwise(op) or isinstance(op, Reduce | Join):
            for _, operand in tensor_operands(op):
                self.add(operand, source)

    def back(self, op: Op, source: Source) -> None:
        """From a result to the operands."""
        for index, operand in tensor_operands(op):
            author = _operand_author(op, index, source.author)
            if author is not None:
                self.add(operand, _moved(op, author, source))
        if is_pointwise(op) or isinstance(op, Split):
            for result in op.results:
                self.add(result, source)


def _moved(op: Op, author: DistributedLayout, source: Source) -> Source:
    return replace(source, author=author, varies=source.varies or isinstance(op, _VARYING))


def _shapes(op: Op) -> Iterator[tuple[int, ...]]:
    for value in (op.operands[0], op.results[0]):
        yield tensor_type(value).shape


def _result_author(op: Op, index: int, author: DistributedLayout) -> DistributedLayout | None:
    """The layout of the results when an operand has this one; None when it does not follow."""
    if is_pointwise(op) or isinstance(op, Broadcast) or (isinstance(op, Gather) and index == 1):
        return author
    if isinstance(op, ExpandDims):
        return derived.expanded(author, op.axis)
    if isinstance(op, Reduce):
        return derived.sliced(author, op.axis) if author.rank > 1 else None
    shape = tensor_type(op.operands[index]).shape
    if isinstance(op, Trans):
        return derived.permuted(author, shape, op.order)
    if isinstance(op, Reshape):
        return derived.reshaped(author, shape, tensor_type(op.result).shape)
    if isinstance(op, Join):
        return derived.joined(author, shape)
    return derived.split(author, shape) if isinstance(op, Split) else None


def _operand_author(op: Op, index: int, author: DistributedLayout) -> DistributedLayout | None:
    """The layout that an operand must have for the results to have this one; None when any will do."""
    if is_pointwise(op) or isinstance(op, Broadcast) or (isinstance(op, Gather) and index == 1):
        return author
    if isinstance(op, ExpandDims):
        return derived.sliced(author, op.axis)
    if isinstance(op, Reduce):
        return author.parent if isinstance(author, SliceLayout) and author.dim == op.axis else None
    if not isinstance(op, _VARYING):
        return None
    given, shape = _shapes(op)
    if isinstance(op, Trans):
        return derived.permuted(author, shape, tuple(op.order.index(axis) for axis in range(len(op.order))))
    if isinstance(op, Reshape):
        return derived.reshaped(author, shape, given)
    return derived.split(author, shape) if isinstance(op, Join) else derived.joined(author, shape)


def _conflict(value: Value, known: Source, other: Source) -> CompileError:
    name = f"`{value.name}`" if value.name else "a value"
    first, second = sorted((known, other), key=lambda source: source.loc.line if source.loc else 0)
    loc = value.op.loc if value.op is not None else second.loc
    return CompileError(
        f"{name} would have two layouts: {first.author}, by {_where(first)}, and {second.author}, by "
        f"{_where(second)}",
        loc,
        f"make it once for each, or convert it: gl.convert_layout({value.name or 'x'}, layout)",
    )


def _where(source: Source) -> str:
    return f"{source.what} at {source.loc}" if source.loc is not None else source.what
