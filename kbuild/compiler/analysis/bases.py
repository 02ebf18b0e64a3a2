"""The pointers that addresses are computed from, and those through which a kernel writes."""

from __future__ import annotations

from kbuild.compiler.analysis.carried import group_of
from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ops.control import Call, For
from kbuild.compiler.ops.elementwise import AddPtr, IntToPtr, Select
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    ExpandDims,
    Load,
    PointerWrite,
    Reshape,
    Splat,
    Trans,
)

_VIEWS = Splat | Broadcast | ExpandDims | ConvertLayout | Reshape | Trans
"""Operations whose elements are all elements of their operand."""


def base_of(value: Value, tables: bool = False) -> Value | None:
    """The argument of the function that an address is computed from; None when that cannot be seen, or may be
    one or another.  With `tables` an argument may be a table of addresses, and stands for all arrays in it."""
    bases = bases_of(value, tables)
    return bases.pop() if bases is not None and len(bases) == 1 else None


def bases_of(value: Value, tables: bool = False) -> set[Value] | None:
    """The arguments that an address may be computed from, as for `base_of`; None when one cannot be seen."""
    bases: set[Value] = set()
    seen: set[Value] = set()
    work = [value]
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        op, group = value.op, group_of(value)
        if group is not None:
            work += group.sources()
        elif isinstance(op, AddPtr):
            work.append(op.ptr)
        elif isinstance(op, Select):
            work += [op.true_value, op.false_value]
        elif isinstance(op, _VIEWS) or (isinstance(op, AxisAttributes) and op.src.op is None):
            # What descriptors guarantee of an argument.
            work.append(op.src)
        elif tables and isinstance(op, Load):
            work.append(op.ptr)
        elif tables and isinstance(op, IntToPtr | AxisAttributes):
            work.append(op.src)
        elif op is None and isinstance(value.block.parent, Func):
            bases.add(value)
        else:
            return None
    return bases


def written_bases(inside: Func | For, tables: bool = False) -> set[Value] | None:
    """The bases of the addresses that a function or loop writes to; None where one cannot be seen."""
    written: set[Value] = set()
    for op in inside.body.walk():
        if isinstance(op, PointerWrite | Call):
            bases = bases_of(op.ptr, tables) if isinstance(op, PointerWrite) else None
            if bases is None:
                return None
            written |= bases
    return written


def may_be_written(pointer: Value, inside: Func | For, tables: bool = False) -> bool:
    """Whether a function or loop may write to the array of an address: it may where the bases of either cannot
    be seen.  With `tables` arrays whose addresses come from different tables are different ones."""
    written, bases = written_bases(inside, tables), bases_of(pointer, tables)
    return written is None or bool(written if bases is None else written & bases)
