"""Values that control flow passes on, and which values are used."""

from __future__ import annotations

from kbuild.compiler.analysis.carried import group_of, live_values, passed_on
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For, If, While

TEXT = """\
tt.func @f(%n: i32, %out: !tt.ptr<i32>) {
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %sum, %turns, %unused: i32, i32, i32 = scf.for %c0, %n, %c1, init=[%c0, %c0, %c0]
      body(%i: i32, %part: i32, %turn: i32, %old: i32) {
    %is_even: i1 = arith.cmpi %turn, %c0 {predicate = "eq"}
    %term, %spare: i32, i32 = scf.if %is_even then_body() {
      %next: i32 = arith.addi %part, %i
      scf.yield %next, %n
    } else_body() {
      scf.yield %part, %old
    }
    %following: i32 = arith.subi %c1, %turn
    %older: i32 = arith.addi %old, %spare
    scf.yield %term, %following, %older
  }
  %last: i32 = scf.while %sum before(%a: i32) {
    %more: i1 = arith.cmpi %a, %n {predicate = "sgt"}
    scf.condition %more, values=[%a]
  } after(%b: i32) {
    %less: i32 = arith.subi %b, %c1
    scf.yield %less
  }
  tt.store %out, %last
  tt.return
}
"""


def kernel() -> tuple[Func, dict[str, Value]]:
    """The function, and its values by name."""
    func = parse_module(TEXT).kernel
    blocks = [func.body, *(region for op in func.body.walk() for region in op.regions)]
    results = [result for op in func.body.walk() for result in op.results]
    return func, {
        value.name: value
        for value in (*(argument for block in blocks for argument in block.arguments), *results)
    }


def names(values: list[Value]) -> list[str]:
    return [value.name for value in values]


def first(func: Func, kind: type[Op]) -> Op:
    return next(op for op in func.body.walk() if isinstance(op, kind))


def test_where_a_value_comes_from_that_control_flow_hands_on() -> None:
    _, named = kernel()
    sources = {
        name: names(group.sources())
        for name, value in named.items()
        if (group := group_of(value)) is not None
    }
    assert sources == {
        "part": ["c0", "term"],
        "sum": ["c0", "term"],
        "turn": ["c0", "following"],
        "turns": ["c0", "following"],
        "old": ["c0", "older"],
        "unused": ["c0", "older"],
        "term": ["next", "part"],
        "spare": ["n", "old"],
        "a": ["sum", "less"],
        "b": ["a"],
        "last": ["a"],
    }


def test_where_a_value_goes_that_control_flow_hands_on() -> None:
    func, named = kernel()
    loop, choice, again = (first(func, kind) for kind in (For, If, While))
    assert names(passed_on(named["c0"], loop)) == ["part", "sum", "turn", "turns", "old", "unused"]
    assert names(passed_on(named["next"], choice.regions[0].terminator)) == ["term"]
    assert names(passed_on(named["term"], loop.regions[0].terminator)) == ["part", "sum"]
    assert names(passed_on(named["sum"], again)) == ["a"]
    assert names(passed_on(named["a"], again.regions[0].terminator)) == ["b", "last"]
    assert passed_on(named["n"], loop) == []


def test_what_only_serves_itself_is_not_live() -> None:
    func, named = kernel()
    live = live_values(func)
    assert {name for name, value in named.items() if value not in live} == {"unused", "old", "older", "spare"}
