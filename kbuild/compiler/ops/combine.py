"""What is known of the function of a reduction or scan: what it costs, and whether a warp does it by one instruction."""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.core import Block, Op
from kbuild.compiler.ir.types import F32, IntType, Type
from kbuild.compiler.ops import elementwise as rows

_LONG = 8
"""What a division costs, or a function."""
_INTEGERS: dict[type, tuple[str, str]] = {
    rows.AddI: ("add", "zext"),
    rows.AndI: ("and", "zext"),
    rows.OrI: ("or", "zext"),
    rows.XOrI: ("xor", "zext"),
    rows.MaxSI: ("max", "sext"),
    rows.MinSI: ("min", "sext"),
    rows.MaxUI: ("umax", "zext"),
    rows.MinUI: ("umin", "zext"),
}
_FLOATS: dict[type, str] = {rows.MaxNumF: "max", rows.MinNumF: "min"}


class WarpInstruction(NamedTuple):
    """`redux.sync`, which combines a register of all lanes of a warp."""

    name: str
    """The operation, in PTX."""
    widen: str
    """How narrower integers become 32 bits; empty for f32, whose bits are ordered as integers except for negative
    numbers, which are reversed."""


def warp_instruction(block: Block, type_: Type) -> WarpInstruction | None:
    """The instruction that applies a function of one value to a warp; None where there is none."""
    op = type(only_op(block))
    if op in _INTEGERS and isinstance(type_, IntType) and type_.bits <= 32:
        return WarpInstruction(*_INTEGERS[op])
    return WarpInstruction(_FLOATS[op], "") if op in _FLOATS and type_ == F32 else None


def only_op(block: Block) -> Op | None:
    """The operation of a combine function that applies just one to its two arguments, each once."""
    op = block.first
    simple = (
        op is not None
        and len(block) == 2
        and len(op.results) == 1
        and block.terminator.operands == op.results
    )
    return (
        op
        if op is not None and simple and {*op.operands} == {*block.arguments} and len(block.arguments) == 2
        else None
    )


def function_cost(block: Block) -> int:
    """What the function costs, in additions."""
    return sum(map(_cost, block.walk()))


def _cost(op: Op) -> int:
    if isinstance(op, rows.Constant) or not op.results:
        return 0
    return 1 if getattr(op, "llvm", "") or isinstance(op, rows.CmpI | rows.CmpF) else _LONG
