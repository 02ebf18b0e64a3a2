"""Masks as bounds of indices, and what a bound on stores says of the values stored.

%rows <s splat(%M)  and  %columns <s splat(%N)        {128·tile + i0 - M < 0,  128·tile' + i1 - N < 0}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbuild.compiler.analysis.carried import passed_on
from kbuild.compiler.analysis.polynomials import Polynomial, Polynomials
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, shape_of
from kbuild.compiler.ops.control import For, Yield
from kbuild.compiler.ops.elementwise import AndI, CmpI, Constant
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Reduce, Splat, Store, Trans

_ONE = Polynomial.constant(1)


class Bounds(NamedTuple):
    """A mask: true where all of `negative` are below zero, and where the rest of it is true."""

    negative: frozenset[Polynomial]
    complete: bool
    """Whether `negative` describes the mask completely."""


NOTHING = Bounds(frozenset(), True)
UNKNOWN = Bounds(frozenset(), False)


def bounds_of(mask: Value | None, forms: Polynomials) -> Bounds:
    """The known bounds of a mask; None is true everywhere."""
    op = mask.op if mask is not None else None
    match op:
        case None:
            return NOTHING if mask is None else UNKNOWN
        case Constant() if op.value:
            return NOTHING
        case AndI():
            first, second = bounds_of(op.lhs, forms), bounds_of(op.rhs, forms)
            return Bounds(first.negative | second.negative, first.complete and second.complete)
        case CmpI():
            return _comparison(op, forms)
        case Splat() | Broadcast():
            return bounds_of(op.src, forms)
        case ExpandDims():
            return _renamed(bounds_of(op.src, forms), lambda axis: axis + (axis >= op.axis))
        case Trans():
            return _renamed(bounds_of(op.src, forms), op.order.index)
    return UNKNOWN


def _renamed(bounds: Bounds, new: Callable[[int], int]) -> Bounds:
    return Bounds(frozenset(form.with_axes(new) for form in bounds.negative), bounds.complete)


def _comparison(op: CmpI, forms: Polynomials) -> Bounds:
    """An unsigned comparison with a non-negative number requires both: not negative, and below."""
    left, right = forms.of(op.lhs), forms.of(op.rhs)
    if left is None or right is None:
        return UNKNOWN
    negative = {
        "slt": [left - right],
        "sle": [left - right - _ONE],
        "sgt": [right - left],
        "sge": [right - left - _ONE],
        "ult": [left - right, -left - _ONE],
    }.get(op.predicate)
    return Bounds(frozenset(negative), True) if negative is not None else UNKNOWN


def is_stored_only_where(value: Value, axis: int, negative: Polynomial, forms: Polynomials) -> bool:
    """Whether only elements at indices along `axis` where `negative` is below zero affect memory; `negative`
    is a polynomial that varies along this axis alone.

    Dots keep rows of A and columns of B apart; an operation that mixes elements along the axis ends the
    search, as does any unknown use.
    """
    seen, work = {(value, axis)}, [(value, axis)]
    while work:
        value, axis = work.pop()
        for user in value.users:
            if isinstance(user, Store):
                here = _along(negative, axis)
                if value is not user.value or value in (user.ptr, user.mask):
                    return False
                if not any(_implies(given, here) for given in bounds_of(user.mask, forms).negative):
                    return False
                continue
            reached = _reached(user, value, axis)
            if reached is None:
                return False
            fresh = [pair for pair in reached if pair not in seen]
            seen.update(fresh)
            work.extend(fresh)
    return True


def _implies(given: Polynomial, wanted: Polynomial) -> bool:
    """Whether the one being negative makes the other so."""
    difference = (wanted - given).number
    return difference is not None and difference <= 0


def _along(form: Polynomial, axis: int) -> Polynomial:
    """The same bound of the axis to which the index has moved."""
    return form.with_axes(lambda _: axis)


def _reached(user: Op, value: Value, axis: int) -> list[tuple[Value, int]] | None:
    """The results of an operation that depend on an operand, and the axis along which they do so element by
    element; None where they mix elements."""
    match user:
        case Dot() if len(shape_of(user.result.type)) == 2 and user.operands.count(value) == 1:
            mixed = (value is user.a and axis == 1) or (value is user.b and axis == 0)
            return None if mixed else [(user.result, axis)]
        case ExpandDims():
            return [(user.result, axis + (axis >= user.axis))]
        case Trans():
            return [(user.result, user.order.index(axis))]
        case Broadcast():
            return [(user.result, axis)]
        case Reduce() if user.axis != axis:
            return [(result, axis - (axis > user.axis)) for result in user.results]
        case For() | Yield():
            return (
                [(target, axis) for target in passed_on(value, user)]
                if isinstance(value.type, TensorType)
                else None
            )
    if user.has(Trait.ELEMENTWISE):
        return [(result, axis) for result in user.results]
    return None
