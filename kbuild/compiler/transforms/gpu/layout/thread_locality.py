"""Keeps running sums per thread inside a loop, and reduces once, after it.

Before:
    %s: f32 = scf.for … init=[%zero] body(%i, %sum) {
      %r: f32 = tt.reduce %x {axis = 0} …        (exchanges between threads, every time)
      %next: f32 = arith.addf %sum, %r
      scf.yield %next
    }
After:
    %p: tensor<1024xf32> = scf.for … init=[%zeros] body(%i, %part: tensor<1024xf32>) {
      %own: tensor<1024xf32> = tt.reduce (two of the sixteen elements of %x that each of 128 threads has) {axis = 1} …
      %next: tensor<1024xf32> = arith.addf %part, %own
      scf.yield %next
    }
    %r: f32 = tt.reduce %p {axis = 0} …
    %s: f32 = arith.addf %zero, %r

Sums of floats are associated differently, as by any other order of threads.  A thread keeps few sums, whatever
the size of the tensor: registers that the loop carries are missing to other programs of the multiprocessor.
"""

from __future__ import annotations

from math import inf, prod

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Op
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import FloatType, IntType, Type
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import (
    AddF,
    AddI,
    Binary,
    Constant,
    MaximumF,
    MaxNumF,
    MaxSI,
    MaxUI,
    MinimumF,
    MinNumF,
    MinSI,
    MinUI,
)
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Reduce
from kbuild.compiler.transforms._support.layout_flow import held_layout, tensor_type
from kbuild.compiler.transforms.gpu.layout.scaled_sums import keep_scaled_sum, own_groups, own_part, reduced

KEPT = 8
"""Running sums of a thread; more where it has as many rows.  With fewer, ptxas was seen to delay the loads of a loop until
each is wanted, which took twice the time on an H200."""
MAX_REGISTERS = 32
"""Running sums of a thread, at most."""


@gpu_pass
def thread_locality(module: Module, target: object) -> None:
    """Move reductions whose results are only accumulated behind their loops."""
    for func in module.functions.values():
        for op in list(func.body.walk()):
            if isinstance(op, For):
                _rewrite_loop(op)


def _rewrite_loop(loop: For) -> None:
    for index in range(len(loop.carried)):
        found = _accumulation(loop, index)
        if found is None:
            keep_scaled_sum(loop, index)
        else:
            _accumulate_elements(loop, index, *found)


def _accumulation(loop: For, index: int) -> tuple[Binary, Reduce] | None:
    """The operation that accumulates a carried value, and the reduction that it adds; None if there is more
    to it."""
    carried, step = loop.carried[index], loop.yielded[index].op
    if not isinstance(step, Binary) or list(carried.users) != [step] or sum(step.result.users.values()) != 1:
        return None
    if step.parent is not loop.body or sum(carried.users.values()) != 1:
        return None
    given = step.rhs if step.lhs is carried else step.lhs
    while isinstance(given.op, ConvertLayout) and len(given.users) == 1:
        given = given.op.src
    reduce = given.op
    if (
        not isinstance(reduce, Reduce)
        or reduce.parent is not loop.body
        or len(reduce.srcs) != 1
        or len(given.users) != 1
    ):
        return None
    combine = list(reduce.combine)
    if (
        len(combine) != 2
        or type(combine[0]) is not type(step)
        or list(combine[1].operands) != [combine[0].results[0]]
    ):
        return None
    source = reduce.srcs[0]
    layout = held_layout(source)
    groups = own_groups(layout, reduce.axis, KEPT)
    own = prod(size for size, is_own in groups if is_own)
    local = (
        layout.size("register") // own <= MAX_REGISTERS
        and not all(is_own for _, is_own in own_groups(layout, reduce.axis))
        and neutral(step, tensor_type(source).element) is not None
    )
    return (step, reduce) if local and set(combine[0].operands) == set(reduce.combine.arguments) else None


def neutral(op: Op, element: Type) -> float | int | None:
    """The number that changes nothing under an operation; None for operations that this pass leaves alone."""
    if isinstance(op, AddF | AddI):
        return 0
    if isinstance(element, FloatType):
        # The largest numbers of the narrowest floats are finite.
        if element.bits < 16:
            return None
        return (
            -inf
            if isinstance(op, MaxNumF | MaximumF)
            else inf
            if isinstance(op, MinNumF | MinimumF)
            else None
        )
    assert isinstance(element, IntType)
    signed = 1 << element.bits - 1
    return {MaxSI: -signed, MinSI: signed - 1, MaxUI: 0, MinUI: -1}.get(type(op))


def _accumulate_elements(loop: For, index: int, step: Binary, reduce: Reduce) -> None:
    carried, result = loop.carried[index], loop.results[index]
    layout = held_layout(reduce.srcs[0])
    source = own_part(Builder.before(reduce), reduce, own_groups(layout, reduce.axis, KEPT))
    start = neutral(step, tensor_type(source).element)
    assert start is not None
    before, after = Builder.before(loop), Builder.after(loop)
    first = loop.init[index]
    part = before.add(Constant.of(start, source.type)).result
    loop.init = (*loop.init[:index], part, *loop.init[index + 1 :])
    for value in (carried, result):
        value.type = source.type
    # The reduction moves behind the loop, and its result meets what the loop began with.
    users = list(result.users)
    moved = reduced(after, reduce, result, reduce.axis)
    if moved.type != first.type:
        moved = after.add(ConvertLayout(moved, first.type)).result
    total = after.add(type(step)(first, moved), result.name).result
    for user in users:
        user.replace_operand(result, total)
    inner = Builder.before(step).add(type(step)(carried, source), step.result.name)
    conversions = [step.rhs if step.lhs is carried else step.lhs]
    step.replace_by(inner)
    while isinstance(conversions[-1].op, ConvertLayout):
        conversions.append(conversions[-1].op.src)
    for value in conversions:
        if value.op is not None:
            value.op.erase()
