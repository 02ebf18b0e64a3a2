"""Loops with more carried values, and with fewer."""

from __future__ import annotations

from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.verify import verify
from kbuild.compiler.ops.control import For
from kbuild.compiler.transforms._support.carried import (
    add_carried,
    drop_carried,
    drop_dead_carried,
    yield_more,
)

TEXT = """\
tt.func @f(%n: i32, %out: !tt.ptr<i32>) {
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %sum, %count: i32, i32 = scf.for %c0, %n, %c1, init=[%c0, %c1] body(%i: i32, %part: i32, %turn: i32) {
    %next: i32 = arith.addi %part, %i
    %later: i32 = arith.addi %turn, %c1
    scf.yield %next, %later
  }
  tt.store %out, %sum
  tt.return
}
"""


def loop_of(func: Func) -> For:
    return next(op for op in func.body if isinstance(op, For))


def carried(func: Func) -> list[tuple[str, str, str]]:
    """What each carried value is called, where it starts, and what follows."""
    loop = loop_of(func)
    verify(func)
    return [
        (value.name, start.name, after.name)
        for value, start, after in zip(loop.carried, loop.init, loop.yielded)
    ]


def test_to_carry_more() -> None:
    func = parse_module(TEXT).kernel
    loop = loop_of(func)
    (slot,) = add_carried(loop, [loop.lower], ["slot"])
    yield_more(loop, [loop.induction])
    assert carried(func) == [("part", "c0", "next"), ("turn", "c1", "later"), ("slot", "c0", "i")]
    assert slot.index == 3 and len(loop.results) == 3


def test_to_carry_less() -> None:
    func = parse_module(TEXT).kernel
    drop_carried(loop_of(func), [1])
    assert carried(func) == [("part", "c0", "next")]
    later = next(op for op in loop_of(func).body if op.results and op.result.name == "later")
    assert [value.name for value in later.operands] == ["c1", "c1"], "the initial value stands in"


def test_to_carry_what_is_needed_alone() -> None:
    func = parse_module(TEXT).kernel
    drop_dead_carried(func)
    assert carried(func) == [("part", "c0", "next")]
    assert [op.op_name for op in loop_of(func).body] == ["arith.addi", "scf.yield"]
