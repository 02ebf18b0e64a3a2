"""Which offsets are expected to wrap around, each element for itself.

    arange · stride + start                    are not: what overflowed would lie outside of any array
    integers of 8 and 16 bits                  are
    sums of a scan or a reduction              are: it is unknown how large they become
    sums with constants of 2^28 and more       are: (x + n) - 2147483640 may well be a small number
    products that make such constants          are: (x - 6) << 29 is not the sum of x << 29 and -6 << 29
    differences with numbers from memory       are: key - start may be one
    sums and products of two such numbers      are: key + start may be as small

Of the others a part may be added on its own, in 64 bits or as the immediate of an access; these are taken
whole, and so is what is made of them, wherever loops, branches and operations that move elements pass it on.

Other sums with numbers from memory are not expected to wrap around where they are used.  But among those of
masked elements there may be anything, such as -2^31 for a missing index, and so nothing follows for the
difference or the sum of two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbuild.compiler.analysis.carried import carried_groups
from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I32, IntType, element_of
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.elementwise import (
    AddI,
    AndI,
    Cast,
    Constant,
    DivSI,
    DivUI,
    Elementwise,
    ExtUI,
    MulI,
    OrI,
    RemSI,
    RemUI,
    ShLI,
    ShRSI,
    ShRUI,
    SubI,
    XOrI,
)
from kbuild.compiler.ops.gpu import ConvertLayout, OpaqueCopy
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    InlineAsm,
    Join,
    MakeRange,
    MapElementwise,
    Reduce,
    Reshape,
    Scan,
    Splat,
    Split,
    Trans,
    Unsplat,
)

_LARGE = 1 << 28
"""Constants from which on a sum of 32 bits is expected to wrap around."""
_LARGEST = 1 << 64
"""Larger ones are not distinguished."""
_MOVES = (
    Splat
    | Unsplat
    | AxisAttributes
    | Broadcast
    | ExpandDims
    | Reshape
    | Trans
    | Join
    | Split
    | Cat
    | ConvertLayout
    | OpaqueCopy
)
"""Operations whose elements are those of their operands."""


class _Facts(NamedTuple):
    size: int = 1
    """How large the constants in it are, or what they make of numbers that are taken to be 1 because nothing
    is known of them."""
    is_loaded: bool = False
    """Whether it is made of numbers from memory, or of others that may be anything."""
    is_sum_from_memory: bool = False
    wraps: bool = False


class WrappingOffsets:
    """Looks each value of a function up once."""

    def __init__(self, body: Block) -> None:
        self.known: dict[Value, _Facts] = {}
        self.passed_on = _passed_on(body)

    def may_wrap(self, offset: Value) -> bool:
        """Whether an integer, or a tensor of them, is expected to wrap around."""
        return self._facts(offset).wraps

    def is_sum_from_memory(self, offset: Value) -> bool:
        """Whether an integer, or a tensor of them, is computed in 32 bits from what was loaded."""
        return self._facts(offset).is_sum_from_memory

    def _facts(self, offset: Value) -> _Facts:
        if offset not in self.known:
            values = self._new_parts(offset)
            while self._update(values):
                """Values that loops pass to their next iteration may change what was found."""
        return self.known[offset]

    def _new_parts(self, offset: Value) -> list[Value]:
        """An integer and those that it is made of, as far as they are not known, operands first."""
        ordered: list[Value] = []
        left = [(offset, False)]
        while left:
            value, is_complete = left.pop()
            if is_complete:
                ordered.append(value)
            elif value not in self.known:
                self.known[value] = _Facts()
                left.append((value, True))
                left.extend((part, False) for part in self._parts(value))
        return ordered

    def _parts(self, value: Value) -> Sequence[Value]:
        """The integers that one is made of."""
        op = value.op
        if value in self.passed_on:
            return self.passed_on[value]
        if isinstance(op, Gather):
            return (op.src,)
        return (
            [part for part in op.operands if _bits(part) > 1] if isinstance(op, Elementwise | _MOVES) else ()
        )

    def _update(self, values: Sequence[Value]) -> bool:
        """Whether anything is found that was not known."""
        before = [self.known[value] for value in values]
        for value in values:
            self.known[value] = self._derived(value)
        return before != [self.known[value] for value in values]

    def _derived(self, value: Value) -> _Facts:
        """The answer that follows from what is known of the parts."""
        op, bits = value.op, _bits(value)
        if bits <= 1:
            return _Facts()
        parts = [self.known[part] for part in self._parts(value)]
        sizes = [part.size for part in parts]
        if value in self.passed_on:
            # What a loop carries is as large as the first: a number that grows with each iteration would have
            # no bound.
            size = max(1, *(sizes if isinstance(op, If) else sizes[:1]))
        else:
            size = _size(op, sizes)
        is_loaded = any(part.is_loaded for part in parts) or (value not in self.passed_on and _is_unknown(op))
        is_sum = isinstance(op, Elementwise) and is_loaded and bits <= 32
        wraps = bits < 32 or (
            element_of(value.type) == I32 and (size >= _LARGE or _is_made_to_wrap(op, parts))
        )
        if not (isinstance(op, ExtUI) and _bits(op.src) < 32):
            wraps = wraps or isinstance(op, Scan | Reduce) or any(part.wraps for part in parts)
        return _Facts(size, is_loaded, is_sum or any(part.is_sum_from_memory for part in parts), wraps)


def _passed_on(body: Block) -> dict[Value, Sequence[Value]]:
    """For each block argument and result of control flow, the values that it starts as (in loops, first)
    and the values that are passed to it.

    They are collected at once: a pass that asks may be changing them.
    """
    found: dict[Value, Sequence[Value]] = {}
    for op in body.walk():
        if isinstance(op, For):
            found[op.induction] = (op.lower,)
        for group in carried_groups(op):
            if _bits(group.targets[0]) > 1:
                found.update(dict.fromkeys(group.targets, group.sources()))
    return found


def _size(op: Op | None, parts: Sequence[int]) -> int:
    match op:
        case Constant():
            size = abs(int(op.value))
        case MakeRange():
            size = max(abs(op.start), abs(op.end))
        case AddI() | SubI() | OrI() | XOrI():
            size = sum(parts)
        case MulI():
            size = parts[0] * parts[1]
        case ShLI():
            size = parts[0] << min(parts[1], 64)
        case DivSI() | DivUI():
            size = max(parts[0] // max(parts[1], 1), 1)
        case RemSI() | RemUI() | AndI():
            size = min(parts)
        case ShRSI() | ShRUI():
            size = max(parts[0] >> min(parts[1], 64), 1)
        case _:
            size = max(parts, default=1)
    return min(size, _LARGEST)


def _is_unknown(op: Op | None) -> bool:
    """Whether a number may be anything: from memory, from a function, or converted from another type."""
    if op is None:
        return False
    return (
        not op.has(Trait.PURE)
        or isinstance(op, InlineAsm | MapElementwise)
        or (isinstance(op, Cast) and _bits(op.src) == 0)
    )


def _is_made_to_wrap(op: Op | None, parts: Sequence[_Facts]) -> bool:
    """Whether an operation on 32 bits combines numbers whose distance from each other is unknown."""
    loaded = [part.is_loaded for part in parts]
    if isinstance(op, SubI):
        return any(loaded) and not isinstance(op.rhs.op, Constant)
    return isinstance(op, AddI | MulI) and all(loaded)


def _bits(value: Value) -> int:
    """The width of integers; none for anything else."""
    element = element_of(value.type)
    return element.bits if isinstance(element, IntType) else 0
