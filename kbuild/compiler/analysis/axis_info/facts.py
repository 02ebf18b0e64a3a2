"""Facts about the numbers in a tensor along each axis: runs of consecutive ones, runs of equal ones, and
factors.

Coalescing, vector width, and the width of masked accesses follow from it.  The facts are Triton's: along an
axis, `contiguity` n says that aligned groups of n neighbours hold consecutive numbers (addresses, for
pointers), `constancy` n that they hold equal ones, and `divisibility` d that d divides the first number of
every group of consecutive ones: for pointers in bytes.  All are powers of two.  Of masks, `prefix` n says
that in aligned groups of n neighbours the true ones come first, as where an index is compared with the size
of a tensor.

    tt.make_range 0 … 128                    contiguity 128, divisibility 2^31, constancy 1
    tt.splat of a pointer hinted with 16     contiguity 1, divisibility 16, constancy 128
    their tt.addptr, elements of two bytes   contiguity 128, divisibility 16, constancy 1: vectors of 8 elements

Sums and products of 32 and 64 bits are assumed not to overflow, as offsets do not; those of narrower types wrap
around.  Quotients and remainders round toward zero, so that runs of numbers give runs only where none is
negative: `analysis.signs` has to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NamedTuple

from kbuild.compiler.analysis.polynomials import Polynomials
from kbuild.compiler.analysis.signs import Signs
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import (
    FloatType,
    IntType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    element_of,
    is_pointer,
    shape_of,
)
from kbuild.compiler.ops.control import Condition, For, If, While
from kbuild.compiler.ops.elementwise import Constant

MAX_DIVISOR = 1 << 31
"""The divisibility of zero."""


class Info(NamedTuple):
    """Facts along each axis; a scalar has one axis of size one."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    """The number that all elements are, if known."""
    prefix: tuple[int, ...] = ()
    """The prefixes of masks; empty where no more is known than `constancy`."""

    def divisibility_at(self, axis: int, group: int, unit: int = 1) -> int:
        """A factor of the first number of each group of `group` neighbours, where consecutive numbers differ
        by `unit`."""
        divisor = self.divisibility[axis]
        return divisor if group >= self.contiguity[axis] else gcd(divisor, group * unit)

    @property
    def prefixes(self) -> tuple[int, ...]:
        """How many neighbours along each axis hold no false before a true."""
        return tuple(map(max, self.prefix, self.constancy)) if self.prefix else self.constancy


Transfer = Callable[[Any, "AxisInfo"], Info]
TRANSFERS: dict[type[Op], Transfer] = {}


def transfer(*classes: type[Op]) -> Callable[[Transfer], Transfer]:
    """Register how the facts of the only result of some operations follow from those of the operands."""

    def register(function: Transfer) -> Transfer:
        for cls in classes:
            TRANSFERS[cls] = function
        return function

    return register


def power_of_two_in(number: int) -> int:
    """The largest power of two that divides a number."""
    return number & -number if number else MAX_DIVISOR


def axes_of(type_: Type) -> tuple[int, ...]:
    """The sizes along the axes of the facts: a scalar's is one."""
    return shape_of(type_) or (1,)


def unit_of(type_: Type) -> int:
    """The difference of consecutive values: for pointers the bytes of an element."""
    element = element_of(type_)
    if not isinstance(element, PointerType) or isinstance(element.pointee, TensorType):
        return 1
    return max(bit_width(element.pointee), 8) // 8


def unknown(type_: Type) -> Info:
    """Only that pointers point at whole elements."""
    ones = (1,) * len(axes_of(type_))
    unit = unit_of(type_) if is_pointer(type_) else 1
    return Info(ones, tuple(unit for _ in ones), ones)


def uniform(shape: Sequence[int], divisor: int, constant: int | None = None) -> Info:
    """All elements are one number."""
    return Info((1,) * len(shape), (min(divisor, MAX_DIVISOR),) * len(shape), tuple(shape), constant)


def aligned(info: Info, most: int = MAX_DIVISOR) -> Info:
    """The same with runs of integers that begin at multiples of their own length, and so pass by no greater
    power of two."""
    contiguity = tuple(map(gcd, info.contiguity, info.divisibility, (most,) * len(info.contiguity)))
    divisibility = tuple(info.divisibility_at(axis, group, 1) for axis, group in enumerate(contiguity))
    return info._replace(contiguity=contiguity, divisibility=divisibility)


def wrapped(info: Info, bits: int) -> Info:
    """Facts of a narrow integer type, whose numbers go on at the other end of its range."""
    return aligned(info, 1 << (bits - 1))


def joined(first: Info, second: Info, unit: int) -> Info:
    """The facts that hold for both."""
    contiguity = tuple(gcd(a, b) for a, b in zip(first.contiguity, second.contiguity))
    divisibility = tuple(
        gcd(first.divisibility_at(axis, group, unit), second.divisibility_at(axis, group, unit))
        for axis, group in enumerate(contiguity)
    )
    constancy = tuple(gcd(a, b) for a, b in zip(first.constancy, second.constancy))
    prefix = tuple(gcd(a, b) for a, b in zip(first.prefixes, second.prefixes))
    return Info(
        contiguity,
        divisibility,
        constancy,
        first.constant if first.constant == second.constant else None,
        prefix,
    )


class AxisInfo:
    """The facts of all values of a function; computed on the first question, and for values made later when
    asked."""

    def __init__(self, function: Func) -> None:
        self.function = function
        self.signs = Signs(Polynomials())
        self._infos: dict[Value, Info] = {}
        self._done = False

    def get(self, value: Value) -> Info:
        """The facts of a value."""
        if not self._done:
            self._done = True
            self._arguments()
            self._block(self.function.body)
        info = self._infos.get(value)
        if info is None:
            op = value.op
            info = self._transferred(op) if op is not None else unknown(value.type)
            self._infos[value] = info
        return info

    def max_contiguous(self, pointer: Value, axis: int = -1) -> int:
        """How many elements along an axis may be accessed as one aligned vector."""
        info = self.get(pointer)
        return min(info.contiguity[axis], max(info.divisibility[axis] // unit_of(pointer.type), 1))

    def mask_alignment(self, mask: Value, axis: int = -1) -> int:
        """How many neighbours along an axis a mask lets through or stops together."""
        return self.get(mask).constancy[axis]

    def order(self, pointer: Value) -> tuple[int, ...]:
        """The axes, the one with the most consecutive addresses first; of equal ones the last."""
        contiguity = self.get(pointer).contiguity
        return tuple(sorted(range(len(contiguity)), key=lambda axis: (-contiguity[axis], -axis)))

    def _arguments(self) -> None:
        for index, argument in enumerate(self.function.arguments):
            hints = self.function.argument_hints[index] if index < len(self.function.argument_hints) else {}
            info = unknown(argument.type)
            if "divisibility" in hints:
                factor = power_of_two_in(int(hints["divisibility"]))
                info = Info(
                    info.contiguity, tuple(max(factor, known) for known in info.divisibility), info.constancy
                )
            self._infos[argument] = info

    def _block(self, block: Block) -> None:
        for op in block:
            if op.region_fields:
                self._regions(op)
            else:
                for result in op.results:
                    if not isinstance(element_of(result.type), FloatType):
                        self._infos[result] = self._transferred(op)

    def _transferred(self, op: Op) -> Info:
        """The facts of an operation's result from those of its operands."""
        rule = TRANSFERS.get(type(op))
        if rule is None or len(op.results) != 1:
            return unknown(op.results[0].type)
        element = element_of(op.results[0].type)
        info = rule(op, self)
        return wrapped(info, element.bits) if isinstance(element, IntType) and 1 < element.bits < 32 else info

    def _regions(self, op: Op) -> None:
        match op:
            case For():
                lower, step = self.get(op.lower).divisibility[0], self.get(op.step).divisibility[0]
                self._infos[op.induction] = Info((1,), (gcd(lower, step),), (1,))
                self._repeat(op.carried, op.init, op.yielded, [op.body])
                self._assign(op.results, op.carried)
            case While():
                test = op.before.terminator
                assert isinstance(test, Condition)
                yielded = op.after.terminator.operands
                for argument in op.after.arguments:
                    self._infos[argument] = unknown(argument.type)
                self._repeat(
                    op.before.arguments,
                    op.init,
                    yielded,
                    [op.before, op.after],
                    (op.after.arguments, test.values),
                )
                self._assign(op.results, test.values)
            case If():
                for block in op.regions:
                    self._block(block)
                branches = zip(op.results, op.then_body.terminator.operands, op.else_body.terminator.operands)
                for result, one, other in branches:
                    self._infos[result] = joined(self.get(one), self.get(other), unit_of(result.type))
            case _:
                for result in op.results:
                    self._infos[result] = unknown(result.type)

    def _assign(self, values: Sequence[Value], sources: Sequence[Value]) -> None:
        for value, source in zip(values, sources):
            self._infos[value] = self.get(source)

    def _repeat(
        self,
        arguments: Sequence[Value],
        initial: Sequence[Value],
        yielded: Sequence[Value],
        blocks: Sequence[Block],
        passed: tuple[Sequence[Value], Sequence[Value]] = ((), ()),
    ) -> None:
        """Start with the facts before a loop and drop those that its iterations do not preserve.  `passed` are
        arguments of the second block and the values that they get."""
        infos = [self.get(value) for value in initial]
        while True:
            for argument, info in zip(arguments, infos):
                self._infos[argument] = info
            for number, block in enumerate(blocks):
                if number:
                    self._assign(*passed)
                self._block(block)
            kept = [joined(old, self.get(v), unit_of(v.type)) for old, v in zip(infos, yielded)]
            if kept == infos:
                return
            infos = kept


def constant_info(op: Constant) -> Info:
    """A constant's facts."""
    if isinstance(op.value, float):
        return uniform(axes_of(op.type), 1)
    return uniform(axes_of(op.type), power_of_two_in(int(op.value)), int(op.value))


TRANSFERS[Constant] = lambda op, _: constant_info(op)
