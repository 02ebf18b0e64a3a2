"""Issues dots of warpgroups before work that they do not need, so that tensor cores and threads work at the same time.

Before:
    %tile: !ttg.memdesc<64x32xf32, #b> = ttg.local_alloc src=%x
    %qk = ttng.warp_group_dot %q, %k, %zero
    %s = arith.select %mask, %qk, %zero                                 (here the threads wait for the first dot)
    %o = ttng.warp_group_dot %r, %tile, %zero
    %p = ttng.warp_group_dot %s, %v, %o
After:
    %qk = ttng.warp_group_dot %q, %k, %zero
    %tile: !ttg.memdesc<64x32xf32, #b> = ttg.local_alloc src=%x
    %o = ttng.warp_group_dot %r, %tile, %zero
    %s = arith.select %mask, %qk, %zero
    %p = ttng.warp_group_dot %s, %v, %o

Dots keep their order, and one that reads a tile which threads have stored does not come before stores to others: one barrier
serves all.  Nor does a dot come before what reads a value to which another one adds: that is in the registers that only dots
may write while one is in flight, and its readers would get copies.  Nothing moves where the registers of a thread would not
hold the results and the operands of all dots of the block at once.
"""

from __future__ import annotations

from kbuild.compiler.analysis.dots.register_operands import register_operand
from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import TILE_VIEWS, LocalAlloc, LocalLoad
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Store

_MOST_WORDS = 160
"""Registers of a thread, of at most 255, for the results and operands of a block's dots: the others have addresses, and
what is computed between the dots."""


@gpu_pass
def hoist_dots(module: Module, target: object) -> None:
    """Move the dots of each block up."""
    for func in module.functions.values():
        for block in dict.fromkeys(
            op.parent_block for op in func.body.walk() if isinstance(op, WarpGroupDot)
        ):
            dots = [op for op in block if isinstance(op, WarpGroupDot)]
            if len(dots) > 1 and _fit(dots):
                sums = {dot.c for dot in dots if not isinstance(dot.c.op, Constant)}
                for dot in dots:
                    _hoist(dot, sums)


def _fit(dots: list[WarpGroupDot]) -> bool:
    """Whether all results, of which those that others add to are the same, and operands fit into registers."""
    summed = {dot.c for dot in dots}
    values = [dot.result for dot in dots if dot.result not in summed]
    values += dict.fromkeys(operand for dot in dots if (operand := register_operand(dot)) is not None)
    return words(values) <= _MOST_WORDS


def _hoist(dot: WarpGroupDot, sums: set[Value]) -> None:
    """Move a dot before the first of the operations in front of it that it does not need, if that is worth it; `sums` are
    the values to which the dots of the block add."""
    needed: set[Value] = set(dot.operands)
    moved: list[Op] = [dot]
    first, pays = None, False
    reads_stored = any(_is_stored(operand.op, dot.parent) for operand in dot.operands)
    op = dot.prev
    while op is not None:
        if not needed.isdisjoint(op.results):
            if not isinstance(op, TILE_VIEWS):
                break
            moved.append(op)
            needed.update(op.operands)
        elif not (_may_follow(op) and sums.isdisjoint(op.operands)) or (
            reads_stored and _is_stored(op, dot.parent)
        ):
            break
        else:
            pays |= _takes_time(op)
            first = op
        op = op.prev
    if first is not None and pays:
        for op in reversed(moved):
            op.move_before(first)


def _may_follow(op: Op) -> bool:
    """Whether an operation may be done while a dot that it came before is in flight."""
    return not op.regions and (op.has(Trait.PURE) or isinstance(op, LocalAlloc | LocalLoad | Store))


def _takes_time(op: Op) -> bool:
    """Whether an operation stores a tile, or needs the result of a dot."""
    return _is_stored(op, op.parent) or any(isinstance(operand.op, WarpGroupDot) for operand in op.operands)


def _is_stored(op: Op | None, block: Block | None) -> bool:
    """Whether an operation of a block is a tile that threads store, or a view of one."""
    while isinstance(op, TILE_VIEWS):
        op = op.src.op
    return isinstance(op, LocalAlloc) and op.src is not None and op.parent is block
