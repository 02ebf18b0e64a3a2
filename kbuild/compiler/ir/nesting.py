"""Nesting: regions hold operations, which hold regions."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.ir.core import Block, Func, Op


def ancestors(op: Op) -> Iterator[Op]:
    """The operations around one, the innermost first."""
    around = op.parent_op
    while around is not None:
        yield around
        around = around.parent_op


def ancestor_in(block: Block, op: Op) -> Op:
    """The operation of a block that is, or holds, another one."""
    found = next((around for around in (op, *ancestors(op)) if around.parent is block), None)
    assert found is not None, "the operation is not inside the block"
    return found


def is_within(block: Block, outer: Block) -> bool:
    """Whether a block is another one, or inside of it."""
    inner: Block | None = block
    while inner is not None and inner is not outer:
        inner = inner.parent.parent if inner.parent is not None else None
    return inner is outer


def warps_of(op: Op) -> int:
    """The number of warps that run an operation: those of the partition or function around it."""
    for around in ancestors(op):
        if "num_warps" in around.attribute_fields:
            return around.attributes["num_warps"]
        if isinstance(around, Func):
            return around.attrs["num_warps"]
    raise AssertionError("the operation is in no function")
