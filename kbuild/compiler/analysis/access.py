"""How many elements one access of global memory may cover."""

from __future__ import annotations

from kbuild.compiler.analysis.axis_info import Info
from kbuild.compiler.ir.types import BF16, F16, F32, element_of
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS
from kbuild.compiler.ops.tensor import Atomic, AtomicRMW
from kbuild.targets import Target

_PACKED_BITS = 32
"""Two halves, which all architectures add at once."""


def neighbours(pointers: Info, mask: Info | None, axis: int, bits: int, cut: bool = False) -> int:
    """How many elements of `bits` along an axis are neighbours in memory, aligned, and share a mask, up to
    128 bits of them; or with `cut` have one that lets through the first ones only."""
    aligned = pointers.divisibility[axis] * 8 // bits
    width = max(1, min(pointers.contiguity[axis], aligned, MAX_VECTOR_BITS // bits))
    return width if mask is None else min(width, (mask.prefixes if cut else mask.constancy)[axis])


def access_width(
    layout: LinearLayout, pointers: Info, mask: Info | None, bits: int, cut: bool = False
) -> int:
    """How many consecutive registers of a layout are such neighbours."""
    return max(
        (
            min(layout.contiguous_per_thread(axis), neighbours(pointers, mask, axis, bits, cut))
            for axis in range(layout.rank)
        ),
        default=1,
    )


def atomic_width(op: Atomic, target: Target) -> int:
    """How many neighbours one instruction may update."""
    if not isinstance(op, AtomicRMW) or op.kind != "fadd":
        return 1
    element = element_of(op.value.type)
    if element == F32:
        return MAX_VECTOR_BITS // 32 if target.has("vector_atomics") else 1
    if element == F16 or (element == BF16 and target.has("bf16_atomics")):
        return (MAX_VECTOR_BITS if target.has("vector_atomics") else _PACKED_BITS) // 16
    return 1
