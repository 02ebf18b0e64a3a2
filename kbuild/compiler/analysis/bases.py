"""The scalar pointers that addresses are computed from, and those through which a kernel writes."""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ops.control import Call, For
from kbuild.compiler.ops.elementwise import AddPtr
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, PointerWrite, Reshape, Splat, Trans


def base_of(value: Value) -> Value | None:
    """The scalar pointer that an address is computed from; None when that cannot be seen."""
    while True:
        op = value.op
        if isinstance(op, AddPtr):
            value = op.ptr
        elif isinstance(op, Splat | Broadcast | ExpandDims | ConvertLayout | Reshape | Trans):
            value = op.src
        elif op is None and value.index and isinstance(loop := value.block.parent, For):
            value = loop.init[value.index - 1]
        else:
            return value if op is None else None


def written_bases(inside: Func | For) -> set[Value] | None:
    """The bases of the addresses that a function or loop writes to; None where one cannot be seen."""
    written: set[Value] = set()
    for op in inside.body.walk():
        if isinstance(op, PointerWrite | Call):
            base = base_of(op.ptr) if isinstance(op, PointerWrite) else None
            if base is None:
                return None
            written.add(base)
    return written


def may_be_written(pointer: Value, inside: Func | For) -> bool:
    """Whether a function or loop writes to an address computed from the base of a pointer, or from one that cannot be seen."""
    written = written_bases(inside)
    return written is None or base_of(pointer) in written
