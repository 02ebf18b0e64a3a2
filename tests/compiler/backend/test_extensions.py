"""Unsigned numbers of 8 and 16 bits are widened to 64 in two steps: ptxas loses what a single one cuts off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kbuild
from kbuild.compiler.backend.extensions import in_two_steps

KERNELS = f"{Path(__file__).parents[2]}/zoo/kernels/undefined.py"


@pytest.mark.parametrize(
    "statement, steps",
    [
        ("cvt.u64.u16 %rd1, %rs2;", "{ .reg .b32 %wide; cvt.u32.u16 %wide, %rs2; cvt.u64.u32 %rd1, %wide; }"),
        ("cvt.s64.u8 \t%rd1, %r2;", "{ .reg .b32 %wide; cvt.u32.u8 %wide, %r2; cvt.u64.u32 %rd1, %wide; }"),
        (
            "@!%p1 cvt.u64.u8 %rd1, %rs2;",
            "{ .reg .b32 %wide; @!%p1 cvt.u32.u8 %wide, %rs2; @!%p1 cvt.u64.u32 %rd1, %wide; }",
        ),
        ("cvt.u64.u32 %rd1, %r2;", "cvt.u64.u32 %rd1, %r2;"),
        ("cvt.s64.s16 %rd1, %rs2;", "cvt.s64.s16 %rd1, %rs2;"),
    ],
)
def test_a_statement(statement: str, steps: str) -> None:
    assert in_two_steps(statement) == steps


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_short_offset_wraps_around_before_it_is_an_address(arch: str) -> None:
    signature = {"table": "*u8:16", "x": "*i16:16", "out": "*u8:16", "angle": "fp32"}
    made = kbuild.compile(f"{KERNELS}:short_offsets", signature=signature, target=arch, num_warps=1)
    assert not re.search(r"cvt\.[us]64\.u(8|16)\b", made.asm["ptx"])
    assert made.asm["ptx"].count("cvt.u64.u32") >= 2
