"""Lets dots of warpgroups begin sums anew where a branch would put zeros into the accumulator.

Before:
    %r = scf.for … init=[%x] body(%i, %acc) {
      %d = ttng.warp_group_dot %a, %b, %acc
      %n = scf.if %done { tt.store %p, %d; scf.yield %zeros } else { scf.yield %d }
      scf.yield %n
    }
After:
    %r, %go = scf.for … init=[%x, %true] body(%i, %acc, %more) {
      %d = ttng.warp_group_dot %a, %b, %acc, use_acc=%more
      scf.if %done { tt.store %p, %d } else { }
      %next = arith.xori %done, %true
      scf.yield %d, %next
    }

A conversion of the sum's layout for the branch moves into it.  So a loop over the tiles of a program and over K at
once passes its sum on, and the dot may be in flight until the next iteration where the branch is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I1, like
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.elementwise import Constant, Select, XOrI
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Splat
from kbuild.compiler.transforms._support.carried import add_carried, drop_result, yield_more
from kbuild.targets import Target


@gpu_pass
def start_accumulators(module: Module, target: Target) -> None:
    """Give dots of loops the condition under which they go on with a sum."""
    for func in module.functions.values():
        for loop in [op for op in func.body.walk() if isinstance(op, For)]:
            for index in range(len(loop.carried)):
                found = _restart(loop, index)
                if found is not None:
                    _rewrite(loop, index, found)


@dataclass
class _Restart:
    """A branch that sets a sum to zero."""

    first: WarpGroupDot
    """The dot that adds to what the loop carries."""
    sum: Value
    """What the last of a chain of dots makes of it."""
    branch: If
    number: int
    """That of the branch's result."""
    zeros: Value
    then_zeros: bool
    """Whether it sets it where its condition holds."""


def _restart(loop: For, index: int) -> _Restart | None:
    carried, result = loop.carried[index], loop.yielded[index]
    branch = result.op
    if not isinstance(branch, If) or branch.parent is not loop.body:
        return None
    if dict(result.users) != {loop.body.terminator: 1} or sum(carried.users.values()) != 1:
        return None
    (user,) = carried.users
    if not isinstance(user, WarpGroupDot) or user.c is not carried or user.use_acc is not None:
        return None
    then, other = (block.terminator.operands[result.index] for block in (branch.then_body, branch.else_body))
    for zeros, sum_, then_zeros in ((then, other, True), (other, then, False)):
        if _is_zero(zeros) and _adds_to(user, sum_, loop.body):
            return _Restart(user, sum_, branch, result.index, zeros, then_zeros)
    return None


def _is_zero(value: Value) -> bool:
    return isinstance(value.op, Constant) and not value.op.value


def _adds_to(first: WarpGroupDot, value: Value, body: Block) -> bool:
    """Whether a value is the result of a dot, or of others of the loop that go on summing."""
    while value is not first.result:
        if not isinstance(value.op, WarpGroupDot) or value.op.parent is not body:
            return False
        value = value.op.c
    return first.parent is body


def _rewrite(loop: For, index: int, found: _Restart) -> None:
    before = Builder.before(loop)
    true = before.add(Constant(True, I1)).result
    (more,) = add_carried(loop, [true], ["more"])
    found.first.use_acc = more
    end = Builder.before(loop.body.terminator)
    condition = found.branch.condition
    going_on = end.add(XOrI(condition, true)).result if found.then_zeros else condition
    yield_more(loop, [going_on])
    found.branch.results[found.number].replace_by(found.sum)
    drop_result(found.branch, found.number)
    _sink(found.sum, found.branch)
    result, after = loop.results[index], Builder.after(loop)
    if result.users:
        goes_on = after.add(Splat(loop.results[-1], like(result.type, I1))).result
        zeros = after.add(Constant(0.0, result.type)).result
        users = list(result.users)
        chosen = after.add(Select(goes_on, result, zeros)).result
        for user in users:
            user.replace_operand(result, chosen)


def _sink(value: Value, branch: If) -> None:
    """Move what computes of a value, for one side of a branch alone, to where that begins."""
    for user in list(value.users):
        if user.parent is not branch.parent or not user.has(Trait.PURE):
            continue
        for region in branch.regions:
            inside = [is_within(op.parent_block, region) for result in user.results for op in result.users]
            if inside and all(inside) and region.first is not None:
                user.move_before(region.first)
