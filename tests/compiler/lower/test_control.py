"""Loops and branches: the blocks, and which registers get phis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kbuild
from tests.compiler.lower.kernels import RANGE, assert_in_order, llir, pointers, ptx

MATMUL = f"{Path(__file__).parents[3]}/kernels/matmul.py:matmul_kernel"
SUM = (
    RANGE
    + pointers("x", "f32")
    + """
  %zero: tensor<1024xf32, #b> = arith.constant {value = 0.0}
  %lower: i32 = arith.constant {value = 0}
  %step: i32 = arith.constant {value = 1024}
  %sum, %last: tensor<1024xf32, #b>, i32 = scf.for %lower, %n, %step, init=[%zero, %lower]
      body(%i: i32, %a: tensor<1024xf32, #b>, %old: i32) {
    %is: tensor<1024xi32, #b> = tt.splat %i
    %p: tensor<1024x!tt.ptr<f32>, #b> = tt.addptr %x_p, %is
    %v: tensor<1024xf32, #b> = tt.load %p
    %b: tensor<1024xf32, #b> = arith.addf %a, %v
    scf.yield %b, %i
  }
  tt.store %x_p, %sum
"""
)
X = "%x: !tt.ptr<f32> {divisibility = 16}"


def test_a_loop_is_tested_at_its_end_and_guarded():
    text = llir(SUM, f"{X}, %n: i32")
    assert_in_order(
        text,
        [
            "icmp slt i32 0, %n",
            "br i1",
            "phi i32 [0, %entry]",
            "load <4 x i32>",
            "fadd float",
            "add nsw i32",
            "br i1 %v",
            "phi float [0x0000000000000000, %entry]",
            "store <4 x i32>",
        ],
    )
    # The carried i32 is never used: it has no phi.  Eight sums inside, eight after.
    assert text.count("phi i32") == 1 and text.count("phi float") == 16
    assert "llvm.loop.unroll.disable" in text


def test_a_loop_compiles_to_one_backward_branch():
    text = ptx(SUM, f"{X}, %n: i32 {{divisibility = 16}}")
    assert_in_order(text, ["bra", "$L__BB0_2:", '.pragma "nounroll"', "ld.global.v4.b32", "bra \t$L__BB0_2;"])


LOADS = """
      %c0: i32 = arith.constant {value = 0}
      %c1: i32 = arith.constant {value = 1}
      %zero: f32 = arith.constant {value = 0.0}
      %r: f32 = scf.for %c0, %n, %c1, init=[%zero] body(%i: i32, %a: f32) {
        %p: !tt.ptr<f32> = tt.addptr %x, %i
        %v: f32 = tt.load %p
        %b: f32 = arith.addf %a, %v
        scf.yield %b
      }
      tt.store %x, %r
"""


NESTED = """[%zero] body(%i: i32, %a: f32) {
        %c: i32 = scf.for %c0, %n, %c1, init=[%c0] body(%j: i32, %d: i32) {
          %e: i32 = arith.muli %d, %j
          scf.yield %e
        }"""


def test_a_loop_that_waits_for_its_loads_is_left_to_ptxas():
    """Which unrolls it, so that several iterations' loads are on their way: 0.54 of the speed without."""
    assert '.pragma "nounroll"' not in ptx(LOADS, f"{X}, %n: i32")


@pytest.mark.parametrize(("size", "left"), [(512, True), (1024, False)])
def test_a_loop_that_loads_few_words_waits_for_them(size: int, left: bool):
    """Four words of a thread are too few where a grid does not fill the GPU: 0.6 of the speed of a matrix times a
    vector; eight are enough."""
    text = ptx(SUM.replace("1024", str(size)), f"{X}, %n: i32 {{divisibility = 16}}")
    assert ('.pragma "nounroll"' not in text) is left


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("init=[%zero] body", "init=[%zero] {loop_unroll_factor = 1} body"),
        ("[%zero] body(%i: i32, %a: f32) {", NESTED),
    ],
    ids=["the author unrolls it", "a loop is in it"],
)
def test_other_loops_are_not(given: str, changed: str):
    assert '.pragma "nounroll"' in ptx(LOADS.replace(given, changed), f"{X}, %n: i32")


def test_a_loop_that_runs_for_sure_has_no_guard():
    text = llir(SUM.replace("%n, %step", "%step, %step"), X)
    assert text.count("icmp") == 1


@pytest.mark.parametrize(("upper", "end"), [(4096, 4096), (4097, 5120), (2147483647, None)])
def test_a_loop_of_known_numbers_ends_at_one_of_them(upper: int, end: int | None):
    """For an order of numbers LLVM keeps a counter beside the addresses, and a pointer for each of these."""
    loop = SUM.replace("%n, %step", "%upper, %step")
    text = llir(f"  %upper: i32 = arith.constant {{value = {upper}}}\n{loop}", X)
    compared = re.findall(r"icmp (\w+) i32 %v\d+, (\d+)", text)
    assert compared == [("slt", str(upper)) if end is None else ("ne", str(end))]


def test_phis_that_swap_their_values():
    text = llir(
        """
      %c0: i32 = arith.constant {value = 0}
      %c1: i32 = arith.constant {value = 1}
      %a, %b: i32, i32 = scf.for %c0, %n, %c1, init=[%c0, %n] body(%i: i32, %x: i32, %y: i32) {
        scf.yield %y, %x
      }
      tt.store %o, %a
    """,
        "%o: !tt.ptr<i32>, %n: i32",
    )
    # %a after the loop is %y within, which is %x: all are needed.
    assert text.count("phi i32") == 4


def test_nested_loops_and_branches():
    text = ptx(
        """
      %c0: i32 = arith.constant {value = 0}
      %c1: i32 = arith.constant {value = 1}
      %r: i32 = scf.for %c0, %n, %c1, init=[%c0] body(%i: i32, %x: i32) {
        %s: i32 = scf.for %c0, %i, %c1, init=[%x] body(%j: i32, %y: i32) {
          %even: i1 = arith.cmpi %j, %c1 {predicate = "slt"}
          %z: i32 = scf.if %even {types = []} then_body() {
            %t: i32 = arith.addi %y, %j
            scf.yield %t
          } else_body() {
            %t2: i32 = arith.muli %y, %j
            scf.yield %t2
          }
          scf.yield %z
        }
        scf.yield %s
      }
      tt.store %o, %r
    """.replace(" {types = []}", ""),
        "%o: !tt.ptr<i32>, %n: i32",
    )
    assert text.count('.pragma "nounroll"') == 2


def test_fragments_go_round_a_loop_as_the_words_that_tensor_cores_take():
    """Those of the next iteration's first dots, which are loaded early; elements would be moved out of
    words and back."""
    signature = {
        **dict.fromkeys("abc", "*fp16:16"),
        **dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32:16"),
        **dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), "i32:1"),
    }
    tiles = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
    artifact = kbuild.compile(MATMUL, signature=signature, constexprs=tiles, target="sm_80", stop="ptx")
    loop = re.search(r"(\$L__BB0_\d+):\n(?:(?!\$L__BB).*\n)*?.*bra\s+\1;", artifact.asm["ptx"])
    assert loop is not None and loop[0].count("mma.sync") == 32
    assert "%rs" not in loop[0], "no half of a word"
    copies = re.findall(r"cp\.async\.cg.*, 16, (%\w)", loop[0])
    assert copies == ["%p"] * 8, "those that are whole or nothing have a predicate, not a number of bytes"


def test_while_gives_what_it_tested_with():
    text = llir(
        """
      %c1: i32 = arith.constant {value = 1}
      %r: i32 = scf.while %n before(%x: i32) {
        %go: i1 = arith.cmpi %x, %c1 {predicate = "sgt"}
        %h: i32 = arith.shrui %x, %c1
        scf.condition %go, values=[%h]
      } after(%y: i32) {
        %z: i32 = arith.addi %y, %y
        scf.yield %z
      }
      tt.store %o, %r
    """,
        "%o: !tt.ptr<i32>, %n: i32",
    )
    assert_in_order(
        text, ["phi i32 [%n, %entry]", "icmp sgt", "lshr", "br i1", "add i32", "br label", "st.global"]
    )


def test_what_is_computed_under_a_condition_is_not_used_outside():
    text = ptx(
        """
      %c1: i32 = arith.constant {value = 1}
      %p: i1 = arith.cmpi %n, %c1 {predicate = "sgt"}
      scf.if %p then_body() {
        %a: i32 = arith.muli %n, %n
        tt.store %o, %a
        scf.yield
      } else_body() {
        scf.yield
      }
      %b: i32 = arith.muli %n, %n
      %q: !tt.ptr<i32> = tt.addptr %o, %c1
      tt.store %q, %b
    """,
        "%o: !tt.ptr<i32>, %n: i32",
    )
    assert "st.global" in text


def test_long_chains_do_not_exhaust_the_stack():
    body = RANGE + pointers("x", "i32")
    previous = "%r"
    for number in range(3000):
        body += f"  %t{number}: tensor<1024xi32, #b> = arith.addi {previous}, %r\n"
        previous = f"%t{number}"
    assert llir(body + f"  tt.store %x_p, {previous}\n", "%x: !tt.ptr<i32>").count("add i32") >= 3000


def test_a_division_leaves_later_questions_about_its_divisor_alone():
    text = ptx(
        """
      %c0: i32 = arith.constant {value = 0}
      %q: i32 = arith.divsi %n, %d
      %u: i32 = arith.remui %n, %d
      %none: i1 = arith.cmpi %d, %c0 {predicate = "eq"}
      %s: i32 = arith.select %none, %n, %q
      %t: i32 = arith.select %none, %n, %u
      tt.store %o, %s
      tt.store %p, %t
    """,
        "%o: !tt.ptr<i32>, %p: !tt.ptr<i32>, %n: i32, %d: i32",
    )
    assert text.count("selp.b32") == 2
    assert text.count("div.s32") == 1 and text.count("rem.u32") == 1


def test_nothing_is_concluded_from_what_a_division_leaves():
    text = ptx(
        """
      %c0: i32 = arith.constant {value = 0}
      %q: i32 = arith.divui %n, %n
      %none: i1 = arith.cmpi %n, %c0 {predicate = "eq"}
      %s: i32 = arith.select %none, %c0, %q
      %r: i8 = arith.remui %a, %b
      %w: i32 = arith.extui %r
      tt.store %o, %s
      tt.store %p, %w
    """,
        "%o: !tt.ptr<i32>, %p: !tt.ptr<i32>, %n: i32, %a: i8, %b: i8",
    )
    assert "selp.b32" in text  # What is left of 0 / 0 is not the zero that is asked for.
    assert re.search(
        r"rem\.u16.*and\.b(16|32)\s+%\w+, %\w+, 255;", text, re.DOTALL
    )  # That of a remainder has all 16 bits.


@pytest.mark.parametrize("name", ["shli", "shrui", "shrsi"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_shift_is_one_instruction_though_its_count_is_clamped(name: str, bits: int):
    text = ptx(
        f"%s: i{bits} = arith.{name} %a, %n\n      tt.store %o, %s",
        f"%o: !tt.ptr<i{bits}>, %a: i{bits}, %n: i{bits}",
    )
    assert "selp" not in text and len(re.findall(r"sh[lr]\.", text)) == 1
    assert ("min" in text) == (bits == 64)  # Of the count the instruction takes 32 bits.
