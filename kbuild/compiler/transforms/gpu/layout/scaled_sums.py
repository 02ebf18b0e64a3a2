"""Running sums over rows that are rescaled in every iteration, such as the denominators of attention: kept
per thread in the loop, and exchanged between the threads of a row once, after it.

    Before:  %s: tensor<128xf32> = scf.for … init=[%zeros] body(%sum) {        with %zeros = 0
               %r: tensor<128xf32> = tt.reduce %x {axis = 1} add
               %next = %sum * %factor + %r
             }
    After:   %p: tensor<128x4xf32> = scf.for … init=[%zeros] body(%part) {     4 threads hold each row of %x
               %r: tensor<128x4xf32> = tt.reduce (what each thread holds of %x) add
               %next = %part * broadcast(expand_dims %factor) + %r
             }
             %s: tensor<128xf32> = tt.reduce %p {axis = 1} add

Right because factors belong to rows: (a + b)·f = a·f + b·f.  Floats are rounded in another order, by no more
operations.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AddF, Constant, MulF
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Reduce, Reshape, Trans
from kbuild.compiler.transforms._support.layout_flow import held_layout, tensor_type


class _ScaledSum(NamedTuple):
    """`step` is `scaled` + the result of `reduce`, and `scaled` is the carried sum times `factor`."""

    step: AddF
    scaled: MulF
    factor: Value
    reduce: Reduce


def keep_scaled_sum(loop: For, index: int) -> bool:
    """Rewrite a carried value if it is such a sum and threads would exchange in every iteration; whether it
    was."""
    found = _match(loop, index)
    if found is None:
        return False
    source, axis = tensor_type(found.reduce.srcs[0]), found.reduce.axis
    groups = own_groups(held_layout(found.reduce.srcs[0]), axis)
    if all(own for _, own in groups):
        return False
    part = own_part(Builder.before(found.reduce), found.reduce, groups)
    kept = tensor_type(part)
    assert kept.layout is not None and len(kept.shape) == source.rank
    builder = Builder.before(found.step)
    before, after = Builder.before(loop), Builder.after(loop)
    loop.init = (*loop.init[:index], before.add(Constant.of(0.0, kept)).result, *loop.init[index + 1 :])
    carried, result = loop.carried[index], loop.results[index]
    users = list(result.users)
    for value in (carried, result):
        value.type = kept
    total = reduced(after, found.reduce, result, axis)
    total.name = result.name
    for user in users:
        user.replace_operand(result, total)
    wide = builder.add(Broadcast(builder.add(ExpandDims(found.factor, axis)).result, kept)).result
    following = builder.add(AddF(builder.add(MulF(carried, wide)).result, part), found.step.result.name)
    found.step.replace_by(following)
    found.scaled.erase()
    found.reduce.erase()
    return True


def _match(loop: For, index: int) -> _ScaledSum | None:
    carried, step, first = loop.carried[index], loop.yielded[index].op, loop.init[index].op
    if not isinstance(step, AddF) or step.parent is not loop.body or sum(step.result.users.values()) != 1:
        return None
    if not isinstance(first, Constant) or first.value != 0:
        return None
    for scaled, reduce in ((step.lhs.op, step.rhs.op), (step.rhs.op, step.lhs.op)):
        if not isinstance(scaled, MulF) or not isinstance(reduce, Reduce) or not _is_sum(reduce, loop):
            continue
        factor = scaled.rhs if scaled.lhs is carried else scaled.lhs
        alone = _is_only_used_by(carried, scaled) and all(
            _is_only_used_by(op.results[0], step) for op in (scaled, reduce)
        )
        if carried in scaled.operands and alone:
            return _ScaledSum(step, scaled, factor, reduce)
    return None


def _is_only_used_by(value: Value, op: Op) -> bool:
    return list(value.users.items()) == [(op, 1)]


def _is_sum(reduce: Reduce, loop: For) -> bool:
    combine = list(reduce.combine)
    if (
        reduce.parent is not loop.body
        or len(reduce.srcs) != 1
        or tensor_type(reduce.srcs[0]).rank < 2
        or len(combine) != 2
    ):
        return False
    add = combine[0]
    return (
        isinstance(add, AddF)
        and set(add.operands) == set(reduce.combine.arguments)
        and combine[1].operands == [add.result]
    )


def own_groups(layout: LinearLayout, axis: int, kept: int = 1) -> list[tuple[int, bool]]:
    """An axis cut into sizes, slowest first, each chosen by registers of a thread alone (True) or by threads
    (False).  The fastest registers count as threads as long as `kept` elements are left to each."""
    own = set()
    for basis in layout.bases_of("register"):
        place = layout.unflatten(basis)
        if sum(place) == place[axis]:
            own.add(place[axis])
    left = layout.size("register") >> len(own)
    for place in sorted(own):
        if 2 * left <= kept:
            left *= 2
            own.remove(place)
    groups: list[tuple[int, bool]] = []
    size = layout.shape[axis]
    while size > 1:
        size //= 2
        is_own = size in own
        if groups and groups[-1][1] == is_own:
            groups[-1] = (groups[-1][0] * 2, is_own)
        else:
            groups.append((2, is_own))
    return groups


def own_part(builder: Builder, reduce: Reduce, groups: list[tuple[int, bool]]) -> Value:
    """The sum of what each thread holds: the axis is then as long as the number of threads along it."""
    source, axis = reduce.srcs[0], reduce.axis
    type_ = tensor_type(source)
    if not any(own for _, own in groups):
        return source
    value = _reshaped(
        builder, source, (*type_.shape[:axis], *(size for size, _ in groups), *type_.shape[axis + 1 :])
    )
    places = range(axis, axis + len(groups))
    threads = [place for place, (_, own) in zip(places, groups) if not own]
    registers = [place for place, (_, own) in zip(places, groups) if own]
    rest = range(axis + len(groups), type_.rank - 1 + len(groups))
    value = builder.add(Trans(value, (*range(axis), *threads, *rest, *registers))).result
    count = 1
    for place in threads:
        count *= groups[place - axis][0]
    own = type_.shape[axis] // count
    value = _reshaped(builder, value, (*type_.shape[:axis], count, *type_.shape[axis + 1 :], own))
    return reduced(builder, reduce, value, type_.rank)


def reduced(builder: Builder, reduce: Reduce, value: Value, axis: int) -> Value:
    """Another value reduced in the same way along an axis."""
    copy = builder.add(reduce.clone({reduce.srcs[0]: value}))
    copy.axis = axis
    copy.results[0].type = copy.infer()[0]
    return copy.results[0]


def _reshaped(builder: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    type_ = tensor_type(value)
    assert isinstance(type_, TensorType) and type_.layout is not None
    return builder.add(Reshape(value, type_.with_shape(shape, type_.layout.reshape(shape)))).result
