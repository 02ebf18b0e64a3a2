"""Kernels of which ptxas spills upper halves of registers are assembled again, with 16-bit values in
registers of 32 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo import CASES, Bits

import kbuild
from kbuild.compiler.backend.cross_check import spills_upper_halves
from kbuild.compiler.backend.cubin import assemble, find_ptxas
from kbuild.compiler.backend.halves import in_words
from kbuild.errors import ToolError
from tests.emulator.artifacts import emulate

KERNEL = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) .reqntid 32
{{
.reg .b64 %p, %q, %l;
.reg .pred %b;
	.reg .b16 %rs<5>;
.reg .b32 %r<3>;
{declared}
ld.param.u64 %p, [p];
cvta.to.global.u64 %q, %p;
mov.u32 %r1, %tid.x;
setp.lt.u32 %b, %r1, 9;
{body}
ret;
}}
"""
LOCAL = ".local .align 4 .b8 kept[64];"
SPILLED = """ld.global.b16 %rs1, [%q];
mov.u64 %l, kept; mul.wide.u32 %p, %r1, 2; add.u64 %p, %l, %p;
st.local.b16 [%p+2], %rs1; ld.local.b16 %rs2, [%l+6]; st.global.b16 [%q], %rs2;"""
"""The body of a kernel whose upper halves are spilled."""


@pytest.mark.parametrize(
    "statement, words",
    [
        (
            "add.s16 %rs3, %rs1, %rs2;",
            "cvt.u16.u32 %half0, %word1; cvt.u16.u32 %half1, %word2; add.s16 %rs3, %half0, %half1; cvt.u32.u16 %word3, %rs3;",
        ),
        (
            "mov.b32 {%rs1, %rs2}, %r1;",
            "mov.b32 {%rs1, %rs2}, %r1; cvt.u32.u16 %word1, %rs1; cvt.u32.u16 %word2, %rs2;",
        ),
        (
            "mov.b32 %r1, {%rs1, %rs1};",
            "cvt.u16.u32 %half0, %word1; cvt.u16.u32 %half1, %word1; mov.b32 %r1, {%half0, %half1};",
        ),
        ("@%b ld.global.b16 %rs1, [%q];", "@%b ld.global.b16 %rs1, [%q]; @%b cvt.u32.u16 %word1, %rs1;"),
        (
            "@!%b st.global.v2.b16 [%q], {%rs1, %rs2};",
            "cvt.u16.u32 %half0, %word1; cvt.u16.u32 %half1, %word2; @!%b st.global.v2.b16 [%q], {%half0, %half1};",
        ),
        (
            "atom.global.cas.b16 %rs3, [%q], %rs1, %rs2;",
            "cvt.u16.u32 %half0, %word1; cvt.u16.u32 %half1, %word2; atom.global.cas.b16 %rs3, [%q], %half0, %half1; "
            "cvt.u32.u16 %word3, %rs3;",
        ),
        ("setp.lt.s16 %b, %rs1, 3;", "cvt.u16.u32 %half0, %word1; setp.lt.s16 %b, %half0, 3;"),
        (
            "{ .reg .b16 t; cvt.rn.f16.f32 t, %r1; mov.b16 %rs1, t; }",
            "{ .reg .b16 t; cvt.rn.f16.f32 t, %r1; mov.b16 %rs1, t; cvt.u32.u16 %word1, %rs1; }",
        ),
    ],
)
def test_a_statement(statement: str, words: str) -> None:
    assert in_words(statement) == words


def test_the_registers_are_declared() -> None:
    text = in_words(KERNEL.format(declared="", body="add.s16 %rs3, %rs1, %rs2;"))
    assert "\t.reg .b16 %rs<5>;\n\t.reg .b16 %half<3>;\n\t.reg .b32 %word<5>;\n" in text
    assemble(text, "sm_90")


@pytest.mark.parametrize(
    "name", ["narrow_offsets", "cut_with_others_float16_99", "shifts_of_16", "halves_to_int8"]
)
def test_it_computes_the_same(name: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(1))
    made = kbuild.compile(
        case.source,
        signature=case.signature(arguments),
        constexprs=case.constexprs,
        stop="ptx",
        options=case.options("sm_90"),
    )
    text = in_words(made.asm["ptx"])
    assert "%word" in text
    given = {key: value.data if isinstance(value, Bits) else value for key, value in arguments.items()}
    plain, in_halves = (
        emulate(made, given, case.grid, ptx=ptx, checks="") for ptx in (made.asm["ptx"], text)
    )
    for one, other in zip(plain.check().outputs, in_halves.check().outputs):
        np.testing.assert_array_equal(one, other)


def test_upper_halves_in_local_memory_are_seen() -> None:
    spilled, plain = (
        KERNEL.format(declared=LOCAL, body=SPILLED),
        KERNEL.format(declared="", body="st.global.b16 [%q], %rs1;"),
    )
    cubin = assemble(spilled, "sm_90")[0]
    assert spills_upper_halves(plain, cubin)
    assert not spills_upper_halves(spilled, cubin)  # The PTX itself stores them there.
    assert not spills_upper_halves(plain, assemble(plain, "sm_90")[0])
    lower = KERNEL.format(
        declared=LOCAL, body=SPILLED.replace("[%p+2]", "[%p+4]").replace("%r1, 2;", "%r1, 4;")
    )
    assert not spills_upper_halves(plain, assemble(lower, "sm_90")[0])
    words = KERNEL.format(declared=LOCAL, body=SPILLED.replace("b16", "b32").replace("%rs", "%r"))
    assert not spills_upper_halves(plain, assemble(words, "sm_90")[0])


@pytest.mark.parametrize("condition, helps", [("grep -q %word $source", True), ("false", False)])
def test_a_kernel_with_spilled_upper_halves_is_assembled_again(
    tmp_path: Path, condition: str, helps: bool
) -> None:
    """By a program in the place of ptxas that spills upper halves, of some texts or of all."""
    plain = KERNEL.format(declared="", body="ld.global.b16 %rs1, [%q]; st.global.b16 [%q+2], %rs1;")
    (tmp_path / "spilled.ptx").write_text(KERNEL.format(declared=LOCAL, body=SPILLED))
    fake = tmp_path / "ptxas"
    fake.write_text(f"""#!/bin/sh
source=; for word; do case $word in /proc/*) source=${{source:-$word}};; esac; done
{condition} && exec {find_ptxas()} "$@"
for word; do [ "$word" = "$source" ] && word={tmp_path}/spilled.ptx; set -- "$@" "$word"; shift; done
exec {find_ptxas()} "$@"
""")
    fake.chmod(0o755)
    if helps:
        assert assemble(plain, "sm_90", str(fake))[0] == assemble(in_words(plain), "sm_90")[0]
    else:
        with pytest.raises(
            ToolError, match=r"\.text\.k: upper halves of registers are spilled, and maybe the lower"
        ):
            assemble(plain, "sm_90", str(fake))
