"""What the order of atomic operations means for what surrounds them."""

from __future__ import annotations

from kbuild.compiler.analysis.bases import base_of
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.control import If
from kbuild.compiler.ops.gpu import (
    AsyncCommitGroup,
    LocalAlloc,
    LocalDealloc,
    LocalDot,
    LocalLoad,
    LocalStore,
)
from kbuild.compiler.ops.tensor import Atomic, Barrier, Load, Store

_LOCAL = (Barrier, LocalAlloc, LocalDealloc, LocalDot, LocalLoad, LocalStore, AsyncCommitGroup)
"""Operations with effects, but none on global memory."""


def accesses_global_memory(op: Op) -> bool:
    """Whether an operation may, by itself or by waiting for what does."""
    return not (op.regions or op.has(Trait.PURE) or op.has(Trait.TERMINATOR) or isinstance(op, _LOCAL))


def around_updates(func: Func) -> dict[Op, Value | None]:
    """Atomics of tensors that order other accesses, and the loads and stores of the arrays that they may update, each with the
    base of its addresses.

    To its author a program is one thread, whose atomics come after the stores before them.  Which of the program's threads has
    an element is another for each operation, so that these have to meet in between.
    """
    ordering: dict[Op, Value | None] = {
        op: base_of(op.ptr)
        for op in func.body.walk()
        if isinstance(op, Atomic) and isinstance(op.ptr.type, TensorType) and op.sem != "relaxed"
    }
    if not ordering:
        return {}
    updated = set(ordering.values())
    others = {op: base_of(op.ptr) for op in func.body.walk() if isinstance(op, Load | Store)}
    return ordering | {
        op: base for op, base in others.items() if base is None or None in updated or base in updated
    }


def order_of(op: Atomic) -> str:
    """The order that an atomic operation has to have: one that acquires does so for what comes after it, and at
    the end of a kernel that is nothing.

    An operation on one element keeps its order.  It may be the release of a lock, and its acquire empties the L1
    cache, so that the next program on the multiprocessor reads what others have written even where the lock was
    taken by an operation that does not acquire.
    """
    acquires = op.sem in ("acquire", "acq_rel")
    type_ = op.ptr.type
    is_single = not isinstance(type_, TensorType) or type_.numel == 1
    if not acquires or is_single or op.result.users or _is_followed(op):
        return op.sem
    return "release" if op.sem == "acq_rel" else "relaxed"


def _is_followed(op: Op) -> bool:
    """Whether the kernel may access memory after an operation."""
    outer = op.parent_op
    while op.next is not None:
        op = op.next
        inside = (inner for region in op.regions for inner in region.walk())
        if accesses_global_memory(op) or any(map(accesses_global_memory, inside)):
            return True
    return not isinstance(outer, Func) and (not isinstance(outer, If) or _is_followed(outer))
