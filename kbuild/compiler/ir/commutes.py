"""Whether the function of a reduction or scan gives the same with its arguments swapped."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.traits import Trait


def commutes(block: Block) -> bool:
    """Whether a combine function visibly gives the same when its arguments are swapped."""
    count = len(block.arguments) // 2
    swapped = [*block.arguments[count:], *block.arguments[:count]]
    numbers: dict[Hashable, int] = {}
    straight, crossed = _expressions(block, block.arguments, numbers), _expressions(block, swapped, numbers)
    return straight == crossed


def _expressions(block: Block, arguments: Sequence[Value], numbers: dict[Hashable, int]) -> list[int]:
    """The results as numbers, equal for equal expressions of `arguments`; commuting operations take theirs in
    any order."""
    known = {argument: numbers.setdefault(index, len(numbers)) for index, argument in enumerate(arguments)}
    for op in block:
        operands = [
            known[value] if value in known else numbers.setdefault(value, len(numbers))
            for value in op.operands
        ]
        if op is block.last:
            return operands
        if op.has(Trait.COMMUTES):
            operands.sort()
        plain = op.has(Trait.PURE) and not op.regions
        key = (op.op_name, repr(op.attributes), tuple(operands)) if plain else op
        for value in op.results:
            known[value] = numbers.setdefault((key, value.index, str(value.type)), len(numbers))
    return []
