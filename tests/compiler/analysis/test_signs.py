"""Which values are known to be non-negative, and which are not."""

from __future__ import annotations

import pytest

from kbuild.compiler.analysis.polynomials import Polynomials
from kbuild.compiler.analysis.signs import Signs
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.parser import parse_module

TEXT = """\
tt.func @f(%n: i32, %m: i32, %flag: i1) {
  %minus: i32 = arith.constant {value = -4}
  %c0: i32 = arith.constant {value = 0}
  %c4: i32 = arith.constant {value = 4}
  %pid: i32 = tt.get_program_id {axis = 0}
  %difference: i32 = arith.subi %pid, %c4
  %sum: i32 = arith.addi %pid, %c4
  %range: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %below: tensor<8xi32> = tt.make_range {start = -4, end = 4}
  %quotient: i32 = arith.divsi %pid, %c4
  %turned: i32 = arith.divsi %pid, %minus
  %rest: i32 = arith.remsi %difference, %c4
  %bounded: i32 = arith.maxsi %difference, %c0
  %least: i32 = arith.minsi %difference, %c4
  %masked: i32 = arith.andi %difference, %c4
  %either: i32 = arith.select %flag, %pid, %c4
  %one_of: i32 = arith.select %flag, %pid, %minus
  %last: i32 = scf.for %pid, %n, %c4, init=[%c0] body(%up: i32, %carried: i32) {
    %less: i32 = arith.subi %carried, %c4
    scf.yield %less
  }
  scf.for %difference, %n, %c4 body(%from_below: i32) {
    scf.yield
  }
  tt.return
}
"""
NATURAL = {"c0", "c4", "pid", "sum", "range", "quotient", "bounded", "masked", "either", "up"}


def values() -> dict[str, Value]:
    function = parse_module(TEXT).kernel
    found = {argument.name: argument for argument in function.arguments}
    for op in function.body.walk():
        found |= {v.name: v for v in (*op.results, *(a for region in op.regions for a in region.arguments))}
    return found


@pytest.mark.parametrize("name", sorted(values()))
def test_what_is_not_negative(name: str) -> None:
    assert Signs(Polynomials()).is_non_negative_value(values()[name]) == (name in NATURAL)


def test_arguments_that_are_known_not_to_be() -> None:
    named = values()
    signs = Signs(Polynomials(), [named["n"]])
    assert signs.is_non_negative_value(named["n"]) and not signs.is_non_negative_value(named["m"])
