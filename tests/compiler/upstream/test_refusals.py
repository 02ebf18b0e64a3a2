"""What kbuild cannot read: each message says what and where, and bad texts never crash the reader."""

from __future__ import annotations

import random

import pytest

import kbuild
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.upstream import is_upstream, read_upstream
from kbuild.errors import CompileError, KbuildError
from tests.compiler.upstream.test_meaning import TEXTS

HEAD = "tt.func public @f(%x: i32, %p: !tt.ptr<f32>, %t: tensor<8xf32>) {"
MODULE = 'module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "%s"} {\n'
LINE = "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>"
BARRIER = f"!ttg.memdesc<1xi64, {LINE}, #ttg.shared_memory, mutable>"


def message(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        read_upstream(text, "dump.ttgir", {"num_warps": 4})
    return str(caught.value)


def in_function(*lines: str) -> str:
    """The message about a function of these lines, the first of which is line 2."""
    return message("\n".join([HEAD, *("  " + line for line in lines), "  tt.return", "}"]))


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("%y = arith.addi %x, %z : i32", 8, "%z is not defined"),
        ("%y = arith.adi %x, %x : i32", 8, "kbuild does not read arith.adi"),
        ("%y = arith.addi %x, %x {strange = 1 : i32} : i32", 8, "arith.addi: kbuild does not know the attribute 'strange'"),
        ("%y = arith.addi %x, %x oddly : i32", 8, "arith.addi: kbuild does not know 'oddly'"),
        ("%y = arith.addi %x, %x when %x : i32", 8, "arith.addi: kbuild does not know the operand 'when'"),
        ("%y = arith.addi %x, %x : i64", 8, "arith.addi: %x is i32, and the text says i64"),
        ("%y = arith.addi %x : i32", 8, "arith.addi: lacks rhs"),
        ("%y, %z = arith.addi %x, %x : i32", 12, "arith.addi: has 1 results, and 2 names for them"),
        ("%y = arith.constant dense<[1, 2]> : tensor<2xi32>", 8, "arith.constant: a tensor of different constants"),
        ("%y = arith.addi %x, %x : i3", 28, "unknown type 'i3'"),
        ("%y = tt.load %p, %x : !tt.ptr<f32>", 8, "tt.load: %x is i32, and the text says i1"),
        ("%y = ttg.convert_layout %t : tensor<8xf32> -> tensor<8xf32, #missing>", 63, "#missing is not defined"),
        ('%y = "arith.cmpi"(%x, %x) <{predicate = 10 : i64}> : (i32, i32) -> i1', 8, "arith.cmpi: 10 stands for none of eq, ne,"),
        ('"tt.make_tensor_ptr"(%p, %x) : (!tt.ptr<f32>, i32) -> ()', 3, "tt.make_tensor_ptr: 2 operands do not fill its parts"),
        ('%y = tt.extern_elementwise %x {symbol = "__nv_no"} : (i32) -> i32', 8, "tt.extern_elementwise: kbuild has no"),
        ("%y = tt.dot_scaled %t, %t, %t : tensor<8xf32>", 8, "kbuild does not read tt.dot_scaled"),
        (f"ttng.arrive_barrier %x, 1 {{perThread}} : {BARRIER}", 3, "ttng.arrive_barrier: an arrival of each thread"),
        ("%y = arith.addi %x, %x ? i32", 26, "expected an operation, found '?'"),
        ("scf.if %x {", 0, "expected"),
    ],
)  # fmt: skip
def test_mistakes_in_functions(line: str, column: int, expected: str) -> None:
    first = in_function(line).splitlines()[0]
    place, _, text = first.partition(": error: ")
    assert text.startswith(expected)
    assert not column or place == f"dump.ttgir:2:{column}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            MODULE % "cuda:100"
            + HEAD
            + "\n  %y = ttng.tmem_alloc : () -> !ttg.memdesc<128x64xf32, #tmem, #ttng.tensor_memory, mutable>\n}\n}\n"
            "#tmem = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>\n",
            "dump.ttgir:3:64: error: tensor memory, which Blackwell's tensor cores have: kbuild has no instructions for it",
        ),
        (
            MODULE % "cuda:100"
            + HEAD
            + "\n  %y = ttng.tmem_load %x : i32 -> tensor<128x64xf32, #tmem>\n}\n}\n"
            "#tmem = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>\n",
            "no layout for tensor_memory_encoding: tensor memory is of Blackwell's tensor cores",
        ),
        (
            MODULE % "hip:gfx942" + HEAD + "\n  tt.return\n}\n}\n",
            "the module is for hip:gfx942, and kbuild compiles for NVIDIA's GPUs",
        ),
        (
            "#a = #a\n" + HEAD + "\n%y = ttg.convert_layout %t : tensor<8xf32> -> tensor<8xf32, #a>\n}",
            "dump.ttgir:1:6: error: #a is defined by itself",
        ),
        (HEAD + "\n  tt.return\n", "expected an operation, found 'the end'"),
        ("module {\n" + HEAD + "\n  tt.return\n}\n", "expected '}' of the module, found the end"),
        ("", "the text has no function"),
        (HEAD + "\n  cf.br ^bb1\n^bb1:\n  cf.br ^bb1\n}", "cf.br: branches back"),
        (HEAD + "\n  cf.br ^bb7\n}", "block ^bb7 does not exist, or is empty"),
    ],
)  # fmt: skip
def test_mistakes_in_modules(text: str, expected: str) -> None:
    assert expected in message(text)


def test_places_of_the_source_are_shown_where_the_text_has_them() -> None:
    """A mistake that is found later, in a pass, points at the kernel's line."""
    text = (TEXTS / "masked_add.ttir").read_text()
    module = read_upstream(text, "dump.ttir", {"num_warps": 4})
    load = next(op for op in module.kernel.body.walk() if op.op_name == "tt.load")
    assert load.loc is not None and (load.loc.file, load.loc.line, load.loc.column) == ("lib.py", 8, 12)


def test_kbuilds_own_texts_are_not_triton() -> None:
    for path in sorted(TEXTS.iterdir()):
        printed = print_module(read_upstream(path.read_text(), str(path), {"num_warps": 4}))
        assert not is_upstream(printed)
        parse_module(printed)


def test_a_module_for_other_hardware_says_so() -> None:
    with pytest.raises(KbuildError, match="sm_80"):
        kbuild.compile(str(TEXTS / "wgmma.ttgir"), target="sm_80", stop="ptx")


def test_spoilt_texts_are_refused_with_a_place() -> None:
    rng = random.Random(1)
    texts = [path.read_text() for path in sorted(TEXTS.iterdir())]
    refused = 0
    for _ in range(150):
        text = rng.choice(texts)
        at, size = rng.randrange(len(text)), rng.randrange(1, 6)
        text = text[:at] + rng.choice(["", "%", "}", "<", "#a", "1", '"']) + text[at + size :]
        try:
            read_upstream(text, "dump.ttgir", {"num_warps": 4})
        except CompileError as error:
            assert error.loc is not None and error.loc.file == "dump.ttgir"
            refused += 1
    assert refused > 75
