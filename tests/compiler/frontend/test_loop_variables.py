"""The variables of loops after their loops, and where another loop takes the same name."""

# pyright: reportPossiblyUnboundVariable=false

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Op
from kbuild.errors import KbuildError


@kbuild.jit
def taken_again_within(out, n, m):
    total = 0
    for i in range(3):
        total += i
    for _ in range(n):
        total += 10 * i  # Of the first loop in the first round, then of the one below.
        for i in range(m):
            total += i
    tl.store(out, total + 100 * i)


@kbuild.jit
def taken_again_within_a_while(out, n, m):
    total, rounds = 0, 0
    for i in range(3):
        total += i
    while rounds < n:
        for i in range(m):
            total += i
        rounds += 1
    tl.store(out, total + 100 * i)


@kbuild.jit
def a_value_before(out, n, m):
    total, i = 0, tl.program_id(0)
    for _ in range(n):
        for i in range(m):
            total += i
    tl.store(out, total + 100 * i)


def right(kernel, n: int, m: int) -> int:
    i = 0 if kernel is a_value_before else 2
    total = 0 if kernel is a_value_before else 3
    for _ in range(n):
        total += 10 * i if kernel is taken_again_within else 0
        for i in range(m):
            total += i
    return total + 100 * i


@pytest.mark.parametrize("kernel", [taken_again_within, taken_again_within_a_while, a_value_before])
@pytest.mark.parametrize(("n", "m"), [(0, 4), (1, 4), (3, 5)])
def test_a_loop_within_another_takes_the_name_of_an_earlier_one(kernel, n, m):
    out = np.zeros(1, np.int32)
    kernel.interpret[1](out, n, m)
    assert out.tolist() == [right(kernel, n, m)]


@kbuild.jit
def of_another_type(out, n, m):
    total = tl.program_id(0)
    for i in range(m):
        tl.store(out + i, total)
    for _ in range(n):
        for i in range(3):
            tl.store(out + i, total)
    tl.store(out, total)


@kbuild.jit
def of_another_type_and_read(out, n, m):
    total = tl.program_id(0)
    for i in range(m):
        tl.store(out + i, total)
    for _ in range(n):
        for i in range(3):
            tl.store(out + i, total)
    tl.store(out, total + i)


SIGNATURE = {"out": "*i64", "n": "i32", "m": "i64"}


def test_the_two_variables_may_be_of_different_types():
    loops: list[Op] = list(build_module(of_another_type, SIGNATURE, {}).kernel.body)
    assert [len(op.results) for op in loops if op.op_name == "scf.for"] == [0, 0], "nothing is carried"


def test_only_reading_a_variable_of_two_types_is_an_error():
    with pytest.raises(KbuildError, match="`i` is int64 before the loop and int32 at its end"):
        build_module(of_another_type_and_read, SIGNATURE, {})
