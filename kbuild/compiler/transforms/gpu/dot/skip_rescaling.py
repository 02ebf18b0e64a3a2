"""Leaves out multiplications of an accumulator's rows by factors that are one, warp by warp.

Before:                                                  After:
    %f = math.exp2 %d                                        %c = arith.cmpf %d, %zero {predicate = "une"}
    %b = tt.broadcast (tt.expand_dims %f)                    %r, … = ttg.warp_if %c, otherwise=[%acc, …] {
    %r = arith.mulf %acc, %b                                   %f = math.exp2 %d
    %p = ttng.warp_group_dot %w, %v, %r                        %b = tt.broadcast (tt.expand_dims %f)
                                                               %r = arith.mulf %acc, %b
                                                               scf.yield %r, …
                                                             }
                                                             %p = ttng.warp_group_dot %w, %v, %r

The factors of attention's accumulator are exp2(old maximum - new maximum): once the first blocks of keys are
done, often exp2(0),
which is one.  x · 1 is x, bit by bit, and NaN is not one; so the results are the same.

A kernel may say itself when a factor is not one: `where(raised, exp2(row_max - block_max), 1.0)`.  What else
it chooses by the same condition, such as the new maximum, then goes under the branch, too, unless more has to
wait for that than is left out. Where the condition is of a maximum over a row, each thread evaluates it on
the part that it holds, and one part has that maximum: so the threads of a row exchange maxima only under the
branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kbuild.compiler.analysis.scratch import plan_reduce
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.control import Yield
from kbuild.compiler.ops.elementwise import CmpF, Constant, Exp, Exp2, MaximumF, MaxNumF, MulF, Select
from kbuild.compiler.ops.gpu import WarpIf
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Reduce
from kbuild.compiler.transforms._support.layout_flow import held_layout, tensor_type
from kbuild.compiler.transforms.gpu.layout.scaled_sums import own_groups, own_part, reduced
from kbuild.targets import Target


@gpu_pass
def skip_rescaling(module: Module, target: Target) -> None:
    """Put multiplications of accumulators by factors of rows under a branch."""
    fewest = target.thresholds.vote_multiplications
    for func in module.functions.values():
        for dot in [op for op in func.body.walk() if isinstance(op, WarpGroupDot | Dot)]:
            scaled = dot.c.op
            if isinstance(scaled, MulF) and scaled.parent is dot.parent and _registers(dot.c) >= fewest:
                factor = next((found for found in map(_repeated, scaled.operands) if found is not None), None)
                if factor is not None:
                    _skip(dot.parent_block, factor, _registers(dot.c))


def _used(op: Op) -> Iterator[Value]:
    """The values that an operation, or one inside it, uses."""
    yield from op.operands
    for region in op.regions:
        for inner in region.walk():
            yield from inner.operands


def _skip(block: Block, factor: Value, saved: int) -> None:
    """Put under a branch what a factor multiplies in a block, which saves so many multiplications of each
    thread, and what is chosen by the same condition."""
    kept: dict[Op, Value] = {}
    for op in block:
        if isinstance(op, MulF) and (multiplied := _multiplied(op, factor)) is not None:
            kept[op] = multiplied
    given = _given_condition(factor)
    maximum = _maximum_behind(given) if given is not None else None
    if maximum is not None and _registers(maximum.srcs[0]) > saved:
        maximum = None
    elif given is not None:
        choices = [
            op for op in block if isinstance(op, Select) and op.condition is given and op.result is not factor
        ]
        kept |= {op: op.false_value for op in choices}
    inside = _only_for(block, kept, kept.values())
    place = next(op for op in block if op not in inside and any(value.op in kept for value in _used(op)))
    if not _is_known(block, place, kept, inside):
        return
    builder = Builder.before(place)
    condition = _differs_from_one(builder, factor) if given is None else given
    if given is not None and maximum is not None:
        condition = _asked_of_parts(builder, given, _split(maximum))
    inside = _only_for(block, kept, [*kept.values(), condition])
    branch = builder.add(WarpIf(condition, tuple(kept.values()), Block()))
    for op, result in zip(kept, branch.results):
        for user in list(op.results[0].users):
            if user not in inside:
                user.replace_operand(op.results[0], result)
    for op in list(block):
        if op in inside:
            branch.body.insert(op.detach(), None)
    branch.body.insert(Yield(tuple(op.results[0] for op in kept)), None)
    _move_multiplications_behind(branch)


def _is_known(block: Block, place: Op, kept: dict[Op, Value], inside: Collection[Op]) -> bool:
    """Whether all that a branch before `place` keeps, and what its body takes from outside, is computed by
    then."""
    needed = [*kept.values(), *(value for op in inside for value in op.operands if value.op not in inside)]
    known, before = set(), place.prev
    while before is not None:
        known.add(before)
        before = before.prev
    return all(value.op is None or value.op.parent is not block or value.op in known for value in needed)


def _registers(value: Value) -> int:
    return held_layout(value).size("register")


def _repeated(value: Value) -> Value | None:
    """The tensor of one axis less that a value repeats."""
    wide = value.op
    return wide.src.op.src if isinstance(wide, Broadcast) and isinstance(wide.src.op, ExpandDims) else None


def _multiplied(op: MulF, factor: Value) -> Value | None:
    """The value that an operation multiplies by a factor, of an element or of a row; None if it is another
    multiplication."""
    for value, other in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
        if value is factor or _repeated(value) is factor:
            return other
    return None


def _given_condition(factor: Value) -> Value | None:
    """The condition of a factor that is one where it does not hold."""
    op = factor.op
    is_one = (
        isinstance(op, Select) and isinstance(op.false_value.op, Constant) and op.false_value.op.value == 1
    )
    return op.condition if isinstance(op, Select) and is_one else None


def _differs_from_one(builder: Builder, factor: Value) -> Value:
    source, one = (factor.op.src, 0.0) if isinstance(factor.op, Exp | Exp2) else (factor, 1.0)
    constant = builder.add(Constant.of(one, source.type)).result
    return builder.add(CmpF(source, constant, "une")).result


def _only_for(block: Block, members: Collection[Op], kept: Collection[Value]) -> set[Op]:
    """The members, and the operations that compute values only for them, other than the values to be kept."""
    inside = set(members)
    for op in reversed(list(block)):
        if op.has(Trait.PURE) and not any(result in kept for result in op.results) and not _needs_memory(op):
            users = [user for result in op.results for user in result.users]
            if users and all(user in inside for user in users):
                inside.add(op)
    return inside


def _needs_memory(op: Op) -> bool:
    """Whether an operation exchanges values by shared memory, for which all warps have to come."""
    return getattr(op, "scratch", None) is not None


class _Split(NamedTuple):
    """The maximum of rows, made of the maxima of what each thread holds."""

    whole: Value
    part: Value
    axis: int


def _maximum_behind(value: Value) -> Reduce | None:
    """The maximum over rows, within warps, that a value is computed from, element by element."""
    op = value.op
    if isinstance(op, Reduce):
        is_maximum = len(op.srcs) == 1 and isinstance(op.combine.first, MaxNumF | MaximumF)
        return op if is_maximum and plan_reduce(op).exchange is None else None
    if op is None or not op.has(Trait.ELEMENTWISE):
        return None
    return next((found for found in map(_maximum_behind, op.operands) if found is not None), None)


def _split(maximum: Reduce) -> _Split:
    builder, axis = Builder.before(maximum), maximum.axis
    part = own_part(builder, maximum, own_groups(held_layout(maximum.srcs[0]), axis))
    whole = reduced(builder, maximum, part, axis)
    maximum.replace_by(whole)
    return _Split(whole, part, axis)


def _asked_of_parts(builder: Builder, value: Value, split: _Split) -> Value:
    """A value computed from the maxima of parts instead of those of rows."""
    if value is split.whole:
        return split.part
    wide = tensor_type(split.part).with_element(tensor_type(value).element)
    if not _depends(value, split.whole):
        return builder.add(Broadcast(builder.add(ExpandDims(value, split.axis)).result, wide)).result
    assert value.op is not None
    copy = value.op.clone(
        {operand: _asked_of_parts(builder, operand, split) for operand in value.op.operands}
    )
    copy.results[0].type = wide
    return builder.add(copy).results[0]


def _depends(value: Value, source: Value) -> bool:
    op = value.op
    return value is source or (
        op is not None and op.has(Trait.ELEMENTWISE) and any(_depends(v, source) for v in op.operands)
    )


def _move_multiplications_behind(branch: WarpIf) -> None:
    """Move multiplications that are needed after a branch behind it: they contract with sums of the same
    block."""
    before, after = branch.prev, {branch.parent_block.terminator}
    following = branch.next
    while following is not None:
        after.add(following)
        following = following.next
    while before is not None:
        op, before = before, before.prev
        if (
            isinstance(op, MulF)
            and branch.next is not None
            and all(user in after for user in op.result.users)
        ):
            op.move_before(branch.next)
            after.add(op)
