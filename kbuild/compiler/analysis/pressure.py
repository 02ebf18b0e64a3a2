"""How many registers values take."""

from __future__ import annotations

from collections.abc import Iterable

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import TensorType, bit_width


def words(values: Iterable[Value]) -> float:
    """32-bit registers that a thread needs for tensors; scalars count for nothing."""
    total = 0.0
    for value in values:
        type_ = value.type
        if isinstance(type_, TensorType) and type_.layout is not None:
            total += len(type_.layout.unique_registers()) * bit_width(type_) / 32
    return total
