"""Which operations fix the layouts of their operands and results."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kbuild.compiler.ir.core import Func, Op
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, layout_of
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalLoad, LocalStore
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import (
    Assert,
    Atomic,
    Broadcast,
    Cat,
    Dot,
    ExpandDims,
    Gather,
    Join,
    Print,
    Reduce,
    Reshape,
    Split,
    Store,
    Trans,
    Unsplat,
)
from kbuild.compiler.transforms._support.layout_flow import FREE, MEMORY, held_layout, is_pointwise
from kbuild.compiler.transforms.gpu.pipeline.unpipelined import free_loads

_SHAPING = (Broadcast, ExpandDims, Reshape, Trans, Join, Split, Cat, Reduce, Gather)
_TAKES_ANY = (LocalAlloc, LocalStore, Assert, Print, Unsplat)
"""Operations that accept tensors in any layout."""
SCALAR_REGISTERS = 4
"""Vectors of up to so many elements per thread are stored in the layout that they come in."""


class Strength(IntEnum):
    """How much a layout is worth keeping, by the operation that it belongs to."""

    MEMORY = 1
    LOCAL = 2
    DOT = 3


class Vectors(NamedTuple):
    """How a store writes memory."""

    layout: LinearLayout
    """In which threads have neighbours, and warps whole lines."""
    axis: int
    """Along which they are neighbours."""
    width: int
    """Neighbours that a thread has."""

    @classmethod
    def of(cls, layout: LinearLayout) -> Vectors:
        """Those of a layout; of several axes the last."""
        axis = max(range(layout.rank), key=lambda axis: (layout.contiguous_per_thread(axis), axis))
        return cls(layout, axis, layout.contiguous_per_thread(axis))


class Anchors:
    """The fixed layouts of a function."""

    def __init__(self) -> None:
        self.operands: dict[Op, tuple[LinearLayout | None, ...]] = {}
        """The layout that each operand must have; None for any."""
        self.results: dict[Op, Strength] = {}
        """Operations whose results keep their layout."""
        self.vectors: dict[Op, Vectors] = {}
        """Stores that each warp should make of what it has."""
        self.by_shuffles = False
        """Whether they have no memory to bring that into order."""


def find_anchors(func: Func) -> Anchors:
    """The anchors of a function as it stands, with conversions still in place."""
    anchors = Anchors()
    threads, anchors.by_shuffles = 32 * int(func.attrs["num_warps"]), has_no_memory(func)
    free = free_loads(func)
    by_groups = any(isinstance(op, WarpGroupDot) for op in func.body.walk())
    for op in func.body.walk():
        if isinstance(op, _TAKES_ANY):
            anchors.operands[op] = (None,) * len(op.operands)
        elif isinstance(op, Dot | WarpGroupDot):
            anchors.operands[op] = _layouts(op)
            anchors.results[op] = Strength.DOT
        elif isinstance(op, LocalLoad):
            anchors.results[op] = Strength.LOCAL
        elif isinstance(op, MEMORY):
            if op in free or not _is_fixed(op, threads):
                continue
            if isinstance(op, Store) and (
                anchors.by_shuffles or (by_groups and held_layout(op.value).rank == 2)
            ):
                anchors.vectors[op] = Vectors.of(held_layout(op.value))
            else:
                anchors.operands[op] = _layouts(op)
                anchors.results[op] = Strength.MEMORY
        elif not _flows(op):
            anchors.operands[op] = _layouts(op)
            anchors.results[op] = Strength.MEMORY
    return anchors


def _layouts(op: Op) -> tuple[LinearLayout | None, ...]:
    return tuple(layout_of(operand.type) for operand in op.operands)


def _flows(op: Op) -> bool:
    structured = bool(op.regions) or op.has(Trait.TERMINATOR)
    return structured or is_pointwise(op) or isinstance(op, (*_SHAPING, *FREE, ConvertLayout))


def _is_fixed(op: Op, threads: int) -> bool:
    """Whether it matters by which threads an access is made.

    Not so when there are fewer elements than threads, which then make it together, nor for stores of short
    vectors, where a conversion costs more than the accesses that it would merge.
    """
    type_ = op.operands[0].type
    if not isinstance(type_, TensorType):
        return False
    if isinstance(op, Atomic):
        return True
    if (
        isinstance(op, Store)
        and type_.rank == 1
        and held_layout(op.value).size("register") <= SCALAR_REGISTERS
    ):
        return False
    return type_.numel >= threads


def has_no_memory(func: Func) -> bool:
    """Whether tiles in flight should have all shared memory: where one loop has several dots, and other warps
    copy for it."""
    loops = [op for op in func.body.walk() if isinstance(op, For) and op.warp_specialize]
    return any(sum(isinstance(op, WarpGroupDot) for op in loop.body) > 1 for loop in loops)
