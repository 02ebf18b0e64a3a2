"""Loops to pipeline, as ttir.  Each stores what it computed to `out`; `n` counts iterations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kbuild.compiler.ir.core import Module, Op
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.gpu import LocalAlloc

AnyOp = TypeVar("AnyOp", bound=Op)

OFFSETS = """
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %c32: i32 = arith.constant {value = 32}
  %c64: tensor<32x1xi32> = arith.constant {value = 64}
  %r32: tensor<32xi32> = tt.make_range {start = 0, end = 32}
  %rows: tensor<32x1xi32> = tt.expand_dims %r32 {axis = 1}
  %columns: tensor<1x32xi32> = tt.expand_dims %r32 {axis = 0}
  %row_starts: tensor<32x1xi32> = arith.muli %rows, %c64
  %down: tensor<32x32xi32> = tt.broadcast %row_starts
  %across: tensor<32x32xi32> = tt.broadcast %columns
  %offsets: tensor<32x32xi32> = arith.addi %down, %across
  %zeros: tensor<32x32xf32> = arith.constant {value = 0.0}
  %zeros16: tensor<32x32xf16> = arith.constant {value = 0.0}
  %beside: tensor<32x32xi32> = tt.splat %c32
  %outs: tensor<32x32x!tt.ptr<f32>> = tt.splat %out
  %out_pointers: tensor<32x32x!tt.ptr<f32>> = tt.addptr %outs, %offsets
"""
"""Tiles of 32 x 32 at rows of 64."""


def kernel(body: str, num_stages: int, arguments: str = "") -> str:
    """A kernel with the arrays a, b (f16), table (i32) and out (f32)."""
    return f"""tt.func @f(
    %a: !tt.ptr<f16> {{divisibility = 16}}, %b: !tt.ptr<f16> {{divisibility = 16}}, %table: !tt.ptr<i32> {{divisibility = 16}},
    %out: !tt.ptr<f32> {{divisibility = 16}}, %n: i32{arguments}
) attributes {{num_warps = 4, num_stages = {num_stages}}} {{
{OFFSETS}{body}
  tt.return
}}
"""


def pointers(name: str, base: str, offset: str) -> str:
    """The pointers of a tile that starts at a scalar offset."""
    return f"""
    %{name}_base: !tt.ptr<f16> = tt.addptr {base}, {offset}
    %{name}_splat: tensor<32x32x!tt.ptr<f16>> = tt.splat %{name}_base
    %{name}: tensor<32x32x!tt.ptr<f16>> = tt.addptr %{name}_splat, %offsets
"""


MATMUL = f"""
  %sum, %pa, %pb: tensor<32x32xf32>, !tt.ptr<f16>, !tt.ptr<f16> = scf.for %c0, %n, %c1, init=[%zeros, %a, %b]
      body(%i: i32, %acc: tensor<32x32xf32>, %a_next: !tt.ptr<f16>, %b_next: !tt.ptr<f16>) {{
    {pointers("ap", "%a_next", "%c0")}{pointers("bp", "%b_next", "%c0")}
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.load %bp
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
    %pa1: !tt.ptr<f16> = tt.addptr %a_next, %c32
    %pb1: !tt.ptr<f16> = tt.addptr %b_next, %c32
    scf.yield %d, %pa1, %pb1
  }}
  tt.store %out_pointers, %sum
"""

CHAINED = "\n  %c16: i32 = arith.constant {value = 16}" + MATMUL.replace(
    "%d: tensor<32x32xf32> = tt.dot %x, %y, %acc",
    f"""{pointers("zp", "%b_next", "%c16")}
    %z: tensor<32x32xf16> = tt.load %zp
    %xy: tensor<32x32xf32> = tt.dot %x, %y, %acc
    %d: tensor<32x32xf32> = tt.dot %x, %z, %xy""",
)

MASKED = f"""
  %limit: i32 = arith.muli %n, %c32
  %last: i32 = arith.subi %limit, %c1
  %sum: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros] body(%i: i32, %acc: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("ap", "%a", "%k")}{pointers("bp", "%b", "%k")}
    %left: i32 = arith.subi %last, %k
    %lefts: tensor<32x32xi32> = tt.splat %left
    %mask: tensor<32x32xi1> = arith.cmpi %across, %lefts {{predicate = "slt"}}
    %other: tensor<32x32xf16> = arith.constant {{value = 1.0}}
    %x: tensor<32x32xf16> = tt.load %ap, mask=%mask, other=%zeros16
    %y: tensor<32x32xf16> = tt.load %bp, mask=%mask, other=%other
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
    scf.yield %d
  }}
  tt.store %out_pointers, %sum
"""

ATTENTION = f"""
  {pointers("qp", "%a", "%c0")}
  %q: tensor<32x32xf16> = tt.load %qp
  %sum, %max: tensor<32x32xf32>, tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros, %zeros]
      body(%i: i32, %acc: tensor<32x32xf32>, %m: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("kp", "%a", "%k")}{pointers("vp", "%b", "%k")}
    %keys: tensor<32x32xf16> = tt.load %kp
    %turned: tensor<32x32xf16> = tt.trans %keys {{order = [1, 0]}}
    %qk: tensor<32x32xf32> = tt.dot %q, %turned, %zeros
    %m1: tensor<32x32xf32> = arith.maxnumf %m, %qk
    %small: tensor<32x32xf32> = arith.minnumf %qk, %acc
    %p: tensor<32x32xf16> = arith.truncf %small
    %values: tensor<32x32xf16> = tt.load %vp
    %d: tensor<32x32xf32> = tt.dot %p, %values, %acc
    scf.yield %d, %m1
  }}
  %both: tensor<32x32xf32> = arith.addf %sum, %max
  tt.store %out_pointers, %both
"""

TABLE = f"""
  %sum: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros] body(%i: i32, %acc: tensor<32x32xf32>) {{
    %entry: !tt.ptr<i32> = tt.addptr %table, %i
    %page: i32 = tt.load %entry
    %k: i32 = arith.muli %page, %c32
    {pointers("ap", "%a", "%k")}{pointers("bp", "%b", "%k")}
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.load %bp
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
    %scale: f32 = arith.sitofp %page
    %scales: tensor<32x32xf32> = tt.splat %scale
    %e: tensor<32x32xf32> = arith.addf %d, %scales
    scf.yield %e
  }}
  tt.store %out_pointers, %sum
"""

SUM_OF_SQUARES = f"""
  %sum: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros] body(%i: i32, %acc: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("ap", "%a", "%k")}
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.trans %x {{order = [1, 0]}}
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc"""
"""A loop that adds x·xᵀ, up to what becomes of the sum."""

USED_TWICE = f"""{SUM_OF_SQUARES}
    %wide: tensor<32x32xf32> = arith.extf %x
    %e: tensor<32x32xf32> = arith.addf %d, %wide
    scf.yield %e
  }}
  tt.store %out_pointers, %sum
"""

RESTARTED = f"""
  %stored: tensor<32x32x!tt.ptr<f32>> = tt.addptr %out_pointers, %beside{SUM_OF_SQUARES}
    %done: i1 = arith.cmpi %i, %c1 {{predicate = "eq"}}
    %next: tensor<32x32xf32> = scf.if %done then_body() {{
      tt.store %stored, %d
      scf.yield %zeros
    }} else_body() {{
      scf.yield %d
    }}
    scf.yield %next
  }}
  tt.store %out_pointers, %sum
"""

STRIDED = f"""
  %sum: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros] body(%i: i32, %acc: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("ap", "%a", "%k")}
    %b_base: !tt.ptr<f16> = tt.addptr %b, %k
    %b_splat: tensor<32x32x!tt.ptr<f16>> = tt.splat %b_base
    %twice: tensor<32x32xi32> = arith.addi %across, %across
    %bp: tensor<32x32x!tt.ptr<f16>> = tt.addptr %b_splat, %twice
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.load %bp
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
    scf.yield %d
  }}
  tt.store %out_pointers, %sum
"""

MAXIMUM = f"""
  %low: tensor<32x32xf16> = arith.constant {{value = -4.0}}
  %lows: tensor<32x32xf32> = arith.constant {{value = -9.0}}
  %max: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%lows] {{num_stages = 3}} body(%i: i32, %m: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("ap", "%a", "%k")}
    %odd: i32 = arith.andi %i, %c1
    %flag: i1 = arith.cmpi %odd, %c1 {{predicate = "eq"}}
    %mask: tensor<32x32xi1> = tt.splat %flag
    %x: tensor<32x32xf16> = tt.load %ap, mask=%mask, other=%low
    %wide: tensor<32x32xf32> = arith.extf %x
    %m1: tensor<32x32xf32> = arith.maxnumf %m, %wide
    scf.yield %m1
  }}
  tt.store %out_pointers, %max
"""

INVARIANT = f"""
  {pointers("bp", "%b", "%c0")}
  %sum: tensor<32x32xf32> = scf.for %c0, %n, %c1, init=[%zeros] {{num_stages = 3}} body(%i: i32, %acc: tensor<32x32xf32>) {{
    %k: i32 = arith.muli %i, %c32
    {pointers("ap", "%a", "%k")}
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.load %bp
    %product: tensor<32x32xf16> = arith.mulf %x, %y
    %wide: tensor<32x32xf32> = arith.extf %product
    %next: tensor<32x32xf32> = arith.addf %acc, %wide
    scf.yield %next
  }}
  tt.store %out_pointers, %sum
"""

NESTED = f"""
  %c2: i32 = arith.constant {{value = 2}}
  %sum: tensor<32x32xf32> = scf.for %c0, %c2, %c1, init=[%zeros] body(%j: i32, %outer: tensor<32x32xf32>) {{
    %inner: tensor<32x32xf32> = scf.for %j, %n, %c2, init=[%outer] body(%i: i32, %acc: tensor<32x32xf32>) {{
      %k: i32 = arith.muli %i, %c32
      {pointers("ap", "%a", "%k")}{pointers("bp", "%b", "%k")}
      %x: tensor<32x32xf16> = tt.load %ap
      %y: tensor<32x32xf16> = tt.load %bp
      %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
      scf.yield %d
    }}
    %row: tensor<32xf32> = tt.reduce %inner {{axis = 1}} combine(%l: f32, %r: f32) {{
      %s: f32 = arith.maxnumf %l, %r
      tt.reduce.return %s
    }}
    %column: tensor<32x1xf32> = tt.expand_dims %row {{axis = 1}}
    %wide: tensor<32x32xf32> = tt.broadcast %column
    %least: tensor<32x32xf32> = arith.minnumf %inner, %wide
    scf.yield %least
  }}
  tt.store %out_pointers, %sum
"""

LOOPS = {
    "matmul": MATMUL,
    "chained": CHAINED,
    "masked": MASKED,
    "attention": ATTENTION,
    "table": TABLE,
    "used_twice": USED_TWICE,
    "restarted": RESTARTED,
    "strided": STRIDED,
    "maximum": MAXIMUM,
    "invariant": INVARIANT,
    "nested": NESTED,
}

TURNS = f"""
  %end: i32 = arith.subi %n, %c1
  %sum, %last: tensor<32x32xf32>, !tt.ptr<f16> = scf.for %c0, %n, %c1, init=[%zeros, %b]
      body(%i: i32, %acc: tensor<32x32xf32>, %to: !tt.ptr<f16>) {{
    %k: i32 = arith.muli %i, %c32
    %more: i32 = arith.addi %i, %c1
    %following: i32 = arith.minsi %more, %end
    %next: i32 = arith.muli %following, %c32
    {pointers("ap", "%a", "%k")}{pointers("tp", "%to", "%next")}
    %x: tensor<32x32xf16> = tt.load %ap
    %y: tensor<32x32xf16> = tt.trans %x {{order = [1, 0]}}
    %d: tensor<32x32xf32> = tt.dot %x, %y, %acc
    tt.store %tp, %x
    scf.yield %d, %a
  }}
  tt.store %out_pointers, %sum
"""
"""Stores the tile that it has read where the next one is: in b at first, then in a, of which it reads."""


def ops(module: Module, *classes: type[AnyOp]) -> list[AnyOp]:
    """The operations of some classes in a kernel."""
    return [op for op in module.kernel.body.walk() if isinstance(op, classes)]


def buffers_of(allocs: Iterable[LocalAlloc]) -> list[int | None]:
    """How many buffers each allocation has; None for a single tile."""
    types = [alloc.type for alloc in allocs]
    return [type_.buffers for type_ in types if isinstance(type_, MemDescType)]
