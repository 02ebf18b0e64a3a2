"""Removes what nothing needs: operations without effect whose results are not used, also when they are used only to
compute themselves in the next iteration of a loop, and functions that nothing calls.

    Before:  %s, %t: f32, i32 = scf.for %a, %b, %c, init=[%x, %zero] body(%i: i32, %u: f32, %v: i32) {
               %w: i32 = arith.addi %v, %one
               scf.yield %u2, %w
             }                                       (%t is not used)
    After:   %s: f32 = scf.for %a, %b, %c, init=[%x] body(%i: i32, %u: f32) {
               scf.yield %u2
             }
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Module, Op, Trait, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ops.control import Call, For, If, While, Yield
from kbuild.compiler.targets import Target
from kbuild.compiler.transforms.common.simplify_control import drop_carried


@tensor_pass
def dce(module: Module, target: Target) -> None:
    kernel = module.kernel
    for function in module.functions.values():
        drop_dead_carried(function)
        erase_dead(function.body)
    called = {op.callee for function in module.functions.values() for op in function.body.walk() if isinstance(op, Call)}
    for name in [name for name in module.functions if name != kernel.name and name not in called]:
        del module.functions[name]


def drop_dead_carried(function: Func) -> None:
    """Remove carried values of loops that are needed only for themselves."""
    loops = [op for op in function.body.walk() if isinstance(op, For) and op.init]
    if not loops:
        return
    live = live_values(function)
    for loop in loops:
        dead = [i for i, (a, r) in enumerate(zip(loop.carried, loop.results)) if a not in live and r not in live]
        for index in reversed(dead):
            argument, result = loop.carried[index], loop.results[index]
            # What still uses them is dead as well, and goes with erase_dead; until then the initial value stands in.
            for value in (argument, result):
                value.replace_by(loop.init[index])
            drop_carried(loop, index)


def live_values(function: Func) -> set[Value]:
    """The values that some effect depends on."""
    live: set[Value] = set()
    worklist: list[Value] = []
    for op in function.body.walk():
        if op.has(Trait.WRITES) or _leaves(op):
            worklist.extend(op.operands)
        elif isinstance(op, For):
            worklist.extend((op.lower, op.upper, op.step))
        elif isinstance(op, If):
            worklist.append(op.condition)
        elif not op.has(Trait.PURE) and not op.has(Trait.READS) and not op.has(Trait.TERMINATOR):
            worklist.extend(op.operands)
    while worklist:
        value = worklist.pop()
        if value not in live:
            live.add(value)
            worklist.extend(_needed_for(value))
    return live


def _leaves(op: Op) -> bool:
    """Whether an operation is a terminator whose values are needed whatever uses the results."""
    return op.has(Trait.TERMINATOR) and not (isinstance(op, Yield) and isinstance(op.parent_op, For | If))


def _needed_for(value: Value) -> list[Value]:
    """The values of which a live one is made."""
    owner = value.owner
    if isinstance(owner, For):
        return [owner.init[value.index], owner.yielded[value.index], owner.carried[value.index]]
    if isinstance(owner, If):
        return [owner.then_body.terminator.operands[value.index], owner.else_body.terminator.operands[value.index]]
    if isinstance(owner, Op):
        return list(owner.operands)
    loop = owner.parent
    if isinstance(loop, For) and value.index > 0:
        return [loop.init[value.index - 1], loop.yielded[value.index - 1]]
    return list(loop.init) if isinstance(loop, While) else []
