"""How many registers of a thread tensors take."""

from __future__ import annotations

from collections.abc import Iterable

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import TensorType, bit_width
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Dot, Splat

_MANY = 32
"""Registers of a tensor from which on it matters how long it takes them."""


def words(values: Iterable[Value]) -> float:
    """32-bit registers that a thread needs for tensors; scalars count for nothing, and so do tensors of one number."""
    total = 0.0
    for value in values:
        type_ = value.type
        if (
            isinstance(type_, TensorType)
            and type_.layout is not None
            and not isinstance(value.op, Constant | Splat)
        ):
            total += len(type_.layout.unique_registers()) * bit_width(type_) / 32
    return total


def takes_many(value: Value) -> bool:
    """Whether a tensor takes so many registers of a thread that it matters how long."""
    return words([value]) >= _MANY


def loop_words(loop: For) -> float:
    """32-bit registers for the values that a loop carries and for the result of its largest dot."""
    dots = [
        op.result
        for op in loop.body
        if isinstance(op, Dot | WarpGroupDot) and not _is_carried(op.result, loop)
    ]
    return words(loop.carried) + max((words([dot]) for dot in dots), default=0)


def _is_carried(value: Value, loop: For) -> bool:
    """Whether a value, perhaps after it was waited for, has the registers of one that the loop carries."""
    waited = (user.results for user in value.users if isinstance(user, WarpGroupDotWait))
    return value in loop.yielded or any(result in loop.yielded for results in waited for result in results)
