"""Which values are the same in neighbouring programs: those next to each other along the grid's first axis, along
which the hardware starts programs one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant, DivSI
from kbuild.compiler.ops.tensor import GetProgramId

AXIS = 0
"""The axis of the grid along which neighbours lie."""


def is_same(values: Iterable[Value], programs: int) -> bool:
    """Whether values are the same in so many neighbours, of which the first one's number is a multiple of that."""
    seen: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        sources = _sources(value, programs)
        if sources is None:
            return False
        work += sources
    return True


def _sources(value: Value, programs: int) -> Sequence[Value] | None:
    """The values that a value is computed from; None if it differs between the programs, or may."""
    op = value.op if value.op is not None else value.block.parent
    match op:
        case Func():
            return ()
        case For():
            number = value.index - (value.op is None)
            carried = () if number < 0 else (op.init[number], op.yielded[number])
            return (op.lower, op.upper, op.step, *carried)
        case GetProgramId():
            return None if op.axis == AXIS else ()
        case DivSI() if isinstance(op.lhs.op, GetProgramId) and isinstance(op.rhs.op, Constant):
            divisor = op.rhs.op.value
            return () if divisor > 0 and divisor % programs == 0 else (op.lhs,)
    return op.operands if op is not None and op.has(Trait.PURE) and not op.regions else None
