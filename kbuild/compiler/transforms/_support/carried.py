"""Loops with more, or fewer, carried values, and branches with fewer results.

Before:  %s = scf.for …, init=[%x] body(%i, %u) { … scf.yield %v }
After:   %s, %t = scf.for …, init=[%x, %zero] body(%i, %u, %slot) { … scf.yield %v, %next }
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbuild.compiler.analysis.carried import live_values
from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ops.control import For, If, Yield


def add_carried(loop: For, init: Sequence[Value], hints: Sequence[str]) -> list[Value]:
    """Carry further values, and give their block arguments; the caller must yield as many more."""
    loop.init = (*loop.init, *init)
    for value in init:
        loop.results.append(Value(value.type, loop, len(loop.results)))
    return [loop.body.add_argument(value.type, name) for value, name in zip(init, hints, strict=True)]


def yield_more(loop: For, values: Sequence[Value]) -> None:
    """Yield further values after those that the loop yields."""
    _terminator(loop).values = (*loop.yielded, *values)


def drop_carried(loop: For, dropped: Collection[int]) -> None:
    """Stop carrying some values, by number; their remaining uses take the initial value instead."""
    init, yielded = loop.init, loop.yielded
    _terminator(loop).values = _without(yielded, dropped)
    for index in sorted(dropped, reverse=True):
        for value in (loop.carried[index], loop.results[index]):
            value.replace_by(init[index])
        loop.body.erase_argument(index + 1)
        loop.erase_result(index)
    loop.init = _without(init, dropped)


def drop_dead_carried(func: Func) -> None:
    """Drop the carried values that serve only to compute themselves, and erase unused operations."""
    loops = [op for op in func.body.walk() if isinstance(op, For) and op.init]
    live = live_values(func) if loops else set[Value]()
    for loop in loops:
        drop_carried(loop, [index for index, argument in enumerate(loop.carried) if argument not in live])
    erase_dead(func.body)


def drop_result(branch: If, index: int) -> None:
    """Let a branch no longer have a result that nothing uses."""
    branch.erase_result(index)
    for body in (branch.then_body, branch.else_body):
        terminator = body.terminator
        assert isinstance(terminator, Yield)
        terminator.values = _without(terminator.values, (index,))


def _terminator(loop: For) -> Yield:
    terminator = loop.body.terminator
    assert isinstance(terminator, Yield)
    return terminator


def _without(values: Sequence[Value], dropped: Collection[int]) -> tuple[Value, ...]:
    return tuple(value for index, value in enumerate(values) if index not in dropped)
