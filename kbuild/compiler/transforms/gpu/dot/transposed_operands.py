"""Lets the threads that store an operand of a warpgroups' dot down its columns hold pieces of columns.

Before:
    %v: tensor<64x32xf16, #blocked> = tt.load %p
    %1: tensor<64x32xf32, #blocked> = arith.extf %v
    %2: !ttg.memdesc<64x32xf32, #columns> = ttg.local_alloc src=%1
After:
    %v: tensor<64x32xf16, #blocked> = tt.load %p
    %3: tensor<64x32xf16, #turned> = ttg.convert_layout %v
    %1: tensor<64x32xf32, #turned> = arith.extf %3
    %2: !ttg.memdesc<64x32xf32, #columns> = ttg.local_alloc src=%1

wgmma takes 32-bit elements of B only where they are contiguous along k.  Loaded along n, a thread has neighbours along n
and stores them one by one, several lanes to the same bank.  The pass `optimize_dot_operands` takes the conversion
through shared memory, where the pipeline's copies are anyway: read from there as the accumulator of the transposed dot,
by ldmatrix where there are 16 bits, the elements are stored without conflicts.  Results of dots come like that by themselves.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, bit_width
from kbuild.compiler.layout import (
    LinearLayout,
    SharedAccess,
    coalesced,
    mma_accumulator,
    out_of_pairs,
    wavefronts,
)
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS, store_plan
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Load
from kbuild.compiler.transforms._support.layout_flow import (
    FREE,
    Relaid,
    held_layout,
    minor_axis,
    tensor_operands,
    tensor_type,
)

_INSTRUCTION = (16, 8)
_STORED_BITS = 32


@gpu_pass
def transposed_operands(module: Module, target: object) -> None:
    """Give operands that are stored against the order in which they were loaded another layout."""
    for func in module.functions.values():
        turned, relaid = False, _FromLoads()
        for dot in func.body.walk():
            if isinstance(dot, WarpGroupDot):
                view = dot.b.op if isinstance(dot.b.op, MemDescTrans) else None
                alloc = dot.b.op if view is None else view.src.op
                if isinstance(alloc, LocalAlloc) and alloc.src is not None:
                    turned |= _turn(alloc, 0 if view is None else 1, relaid, func.attrs["num_warps"])
        if turned:
            erase_dead(func.body)


class _FromLoads(Relaid):
    """Values in other layouts, computed once more from what was loaded."""

    def make(self, value: Value, layout: LinearLayout) -> Value:
        if _is_computed(value):
            return super().make(value, layout)
        convert = ConvertLayout(value, tensor_type(value).with_layout(layout))
        return Builder.after_value(value).add(convert, value.name).result


def _turn(alloc: LocalAlloc, k_axis: int, relaid: _FromLoads, num_warps: int) -> bool:
    """Store a tile from another layout, if it takes less time."""
    assert alloc.src is not None and isinstance(alloc.result.type, MemDescType)
    tile, bits, held = alloc.result.type.layout, bit_width(alloc.src.type), held_layout(alloc.src)
    loaded = _loaded_bits(alloc.src)
    if bits != _STORED_BITS or not loaded:
        return False
    candidates = [_turned(tensor_type(alloc.src).shape, k_axis, num_warps)]
    if min(loaded) == _STORED_BITS:  # ldmatrix gives pairs of others.
        candidates.append(out_of_pairs(candidates[0], k_axis))
    if minor_axis(held) == k_axis:
        vector = MAX_VECTOR_BITS // _STORED_BITS
        candidates.append(coalesced(tensor_type(alloc.src).shape, (k_axis, 1 - k_axis), vector, num_warps))
    turned = min(candidates, key=lambda layout: _cost(layout, tile))
    if _cost(turned, tile) >= _cost(held, tile):
        return False
    alloc.src = relaid.get(alloc.src, turned)
    return True


def _cost(layout: LinearLayout, tile: LinearLayout) -> int:
    """The wavefronts and instructions of a warp that stores a tile."""
    plan = store_plan(layout, tile, _STORED_BITS, True)
    if isinstance(plan, SharedAccess):
        return wavefronts(layout, tile, _STORED_BITS) + len(plan.groups)
    return len(plan.groups) * (plan.x + 1)


def _turned(shape: tuple[int, ...], k_axis: int, num_warps: int) -> LinearLayout:
    """The accumulator's layout of a dot whose result has the columns of B, along k, as rows; warps go along the rows first."""
    rows, depth = shape[1 - k_axis], shape[k_axis]
    along = min(num_warps, max(1, rows // _INSTRUCTION[0]))
    layout = mma_accumulator((rows, depth), (along, num_warps // along), _INSTRUCTION)
    return layout.transpose((1, 0)) if k_axis == 0 else layout


def _loaded_bits(tile: Value) -> set[int]:
    """The widths of the loaded elements of which a tile is computed one by one; none where a dot or something else takes
    part."""
    work, seen, found = [tile], set[Value](), set[int]()
    for value in work:
        if value in seen:
            continue
        seen.add(value)
        if _is_computed(value):
            assert value.op is not None
            work += [operand for _, operand in tensor_operands(value.op)]
        elif not isinstance(value.op, Load):
            return set()
        elif tensor_type(value).shape == tensor_type(tile).shape:
            found.add(bit_width(value.type))
    return found


def _is_computed(value: Value) -> bool:
    """Whether a value may be computed once more in another layout."""
    op = value.op
    if op is None or isinstance(op, Load):
        return False
    return op.has(Trait.ELEMENTWISE) or isinstance(op, (Broadcast, ExpandDims, *FREE))
