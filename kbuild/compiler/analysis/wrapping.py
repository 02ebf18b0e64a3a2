"""Which offsets are expected to wrap around, each element for itself.

    arange · stride + start                    are not: what overflowed would lie outside of any array
    integers of 8 and 16 bits                  are
    sums of a scan or a reduction              are: nobody can say how large they become
    sums with constants of 2^28 and more       are: (x + n) - 2147483640 may well be a small number

Of the others a part may be added on its own, in 64 bits or as the immediate of an access; these are taken whole.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I1, I32, IntType, element_of
from kbuild.compiler.ops.elementwise import Constant, Elementwise, ExtUI
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Hint, Reduce, Reshape, Scan, Splat, Trans

_LARGE = 1 << 28
"""Constants from which on a sum of 32 bits is expected to wrap around."""
_DEPTH = 48
"""How far back to look through operations."""


class WrappingOffsets:
    """Looks each value up once."""

    def __init__(self) -> None:
        self.known: dict[Value, bool] = {}

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
            case Elementwise() | Splat() | Hint() | Broadcast() | ExpandDims() | Reshape() | Trans():
                return any(self.may_wrap(operand, depth + 1) for operand in op.operands)
        return isinstance(op, Scan | Reduce)
