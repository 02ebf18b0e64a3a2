"""What is known of integer and pointer values along each axis: how elements follow each other, and what divides them.

After Triton's AxisInfo.  Per axis of a tensor (a scalar counts as one axis of size one):

    contiguity    c: elements come in aligned groups of c that count up by one            make_range(0, 8): 8
    divisibility  d: the first element of each such group is a multiple of d (of a pointer: in bytes)
    constancy     k: elements come in aligned groups of k equal ones                       splat: the whole axis

All three are powers of two.  Loops are solved by iteration from what their initial values promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import gcd
from typing import Any

from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import PointerType, TensorType, bit_width, element_of, shape_of
from kbuild.compiler.ops.control import For, If, While
from kbuild.compiler.ops.elementwise import (
    AddI,
    AddPtr,
    AndI,
    Bitcast,
    CmpI,
    Constant,
    DivSI,
    DivUI,
    ExtSI,
    ExtUI,
    IntToPtr,
    MaxSI,
    MaxUI,
    MinSI,
    MinUI,
    MulI,
    OrI,
    PtrToInt,
    RemSI,
    RemUI,
    Select,
    ShLI,
    ShRSI,
    ShRUI,
    SubI,
    TruncI,
)
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Hint, Load, MakeRange, Reshape, Splat, Trans

HIGHEST = 1 << 30
"""What divides zero, as far as anyone asks."""


@dataclass(frozen=True)
class Info:
    """What is known of one value; tuples have one entry per axis."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    """The value of all elements, if it is known at compile time."""

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def is_constant_along(self, axis: int, size: int) -> bool:
        return self.constancy[axis] >= size

    def meet(self, other: Info) -> Info:
        """What holds of a value that may be either."""
        return Info(
            tuple(map(gcd, self.contiguity, other.contiguity)),
            tuple(map(gcd, self.divisibility, other.divisibility)),
            tuple(map(gcd, self.constancy, other.constancy)),
            self.constant if self.constant == other.constant else None,
        )


def power_of_two_divisor(number: int) -> int:
    """The highest power of two that divides a number."""
    return min(number & -number, HIGHEST) if number else HIGHEST


def unknown(value: Value) -> Info:
    """Nothing but what holds of any value."""
    ones = (1,) * max(1, len(shape_of(value.type)))
    return Info(ones, ones, ones)


class AxisInfo:
    """The facts of a function's values, computed when constructed; values made later are looked at when asked for."""

    def __init__(self, func: Func) -> None:
        self.known: dict[Value, Info] = {}
        for index, argument in enumerate(func.arguments):
            hints = func.argument_hints[index] if index < len(func.argument_hints) else {}
            self.known[argument] = Info((1,), (power_of_two_divisor(hints.get("divisibility", 1)),), (1,))
        self._visit(func.body)

    def get(self, value: Value) -> Info:
        """What is known of a value; nothing, for a floating-point one or a carried value made after the analysis."""
        info = self.known.get(value)
        if info is None:
            info = self._transfer(value.op) if value.op is not None and len(value.op.results) == 1 else unknown(value)
            self.known[value] = info
        return info

    def _visit(self, block: Block) -> None:
        for op in block:
            if isinstance(op, For):
                self._visit_for(op)
            elif isinstance(op, If):
                self._visit(op.then_body)
                self._visit(op.else_body)
                for result, one, other in zip(op.results, op.then_body.terminator.operands, op.else_body.terminator.operands):
                    self.known[result] = self.get(one).meet(self.get(other))
            elif isinstance(op, While):
                self._visit_while(op)
            elif len(op.results) == 1 and type(op) in _TRANSFERS:
                self.known[op.results[0]] = self._transfer(op)

    def _visit_for(self, op: For) -> None:
        lower, step = self.get(op.lower), self.get(op.step)
        self.known[op.induction] = Info((1,), (gcd(lower.divisibility[0], step.divisibility[0]),), (1,))
        self._settle(op.carried, [self.get(value) for value in op.init], op.body, lambda: op.yielded)
        for result, argument in zip(op.results, op.carried):
            self.known[result] = self.known[argument]

    def _visit_while(self, op: While) -> None:
        def round_trip() -> Iterable[Value]:
            for argument, value in zip(op.after.arguments, op.before.terminator.operands[1:]):
                self.known[argument] = self.get(value)
            self._visit(op.after)
            return op.after.terminator.operands

        self._settle(op.before.arguments, [self.get(value) for value in op.init], op.before, round_trip)
        for result, value in zip(op.results, op.before.terminator.operands[1:]):
            self.known[result] = self.get(value)

    def _settle(
        self, arguments: list[Value], start: list[Info], body: Block, yielded: Callable[[], Iterable[Value]]
    ) -> None:
        """Assume of carried values what their initial ones promise, and weaken it until a round trip changes nothing."""
        current = start
        while True:
            self.known.update(zip(arguments, current))
            self._visit(body)
            after = [info.meet(self.get(value)) for info, value in zip(current, yielded())]
            if after == current:
                return
            current = after

    def _transfer(self, op: Op) -> Info:
        rule = _TRANSFERS.get(type(op))
        return rule(op, self.get) if rule is not None else unknown(op.results[0])


# -- one rule per operation ----------------------------------------------------------------------------------------

Get = Callable[[Value], Info]
_TRANSFERS: dict[type[Op], Callable[[Any, Get], Info]] = {}


def _of(*classes: type[Op]) -> Callable[[Callable[[Any, Get], Info]], Callable[[Any, Get], Info]]:
    def register(rule: Callable[[Any, Get], Info]) -> Callable[[Any, Get], Info]:
        _TRANSFERS.update(dict.fromkeys(classes, rule))
        return rule

    return register


def _axes(value: Value) -> tuple[int, ...]:
    return shape_of(value.type) or (1,)


def _folded(op: Op, sides: list[Info]) -> Info | None:
    """The facts of a result that constants determine; None if they do not."""
    values = [side.constant for side in sides]
    fold = getattr(op, "fold", None)
    if fold is None or any(value is None for value in values):
        return None
    result = fold(*values)
    return _constant(op.results[0], int(result)) if isinstance(result, int) else None


def _constant(value: Value, number: int) -> Info:
    shape = _axes(value)
    return Info((1,) * len(shape), (power_of_two_divisor(number),) * len(shape), shape, number)


@_of(Constant)
def _constants(op: Constant, get: Get) -> Info:
    return _constant(op.result, int(op.value)) if isinstance(op.value, int) else unknown(op.result)


@_of(MakeRange)
def _make_range(op: MakeRange, get: Get) -> Info:
    return Info((op.end - op.start,), (power_of_two_divisor(op.start),), (1,))


@_of(Splat)
def _splat(op: Splat, get: Get) -> Info:
    source, shape = get(op.src), _axes(op.result)
    return Info((1,) * len(shape), source.divisibility[:1] * len(shape), shape, source.constant)


@_of(ConvertLayout, ExtSI, ExtUI, TruncI, Bitcast, IntToPtr, PtrToInt)
def _same(op: Any, get: Get) -> Info:
    return get(op.src)


@_of(Hint)
def _hint(op: Hint, get: Get) -> Info:
    source = get(op.src)

    def strongest(own: tuple[int, ...], promised: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(a, power_of_two_divisor(b)) for a, b in zip(own, promised)) if promised else own

    return Info(
        strongest(source.contiguity, op.contiguity),
        strongest(source.divisibility, op.divisibility),
        strongest(source.constancy, op.constancy),
        source.constant,
    )


@_of(ExpandDims)
def _expand_dims(op: ExpandDims, get: Get) -> Info:
    source = get(op.src)
    # Along the new axis each element is a group of its own, so all elements have to be divisible.
    divisor = power_of_two_divisor(source.constant) if source.constant is not None else HIGHEST
    for contiguity, divisibility in zip(source.contiguity, source.divisibility):
        divisor = gcd(divisor, 1 if contiguity > 1 else divisibility)

    def inserted(entries: tuple[int, ...], entry: int) -> tuple[int, ...]:
        return (*entries[: op.axis], entry, *entries[op.axis :])

    return Info(
        inserted(source.contiguity, 1), inserted(source.divisibility, divisor), inserted(source.constancy, 1), source.constant
    )


@_of(Broadcast)
def _broadcast(op: Broadcast, get: Get) -> Info:
    source, before, after = get(op.src), _axes(op.src), _axes(op.result)
    spread = [old == 1 and new > 1 for old, new in zip(before, after)]
    return Info(
        tuple(1 if wide else entry for wide, entry in zip(spread, source.contiguity)),
        source.divisibility,
        tuple(size if wide else entry for wide, size, entry in zip(spread, after, source.constancy)),
        source.constant,
    )


@_of(Trans)
def _trans(op: Trans, get: Get) -> Info:
    source = get(op.src)
    return Info(
        tuple(source.contiguity[axis] for axis in op.order),
        tuple(source.divisibility[axis] for axis in op.order),
        tuple(source.constancy[axis] for axis in op.order),
        source.constant,
    )


@_of(Reshape)
def _reshape(op: Reshape, get: Get) -> Info:
    """Of the last axis, as long as rows of the result lie within rows of the source."""
    source, before, after = get(op.src), _axes(op.src), _axes(op.result)
    if source.constant is not None:
        return _constant(op.result, source.constant)
    if op.allow_reorder or after[-1] > before[-1]:
        return unknown(op.result)
    ones = (1,) * (len(after) - 1)
    last = source.contiguity[-1], source.divisibility[-1], source.constancy[-1]
    contiguity, constancy = min(last[0], after[-1]), min(last[2], after[-1])
    divisibility = last[1] if contiguity == last[0] else gcd(last[1], contiguity)
    return Info((*ones, contiguity), (*ones, divisibility), (*ones, constancy))


@_of(AddI, SubI, AddPtr)
def _sum(op: Any, get: Get) -> Info:
    a, b = get(op.operands[0]), get(op.operands[1])
    folded = _folded(op, [a, b])
    if folded is not None:
        return folded
    scale = 1
    if isinstance(op, AddPtr):
        pointee = element_of(op.ptr.type)
        assert isinstance(pointee, PointerType)
        scale = 1 if isinstance(pointee.pointee, TensorType) else max(8, bit_width(pointee.pointee)) // 8
    contiguity = []
    for axis in range(a.rank):
        counts = gcd(a.contiguity[axis], b.constancy[axis])
        if not isinstance(op, SubI):
            counts = max(counts, gcd(a.constancy[axis], b.contiguity[axis]))
        contiguity.append(counts)
    return Info(
        tuple(contiguity),
        tuple(gcd(x, min(y * scale, HIGHEST)) for x, y in zip(a.divisibility, b.divisibility)),
        tuple(map(gcd, a.constancy, b.constancy)),
    )


def _element_divisor(info: Info, axis: int) -> int:
    """What divides every element, not only the first of a group."""
    return info.divisibility[axis] if info.contiguity[axis] == 1 else 1


def _product(op: Any, a: Info, b: Info) -> Info:
    if 1 in (a.constant, b.constant):
        return b if a.constant == 1 else a
    divisors = [min(_element_divisor(a, axis) * _element_divisor(b, axis), HIGHEST) for axis in range(a.rank)]
    return Info((1,) * a.rank, tuple(divisors), tuple(map(gcd, a.constancy, b.constancy)))


@_of(MulI)
def _multiply(op: MulI, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    return _folded(op, [a, b]) or _product(op, a, b)


@_of(ShLI)
def _shift_left(op: ShLI, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    if b.constant is None or not 0 <= b.constant < 63:
        return Info((1,) * a.rank, (1,) * a.rank, tuple(map(gcd, a.constancy, b.constancy)))
    return _product(op, a, _constant(op.rhs, 1 << b.constant))


def _quotient(a: Info, b: Info) -> Info:
    if b.constant == 1:
        return a
    constancy = []
    for axis in range(a.rank):
        equal = gcd(a.constancy[axis], b.constancy[axis])
        # Whole groups of the dividend fall between two multiples of the divisor, if that is the same for the group.
        group = gcd(a.contiguity[axis], gcd(a.divisibility[axis], b.divisibility[axis]))
        constancy.append(max(equal, gcd(group, b.constancy[axis])))
    divisor = b.constant if b.constant is not None and b.constant > 0 and b.constant & (b.constant - 1) == 0 else None
    divisibility = (
        max(1, _element_divisor(a, axis) // divisor) if divisor is not None else 1 for axis in range(a.rank)
    )
    return Info((1,) * a.rank, tuple(divisibility), tuple(constancy))


@_of(DivSI, DivUI)
def _divide(op: Any, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    return _folded(op, [a, b]) or _quotient(a, b)


@_of(ShRSI, ShRUI)
def _shift_right(op: Any, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    if b.constant is None or not 0 <= b.constant < 31:
        return Info((1,) * a.rank, (1,) * a.rank, tuple(map(gcd, a.constancy, b.constancy)))
    return _quotient(a, _constant(op.rhs, 1 << b.constant))


@_of(RemSI, RemUI)
def _remainder(op: Any, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    folded = _folded(op, [a, b])
    if folded is not None:
        return folded
    contiguity = (
        gcd(gcd(gcd(a.contiguity[axis], a.divisibility[axis]), b.divisibility[axis]), b.constancy[axis])
        for axis in range(a.rank)
    )
    return Info(
        tuple(contiguity), tuple(map(gcd, a.divisibility, b.divisibility)), tuple(map(gcd, a.constancy, b.constancy))
    )


@_of(AndI, OrI)
def _bitwise(op: Any, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    return Info((1,) * a.rank, (1,) * a.rank, tuple(map(gcd, a.constancy, b.constancy)))


@_of(MaxSI, MinSI, MaxUI, MinUI)
def _extremum(op: Any, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    folded = _folded(op, [a, b])
    if folded is not None:
        return folded
    divisors = [gcd(_element_divisor(a, axis), _element_divisor(b, axis)) for axis in range(a.rank)]
    return Info((1,) * a.rank, tuple(divisors), tuple(map(gcd, a.constancy, b.constancy)))


_BELOW = ("slt", "ult", "sge", "uge")
"""Comparisons of counting elements with a bound that change between a multiple less one and the multiple."""
_ABOVE = ("sgt", "ugt", "sle", "ule")


@_of(CmpI)
def _compare(op: CmpI, get: Get) -> Info:
    a, b = get(op.lhs), get(op.rhs)
    constancy = []
    for axis in range(a.rank):
        equal = gcd(a.constancy[axis], b.constancy[axis])
        if op.predicate in _BELOW:
            equal = max(equal, _aligned(a, b, axis))
        elif op.predicate in _ABOVE:
            equal = max(equal, _aligned(b, a, axis))
        constancy.append(equal)
    return Info((1,) * a.rank, (1,) * a.rank, tuple(constancy))


def _aligned(counting: Info, bound: Info, axis: int) -> int:
    group = gcd(counting.contiguity[axis], bound.constancy[axis])
    return gcd(group, gcd(counting.divisibility[axis], _element_divisor(bound, axis)))


@_of(Select)
def _select(op: Select, get: Get) -> Info:
    condition, a, b = get(op.condition), get(op.true_value), get(op.false_value)
    both = a.meet(b)
    if op.condition.op is not None and condition.constant is not None:
        return a if condition.constant else b
    groups = condition.constancy
    return Info(
        tuple(map(gcd, both.contiguity, groups)),
        tuple(gcd(d, c) if gcd(c, g) < c else d for d, c, g in zip(both.divisibility, both.contiguity, groups)),
        tuple(map(gcd, both.constancy, groups)),
        both.constant,
    )


@_of(Load)
def _load(op: Load, get: Get) -> Info:
    """Equal pointers load equal values; nothing else is known of memory."""
    pointers = get(op.ptr)
    constancy = pointers.constancy
    if op.mask is not None:
        constancy = tuple(map(gcd, constancy, get(op.mask).constancy))
    if op.other is not None:
        constancy = tuple(map(gcd, constancy, get(op.other).constancy))
    return Info((1,) * pointers.rank, (1,) * pointers.rank, constancy)
