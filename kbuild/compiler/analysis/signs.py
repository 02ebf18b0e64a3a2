"""Which integers, and tensors of them, are never negative.

tt.get_program_id, tt.make_range from 0, sizes            are not
sums, products and remainders of such                     are not: sums and products are assumed not to overflow
their quotients                                           are not: divisors that are not constants are assumed to be counts
arguments, loaded numbers, differences                    may be
"""

from __future__ import annotations

from collections.abc import Collection

from kbuild.compiler.analysis.polynomials import Along, Polynomial, Polynomials, Symbol, Trip, Wrapped
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import IntType, element_of
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.elementwise import (
    AddI,
    AndI,
    Constant,
    DivSI,
    DivUI,
    ExtSI,
    ExtUI,
    MaxSI,
    MinSI,
    MulI,
    OrI,
    RemSI,
    RemUI,
    Select,
    ShLI,
    ShRSI,
    ShRUI,
    XOrI,
)
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    ExpandDims,
    GetNumPrograms,
    GetProgramId,
    MakeRange,
    Reshape,
    Splat,
    Trans,
    Unsplat,
)

MOVED = (Splat, Unsplat, Broadcast, ExpandDims, Trans, Reshape, AxisAttributes, ConvertLayout, ExtSI)
"""Operations that bring numbers into another shape or a wider type."""
_KEEPING = (AddI, MulI, MinSI, OrI, XOrI)
"""Operations whose results are non-negative where their operands are."""


class Signs:
    """Answers for a function; `known` are arguments that are not negative."""

    def __init__(self, forms: Polynomials, known: Collection[Value] = ()) -> None:
        self.forms = forms
        self.known = known
        self._values: dict[Value, bool] = {}

    def is_non_negative(self, form: Polynomial | None) -> bool:
        """Whether a polynomial is non-negative because all of its parts are."""
        return (
            form is not None
            and all(factor >= 0 for _, factor in form.terms)
            and all(map(self._symbol, form.symbols))
        )

    def is_non_negative_value(self, value: Value) -> bool:
        """Whether an integer, or all of a tensor, is not negative."""
        if value not in self._values:
            self._values[value] = False  # while the answer is looked for
            self._values[value] = self._found(value)
        return self._values[value]

    def _symbol(self, symbol: Symbol) -> bool:
        if isinstance(symbol, Along | Trip):
            return True
        if isinstance(symbol, Wrapped):
            return self.is_non_negative(symbol.inner)
        return symbol in self.known or (symbol.op is not None and self._result(symbol.op, symbol))

    def _found(self, value: Value) -> bool:
        if not isinstance(element_of(value.type), IntType):
            return False
        form = self.forms.of(value)
        if form is not None and form != Polynomial.symbol(value):
            return self.is_non_negative(form) or (value.op is not None and self._result(value.op, value))
        if value.op is None:
            loop = value.block.parent
            return value in self.known or (
                isinstance(loop, For) and value.index == 0 and self.is_non_negative_value(loop.lower)
            )
        return self._result(value.op, value)

    def _result(self, op: Op, value: Value) -> bool:
        """Whether a result is not negative, by what its operation makes of its operands."""
        non_negative = self.is_non_negative_value
        match op:
            case GetProgramId() | GetNumPrograms():
                return True
            case Constant():
                return op.value >= 0
            case MakeRange():
                return op.start >= 0
            case ExtUI():
                return True
            case DivSI():
                divisor = op.rhs.op
                return non_negative(op.lhs) and not (isinstance(divisor, Constant) and divisor.value < 0)
            case RemSI() | DivUI() | RemUI() | ShRSI() | ShLI():
                return non_negative(op.lhs)
            case ShRUI():
                return non_negative(op.lhs) or (isinstance(op.rhs.op, Constant) and op.rhs.op.value > 0)
            case MaxSI() | AndI():
                return non_negative(op.lhs) or non_negative(op.rhs)
            case Select():
                return non_negative(op.true_value) and non_negative(op.false_value)
            case If():
                return all(non_negative(region.terminator.operands[value.index]) for region in op.regions)
        return isinstance(op, MOVED + _KEEPING) and all(map(non_negative, op.operands))
