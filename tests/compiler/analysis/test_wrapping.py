"""Which offsets are expected to wrap around."""

from __future__ import annotations

import pytest

from kbuild.compiler.analysis.wrapping import WrappingOffsets
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.parser import parse_module

TEXT = """\
tt.func @f(%x: !tt.ptr<i32>, %wide: !tt.ptr<i64>, %reals: !tt.ptr<f32>, %n: i32, %flag: i1) {
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %c6: i32 = arith.constant {value = 6}
  %count: i32 = arith.constant {value = 29}
  %few: i32 = arith.constant {value = 20}
  %large: i32 = arith.constant {value = -2147483648}
  %pairs: tensor<8x2xi32> = arith.constant {value = -2147483648}
  %small_pairs: tensor<8x2xi32> = arith.constant {value = 64}
  %pid: i32 = tt.get_program_id {axis = 0}
  %range: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %halves_1, %halves_2: tensor<8xi32>, tensor<8xi32> = tt.split %pairs
  %small_1, %small_2: tensor<8xi32>, tensor<8xi32> = tt.split %small_pairs
  %joined: tensor<8x2xi32> = tt.join %range, %halves_1
  %chained: tensor<16xi32> = tt.cat %range, %halves_2
  %gathered: tensor<8xi32> = tt.gather %halves_1, %range {axis = 0}
  %places: tensor<8xi32> = tt.gather %range, %halves_1 {axis = 0}
  %key: i32 = tt.load %x
  %start: i32 = tt.load %x
  %long: i64 = tt.load %wide
  %real: f32 = tt.load %reals
  %narrowed: i32 = arith.trunci %long
  %rounded: i32 = arith.fptosi %real
  %from: i32 = arith.subi %key, %c6
  %near: i32 = arith.addi %key, %pid
  %both: i32 = arith.addi %key, %start
  %product: i32 = arith.muli %from, %start
  %distance: i32 = arith.subi %narrowed, %pid
  %real_distance: i32 = arith.subi %rounded, %pid
  %of_arguments: i32 = arith.subi %n, %pid
  %shifted: i32 = arith.shli %from, %count
  %shifted_less: i32 = arith.shli %from, %few
  %scaled: i32 = arith.muli %shifted_less, %few
  %wide_count: i64 = arith.extsi %count
  %long_shifted: i64 = arith.shli %long, %wide_count
  %cut: i32 = arith.trunci %long_shifted
  %step: i32 = arith.shli %n, %few
  %rest: i32 = arith.remsi %pid, %step
  %quotient: i32 = arith.divsi %pid, %step
  %scaled_rest: i32 = arith.muli %rest, %step
  %scaled_quotient: i32 = arith.muli %quotient, %step
  %up: i32 = scf.for %c0, %n, %c1, init=[%c0] body(%i: i32, %counter: i32) {
    %next: i32 = arith.addi %counter, %count
    %counted: i32 = arith.shli %i, %count
    scf.yield %next
  }
  %back: i32 = scf.for %large, %n, %c1, init=[%c0] body(%far: i32, %late: i32) {
    %inner: i32 = scf.for %c0, %n, %c1, init=[%late] body(%j: i32, %carried: i32) {
      %sum: i32 = arith.addi %carried, %c1
      scf.yield %sum
    }
    scf.yield %large
  }
  %chosen: i32 = scf.if %flag then_body() {
    scf.yield %large
  } else_body() {
    scf.yield %c1
  }
  %factor: i32 = scf.if %flag then_body() {
    scf.yield %c6
  } else_body() {
    scf.yield %count
  }
  %walked: i32 = scf.while %large before(%before: i32) {
    scf.condition %flag, values=[%before]
  } after(%after: i32) {
    scf.yield %after
  }
  tt.return
}
"""
WRAPPING = {
    "large",
    "pairs",
    "halves_1",
    "halves_2",
    "joined",
    "chained",
    "gathered",
    "both",
    "product",
    "distance",
    "real_distance",
    "shifted",
    "counted",
    "cut",
    "far",
    "late",
    "inner",
    "carried",
    "sum",
    "back",
    "chosen",
    "walked",
    "before",
    "after",
}
FROM_MEMORY = {
    "narrowed",
    "rounded",
    "from",
    "near",
    "both",
    "product",
    "distance",
    "real_distance",
    "shifted",
    "shifted_less",
    "scaled",
    "cut",
}


def _values(text: str) -> tuple[dict[str, Value], WrappingOffsets]:
    function = parse_module(text).kernel
    found = {argument.name: argument for argument in function.arguments}
    for op in function.body.walk():
        found |= {v.name: v for v in (*op.results, *(a for region in op.regions for a in region.arguments))}
    return found, WrappingOffsets(function.body)


@pytest.mark.parametrize("name", sorted(_values(TEXT)[0]))
def test_what_wraps_and_what_is_computed_from_memory(name: str) -> None:
    values, wrapping = _values(TEXT)
    assert wrapping.may_wrap(values[name]) == (name in WRAPPING)
    assert wrapping.is_sum_from_memory(values[name]) == (name in FROM_MEMORY)


def test_the_order_of_questions_makes_no_difference() -> None:
    for backwards in (False, True):
        values, wrapping = _values(TEXT)
        assert {
            name for name in sorted(values, reverse=backwards) if wrapping.may_wrap(values[name])
        } == WRAPPING


def test_long_sums_do_not_wrap() -> None:
    lines = [f"  %s{i + 1}: i32 = arith.addi %s{i}, %s0" for i in range(3000)]
    values, wrapping = _values("\n".join(["tt.func @f(%s0: i32) {", *lines, "  tt.return", "}"]))
    assert not wrapping.may_wrap(values["s3000"])
