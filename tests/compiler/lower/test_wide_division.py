"""Divisions of 64 bits by several elements of a thread: one branch for all of them."""

from __future__ import annotations

import re

import pytest

from tests.compiler.lower.kernels import ptx

DIVISION = """
  %r: tensor<SIZExi32, #b> = tt.make_range {start = 0, end = SIZE}
  %w: tensor<SIZExi64, #b> = arith.extsi %r
  %s: tensor<SIZExi64, #b> = tt.splat %n
  %x: tensor<SIZExi64, #b> = arith.muli %w, %s
  %d: tensor<SIZExi64, #b> = tt.splat %m
  %q: tensor<SIZExi64, #b> = arith.divsi %x, %d
  %e: tensor<SIZExi64, #b> = arith.remsi %x, %d
  %y: tensor<SIZExi64, #b> = arith.xori %q, %e
  %p: tensor<SIZEx!tt.ptr<i64>, #b> = tt.splat %o
  %a: tensor<SIZEx!tt.ptr<i64>, #b> = tt.addptr %p, %w
  tt.store %a, %y
"""


def divided(size: int) -> str:
    return ptx(DIVISION.replace("SIZE", str(size)), "%o: !tt.ptr<i64> {divisibility = 16}, %n: i64, %m: i64")


@pytest.mark.parametrize("size", [512, 1024])
def test_what_fits_32_bits_is_divided_there_by_one_branch(size):
    """The remainder comes with the quotient."""
    text, each = divided(size), size // 128
    assert text.count("div.u32") == text.count("div.s64") == each and "rem" not in text
    assert len(re.findall(r"@%p\d+ bra", text)) == 1


def test_many_elements_are_divided_one_by_one():
    """All quotients at once would take more registers than they save instructions."""
    assert len(re.findall(r"@%p\d+ bra", divided(4096))) >= 32
