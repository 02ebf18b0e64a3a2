"""Lets a thread copy 16 bytes where its author has it copy several smaller pieces from global to shared memory.

Which thread copies which element no later operation can see, for all threads wait for their copies and meet
before the tile is read; so the layout of a copy's pointers is free, even where the author wrote it.  Pieces of
4 and 8 bytes go through the L1 cache, those of 16 go past it, and there are fewer of them.

Before:
    %columns: tensor<64xi32, #slice<#scalar>> = tt.make_range {start = 0, end = 64}
    …
    ttg.async_copy_global_to_local %pointers, %tile      (tensor<32x64x!tt.ptr<f32>, #scalar>)
After, where the pointers of four columns are neighbours and aligned to 16 bytes:
    %columns1: tensor<64xi32, #slice<#wide>> = tt.make_range {start = 0, end = 64}
    …
    ttg.async_copy_global_to_local %pointers1, %tile     (tensor<32x64x!tt.ptr<f32>, #wide>)
with #scalar = blocked{sizePerThread=[1, 1] …} and #wide = blocked{sizePerThread=[1, 4] …}.

The pointers are computed again in the new layout, for which no data crosses threads.  A copy stays as it is where
that cannot be: its pointers or its mask come out of a loop, or of a load that is dear to repeat.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.layout import LinearLayout, coalesced
from kbuild.compiler.layout.shared import shared_access
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal
from kbuild.compiler.transforms._support.layout_flow import (
    Relaid,
    held_layout,
    operand_layout,
    tensor_operands,
    tensor_type,
)
from kbuild.compiler.transforms.gpu.layout.coalesce import PointerAccess, find_accesses
from kbuild.compiler.transforms.gpu.layout.remove_conversions.cost import repeat_cost
from kbuild.targets import Target

_SMALLEST_BITS = 32
"""The least that cp.async copies: a layout that gives a thread less is the author's mistake, and told to him."""


@gpu_pass
def widen_copies(module: Module, target: Target) -> None:
    """Give the operands of asynchronous copies layouts with longer vectors, where these can be computed."""
    for func in module.functions.values():
        again = _Again()
        for access in find_accesses(func, target):
            layout = _wider(access) if isinstance(access.op, AsyncCopyGlobalToLocal) else None
            operands = list(tensor_operands(access.op))
            if layout is None or not all(again.possible(value, layout) for _, value in operands):
                continue
            for index, value in operands:
                access.op.set_operand(index, again.get(value, layout))


def _wider(access: PointerAccess) -> LinearLayout | None:
    """The layout in which a thread copies the longest vectors; None where the present one does."""
    op = access.op
    assert isinstance(op, AsyncCopyGlobalToLocal)
    assert isinstance(op.dst.type, MemDescType)
    tile, present = op.dst.type.layout, held_layout(op.src)

    def vector(layout: LinearLayout) -> int:
        neighbours = min(access.vector, layout.contiguous_per_thread(access.order[0]))
        return shared_access(layout, tile, access.bits, neighbours * access.bits).vector

    held = vector(present)
    if held * access.bits < _SMALLEST_BITS:
        return None
    warps = present.size("warp")
    longest = min(access.vector, tensor_type(op.src).numel // (32 * warps))
    while longest > held:
        layout = coalesced(access.shape, access.order, longest, warps)
        if vector(layout) == longest:
            return layout
        longest //= 2
    return None


class _Again(Relaid):
    """Values computed once more in other layouts in which that is `possible`."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[tuple[Value, LinearLayout], bool] = {}

    def possible(self, value: Value, layout: LinearLayout) -> bool:
        """Whether a value can be computed in a layout without data from another thread."""
        key = value, layout
        if key not in self.known:
            self.known[key] = held_layout(value) == layout or self._computed(value, layout)
        return self.known[key]

    def _computed(self, value: Value, layout: LinearLayout) -> bool:
        op = value.op
        if op is None or repeat_cost(op, layout) is None:
            return False
        needs = [(operand, operand_layout(op, index, layout)) for index, operand in tensor_operands(op)]
        return all(need is not None and self.possible(operand, need) for operand, need in needs)
