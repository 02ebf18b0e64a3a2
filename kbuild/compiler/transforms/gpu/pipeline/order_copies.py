"""Starts copies by TMA that neighbouring programs do alike before those in which they differ.

Before:
    ttng.async_tma_copy_global_to_local %a_map, %a, %barrier, %true, indices=[%m, %k]
    ttng.async_tma_copy_global_to_local %b_map, %b, %barrier, %true, indices=[%k, %n]
After (where `%m` depends on the program's number along the grid's first axis and `%n` does not):
    ttng.async_tma_copy_global_to_local %b_map, %b, %barrier, %true, indices=[%k, %n]
    ttng.async_tma_copy_global_to_local %a_map, %a, %barrier, %true, indices=[%m, %k]

Programs that run side by side then ask the L2 cache for the tile that they share at about the same time.  Products of
8192×8192×8192 by programs of which a multiprocessor holds one, with two buffers of each tile, took 8 to 19 % less time
on an H200, in four shapes of blocks, whichever tile was the larger, with the grid's first axis along M and along N.
Where several programs share a multiprocessor, one copies while others multiply, and products took up to 8 % more:
there the author's order stays.

Only copies for one barrier between which nothing but arithmetic stands change places, so none passes a wait, a fence
or an arrival.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import loop_words
from kbuild.compiler.ir.core import Block, Func, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal
from kbuild.compiler.transforms._support.neighbours import is_same
from kbuild.targets import Target

_NEIGHBOURS = 2
_SCALAR_REGISTERS = 16
"""Registers of a thread for addresses and counters, besides those of tensors."""


@gpu_pass
def order_copies(module: Module, target: Target) -> None:
    """Move copies that neighbours do alike to the front of those for the same barrier; runs after `allocate`."""
    for func in module.functions.values():
        runs = [run for run in _runs(func.body) if len(run) > 1]
        if runs and _is_alone(func, target):
            for run in runs:
                _sort(run)


def _runs(block: Block) -> list[list[AsyncTmaCopyGlobalToLocal]]:
    """Copies for one barrier with nothing but arithmetic between them."""
    found: list[list[AsyncTmaCopyGlobalToLocal]] = []
    barrier: Value | None = None
    for op in block:
        for region in op.regions:
            found += _runs(region)
        if isinstance(op, AsyncTmaCopyGlobalToLocal):
            if op.barrier is not barrier:
                found.append([])
            found[-1].append(op)
            barrier = op.barrier
        elif not op.has(Trait.PURE):
            barrier = None
    return found


def _is_alone(func: Func, target: Target) -> bool:
    """Whether a multiprocessor has room for one program only."""
    loops = (op for op in func.body.walk() if isinstance(op, For))
    registers = int(max(map(loop_words, loops), default=0)) + _SCALAR_REGISTERS
    return target.limits.programs(func.attrs["shared"], func.attrs["num_warps"], registers) <= 1


def _sort(run: list[AsyncTmaCopyGlobalToLocal]) -> None:
    """Put the copies in their new order, in which those of one kind stay in theirs."""
    ordered = sorted(run, key=lambda copy: not is_same(copy.indices, _NEIGHBOURS))
    following = run[-1].next
    if ordered == run or following is None:
        return
    for copy in ordered:
        copy.move_before(following)
