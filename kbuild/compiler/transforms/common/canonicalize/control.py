"""Rules on control flow: branches whose condition is known, loops that run once or not at all, values carried
or chosen for nothing."""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.control import Condition, For, If, While, Yield
from kbuild.compiler.ops.elementwise import Constant, Select
from kbuild.compiler.transforms._support.carried import drop_carried, drop_result
from kbuild.compiler.transforms._support.loops import trip_count

control = Rewrites()


def move_body(block: Block, before: Op) -> list[Value]:
    """Move the operations of a block, but not its terminator, in front of an operation; return what the
    terminator yields."""
    terminator = block.terminator
    yielded = list(terminator.operands)
    terminator.erase()
    for op in block:
        op.move_before(before)
    return yielded


@control.on(If)
def if_of_constant(op: If) -> list[Value] | None:
    """A branch whose condition is known takes the place of the choice."""
    condition = op.condition.owner
    if not isinstance(condition, Constant):
        return None
    return move_body(op.then_body if condition.value else op.else_body, op)


@control.on(If)
def if_yields_the_same(op: If) -> Op | None:
    """A result that no one uses, or for which both branches yield one value, need not be a result; where the
    branches are empty, a scalar result is a select."""
    first, second = op.then_body.terminator, op.else_body.terminator
    empty = op.then_body.first is first and op.else_body.first is second
    changed = False
    for index in reversed(range(len(op.results))):
        result, one, other = op.results[index], first.operands[index], second.operands[index]
        if result.users:
            if one is other:
                result.replace_by(one)
            elif empty and not isinstance(one.type, TensorType):
                select = Select(op.condition, one, other)
                select.loc = op.loc
                op.parent_block.insert(select, op)
                result.replace_by(select.result)
            else:
                continue
        drop_result(op, index)
        changed = True
    return op if changed else None


def _without(values: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    return values[:index] + values[index + 1 :]


@control.on(For)
def loop_that_does_not_run(op: For) -> list[Value] | None:
    """A loop whose upper bound is not above the lower one returns its initial values."""
    lower, upper = op.lower.owner, op.upper.owner
    if op.lower is op.upper or (
        isinstance(lower, Constant) and isinstance(upper, Constant) and lower.value >= upper.value
    ):
        return list(op.init)
    return None


@control.on(For)
def loop_that_runs_once(op: For) -> list[Value] | None:
    """The one iteration takes the place of the loop: there is nothing to copy ahead, and dots begin at zero
    without being given zeros."""
    if trip_count(op) != 1:
        return None
    op.induction.replace_by(op.lower)
    for argument, initial in zip(op.carried, op.init):
        argument.replace_by(initial)
    return move_body(op.body, op)


@control.on(For)
def carried_for_nothing(op: For) -> Op | None:
    """A value that every iteration passes on unchanged is the initial one; one that is not used need not be
    carried."""
    changed = False
    for index in reversed(range(len(op.init))):
        argument, result, initial, yielded = (
            op.carried[index],
            op.results[index],
            op.init[index],
            op.yielded[index],
        )
        if yielded is not argument and yielded is not initial and (result.users or argument.users):
            continue
        drop_carried(op, [index])
        changed = True
    return op if changed else None


@control.on(While)
def while_passes_on(op: While) -> Op | None:
    """A value that `before` and `after` both pass on unchanged is the initial one; unused results are
    removed."""
    test, body = op.before.terminator, op.after.terminator
    assert isinstance(test, Condition) and isinstance(body, Yield)
    changed = False
    for index in reversed(range(len(op.results))):
        argument, result, passed = op.after.arguments[index], op.results[index], test.values[index]
        if passed in op.before.arguments:
            place = op.before.arguments.index(passed)
            if body.values[place] is argument or body.values[place] is op.init[place]:
                for value in (passed, argument, result):
                    value.replace_by(op.init[place])
        is_inside = any(is_within(passed.block, region) for region in op.regions)
        if not is_inside and passed.owner is not op:
            argument.replace_by(passed)
            result.replace_by(passed)
        if not argument.users and not result.users:
            test.values = _without(test.values, index)
            op.after.erase_argument(index)
            op.erase_result(index)
            changed = True
    for index in reversed(range(len(op.init))):
        if not op.before.arguments[index].users:
            op.before.erase_argument(index)
            op.init = _without(op.init, index)
            body.values = _without(body.values, index)
            changed = True
    return op if changed else None
