"""Moves operations that compute the same in every iteration of a loop in front of the loop.

    Before:  scf.for %a, %b, %c body(%i: i32) {
               %0: tensor<64xi32> = tt.make_range {start = 0, end = 64}
               …
    After:   %0: tensor<64xi32> = tt.make_range {start = 0, end = 64}
             scf.for %a, %b, %c body(%i: i32) {
               …

Only pure operations move, and only those that do no harm where the loop does not run at all.
`tl.range(disable_licm=True)` leaves a loop alone.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.control import For, While
from kbuild.targets import Target


@tensor_pass
def licm(module: Module, target: Target) -> None:
    for function in module.functions.values():
        _visit(function.body)


def _visit(block: Block) -> None:
    """Inner loops first: what leaves them may leave the outer ones, too."""
    for op in block:
        for region in op.regions:
            _visit(region)
        if isinstance(op, While) or (isinstance(op, For) and not op.disable_licm):
            hoist(op)


def hoist(loop: Op) -> None:
    """Move the invariant operations of a loop's own blocks in front of it."""
    inside: set[Value] = set()
    for region in loop.regions:
        _collect(region, inside)
    for region in loop.regions:
        for op in region:
            if op.has(Trait.PURE) and op.is_speculatable() and not _depends(op, inside):
                op.move_before(loop)
                inside.difference_update(op.results)


def _collect(block: Block, values: set[Value]) -> None:
    values.update(block.arguments)
    for op in block:
        values.update(op.results)
        for region in op.regions:
            _collect(region, values)


def _depends(op: Op, inside: set[Value]) -> bool:
    if any(operand in inside for operand in op.operands):
        return True
    own: set[Value] = set()
    for region in op.regions:
        _collect(region, own)
    return any(
        v in inside and v not in own
        for region in op.regions
        for inner in region.walk()
        for v in inner.operands
    )
