"""Nesting of operations and blocks."""

from __future__ import annotations

from kbuild.compiler.ir.nesting import ancestor_in, ancestors, is_within
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.tensor import Store

FUNC = parse_module("""\
tt.func @f(%n: i32, %flag: i1, %out: !tt.ptr<i32>) {
  %c1: i32 = arith.constant {value = 1}
  scf.for %c1, %n, %c1 body(%i: i32) {
    scf.if %flag then_body() {
      tt.store %out, %i
      scf.yield
    } else_body() {
      scf.yield
    }
    scf.yield
  }
  tt.return
}
""").kernel
LOOP, CHOICE, STORE = (
    next(op for op in FUNC.body.walk() if isinstance(op, kind)) for kind in (For, If, Store)
)


def test_what_is_around_an_operation() -> None:
    assert list(ancestors(STORE)) == [CHOICE, LOOP, FUNC]


def test_what_holds_an_operation() -> None:
    assert ancestor_in(FUNC.body, STORE) is LOOP
    assert ancestor_in(LOOP.regions[0], STORE) is CHOICE
    assert ancestor_in(CHOICE.regions[0], STORE) is STORE


def test_which_block_is_inside_which() -> None:
    then_body, else_body = CHOICE.regions
    assert all(is_within(then_body, outer) for outer in (then_body, LOOP.regions[0], FUNC.body))
    assert not is_within(then_body, else_body) and not is_within(FUNC.body, then_body)
