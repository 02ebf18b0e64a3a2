"""Elements of global memory that several warps load although the program asks for them once, and that it also
stores.

Every thread loads a scalar, and where a tensor has fewer elements than there are threads, several warps load
the same; one thread stores an element.  So the others must have loaded it before, and what is stored is there
for their next load only after a barrier.  Elements are distinguished by the kernel's argument that their
pointers come from.  What one warp stores for another to load is the author's to order, with
`tl.debug_barrier`.
"""

from __future__ import annotations

from kbuild.compiler.analysis.bases import base_of
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.layout import warps_are_apart
from kbuild.compiler.ops.tensor import Load, Store

EVERYWHERE = -(1 << 62), 0
"""The range of pointers that may be any."""


def replicated_ranges(func: Func) -> dict[Op, tuple[int, int]]:
    """For each load by several warps, and each store, a range of numbers below zero: those of two overlap
    where they may touch the same element.  Left out where a kernel has no such loads, or no stores."""
    bases: dict[Value | None, int] = {}
    found: dict[Op, tuple[int, int]] = {}
    for op in func.body.walk():
        if isinstance(op, Store) or (isinstance(op, Load) and _is_replicated(op)):
            base = base_of(op.ptr)
            number = -2 * bases.setdefault(base, len(bases) + 1)
            found[op] = (number, number + 1) if base in func.arguments else EVERYWHERE
    if len({type(op) for op in found}) < 2:
        return {}
    return found


def _is_replicated(load: Load) -> bool:
    """Whether several warps load the same."""
    layout = layout_of(load.ptr.type)
    return layout is None or not warps_are_apart(layout)
