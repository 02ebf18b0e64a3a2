"""How many registers the tensors take that are alive at each operation.

A value is alive in its block from where it is defined to the last operation that uses it, or holds one that does; and
all through the regions of operations between the two.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in


def pressure(func: Func) -> dict[Op, float]:
    """For each operation the 32-bit registers of a thread that tensors take right after it."""
    found: dict[Op, float] = {}
    _visit(func.body, 0.0, found)
    return found


def _visit(block: Block, around: float, found: dict[Op, float]) -> None:
    """The operations of a block, where tensors from outside take some registers all the while."""
    places = {op: number for number, op in enumerate(block)}
    ending: dict[int, list[Value]] = {}
    for value in [*block.arguments, *(result for op in block for result in op.results)]:
        ending.setdefault(_last_use(value, block, places), []).append(value)
    alive = around + words(block.arguments) - words(ending.get(-1, ()))
    for op, number in places.items():
        for region in op.regions:
            _visit(region, alive, found)
        # What ends here makes room for the results, of which some may not be used at all.
        alive += words(op.results) - words(ending.get(number, ()))
        found[op] = alive


def _last_use(value: Value, block: Block, places: dict[Op, int]) -> int:
    """The place in a block of the last operation that uses one of its values or holds one that does: the operation
    itself, or -1 for an argument, where nothing uses it."""
    own = places[value.op] if value.op is not None else -1
    return max((places[ancestor_in(block, user)] for user in value.users), default=own)
