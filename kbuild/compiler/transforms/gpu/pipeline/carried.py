"""Loops with more, or fewer, carried values."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Trait, Value
from kbuild.compiler.ops.control import For, Yield
from kbuild.compiler.ops.tensor import Load


def add_carried(loop: For, init: Sequence[Value], hints: Sequence[str]) -> tuple[For, list[Value]]:
    """The loop with further carried values, and their block arguments; the caller must yield as many more."""
    arguments = [loop.body.add_argument(value.type, hint) for value, hint in zip(init, hints)]
    new = _rebuilt(loop, (*loop.init, *init))
    for result, replacement in zip(loop.results, new.results):
        result.replace_by(replacement)
    loop.erase()
    return new, arguments


def yield_more(loop: For, values: Sequence[Value]) -> None:
    """Yield further values after those that the loop yields."""
    terminator = loop.body.terminator
    assert isinstance(terminator, Yield)
    terminator.values = (*terminator.values, *values)


def drop_unused_carried(loop: For) -> For:
    """The loop without the carried values that only serve to compute themselves, and without what computes those."""
    live = _live_values(loop)
    kept = [index for index, argument in enumerate(loop.carried) if argument in live or loop.results[index].users]
    if len(kept) == len(loop.init):
        return loop
    dropped = [index for index in reversed(range(len(loop.init))) if index not in kept]
    terminator = loop.body.terminator
    assert isinstance(terminator, Yield)
    terminator.values = tuple(terminator.values[index] for index in kept)
    op = terminator.prev
    while op is not None:
        previous = op.prev
        if (op.has(Trait.PURE) or isinstance(op, Load)) and not any(result in live for result in op.results):
            op.erase()
        op = previous
    for index in dropped:
        loop.body.erase_argument(index + 1)
    new = _rebuilt(loop, tuple(loop.init[index] for index in kept))
    for index, result in zip(kept, new.results):
        loop.results[index].replace_by(result)
    loop.erase()
    return new


def _rebuilt(loop: For, init: tuple[Value, ...]) -> For:
    """The same loop around the same body, with other initial values; the old one is left with an empty body."""
    body = loop.body
    loop.body = Block()
    loop.body.parent = loop
    return Builder.before(loop).add(For(loop.lower, loop.upper, loop.step, init, body, **loop.attributes))


def _live_values(loop: For) -> set[Value]:
    """The values of the body that something with an effect, or the world after the loop, depends on."""
    roots = [loop.yielded[index] for index, result in enumerate(loop.results) if result.users]
    for op in loop.body:
        needed = not op.has(Trait.PURE) and not op.has(Trait.TERMINATOR) and not isinstance(op, Load)
        if needed or (isinstance(op, Load) and op.volatile):
            roots.extend(operand for inner in op.walk() for operand in inner.operands)
            roots.extend(op.results)
    live: set[Value] = set()
    while roots:
        value = roots.pop()
        if value in live:
            continue
        live.add(value)
        if value.op is not None and value.op.parent is loop.body:
            roots.extend(operand for inner in value.op.walk() for operand in inner.operands)
        elif value.op is None and value.block is loop.body and value.index:
            roots.append(loop.yielded[value.index - 1])
    return live
