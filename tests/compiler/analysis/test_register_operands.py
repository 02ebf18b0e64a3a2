"""Register operands of warpgroup dots: all that makes them is found, through loops and branches, and no more."""

from __future__ import annotations

from kbuild.compiler.analysis.dots.register_operands import operand_makers, register_operand
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.nvidia import WarpGroupDot

HEAD = """
#shared = wgmmaShared{elementBits=16, swizzleBytes=128, transposed=0}
#shared1 = wgmmaShared{elementBits=16, swizzleBytes=128, transposed=1}
tt.func @f(%x: tensor<64x64xf16>, %y: !ttg.memdesc<64x64xf16, #shared>, %tile: !ttg.memdesc<64x64xf16, #shared1>,
    %n: i32, %t: i1, %scale: f16, %p: tensor<64x64x!tt.ptr<f16>>) attributes {num_warps = 4} {
  %sums: tensor<64x64xf32> = arith.constant {value = 0.0}
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
"""
DOT = '%d: tensor<64x64xf32> = ttng.warp_group_dot %a, %tile, %sums {atom = "m64n64k16.f16"}'


def makers(body: str) -> list[str]:
    """The hints of what the makers of a function's operands give, in program order."""
    module = parse_module(f"{HEAD}{body}\n  tt.return\n}}\n")
    found: set[Op] = operand_makers([op for op in module.kernel.body.walk() if isinstance(op, WarpGroupDot)])
    return [op.results[0].name for op in module.kernel.body.walk() if op in found]


def test_from_where_the_operand_is_loaded() -> None:
    assert makers(f"""
      %other: tensor<64x64xf16> = ttg.local_load %y
      %more: tensor<64x64xf16> = arith.addf %other, %other
      %q: tensor<64x64xf16> = ttg.local_load %y
      %s: tensor<64x64xf16> = tt.splat %scale
      %a: tensor<64x64xf16> = arith.mulf %q, %s
      {DOT}
    """) == ["q", "s", "a"]


def test_pointers_masks_and_constants_are_none() -> None:
    assert makers(f"""
      %far: tensor<64x64x!tt.ptr<f16>> = tt.addptr %p, %n
      %zero: tensor<64x64xf16> = arith.constant {{value = 0.0}}
      %q: tensor<64x64xf16> = tt.load %far
      %mask: tensor<64x64xi1> = arith.cmpf %x, %q {{predicate = "ogt"}}
      %all: tensor<64x64xi1> = tt.splat %t
      %both: tensor<64x64xi1> = arith.andi %mask, %all
      %a: tensor<64x64xf16> = arith.select %both, %q, %zero
      {DOT}
    """) == ["q", "a"]


def test_a_dot_before_begins_a_new_one() -> None:
    assert makers(f"""
      %w: tensor<64x64xf16> = ttg.local_load %y
      %e: tensor<64x64xf32> = ttng.warp_group_dot %tile, %tile, %sums {{atom = "m64n64k16.f16"}}
      %w1: tensor<64x64xf32> = ttng.warp_group_dot_wait %e {{pendings = 0}}
      %a: tensor<64x64xf16> = arith.truncf %w1
      {DOT}
    """) == ["a"]


def test_what_a_loop_hands_on_and_a_branch_gives() -> None:
    loop = f"""
      %first: tensor<64x64xf16> = ttg.local_load %y
      %h, %k: tensor<64x64xf16>, tensor<64x64xf16> = scf.for %c0, %n, %c1, init=[%first, %x]
          body(%i: i32, %a: tensor<64x64xf16>, %b: tensor<64x64xf16>) {{
        {DOT}
        %next: tensor<64x64xf16> = ttg.local_load %y
        %else: tensor<64x64xf16> = arith.addf %b, %b
        scf.yield %next, %else
      }}"""
    assert makers(loop) == ["first", "next"], "the second value is not an operand"
    assert makers(loop.replace(DOT, "") + DOT.replace("%a", "%k")) == ["h", "else"], (
        "the loop by its first result"
    )
    assert makers(f"""
      %a: tensor<64x64xf16> = scf.if %t then_body() {{
        %one: tensor<64x64xf16> = ttg.local_load %y
        scf.yield %one
      }} else_body() {{
        %two: tensor<64x64xf16> = arith.negf %x
        scf.yield %two
      }}
      {DOT}
    """) == ["a", "one", "two"]


def test_which_operand_is_in_registers() -> None:
    module = parse_module(f"""{HEAD}
      %d: tensor<64x64xf32> = ttng.warp_group_dot %x, %tile, %sums {{atom = "m64n64k16.f16"}}
      %e: tensor<64x64xf32> = ttng.warp_group_dot %tile, %x, %sums {{atom = "m64n64k16.f16", swapped = true}}
      %f: tensor<64x64xf32> = ttng.warp_group_dot %y, %tile, %sums {{atom = "m64n64k16.f16"}}
      tt.return\n}}\n""")
    dots = [op for op in module.kernel.body if isinstance(op, WarpGroupDot)]
    assert [value.name if (value := register_operand(dot)) else None for dot in dots] == ["x", "x", None]
