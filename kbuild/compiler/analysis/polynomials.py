"""Integers, pointers and tensors of them as polynomials in symbols.

    %rows  = splat(%tile * 128) + make_range 0 … 128            128·tile + i0
    %p     = splat(%a) + expand_dims(%rows) * splat(%stride) + range        a + 128·stride·tile + stride·i0 + i1
    loop from 0 by 64, %p carried, %p + 64 yielded              a + … + 64·trip

i0, i1, … are the indices of an element along the axes of its tensor, `trip` counts the iterations of a loop.
Pointers count in elements.  Casts to wider types are looked through, and sums and products are assumed not to
overflow: an offset that did would lie outside of any array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.types import IntType, PointerType, TensorType, bit_width, element_of
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import (
    AddI,
    AddPtr,
    Constant,
    ExtSI,
    MulI,
    RemSI,
    ShLI,
    SubI,
    shift_factor,
)
from kbuild.compiler.ops.tensor import AxisAttributes, Broadcast, ExpandDims, MakeRange, Splat, Trans

MAX_TERMS = 32
"""Polynomials with more terms are given up."""


@dataclass(frozen=True)
class Along:
    """The index of an element along an axis of its tensor."""

    axis: int


@dataclass(frozen=True)
class Trip:
    """How many iterations of a loop came before this one."""

    loop: For


@dataclass(frozen=True)
class Wrapped:
    """A tensor's remainder by a modulus that is the same for all elements."""

    inner: Polynomial
    modulus: Polynomial


Symbol = Along | Trip | Wrapped | Value
"""A `Value` is a scalar that is not a sum or product of others."""
Monomial = frozenset[tuple[Symbol, int]]
"""Symbols with their powers; empty is one."""
ONE: Monomial = frozenset()


@dataclass(frozen=True)
class Polynomial:
    """A sum of products, with integer coefficients other than zero."""

    terms: frozenset[tuple[Monomial, int]]

    @staticmethod
    def of(terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
        """The sum of terms."""
        total: dict[Monomial, int] = {}
        for monomial, factor in terms:
            total[monomial] = total.get(monomial, 0) + factor
        return Polynomial(frozenset((monomial, factor) for monomial, factor in total.items() if factor))

    @staticmethod
    def constant(value: int) -> Polynomial:
        return Polynomial.of([(ONE, value)])

    @staticmethod
    def symbol(symbol: Symbol) -> Polynomial:
        return Polynomial(frozenset({(frozenset({(symbol, 1)}), 1)}))

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of([*self.terms, *other.terms])

    def __neg__(self) -> Polynomial:
        return self.scaled(-1)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of((multiplied(a, b), x * y) for a, x in self.terms for b, y in other.terms)

    def scaled(self, factor: int) -> Polynomial:
        return Polynomial.of((monomial, value * factor) for monomial, value in self.terms)

    @property
    def symbols(self) -> set[Symbol]:
        return {symbol for monomial, _ in self.terms for symbol, _ in monomial}

    @property
    def number(self) -> int | None:
        """The number that it is, if it has no symbols."""
        return None if self.symbols else sum(factor for _, factor in self.terms)

    @property
    def axes(self) -> set[int]:
        """The axes along which it varies."""
        found = {symbol.axis for symbol in self.symbols if isinstance(symbol, Along)}
        return found.union(*(symbol.inner.axes for symbol in self.symbols if isinstance(symbol, Wrapped)))

    def with_axes(self, new: Callable[[int], int]) -> Polynomial:
        """The same of a tensor whose axes have other numbers."""

        def renamed(symbol: Symbol) -> Symbol:
            if isinstance(symbol, Along):
                return Along(new(symbol.axis))
            return (
                Wrapped(symbol.inner.with_axes(new), symbol.modulus)
                if isinstance(symbol, Wrapped)
                else symbol
            )

        if not self.axes:
            return self
        return Polynomial.of(
            (frozenset((renamed(s), power) for s, power in m), factor) for m, factor in self.terms
        )


def multiplied(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(a)
    for symbol, power in b:
        powers[symbol] = powers.get(symbol, 0) + power
    return frozenset(powers.items())


def divided(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The quotient of two monomials; None where there is a rest."""
    powers = dict(monomial)
    for symbol, power in divisor:
        powers[symbol] = powers.get(symbol, 0) - power
        if powers[symbol] < 0:
            return None
    return frozenset((symbol, power) for symbol, power in powers.items() if power)


class Polynomials:
    """The polynomials of values, computed when asked for."""

    def __init__(self, assumed: Mapping[Value, Polynomial] | None = None) -> None:
        self.known: dict[Value, Polynomial | None] = dict(assumed or {})
        self.assumed = dict(assumed or {})

    def of(self, value: Value) -> Polynomial | None:
        """The polynomial of a value; None for a tensor that has none."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: Value) -> Polynomial | None:
        found = self._argument(value) if value.op is None else self._result(value.op)
        if found is not None and len(found.terms) <= MAX_TERMS:
            return found
        return Polynomial.symbol(value) if isinstance(value.type, IntType | PointerType) else None

    def _argument(self, value: Value) -> Polynomial | None:
        """The polynomial of an argument of a loop's body, from its start and what each iteration adds."""
        loop = value.block.parent
        if not isinstance(loop, For):
            return None
        trip = Polynomial.symbol(Trip(loop))
        if value.index == 0:
            lower, step = self.of(loop.lower), self.of(loop.step)
            return lower + step * trip if lower is not None and step is not None else None
        start = self.of(loop.init[value.index - 1])
        itself = Polynomial.symbol(value)
        if start is None or not isinstance(element_of(value.type), IntType | PointerType):
            return None
        end = Polynomials({**self.assumed, value: itself}).of(loop.yielded[value.index - 1])
        if end is None:
            return None
        step = end - itself
        varies = any(_is_inside(symbol, loop) for symbol in step.symbols)
        return None if varies else start + step * trip

    def _result(self, op: Op) -> Polynomial | None:
        match op:
            case Constant() if isinstance(element_of(op.type), IntType):
                return Polynomial.constant(int(op.value))
            case MakeRange():
                start = Polynomial.constant(op.start)
                return start + Polynomial.symbol(Along(0)) if op.end - op.start > 1 else start
            case AddI() | SubI() | MulI() | AddPtr():
                return self._sum(op)
            case ShLI() if isinstance(op.rhs.op, Constant):
                shifted, factor = self.of(op.lhs), shift_factor(int(op.rhs.op.value), bit_width(op.lhs.type))
                return shifted.scaled(factor) if shifted is not None else None
            case RemSI() if isinstance(op.result.type, TensorType):
                inner, modulus = self.of(op.lhs), self.of(op.rhs)
                if inner is None or modulus is None or modulus.axes:
                    return None
                return Polynomial.symbol(Wrapped(inner, modulus))
            case Splat() | ExtSI() | AxisAttributes() | Broadcast() | ExpandDims() | Trans():
                return self._changed(op)
        return None

    def _sum(self, op: AddI | SubI | MulI | AddPtr) -> Polynomial | None:
        first, second = (self.of(operand) for operand in op.operands)
        if first is None or second is None:
            return None
        if isinstance(op, MulI):
            return first * second
        return first - second if isinstance(op, SubI) else first + second

    def _changed(self, op: Op) -> Polynomial | None:
        """The polynomial of the result of an operation that changes the shape or type of numbers."""
        inner = self.of(op.operands[0])
        if inner is None:
            return None
        match op:
            case ExpandDims():
                return inner.with_axes(lambda axis: axis + (axis >= op.axis))
            case Trans():
                return inner.with_axes(op.order.index)
        return inner


def _is_inside(symbol: Symbol, loop: For) -> bool:
    """Whether a symbol is not the same for all iterations of a loop."""
    if isinstance(symbol, Trip):
        block = symbol.loop.body
    elif isinstance(symbol, Value):
        block = symbol.block
    else:
        return isinstance(symbol, Wrapped) and any(
            _is_inside(s, loop) for s in symbol.inner.symbols | symbol.modulus.symbols
        )
    return is_within(block, loop.body)
