"""What block of what tensor a load reads, from the polynomials of its addresses and its mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from kbuild.compiler.ops.elementwise import Constant, MinSI
from kbuild.compiler.ops.tensor import Load

MAX_RANK = 5
"""Dimensions of a tensor map."""
UNBOUNDED = (1 << 31) - 1
"""The size along an axis that no mask bounds: beyond any index."""

Number = Value | int
"""An argument of the kernel, or a constant."""


class Refusal(Exception):
    """Why a load is no block of a tensor."""


@dataclass
class Axis:
    """One axis of the tensor."""

    stride: Number
    """In elements."""
    size: Number
    start: Polynomial
    """The block's first index along it."""
    along: int | None
    """The axis of the load's result that goes along it; None where the block is one thick."""


@dataclass
class Tile:
    """A block of a tensor: its base, and its axes, those that are one thick first, the contiguous one last."""

    base: Value
    axes: list[Axis]


class Numbering:
    """The order in which a function defines its values: what makes sums and products of them come out the same each time."""

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
    """The block that a load reads.  Raises `Refusal`, with the reason."""
    type_ = load.result.type
    assert isinstance(type_, TensorType)
    address = forms.of(load.ptr)
    if address is None:
        raise Refusal("its addresses are no sum of indices times strides")
    base, offset = _base(address, func)
    finder = _Finder(load, type_, func, forms)
    axes = finder.axes(offset, numbering)
    finder.bound(axes)
    finder.check_starts(axes)
    return Tile(base, axes)


def _base(address: Polynomial, func: Func) -> tuple[Value, Polynomial]:
    """The argument that an address starts from, and the offset in elements."""
    bases = [symbol for symbol in address.symbols if isinstance(symbol, Value) and isinstance(symbol.type, PointerType)]
    if len(bases) != 1 or not _is_argument(bases[0], func):
        raise Refusal("its addresses start from no argument")
    base = Polynomial.symbol(bases[0])
    offset = address - base
    if bases[0] in offset.symbols:
        raise Refusal("its addresses start from no argument")
    return bases[0], offset


def _is_argument(value: Value, func: Func) -> bool:
    return value.op is None and value.block is func.body


class _Finder:
    def __init__(self, load: Load, type_: TensorType, func: Func, forms: Polynomials) -> None:
        self.load, self.type, self.func, self.forms = load, type_, func, forms
        self.wrapped: dict[int, Wrapped] = {}

    # Axes: what each index of the block, and each part of the offset that is the same for all, is multiplied by

    def axes(self, offset: Polynomial, numbering: Numbering) -> list[Axis]:
        """The axes of the tensor, not bounded yet."""
        own = [self._own_axis(offset, axis) for axis in range(self.type.rank)]
        own.sort(key=lambda axis: axis.stride == 1)
        if own[-1].stride != 1 or (len(own) > 1 and own[-2].stride == 1):
            raise Refusal("no axis, or more than one, of the block is contiguous")
        thin: list[Axis] = []
        for monomial, factor in sorted(offset.terms, key=lambda term: numbering.of_monomial(term[0])):
            if not any(isinstance(symbol, Along | Wrapped) for symbol, _ in monomial):
                self._place(monomial, factor, own, thin)
        if len(own) + len(thin) > MAX_RANK:
            raise Refusal(f"its tensor has more than {MAX_RANK} axes")
        return thin + own

    def _own_axis(self, offset: Polynomial, axis: int) -> Axis:
        found = [(m, f) for m, f in offset.terms if any(isinstance(s, Along | Wrapped) and _varies(s, axis) for s, _ in m)]
        if len(found) != 1:
            raise Refusal(f"its addresses along axis {axis} are no index times a stride")
        monomial, factor = found[0]
        symbol = next(s for s, _ in monomial if isinstance(s, Along | Wrapped) and _varies(s, axis))
        rest = divided(monomial, frozenset({(symbol, 1)}))
        stride = self._stride(rest, factor) if rest is not None else None
        if stride is None:
            raise Refusal(f"the stride along axis {axis} is no argument, nor a constant")
        start = Polynomial.constant(0)
        if isinstance(symbol, Wrapped):
            if symbol.inner.axes != {axis} or (Polynomial.symbol(Along(axis)) - symbol.inner).axes:
                raise Refusal(f"its indices along axis {axis} are no consecutive numbers")
            self.wrapped[axis] = symbol
            start = symbol.inner - Polynomial.symbol(Along(axis))
        return Axis(stride, UNBOUNDED, start, axis)

    def _stride(self, monomial: Monomial, factor: int) -> Number | None:
        if monomial == ONE:
            return factor if factor > 0 else None
        if factor != 1 or len(monomial) != 1:
            return None
        ((symbol, power),) = monomial
        return symbol if power == 1 and isinstance(symbol, Value) and _is_argument(symbol, self.func) else None

    def _place(self, monomial: Monomial, factor: int, own: Sequence[Axis], thin: list[Axis]) -> None:
        """Add a part of the offset to the index along the axis with whose stride it is multiplied: one of the block's, or a
        new one."""
        for axis in (*own, *thin):
            rest = divided(monomial, frozenset({(axis.stride, 1)})) if isinstance(axis.stride, Value) else None
            if rest is not None:
                axis.start += Polynomial.of([(rest, factor)])
                return
        strides = [symbol for symbol, _ in monomial if isinstance(symbol, Value) and _is_argument(symbol, self.func)]
        if not strides:
            self._place_constant(monomial, factor, own)
            return
        if len(strides) > 1:
            raise Refusal("a part of its addresses is a product of several arguments")
        rest = divided(monomial, frozenset({(strides[0], 1)}))
        assert rest is not None
        if rest == ONE:
            raise Refusal("an argument is added to its addresses")
        thin.insert(0, Axis(strides[0], UNBOUNDED, Polynomial.of([(rest, factor)]), None))

    def _place_constant(self, monomial: Monomial, factor: int, own: Sequence[Axis]) -> None:
        """The same where strides are constants: the largest that divides."""
        constants = [axis for axis in own if isinstance(axis.stride, int)]
        for axis in sorted(constants, key=lambda axis: -axis.stride if isinstance(axis.stride, int) else 0):
            if isinstance(axis.stride, int) and factor % axis.stride == 0:
                axis.start += Polynomial.of([(monomial, factor // axis.stride)])
                return
        raise AssertionError("the contiguous axis takes any")

    # Sizes: what the mask allows, or the modulus of indices that wrap around

    def bound(self, axes: Sequence[Axis]) -> None:
        """Set the sizes, and check that the zeros beyond them are what the load gives, or are not looked at."""
        bounds = bounds_of(self.load.mask, self.forms)
        if not bounds.complete:
            raise Refusal("its mask is no comparison of indices with sizes")
        if self.load.mask is not None and not _is_zero(self.load.other):
            raise Refusal("where the mask is false it gives something else than zero")
        own = [axis for axis in axes if axis.along is not None]
        checked: set[int] = set()
        for form in bounds.negative:
            axis = next((axis for axis in own if {axis.along} == form.axes), None)
            if axis is None or axis.along in self.wrapped:
                raise Refusal("its mask is no comparison of indices with sizes")
            if form == -self._index(axis) - Polynomial.constant(1):
                assert axis.along is not None
                checked.add(axis.along)
                continue
            size = self._number(self._index(axis) - form)
            if axis.size not in (UNBOUNDED, size):
                raise Refusal("its mask compares an index with two sizes")
            axis.size = size
        self.checked = checked
        for axis in own:
            self._bound_unmasked(axis)
        for axis in own:
            self._check_empty(axis)

    def _bound_unmasked(self, axis: Axis) -> None:
        assert axis.along is not None
        number = axis.start.number
        if axis.along in self.wrapped:
            axis.size = self._number(self.wrapped[axis.along].modulus)
        elif axis.size == UNBOUNDED and number is not None and number >= 0:
            axis.size = number + self.type.shape[axis.along]

    def _check_empty(self, axis: Axis) -> None:
        """Indices that wrap around give zeros instead, and a size of zero is taken for one: nobody may look."""
        assert axis.along is not None
        size = axis.size
        if axis.along not in self.wrapped and (isinstance(size, int) or self._is_limit_of_loop(size)):
            return
        negative = self._index(axis) - (Polynomial.constant(size) if isinstance(size, int) else Polynomial.symbol(size))
        if not is_stored_only_where(self.load.result, axis.along, negative, self.forms):
            what = "indices that wrap around" if axis.along in self.wrapped else "zeros where a size may be zero"
            raise Refusal(f"{what} may reach what is stored")

    def _is_limit_of_loop(self, size: Value) -> bool:
        """Whether the load's loop does nothing where a size is zero."""
        loop = self.load.parent_op
        if not isinstance(loop, For) or not Signs(self.forms, [size]).is_natural(self.forms.of(loop.lower)):
            return False
        work = [loop.upper]
        while work:
            value = work.pop()
            if value is size:
                return True
            if isinstance(value.op, MinSI):
                work += [value.op.lhs, value.op.rhs]
        return False

    def _index(self, axis: Axis) -> Polynomial:
        assert axis.along is not None
        return axis.start + Polynomial.symbol(Along(axis.along))

    def _number(self, form: Polynomial) -> Number:
        """A size that is an argument or a constant."""
        if form.number is not None and form.number > 0:
            return form.number
        if len(form.terms) == 1:
            ((monomial, factor),) = form.terms
            stride = self._stride(monomial, factor)
            if isinstance(stride, Value) and isinstance(stride.type, IntType):
                return stride
        raise Refusal("a size is no argument, nor a constant")

    # Starts

    def check_starts(self, axes: Sequence[Axis]) -> None:
        """No index may be negative: the copy engine gives zeros there, the load what is in memory."""
        signs = Signs(self.forms, {axis.size for axis in axes if isinstance(axis.size, Value)})
        for axis in axes:
            if axis.along not in self.checked and not signs.is_natural(axis.start):
                raise Refusal("an index may be negative")
            if any(_bits(symbol) > 32 for symbol in axis.start.symbols):
                raise Refusal("an index has 64 bits")


def _bits(symbol: object) -> int:
    value = symbol.loop.induction if isinstance(symbol, Trip) else symbol
    return value.type.bits if isinstance(value, Value) and isinstance(value.type, IntType) else 32


def _varies(symbol: Along | Wrapped, axis: int) -> bool:
    return axis in Polynomial.symbol(symbol).axes


def _is_zero(value: Value | None) -> bool:
    return value is None or (isinstance(value.op, Constant) and value.op.value == 0)


def trips_replaced(form: Polynomial, forms: Polynomials) -> Polynomial:
    """A polynomial with induction variables for counts of iterations.  Raises `Refusal` where that does not go."""
    for symbol in form.symbols:
        if isinstance(symbol, Trip):
            form = _replaced(form, symbol, forms)
    return form


def _replaced(form: Polynomial, trip: Trip, forms: Polynomials) -> Polynomial:
    lower, step = forms.of(trip.loop.lower), forms.of(trip.loop.step)
    if lower is None or step is None or len(step.terms) != 1:
        raise Refusal("its addresses do not follow the loop's variable")
    ((unit, factor),) = step.terms
    passed = Polynomial.symbol(trip.loop.induction) - lower
    total = Polynomial.constant(0)
    for monomial, value in form.terms:
        rest: Monomial | None = monomial
        if any(symbol == trip for symbol, _ in monomial):
            rest = divided(monomial, multiplied(unit, frozenset({(trip, 1)})))
            if rest is None or value % factor or any(symbol == trip for symbol, _ in rest):
                raise Refusal("its addresses do not follow the loop's variable")
            total += Polynomial.of([(rest, value // factor)]) * passed
        else:
            total += Polynomial.of([(monomial, value)])
    return total
