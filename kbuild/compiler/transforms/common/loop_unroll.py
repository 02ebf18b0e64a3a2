"""Unrolls the loops whose author requests it (`tl.range(…, loop_unroll_factor=n)`): n iterations become
one, and a second loop does what is left over.

    Before:  scf.for %lower, %upper, %step {loop_unroll_factor = 2} body(%i: i32) {
               tt.store …%i
             }
    After:   %main = lower + (upper - lower) / (2 step) * (2 step)
             scf.for %lower, %main, %step2 body(%i: i32) {
               tt.store …%i
               tt.store …%i + step
             }
             scf.for %main, %upper, %step {num_stages = 1} body(%j: i32) {
               tt.store …%j
             }

If the bounds are constants and the factor divides the number of iterations, the second loop is left out.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ops.control import For, Yield
from kbuild.compiler.ops.elementwise import AddI, Constant, DivSI, MulI, SubI
from kbuild.compiler.transforms._support.loops import trip_count
from kbuild.targets import Target


@tensor_pass
def loop_unroll(module: Module, target: Target) -> None:
    for function in module.functions.values():
        loops = [
            op for op in function.body.walk() if isinstance(op, For) and op.loop_unroll_factor is not None
        ]
        for loop in reversed(loops):
            if loop.loop_unroll_factor is not None and loop.loop_unroll_factor > 1:
                unroll(loop, loop.loop_unroll_factor)
            loop.loop_unroll_factor = None


def unroll(loop: For, factor: int) -> None:
    """Let the loop do `factor` iterations at a time, followed by a loop for the rest where there may be one."""
    build = Builder.before(loop)
    step = loop.step
    stride = _multiplied(build, step, factor)
    trips = trip_count(loop)
    if trips is None or trips % factor:
        _split_rest(build, loop, stride)
    loop.step = stride
    terminator, yielded = loop.body.terminator, loop.yielded
    operations = [op for op in loop.body if op is not terminator]
    build = Builder(loop.body, terminator, loop.loc)
    carried = list(yielded)
    for number in range(1, factor):
        index = build.add(AddI(loop.induction, _multiplied(build, step, number)), loop.induction.name).result
        mapping: dict[Value, Value] = {loop.induction: index, **dict(zip(loop.carried, carried))}
        for op in operations:
            build.add(op.clone(mapping))
        carried = [mapping.get(value, value) for value in yielded]
    assert isinstance(terminator, Yield)
    terminator.values = tuple(carried)


def _split_rest(build: Builder, loop: For, stride: Value) -> None:
    """Let the loop end where the last whole stride does, and another one go on from there."""
    length = build.add(SubI(loop.upper, loop.lower))
    whole = build.add(MulI(build.add(DivSI(length.result, stride)).result, stride))
    middle = build.add(AddI(loop.lower, whole.result)).result
    rest = loop.clone()
    for mine, its in zip(loop.results, rest.results):
        mine.replace_by(its)
    rest.lower, rest.init = middle, tuple(loop.results)
    rest.loop_unroll_factor, rest.num_stages = None, 1
    loop.upper = middle
    Builder.after(loop).add(rest)


def _multiplied(build: Builder, value: Value, factor: int) -> Value:
    """value * factor, at once for a constant."""
    if isinstance(value.owner, Constant):
        return build.add(Constant.of(value.owner.value * factor, value.type)).result
    return build.add(MulI(value, build.add(Constant.of(factor, value.type)).result)).result
