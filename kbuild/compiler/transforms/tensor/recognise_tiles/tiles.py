"""Finds the block and the tensor that a load reads, from the polynomials of its addresses and its mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from kbuild.compiler.analysis.bounds import bounds_of, is_stored_only_where
from kbuild.compiler.analysis.polynomials import (
    ONE,
    Along,
    Monomial,
    Polynomial,
    Polynomials,
    Symbol,
    Trip,
    Wrapped,
    divided,
    multiplied,
)
from kbuild.compiler.analysis.signs import Signs
from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ir.types import IntType, PointerType, TensorType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant, DivSI, MinSI
from kbuild.compiler.ops.tensor import Load

MAX_RANK = 5
"""Dimensions of a tensor map."""
UNBOUNDED = (1 << 31) - 1
"""The size along an axis that no mask bounds: beyond any index."""

Number = Value | int
"""An argument of the kernel, or a constant."""


class MatchFailure(Exception):
    """Why a load is not a block of a tensor."""


@dataclass
class TileAxis:
    """One axis of the tensor."""

    stride: Number
    """In elements."""
    size: Number
    start: Polynomial
    """The block's first index along it."""
    along: int | None
    """The axis of the load's result that goes along it; None where the block is one thick."""
    may_be_empty: bool = False
    """Whether what the load gives matters where the size is zero."""


@dataclass
class Tile:
    """A block of a tensor: its base, and its axes, those that are one thick first, the contiguous one last."""

    base: Value
    axes: list[TileAxis]


class Numbering:
    """The order in which a function defines its values, by which sums and products of them come out the same
    each time."""

    def __init__(self, func: Func) -> None:
        self.numbers = {argument: number for number, argument in enumerate(func.arguments)}
        for op in func.body.walk():
            for value in (*op.results, *(argument for region in op.regions for argument in region.arguments)):
                self.numbers[value] = len(self.numbers)

    def of_symbol(self, symbol: Symbol) -> int:
        if isinstance(symbol, Trip):
            symbol = symbol.loop.induction
        return self.numbers[symbol] if isinstance(symbol, Value) else -1

    def of_monomial(self, monomial: Monomial) -> list[tuple[int, int]]:
        return sorted((self.of_symbol(symbol), power) for symbol, power in monomial)


def find_tile(load: Load, func: Func, forms: Polynomials, numbering: Numbering) -> Tile:
    """The block that a load reads.  Raises `MatchFailure`, with the reason."""
    type_ = load.result.type
    assert isinstance(type_, TensorType)
    address = forms.of(load.ptr)
    if address is None:
        raise MatchFailure("its addresses are not a sum of indices times strides")
    base, offset = _base(address, func)
    finder = _Finder(load, type_, func, forms)
    finder.place(offset, numbering)
    finder.bound()
    axes = finder.thin + finder.own
    if len(axes) > MAX_RANK:
        raise MatchFailure(f"its tensor has more than {MAX_RANK} axes")
    finder.check_starts(axes)
    return Tile(base, axes)


def _base(address: Polynomial, func: Func) -> tuple[Value, Polynomial]:
    """The argument that an address starts from, and the offset in elements."""
    bases = [
        symbol
        for symbol in address.symbols
        if isinstance(symbol, Value) and isinstance(symbol.type, PointerType)
    ]
    if len(bases) != 1 or not _is_argument(bases[0], func):
        raise MatchFailure("its addresses start from no argument")
    base = Polynomial.symbol(bases[0])
    offset = address - base
    if bases[0] in offset.symbols:
        raise MatchFailure("its addresses start from no argument")
    return bases[0], offset


def _is_argument(value: Value, func: Func) -> bool:
    return value.op is None and value.block is func.body


class _Finder:
    def __init__(self, load: Load, type_: TensorType, func: Func, forms: Polynomials) -> None:
        self.load, self.type, self.func, self.forms = load, type_, func, forms
        self.wrapped: dict[int, Wrapped] = {}
        self.checked: set[int] = set()
        """The block's axes along which the mask stops negative indices."""
        self.own: list[TileAxis] = []
        """The block's axes."""
        self.thin: list[TileAxis] = []
        """Axes along which the block is one thick."""

    # Axes: what each index of the block, and each part of the offset that is the same for all, is multiplied
    # by

    def place(self, offset: Polynomial, numbering: Numbering) -> None:
        """Find the axes of the tensor, not bounded yet."""
        own = [self._own_axis(offset, axis) for axis in range(self.type.rank)]
        self.own = sorted(own, key=lambda axis: axis.stride == 1)
        if self.own[-1].stride != 1 or (len(own) > 1 and self.own[-2].stride == 1):
            raise MatchFailure("no axis, or more than one, of the block is contiguous")
        for monomial, factor in sorted(offset.terms, key=lambda term: numbering.of_monomial(term[0])):
            if not any(isinstance(symbol, Along | Wrapped) for symbol, _ in monomial):
                self._place(monomial, factor)

    def _own_axis(self, offset: Polynomial, axis: int) -> TileAxis:
        found = [
            (m, f)
            for m, f in offset.terms
            if any(isinstance(s, Along | Wrapped) and _varies(s, axis) for s, _ in m)
        ]
        if len(found) != 1:
            raise MatchFailure(f"its addresses along axis {axis} are not an index times a stride")
        monomial, factor = found[0]
        symbol = next(s for s, _ in monomial if isinstance(s, Along | Wrapped) and _varies(s, axis))
        rest = divided(monomial, frozenset({(symbol, 1)}))
        stride = self._stride(rest, factor) if rest is not None else None
        if stride is None:
            raise MatchFailure(f"the stride along axis {axis} is neither an argument nor a constant")
        start = Polynomial.constant(0)
        if isinstance(symbol, Wrapped):
            if symbol.inner.axes != {axis} or (Polynomial.symbol(Along(axis)) - symbol.inner).axes:
                raise MatchFailure(f"its indices along axis {axis} are not consecutive numbers")
            self.wrapped[axis] = symbol
            start = symbol.inner - Polynomial.symbol(Along(axis))
        return TileAxis(stride, UNBOUNDED, start, axis)

    def _stride(self, monomial: Monomial, factor: int) -> Number | None:
        if monomial == ONE:
            return factor if factor > 0 else None
        if factor != 1 or len(monomial) != 1:
            return None
        ((symbol, power),) = monomial
        return (
            symbol if power == 1 and isinstance(symbol, Value) and _is_argument(symbol, self.func) else None
        )

    def _place(self, monomial: Monomial, factor: int) -> None:
        """Add a part of the offset to the index along the axis with whose stride it is multiplied: one of the
        block's, or a new one."""
        for axis in (*self.own, *self.thin):
            rest = (
                divided(monomial, frozenset({(axis.stride, 1)})) if isinstance(axis.stride, Value) else None
            )
            if rest is not None:
                axis.start += Polynomial.of([(rest, factor)])
                return
        strides = [
            symbol for symbol, _ in monomial if isinstance(symbol, Value) and _is_argument(symbol, self.func)
        ]
        if not strides:
            self._place_constant(monomial, factor)
            return
        if len(strides) > 1:
            raise MatchFailure("a part of its addresses is a product of several arguments")
        rest = divided(monomial, frozenset({(strides[0], 1)}))
        assert rest is not None
        if rest == ONE:
            raise MatchFailure("an argument is added to its addresses")
        self.thin.append(TileAxis(strides[0], UNBOUNDED, Polynomial.of([(rest, factor)]), None))

    def _place_constant(self, monomial: Monomial, factor: int) -> None:
        """The same where strides are constants: uses the largest that divides."""
        constants = [axis for axis in self.own if isinstance(axis.stride, int)]
        for axis in sorted(constants, key=lambda axis: -axis.stride if isinstance(axis.stride, int) else 0):
            if isinstance(axis.stride, int) and factor % axis.stride == 0:
                axis.start += Polynomial.of([(monomial, factor // axis.stride)])
                return
        raise AssertionError("the contiguous axis takes any")

    # Sizes: what the mask allows, or the modulus of indices that wrap around

    def bound(self) -> None:
        """Set the sizes, and check that the zeros beyond them are what the load gives, or are not used."""
        bounds = bounds_of(self.load.mask, self.forms)
        if not bounds.complete:
            raise MatchFailure("its mask is not a comparison of indices with sizes")
        if self.load.mask is not None and not _is_zero(self.load.other):
            raise MatchFailure("where the mask is false it gives something else than zero")
        for form in sorted(bounds.negative, key=lambda form: (sorted(form.axes), _falls(form))):
            axis = next((axis for axis in self.own if {axis.along} == form.axes), None)
            if axis is None or axis.along is None or axis.along in self.wrapped:
                raise MatchFailure("its mask is not a comparison of indices with sizes")
            if _falls(form) and form == -self._index(axis) - Polynomial.constant(1):
                self.checked.add(axis.along)
                continue
            size = self._size(axis, self._index(axis) - form)
            if axis.size not in (UNBOUNDED, size):
                raise MatchFailure("its mask compares an index with two sizes")
            axis.size = size
        for axis in self.own:
            self._bound_unmasked(axis)
        for axis in self.own:
            self._check_empty(axis)

    def _size(self, axis: TileAxis, difference: Polynomial) -> Number:
        """The size with which a mask compares an index that lacks a part of the one in the address.  That
        part is the start along an axis of its own, with the same stride: rows of one matrix after those of
        another."""
        if len(difference.terms) == 1:
            return self._number(difference)
        parts = [Polynomial.of([term]) for term in difference.terms]
        for kind in (Value, int):
            sizes = [part for part in parts if isinstance(self._as_number(part), kind)]
            if len(sizes) == 1:
                before = difference - sizes[0]
                axis.start -= before
                step = gcd(*(factor for _, factor in before.terms)) if isinstance(axis.stride, int) else 1
                start = Polynomial.of((monomial, factor // step) for monomial, factor in before.terms)
                stride = axis.stride * step if isinstance(axis.stride, int) else axis.stride
                self.thin.append(TileAxis(stride, UNBOUNDED, start, None))
                return self._number(sizes[0])
        raise MatchFailure("a size is neither an argument nor a constant")

    def _bound_unmasked(self, axis: TileAxis) -> None:
        assert axis.along is not None
        number = axis.start.number
        if axis.along in self.wrapped:
            axis.size = self._number(self.wrapped[axis.along].modulus)
        elif axis.size == UNBOUNDED and number is not None and number >= 0:
            axis.size = number + self.type.shape[axis.along]

    def _check_empty(self, axis: TileAxis) -> None:
        """Check that indices that wrap around, which give zeros instead, are not used.  They may be where a
        size is zero, for which a map has one."""
        assert axis.along is not None
        size = axis.size
        if axis.along not in self.wrapped and (isinstance(size, int) or self._is_limit_of_loop(size)):
            return
        negative = self._index(axis) - (
            Polynomial.constant(size) if isinstance(size, int) else Polynomial.symbol(size)
        )
        if not is_stored_only_where(self.load.result, axis.along, negative, self.forms):
            axis.may_be_empty = True
            if axis.along in self.wrapped:
                raise MatchFailure("indices that wrap around may reach what is stored")

    def _is_limit_of_loop(self, size: Value) -> bool:
        """Whether the load's loop does nothing where a size is zero."""
        loop = self.load.parent_op
        if not isinstance(loop, For) or not Signs(self.forms, [size]).is_non_negative(
            self.forms.of(loop.lower)
        ):
            return False
        last = self._at_zero(loop.upper, size)
        return last is not None and last <= 0

    def _at_zero(self, value: Value, size: Value) -> int | None:
        """The most that an integer can be where a size is zero; None where that is not known."""
        if value is size:
            return 0
        op = value.op
        match op:
            case MinSI():
                known = [most for side in (op.lhs, op.rhs) if (most := self._at_zero(side, size)) is not None]
                return min(known, default=None)
            case DivSI() if isinstance(op.rhs.op, Constant) and op.rhs.op.value > 0:
                most = self._at_zero(op.lhs, size)
                return most // int(op.rhs.op.value) if most is not None and most >= 0 else most
        form, total = self.forms.of(value), 0
        for monomial, factor in form.terms if form is not None else ():
            if any(symbol is size for symbol, _ in monomial):
                continue
            ((symbol, power), *others) = monomial or ((None, 1),)
            known = (
                isinstance(symbol, Value) and symbol is not value and power == 1 and not others and factor > 0
            )
            most = (
                self._at_zero(symbol, size)
                if known and isinstance(symbol, Value)
                else 1
                if symbol is None
                else None
            )
            if most is None:
                return None
            total += factor * most
        return total if form is not None else None

    def _index(self, axis: TileAxis) -> Polynomial:
        assert axis.along is not None
        return axis.start + Polynomial.symbol(Along(axis.along))

    def _number(self, form: Polynomial) -> Number:
        """A size that is an argument or a constant."""
        number = self._as_number(form)
        if number is None:
            raise MatchFailure("a size is neither an argument nor a constant")
        return number

    def _as_number(self, form: Polynomial) -> Number | None:
        if form.number is not None:
            return form.number if form.number > 0 else None
        if len(form.terms) == 1:
            ((monomial, factor),) = form.terms
            stride = self._stride(monomial, factor)
            if isinstance(stride, Value) and isinstance(stride.type, IntType):
                return stride
        return None

    # Starts

    def check_starts(self, axes: Sequence[TileAxis]) -> None:
        """No index may be negative: TMA gives zeros there, the load what is in memory."""
        signs = Signs(self.forms, {axis.size for axis in axes if isinstance(axis.size, Value)})
        for axis in axes:
            if axis.along not in self.checked and not signs.is_non_negative(axis.start):
                raise MatchFailure("an index may be negative")
            if any(_bits(symbol) > 32 for symbol in axis.start.symbols):
                raise MatchFailure("an index has 64 bits")


def _falls(form: Polynomial) -> bool:
    """Whether a bound is one from below: it falls along its axis."""
    return any(
        factor < 0 and any(isinstance(symbol, Along) for symbol, _ in monomial)
        for monomial, factor in form.terms
    )


def _bits(symbol: object) -> int:
    value = symbol.loop.induction if isinstance(symbol, Trip) else symbol
    return value.type.bits if isinstance(value, Value) and isinstance(value.type, IntType) else 32


def _varies(symbol: Along | Wrapped, axis: int) -> bool:
    return axis in Polynomial.symbol(symbol).axes


def _is_zero(value: Value | None) -> bool:
    return value is None or (isinstance(value.op, Constant) and value.op.value == 0)


def trips_replaced(form: Polynomial, forms: Polynomials) -> Polynomial:
    """A polynomial with induction variables for counts of iterations.  Raises `MatchFailure` where that does not
    go."""
    # The start of an inner loop may count the iterations of outer ones.
    while (trip := next((symbol for symbol in form.symbols if isinstance(symbol, Trip)), None)) is not None:
        form = _replaced(form, trip, forms)
    return form


def _replaced(form: Polynomial, trip: Trip, forms: Polynomials) -> Polynomial:
    lower, step = forms.of(trip.loop.lower), forms.of(trip.loop.step)
    if lower is None or step is None or len(step.terms) != 1:
        raise MatchFailure("its addresses do not follow the loop's variable")
    ((unit, factor),) = step.terms
    passed = Polynomial.symbol(trip.loop.induction) - lower
    total = Polynomial.constant(0)
    for monomial, value in form.terms:
        rest: Monomial | None = monomial
        if any(symbol == trip for symbol, _ in monomial):
            rest = divided(monomial, multiplied(unit, frozenset({(trip, 1)})))
            if rest is None or value % factor or any(symbol == trip for symbol, _ in rest):
                raise MatchFailure("its addresses do not follow the loop's variable")
            total += Polynomial.of([(rest, value // factor)]) * passed
        else:
            total += Polynomial.of([(monomial, value)])
    return total
