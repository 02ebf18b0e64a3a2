"""PTX text becomes data and text again; what is not PTX as LLVM writes it is refused with its place."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import CASES

import kbuild
from kbuild.emulator.engine.program import load
from kbuild.emulator.isa.table import form_of
from kbuild.emulator.ptx.model import Address, Instruction, Pair, PtxError, Register, SourceLine, Vector
from kbuild.emulator.ptx.parser import parse
from kbuild.emulator.ptx.printer import print_module
from tests.emulator.emulated import HEADER, kernel
from tests.emulator.isa.programs import PROGRAMS

LINES = (
    HEADER
    + """
.extern .func vprintf (.param .b64 a, .param .b64 b);
.const .align 4 .b8 table[4] = {1, 2, 3, 255};
.global .align 8 .u64 pointer = table;
.visible .entry f(.param .u64 .ptr .global .align 16 f_param_0, .param .align 64 .b8 f_param_1[128])
.reqntid 128, 1, 1
.minnctapersm 2
{
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    .loc 1 12 5
    mov.b32 %r1, 0f3F800000;
    {
        .reg .b32 t;
        .reg .pred q;
        mov.b32 t, %r1;
        setp.eq.b32 q|_, t, -1;
        @!q bra done;
    done:
    }
    .loc 1 14 9, function_name $L__info_string0, inlined_at 1 12 5
    shfl.sync.bfly.b32 %r2|%p1, %r1, 1, 31, -1;
    .pragma "nounroll";
    { .reg .b32 t; mov.b32 t, WARP_SZ; }
    ret;
}
.file 1 "kernel.py"
.section .debug_str { $L__info_string0: .b8 65, 0 }
"""
)


def test_a_module_is_read_with_its_scopes_and_lines() -> None:
    module = parse(LINES)
    function = module.function("f")
    first, second, compare, branch, shuffle, *_ = function.instructions
    assert (module.arch, function.directives) == (
        "sm_90a",
        (("reqntid", (128, 1, 1)), ("minnctapersm", (2,))),
    )
    assert first.operands == (Register("%r1"), first.operands[1]) and str(first.operands[1]) == "0f3F800000"
    assert second.operands[0] == Register("t$1") and str(compare.operands[0]) == "q$1|_"
    assert str(branch) == "@!q$1 bra done$1;" and isinstance(shuffle.operands[0], Pair)
    assert function.registers["t$2"] == "b32"
    assert shuffle.source == SourceLine(1, 14, 9, "function_name $L__info_string0, inlined_at 1 12 5")
    place = module.place(first)
    assert place is not None and (place.file, place.line) == ("kernel.py", 12)


@pytest.mark.parametrize("text", [LINES, *(program.text for program in PROGRAMS)])
def test_printing_and_parsing_gives_the_module_back(text: str) -> None:
    module = parse(text)
    assert parse(print_module(module)) == module


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["matmul_fp16", "attention_causal", "functions", "locked_sum"])
def test_what_the_compiler_writes_is_read_and_known(name: str, arch: str) -> None:
    case = CASES[name]
    signature = case.signature(case.make(np.random.default_rng(0)))
    ptx = kbuild.compile(
        case.source, signature=signature, constexprs=case.constexprs, target=arch, stop="ptx"
    ).asm["ptx"]
    module = parse(ptx)
    assert parse(print_module(module)) == module
    for function in module.functions:
        for instruction in function.instructions:
            assert form_of(instruction)


def test_tensor_addresses_keep_their_coordinates() -> None:
    body = "    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {%r1, %r2}], [%r3+16];"
    instruction = parse(kernel(body)).function("test").instructions[-2]
    target = instruction.operands[0]
    assert isinstance(target, Address) and target.coordinates == Vector((Register("%r1"), Register("%r2")))
    assert (
        instruction.modifiers[4:6] == ("global", "shared::cta") and str(instruction.operands[1]) == "[%r3+16]"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r1, %r2, %r99;", "%r99 is neither a declared register"),
        ("add.s32 %r1, %r2", "expected"),
        ("frobnicate.b32 %r1, %r2;", "unknown opcode: frobnicate.b32"),
        ("add.f33 %r1, %r2, %r3;", "unknown form of add: add.f33"),
        ("add.sat.u32 %r1, %r2, %r3;", "unknown form of add: add.sat.u32"),
        ("add.s64 %d1, %r1, %d2;", "%r1 is a register of 32 bits and cannot be used as .s64"),
        ("and.pred %p1, %p2, %r1;", "cannot be used as .pred"),
        ("add.s32 %r1, %r2;", "takes 2 sources"),
        ("bra $nowhere;", "branch to $nowhere"),
        ("ld.global.v2.b32 %r1, [%d1];", "with 1 registers"),
        ("ld.global.b32 %r1, %d1;", "expected an address in brackets"),
        ("mov.b32 %r1, #;", "unexpected character '#'"),
        (".shaded .b32 x;", "unknown directive .shaded"),
        ("{ mov.b32 %r1, 0;", "the function does not end"),
        ("add.f32 %r1, %r2, 1;", "the literal 1 is not of type f32"),
    ],
)
def test_what_is_wrong_is_named(body: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        load(kernel("    " + body))
    assert message in str(caught.value)


def test_a_wrong_kernel_name_lists_those_there_are() -> None:
    with pytest.raises(PtxError, match="its kernels are: test"):
        load(kernel(""), "other")


def test_two_instructions_are_equal_wherever_they_stand() -> None:
    assert Instruction("ret", (), (), line=1) == Instruction("ret", (), (), line=2)
