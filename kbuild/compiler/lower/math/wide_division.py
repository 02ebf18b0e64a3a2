"""Divisions of 64 bits by several elements of a thread at once.

Numbers that fit 32 bits are divided there, in a fourth of the instructions.  LLVM asks that of each division alone, and
so has a branch for each, between which ptxas can neither interleave them nor share what depends on the divisor:

    br (a0 | a1 | … | b) < 2^32, narrow, wide
    narrow:   udiv i32 a0, b; udiv i32 a1, b; …
    wide:     sdiv i64 a0, b; sdiv i64 a1, b; …

The remainder by the same divisor comes with the quotient.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import TensorType, bit_width
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.ops import elementwise as rows

DIVISIONS = (rows.DivSI, rows.RemSI, rows.DivUI, rows.RemUI)
_MOST = 8
"""Elements that a thread divides at once: all of their quotients take registers."""


def divide_at_once(
    emit: Emitter, op: rows.Binary, sources: Sequence[Sequence[str]], same: Sequence[int]
) -> Sequence[str] | None:
    """The registers of a quotient or a remainder; None where each is better computed alone.

    `same` has for each register the first one that is equal, or is empty."""
    if not isinstance(op.result.type, TensorType):
        return None
    if op.result in emit.values:
        return emit.values[op.result]
    count = len(sources[0])
    first = same or range(count)
    places = sorted(set(first))
    if bit_width(op.lhs.type) != 64 or not 1 < len(places) <= _MOST:
        return None
    if all(register[0] != "%" for register in sources[1]):
        return None
    signed = isinstance(op, rows.DivSI | rows.RemSI)
    dividends, divisors = ([source[place] for place in places] for source in sources)
    divisors = [emit.opaque(register, "i64") for register in divisors]
    quotients, remainders = _divide(emit, "s64" if signed else "u64", dividends, divisors)
    found: Sequence[str] = ()
    for value in _same_division(op):
        own = quotients if isinstance(value.op, rows.DivSI | rows.DivUI) else remainders
        opaque = dict(zip(places, (emit.opaque(register, "i64") for register in own)))
        registers = [opaque[first[index]] for index in range(count)]
        if value is op.result:
            found = registers
        else:
            emit.bind(value, registers)
    return found


def _same_division(op: rows.Binary) -> list[Value]:
    """The results of the operation and of those of its block that divide the same by the same."""
    pair = (rows.DivSI, rows.RemSI) if isinstance(op, rows.DivSI | rows.RemSI) else (rows.DivUI, rows.RemUI)
    return [
        user.results[0]
        for user in op.lhs.users
        if isinstance(user, pair) and user.parent is op.parent and (user.lhs, user.rhs) == (op.lhs, op.rhs)
    ]


def _divide(
    emit: Emitter, kind: str, dividends: Sequence[str], divisors: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Quotients and remainders, of 32 bits where all numbers fit them."""
    any_bit = dividends[0]
    for register in (*dividends[1:], *divisors):
        any_bit = emit.instruction(f"or i64 {any_bit}, {register}")
    high = emit.instruction(f"lshr i64 {any_bit}, 32")
    fits = emit.compare("eq", emit.instruction(f"trunc i64 {high} to i32"), "0", "i32")
    narrow, wide, after = (emit.new_label(name) for name in ("narrow", "wide", "after"))
    emit.branch(narrow, fits, wide)
    found: list[list[str]] = []
    for label in (narrow, wide):
        with emit.scope():
            emit.start_block(label)
            pairs = [
                _narrow(emit, a, b) if label == narrow else _wide(emit, kind, a, b)
                for a, b in zip(dividends, divisors)
            ]
            found.append([register for pair in pairs for register in pair])
            emit.branch(after)
    phis = emit.start_block(after)
    emit.new_chunk()
    merged = [emit.fresh() for _ in found[0]]
    for register, first, second in zip(merged, *found):
        phis.lines.append(f"  {register} = phi i64 [{first}, %{narrow}], [{second}, %{wide}]")
    return merged[0::2], merged[1::2]


def _narrow(emit: Emitter, dividend: str, divisor: str) -> tuple[str, str]:
    a, b = (emit.instruction(f"trunc i64 {register} to i32") for register in (dividend, divisor))
    quotient = emit.instruction(f"udiv i32 {a}, {b}")
    remainder = emit.instruction(f"sub i32 {a}, {emit.instruction(f'mul i32 {quotient}, {b}')}")
    return emit.instruction(f"zext i32 {quotient} to i64"), emit.instruction(f"zext i32 {remainder} to i64")


def _wide(emit: Emitter, kind: str, dividend: str, divisor: str) -> tuple[str, str]:
    """PTX, since LLVM would look again whether it fits."""
    operands = [("i64", dividend), ("i64", divisor)]
    (quotient,) = emit.asm(f"div.{kind} $0, $1, $2;", "=l,l,l", operands, ["i64"])
    whole = emit.instruction(f"mul i64 {quotient}, {divisor}")
    return quotient, emit.instruction(f"sub i64 {dividend}, {whole}")
