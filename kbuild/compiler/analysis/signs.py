"""Which integers are never negative.

Division and remainder are taken to be by numbers that are not negative, as in `axis_info`.
"""

from __future__ import annotations

from collections.abc import Collection

from kbuild.compiler.analysis.polynomials import Along, Polynomial, Polynomials, Symbol, Trip, Wrapped
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import IntType
from kbuild.compiler.ops.elementwise import AndI, DivSI, DivUI, MaxSI, MinSI, RemSI, RemUI, Select, ShRSI
from kbuild.compiler.ops.tensor import GetNumPrograms, GetProgramId


class Signs:
    """Answers for a function; `known` are arguments that are not negative."""

    def __init__(self, forms: Polynomials, known: Collection[Value]) -> None:
        self.forms = forms
        self.known = known

    def is_natural(self, form: Polynomial | None) -> bool:
        """Whether a polynomial is not negative, because no part of it is."""
        return form is not None and all(factor >= 0 for _, factor in form.terms) and all(map(self._symbol, form.symbols))

    def _value(self, value: Value) -> bool:
        return isinstance(value.type, IntType) and self.is_natural(self.forms.of(value))

    def _symbol(self, symbol: Symbol) -> bool:
        if isinstance(symbol, Along | Trip):
            return True
        if isinstance(symbol, Wrapped):
            return self.is_natural(symbol.inner)
        op = symbol.op
        match op:
            case GetProgramId() | GetNumPrograms():
                return True
            case DivSI() | RemSI() | DivUI() | RemUI() | ShRSI():
                return self._value(op.lhs)
            case MinSI():
                return self._value(op.lhs) and self._value(op.rhs)
            case MaxSI() | AndI():
                return self._value(op.lhs) or self._value(op.rhs)
            case Select():
                return self._value(op.true_value) and self._value(op.false_value)
        return symbol in self.known
