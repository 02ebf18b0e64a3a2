"""The scalar pointers that addresses are computed from."""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AddPtr
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import AtomicCAS, AtomicRMW, Broadcast, ExpandDims, Reshape, Splat, Store, Trans


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


def may_be_written(pointer: Value, inside: Func | For) -> bool:
    """Whether a function or loop writes to an address computed from the base of a pointer, or from one that cannot be seen."""
    base = base_of(pointer)
    block = inside.body
    return any(_writes(op, base) for op in block.walk())


def _writes(op: Op, base: Value | None) -> bool:
    if not isinstance(op, Store | AtomicRMW | AtomicCAS):
        return False
    written = base_of(op.ptr)
    return written is None or written is base
