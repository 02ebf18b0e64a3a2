"""Python's operators on values that are known while compiling."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from kbuild.compiler.semantic.types import TypeBase, as_dtype

BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.MatMult: ("@", operator.matmul),
}
COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", lambda a, b: _same(a, b)),
    ast.IsNot: ("is not", lambda a, b: not _same(a, b)),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not in", lambda a, b: a not in b),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
MAX_INTEGER_BITS = 4096
"""Integers with more bits are an error: they would take the compiler too long."""

MAX_ITEMS = 1_000_000
"""Items of a range that is counted, or of a sequence, and steps of what runs while compiling; more are an error."""
_SEQUENCES = (tuple, list, str)


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: Python's may hold halves of surrogate pairs."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _same(a: Any, b: Any) -> bool:
    # Numbers that were computed are equal without being the same object, as literals would be.
    return a is b or (type(a) is type(b) and isinstance(a, int | float | str) and a == b)


def binary(op: ast.operator, a: Any, b: Any) -> Any:
    """The result of an operator; raises what Python raises."""
    if isinstance(op, ast.Pow | ast.LShift) and isinstance(a, int) and isinstance(b, int):
        bits = a.bit_length() * max(b, 0) if isinstance(op, ast.Pow) else a.bit_length() + b
        if bits > MAX_INTEGER_BITS:
            raise OverflowError(f"the result has more than {MAX_INTEGER_BITS} bits")
    if isinstance(op, ast.Mult) and isinstance(a, _SEQUENCES) | isinstance(b, _SEQUENCES):
        count = b if isinstance(a, _SEQUENCES) else a
        if isinstance(count, int) and count > MAX_INTEGER_BITS:
            raise OverflowError(f"the result has more than {MAX_INTEGER_BITS} items")
    elif isinstance(op, ast.Mult) and isinstance(a, int) and isinstance(b, int):
        if a.bit_length() + b.bit_length() > MAX_INTEGER_BITS:
            raise OverflowError(f"the result has more than {MAX_INTEGER_BITS} bits")
    elif isinstance(op, ast.Add) and isinstance(a, _SEQUENCES) and len(a) > MAX_ITEMS // 2:
        raise OverflowError(f"the result may have more than {MAX_ITEMS} items")
    return BINARY[type(op)][1](a, b)


def unary(op: ast.unaryop, a: Any) -> Any:
    """The result of a unary operator; raises what Python raises."""
    return _UNARY[type(op)](a)


def compare(op: ast.cmpop, a: Any, b: Any) -> bool:
    """The result of a comparison; raises what Python raises.  A word is compared with a type as the type that it
    names."""
    if isinstance(a, str) and isinstance(b, TypeBase):
        a = as_dtype(a)
    elif isinstance(a, TypeBase) and isinstance(b, str):
        b = as_dtype(b)
    return bool(COMPARE[type(op)][1](a, b))
