"""The place of new operations: an insertion point and the location that they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.errors import Loc

AnyOp = TypeVar("AnyOp", bound=Op)


class Builder:
    """Inserts operations at one point, in order.

    `Builder(block)` appends; `Builder.before(op)` and `Builder.after(op)` insert next to an operation and
    take its location.
    """

    def __init__(self, block: Block, before: Op | None = None, loc: Loc | None = None) -> None:
        self.block = block
        self.next = before
        self.loc = loc

    @classmethod
    def before(cls, op: Op) -> Builder:
        return cls(op.parent_block, op, op.loc)

    @classmethod
    def after(cls, op: Op) -> Builder:
        return cls(op.parent_block, op.next, op.loc)

    @classmethod
    def after_value(cls, value: Value) -> Builder:
        """Where a value is there: after its operation, or at the beginning of the block whose argument it is."""
        return cls.after(value.op) if value.op is not None else cls(value.block, value.block.first)

    def add(self, op: AnyOp, name: str = "") -> AnyOp:
        """Insert an operation, giving it the builder's location unless it has its own, and name its first
        result."""
        if op.loc is None:
            op.loc = self.loc
        if name and op.results and not op.results[0].name:
            op.results[0].name = name
        self.block.insert(op, self.next)
        return op

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Append to another block for a while."""
        saved = self.block, self.next
        self.block, self.next = block, None
        try:
            yield
        finally:
            self.block, self.next = saved
