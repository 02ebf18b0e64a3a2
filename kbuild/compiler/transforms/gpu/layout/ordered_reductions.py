"""Brings the operands of reductions whose function need not commute into layouts that can be combined in the
order of the axis.

Before:
    #a = blocked{sizePerThread=[1], threadsPerWarp=[32], warpsPerCTA=[1], order=[0]}
    %x: tensor<64xf32, #a> = tt.load %p                          elements 0 and 32 in the first thread
    %r: f32 = tt.reduce %x {axis = 0} combine(…)
After:
    #b = blocked{sizePerThread=[2], threadsPerWarp=[32], warpsPerCTA=[1], order=[0]}
    %x: tensor<64xf32, #a> = tt.load %p
    %1: tensor<64xf32, #b> = ttg.convert_layout %x               elements 0 and 1 in the first thread
    %r: f32 = tt.reduce %1 {axis = 0} combine(…)

A thread's elements are combined first, then a warp's, then all.  So the lowest bits of the axis have to
belong to registers, the next to lanes, the highest to warps.  The same hardware bits move along the axis as
before: the result's layout stays.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.commutes import commutes
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.layout import LinearLayout, axis_bits
from kbuild.compiler.ops.tensor import Reduce
from kbuild.compiler.transforms._support.layout_flow import converted, held_layout
from kbuild.targets import Target


@gpu_pass
def ordered_reductions(module: Module, target: Target) -> None:
    """Convert what is reduced by a function that does not visibly commute, where its layout is out of order."""
    reductions = [
        op for func in module.functions.values() for op in func.body.walk() if isinstance(op, Reduce)
    ]
    for op in reductions:
        if op.any_order or commutes(op.combine):
            continue
        layout = in_order(held_layout(op.srcs[0]), op.axis)
        for index, src in enumerate(op.srcs):
            op.set_operand(index, converted(Builder.before(op), src, layout))


def in_order(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout whose bits along an axis belong to registers, lanes and warps in this order, lowest first."""
    field = sum(1 << position for position in axis_bits(layout.shape, axis))
    positions = iter(1 << position for position in axis_bits(layout.shape, axis))
    bases: list[tuple[str, tuple[int, ...]]] = []
    for dim, old in layout.bases:
        following = dict(zip(sorted(basis for basis in old if basis & field), positions))
        bases.append((dim, tuple(following.get(basis, basis) for basis in old)))
    return LinearLayout(layout.shape, tuple(bases))
