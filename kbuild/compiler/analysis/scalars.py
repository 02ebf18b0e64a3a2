"""Single elements of global memory that a program both loads and stores.

Every thread loads such an element, and one of them stores it: so the others must have loaded it before, and what is stored is
there for their next load only after a barrier.  Elements are told apart by the kernel's argument that their pointers come from;
tensors of pointers are the author's to order, with `tl.debug_barrier`.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import PointerType
from kbuild.compiler.ops.elementwise import AddPtr
from kbuild.compiler.ops.tensor import Load, Store

EVERYWHERE = -(1 << 62), 0
"""The range of pointers that may be any."""


def scalar_ranges(func: Func) -> dict[Op, tuple[int, int]]:
    """For each load and store of one element a range of numbers below zero: those of two overlap where they may touch the same
    element.  Left out where a kernel only loads, or only stores."""
    roots: dict[Value, int] = {}
    found: dict[Op, tuple[int, int]] = {}
    for op in func.body.walk():
        if isinstance(op, Load | Store) and isinstance(op.ptr.type, PointerType):
            root = _root(op.ptr)
            number = -2 * roots.setdefault(root, len(roots) + 1)
            found[op] = (number, number + 1) if root in func.arguments else EVERYWHERE
    if len({type(op) for op in found}) < 2:
        return {}
    return found


def _root(pointer: Value) -> Value:
    """What a pointer was made from by adding offsets."""
    while isinstance(pointer.op, AddPtr):
        pointer = pointer.op.ptr
    return pointer
