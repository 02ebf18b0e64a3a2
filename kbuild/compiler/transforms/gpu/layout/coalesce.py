"""Gives each access to global memory the layout in which neighbouring threads touch neighbouring bytes, up to
16 each.

The axis along which a pointer tensor is contiguous comes first, or, where none is, the one along which it changes
less often; its alignment, and that of the mask, bound the vector. Accesses of one shape that elementwise operations
connect get one layout, so that no data moves between them.  Where such a tile is reduced along its contiguous axis,
each warp has whole rows, if there are rows for all warps: the reduction needs no shared memory then.

Before:
    %x: tensor<1024xf32, #blocked> = tt.load %p
After (%p points to 1024 contiguous numbers, aligned to 16 bytes):
    %1: tensor<1024x!tt.ptr<f32>, #blocked1> = ttg.convert_layout %p
    %2: tensor<1024xf32, #blocked1> = tt.load %1
    %x: tensor<1024xf32, #blocked> = ttg.convert_layout %2
with #blocked1 = blocked{sizePerThread=[4] …}.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from kbuild.compiler.analysis.access import atomic_width, neighbours
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.analysis.bounds import bounds_of
from kbuild.compiler.analysis.carried import carried_groups
from kbuild.compiler.analysis.polynomials import Along, Polynomial, Polynomials
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import PointerType, TensorType, bit_width
from kbuild.compiler.layout import LinearLayout, coalesced, thread_grid
from kbuild.compiler.layout.gluon import BlockedLayout, DistributedLayout, DistributedLinearLayout
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.tensor import Atomic, Load, Reduce, Scan
from kbuild.compiler.transforms._support.layout_flow import (
    MEMORY,
    converted,
    held_layout,
    is_pointwise,
    tensor_operands,
    tensor_type,
)
from kbuild.targets import Target

WIDEST_BITS = 128
RUN = 2
"""Vectors of its threads that a warp has in a row where it has several: 1 KB, which memory gives a little faster
than two pieces of 512 bytes far from each other.  Not for a shape that is accessed inside of loops or branches,
too: what goes in and out of them shall have one layout.  Nor where a mask leaves out an end of the tensor that is known
and cuts such a pair: apart, the first of the two needs no mask, or nobody needs the second."""
MIN_BITS = 64
"""The narrowest load that still fills the memory pipes when every thread makes it."""


class PointerAccess(NamedTuple):
    """A load, store or atomic on a tensor of pointers, and what its pointers allow."""

    op: Op
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Axes, the contiguous one first."""
    bits: int
    """Size of an element."""
    vector: int
    """Most elements that one instruction may move."""
    any_order: bool = False
    """Whether no axis is better than the others."""

    @property
    def writes(self) -> bool:
        return not isinstance(self.op, Load)


@gpu_pass
def coalesce(module: Module, target: Target) -> None:
    """Choose the layouts of memory accesses, and convert their operands and results."""
    for func in module.functions.values():
        num_warps: int = func.attrs["num_warps"]
        accesses = find_accesses(func, target)
        nested = {access.shape for access in accesses if access.op.parent is not func.body}
        for group, axes, scanned in _connected(func, accesses):
            chosen = choose_vectors(group, num_warps, group[0].order[0] in scanned)
            long = _long_vectors(chosen, group[0].shape in nested, num_warps)
            for access, vector in chosen:
                run = RUN if vector in long else 1
                rows = access.order[0] in axes and _has_rows(access, vector, num_warps)
                layout = coalesced(access.shape, access.order, vector, num_warps, run, rows)
                _set_layout(access.op, layout)


def layout_alone(access: PointerAccess, func: Func, num_warps: int) -> DistributedLayout:
    """The layout for an access that is connected to no others, in the words of authors."""
    chosen = choose_vectors([access], num_warps)
    ((_, vector),) = chosen
    run = RUN if _long_vectors(chosen, access.op.parent is not func.body, num_warps) else 1
    layout = coalesced(access.shape, access.order, vector, num_warps, run)
    sizes = tuple(vector if axis == access.order[0] else 1 for axis in range(len(access.shape)))
    threads, warps = thread_grid(access.shape, sizes, access.order, num_warps)
    named = BlockedLayout(sizes, tuple(threads), tuple(warps), access.order)
    return named if named.linear(access.shape) == layout else DistributedLinearLayout.of(layout)


def _long_vectors(chosen: list[tuple[PointerAccess, int]], nested: bool, num_warps: int) -> set[int]:
    """The elements per thread with which an access, of those that are connected, fills a vector; `nested` says
    whether some access of the shape is inside of control flow."""
    return {
        vector
        for access, vector in chosen
        if not nested
        and len(access.shape) == 1
        and vector * access.bits == WIDEST_BITS
        and _known_end(access) % (32 * vector * num_warps * RUN) == 0
    }


def _known_end(access: PointerAccess) -> int:
    """Up to which element of a tensor of one axis its mask lets through any, as far as it has constants; its size where it
    has none."""
    ends = [access.shape[0]]
    for bound in bounds_of(getattr(access.op, "mask", None), Polynomials()).negative:
        end = (Polynomial.symbol(Along(0)) - bound).number
        ends += [max(0, end)] if end is not None else []
    return min(ends)


def find_accesses(func: Func, target: Target) -> list[PointerAccess]:
    """The accesses of a function to tensors of pointers."""
    accesses = []
    info = AxisInfo(func)
    for op in func.body.walk():
        if not isinstance(op, MEMORY) or not isinstance(op.operands[0].type, TensorType):
            continue
        pointers = op.operands[0]
        type_ = tensor_type(pointers)
        facts = info.get(pointers)
        # Where no axis is contiguous, lanes had better share places: bytes of two numbers each are read by pairs of them.
        shared = [n if n < size else 1 for n, size in zip(facts.constancy, type_.shape)]
        order = tuple(
            sorted(range(type_.rank), key=lambda axis: (-facts.contiguity[axis], -shared[axis], -axis))
        )
        assert isinstance(type_.element, PointerType)
        bits = max(8, bit_width(type_.element.pointee))
        mask: Value | None = getattr(op, "mask", None)
        # Elements that are masked one by one are accessed one by one: then lanes should be neighbours.
        # Where the mask cuts off the end of a tensor, most threads access whole vectors.
        atomic = isinstance(op, Atomic)
        vector = neighbours(
            facts, info.get(mask) if mask is not None else None, order[0], bits, cut=not atomic
        )
        vector = min(vector, type_.shape[order[0]], atomic_width(op, target) if atomic else vector)
        any_order = max(*facts.contiguity, *shared) == 1
        accesses.append(PointerAccess(op, type_.shape, order, bits, vector, any_order))
    return accesses


def choose_vectors(
    group: list[PointerAccess], num_warps: int, scanned: bool = False
) -> list[tuple[PointerAccess, int]]:
    """The elements per thread of connected accesses of one shape and order.

    All follow the widest: a load of more than 16 bytes per thread takes several instructions, whose gaps the
    cache fills. A store's gaps are written one by one, so the narrowest store sets the pace, unless that made
    wider loads too narrow; then the store goes its own way.  Atomics take so much longer than loads that these
    follow in any case.  What is not in the deepest loops follows those that are.  Where a scan goes along the elements
    of threads, it takes steps for each of their vectors, which cost more than the way to a narrow store's own layout.
    """
    widest = max(access.vector for access in group)
    deepest = max(_depth(access.op) for access in group)
    writes = [access for access in group if access.writes and _depth(access.op) == deepest]
    stores = min((access.vector for access in writes), default=widest)
    narrowest = min((access.bits for access in group if access.vector > stores), default=MIN_BITS)
    atomic = any(isinstance(access.op, Atomic) for access in writes)
    common = stores if atomic or (stores * narrowest >= MIN_BITS and not scanned) else widest
    share = max(1, tensor_type(group[0].op.operands[0]).numel // (32 * num_warps))
    return [(access, min(share, access.vector if access.writes else common, common)) for access in group]


def _depth(op: Op) -> int:
    """The number of loops around an operation."""
    outer = op.parent_op
    return 0 if outer is None else _depth(outer) + isinstance(outer, For | While)


def _has_rows(access: PointerAccess, vector: int, num_warps: int) -> bool:
    """Whether each warp gets rows of its own along order[0], without elements that several warps have."""
    row = access.shape[access.order[0]]
    rows_of_warp = max(1, 32 * vector // row)
    return prod(access.shape) // row >= rows_of_warp * num_warps


def _connected(
    func: Func, accesses: list[PointerAccess]
) -> list[tuple[list[PointerAccess], set[int], set[int]]]:
    """Accesses of one shape and order between which only operations without a layout of their own stand, and
    the axes along which what these connect is reduced, and scanned.  Those that may have any order take that of the
    others."""
    parents: dict[Value, Value] = {}

    def root(value: Value) -> Value:
        while parents.get(value, value) is not value:
            value = parents[value]
        return value

    def join(values: list[Value]) -> None:
        for value in values[1:]:
            parents[root(value)] = root(values[0])

    for op in func.body.walk():
        if is_pointwise(op):
            join([*(value for _, value in tensor_operands(op)), *op.results])
        for group in carried_groups(op):
            if isinstance(group.targets[0].type, TensorType):
                join([*group.targets, *group.sources()])
    axes: dict[tuple[Value, type[Op]], set[int]] = {}
    for op in func.body.walk():
        if isinstance(op, Reduce | Scan):
            axes.setdefault((root(op.srcs[0]), type(op)), set()).add(op.axis)
    groups: dict[tuple[Value, tuple[int, ...], tuple[int, ...]], list[PointerAccess]] = {}
    orders: dict[tuple[Value, tuple[int, ...]], set[tuple[int, ...]]] = {}
    for access in accesses:
        if not access.any_order:
            orders.setdefault((root(access.op.operands[0]), access.shape), set()).add(access.order)
    for access in accesses:
        value = root(access.op.operands[0])
        found = orders.get((value, access.shape), set())
        order = next(iter(found)) if access.any_order and len(found) == 1 else access.order
        groups.setdefault((value, access.shape, order), []).append(access._replace(order=order))
    return [
        (group, axes.get((value, Reduce), set()), axes.get((value, Scan), set()))
        for (value, *_), group in groups.items()
    ]


def _set_layout(op: Op, layout: LinearLayout) -> None:
    before, after = Builder.before(op), Builder.after(op)
    for index, operand in list(tensor_operands(op)):
        op.set_operand(index, converted(before, operand, layout))
    for result in op.results:
        old = held_layout(result)
        result.type = tensor_type(result).with_layout(layout)
        users = list(result.users)
        back = converted(after, result, old)
        for user in users if back is not result else ():
            user.replace_operand(result, back)
