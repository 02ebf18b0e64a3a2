"""How many programs a multiprocessor should have, so that their loops need not delay loads."""

from __future__ import annotations

import pytest

import kbuild
from kbuild.compiler.analysis.pressure import resident_programs
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.targets import find_target

LIMITS = find_target("sm_90").limits


def function(size: int, looping: bool, alone: bool = False):
    """A program of 128 threads, the only one or one of several, that adds up `size` elements of fp32 of three tensors,
    in a loop or once."""
    tensor = f"tensor<{size}xf32, #b>"
    loads = "\n".join(f"    %x{i}: {tensor} = tt.load %p{i}" for i in range(3))
    body = f"""{loads}
    %s0: {tensor} = arith.addf %x0, %x1
    %s1: {tensor} = arith.addf %s0, %x2
    %next: {tensor} = arith.addf {"%sum" if looping else "%z"}, %s1"""
    pointers = ", ".join(f"%p{i}: tensor<{size}x!tt.ptr<f32>, #b>" for i in range(3))
    loop = f"""  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %s: {tensor} = scf.for %c0, %n, %c1, init=[%z] body(%i: i32, %sum: {tensor}) {{
{body}
    scf.yield %next
  }}"""
    return parse_module(f"""\
#b = blocked{{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}}
tt.func @f(%n: i32, %z: {tensor}, {pointers}) attributes {{num_warps = 4}} {{
{"" if alone else "  %p: i32 = tt.get_program_id {axis = 0}"}
{loop if looping else body}
  tt.return
}}
""").kernel


def test_loops_that_load_much_have_the_registers_for_it() -> None:
    found = [resident_programs(function(size, looping=True), 4, LIMITS) for size in (2048, 4096, 16384)]
    assert found == [6, 4, 2], "255 registers are all there are"


@pytest.mark.parametrize(("size", "looping"), [(256, True), (4096, False)])
def test_few_loads_and_straight_code_are_left_to_ptxas(size: int, looping: bool) -> None:
    assert resident_programs(function(size, looping), 4, LIMITS) is None


def test_straight_code_of_the_only_program_has_the_registers_for_it_too() -> None:
    found = [resident_programs(function(size, looping=False, alone=True), 4, LIMITS) for size in (256, 4096)]
    assert found == [None, 4]


def rows(size: int, parts: int, also: str = "") -> Func:
    """A program of 512 threads with a loop that loads and adds up tensors of `size` elements, and perhaps another loop."""
    tensor = f"tensor<{size}xf32, #b>"
    loads = "\n".join(f"    %x{i}: {tensor} = tt.load %p{i}" for i in range(parts))
    sums = "\n".join(f"    %s{i + 1}: {tensor} = arith.addf %s{i}, %x{i}" for i in range(parts))
    pointers = ", ".join(f"%p{i}: tensor<{size}x!tt.ptr<f32>, #b>" for i in range(parts))
    return parse_module(f"""\
#b = blocked{{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[16], order=[0]}}
tt.func @f(%n: i32, %z: {tensor}, {pointers}) attributes {{num_warps = 16}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
{also}
  scf.for %c0, %n, %c1 body(%i: i32) {{
{loads}
    %s0: {tensor} = arith.addf %z, %z
{sums}
    tt.store %p0, %s{parts}
    scf.yield
  }}
  tt.return
}}
""").kernel


def test_a_program_is_not_alone_where_two_have_enough_loads_on_their_way() -> None:
    assert resident_programs(rows(16384, 3), 16, LIMITS) == 2


def test_one_program_stays_alone_where_halves_of_the_registers_are_too_few() -> None:
    assert resident_programs(function(65536, looping=True), 4, LIMITS) == 2
    assert resident_programs(function(65536, looping=True), 8, LIMITS) == 1


CARRIES = """\
  %w: tensor<16384xf32, #b> = arith.constant {value = 0.0}
  %k: tensor<16384xf32, #b> = scf.for %c0, %n, %c1, init=[%w] body(%j: i32, %c: tensor<16384xf32, #b>) {
    %a: tensor<16384xf32, #b> = arith.addf %c, %c
    %b: tensor<16384xf32, #b> = arith.mulf %a, %c
    scf.yield %b
  }"""


def test_loops_that_load_little_do_not_count() -> None:
    assert resident_programs(rows(2048, 5), 16, LIMITS) == resident_programs(
        rows(2048, 5, CARRIES), 16, LIMITS
    )


SOURCE = """\
import triton.language as tl
import triton

@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(n):
        start = row * 4 * BLOCK
        for part in tl.static_range(4):
            total += tl.exp(tl.load(x + start + part * BLOCK + places))
    tl.store(out + places, total)
"""


def test_the_kernel_says_so_unless_its_registers_are_bounded(tmp_path) -> None:
    source = tmp_path / "rows.py"
    source.write_text(SOURCE)

    def ptx(**options) -> str:
        signature = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}
        return kbuild.compile(
            f"{source}:rows", signature=signature, constexprs={"BLOCK": 2048}, stop="ptx", **options
        ).asm["ptx"]

    assert ".minnctapersm" in ptx()
    assert ".minnctapersm" not in ptx(max_registers=64)
