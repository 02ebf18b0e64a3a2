"""Which offsets are expected to wrap around, each element for itself.

    arange · stride + start                    are not: what overflowed would lie outside of any array
    integers of 8 and 16 bits                  are
    sums of a scan or a reduction              are: nobody can say how large they become
    sums with constants of 2^28 and more       are: (x + n) - 2147483640 may well be a small number
    differences with numbers from memory       are: key - start may be one

Of the others a part may be added on its own, in 64 bits or as the immediate of an access; these are taken whole.

Other sums with numbers from memory are not expected to wrap around where they are used.  But among those of masked elements there
may be anything, such as -2^31 for an index that is none, and so the difference of two of them says nothing of their distance.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.analysis.carried import group_of
from kbuild.compiler.ir.core import Trait, Value
from kbuild.compiler.ir.types import I1, I32, IntType, element_of
from kbuild.compiler.ops.elementwise import Constant, Elementwise, ExtUI, SubI
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Hint, Reduce, Reshape, Scan, Splat, Trans

_LARGE = 1 << 28
"""Constants from which on a sum of 32 bits is expected to wrap around."""
_DEPTH = 48
"""How far back to look through operations."""
_ELEMENTS = Elementwise | Splat | Hint | Broadcast | ExpandDims | Reshape | Trans | ConvertLayout
"""Operations whose elements are made of the operands' elements, or are these."""


class WrappingOffsets:
    """Looks each value up once."""

    def __init__(self) -> None:
        self.known: dict[Value, bool] = {}
        self.loaded: dict[Value, bool] = {}

    def may_wrap(self, offset: Value, depth: int = 0) -> bool:
        """Whether an integer, or a tensor of them, is expected to wrap around."""
        if offset not in self.known:
            self.known[offset] = self._may_wrap(offset, depth)
        return self.known[offset]

    def _may_wrap(self, offset: Value, depth: int) -> bool:
        element, op = element_of(offset.type), offset.op
        if not isinstance(element, IntType) or element == I1:
            return False
        if element.bits < 32 or depth == _DEPTH:
            return True
        match op:
            case Constant():
                return element == I32 and abs(int(op.value)) >= _LARGE
            case ExtUI():
                return False
        if isinstance(op, SubI) and not isinstance(op.rhs.op, Constant) and self.is_sum_from_memory(offset):
            return True
        if isinstance(op, _ELEMENTS):
            return any(self.may_wrap(operand, depth + 1) for operand in op.operands)
        return isinstance(op, Scan | Reduce)

    def is_sum_from_memory(self, offset: Value) -> bool:
        """Whether an integer, or a tensor of them, is computed in 32 bits from what was loaded."""
        if offset not in self.loaded:
            narrow = [value.op for value in _parts(offset) if _bits(value) <= 32]
            is_loaded = any(op is not None and op.has(Trait.READS) for op in narrow)
            self.loaded[offset] = is_loaded and any(isinstance(op, Elementwise) and not isinstance(op, Constant) for op in narrow)
        return self.loaded[offset]


def _parts(offset: Value) -> Iterator[Value]:
    """The integers of which one is made, itself among them, and whatever control flow hands on as one of these."""
    seen: set[Value] = set()
    left = [offset]
    while left:
        value = left.pop()
        element = element_of(value.type)
        if value in seen or not isinstance(element, IntType) or element == I1:
            continue
        seen.add(value)
        yield value
        if isinstance(value.op, _ELEMENTS):
            left.extend(value.op.operands)
        elif (group := group_of(value)) is not None:
            left.extend(group.sources())


def _bits(value: Value) -> int:
    element = element_of(value.type)
    assert isinstance(element, IntType)
    return element.bits
