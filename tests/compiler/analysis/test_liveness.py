"""From where to where tiles in shared memory are alive, in control flow of all kinds."""

from __future__ import annotations

import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the operations
from kbuild.compiler.analysis.liveness import Liveness
from kbuild.compiler.ir.parser import parse_module

TILE = "!ttg.memdesc<16x16xf16, #s>"
TENSOR = "tensor<16x16xf16, #b>"
HEAD = f"""#b = blocked{{sizePerThread=[1,1], threadsPerWarp=[2,16], warpsPerCTA=[4,1], order=[1,0]}}
#s = swizzled{{vector=8, perPhase=1, maxPhase=1, order=[1,0]}}
tt.func @f(%x: {TENSOR}, %p: tensor<16x16x!tt.ptr<f16>, #b>, %n: i32, %flag: i1) attributes {{num_warps = 4}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %s: {TILE} = ttg.local_alloc src=%x
  %o: {TILE} = ttg.local_alloc src=%x
"""
WHILE = f"""  %e, %last: i32, {TILE} = scf.while %n, %s before(%i: i32, %a: {TILE}) {{
    %more: i1 = arith.cmpi %i, %c0 {{predicate = "sgt"}}
    IN_BEFORE
    scf.condition %more, values=[%i, %a]
  }} after(%j: i32, %b: {TILE}) {{
    IN_AFTER
    %less: i32 = arith.subi %j, %c1
    scf.yield %less, %b
  }}
  gpu.barrier
"""
FOR = f"""  %last: {TILE} = scf.for %c0, %n, %c1, init=[%s] body(%i: i32, %a: {TILE}) {{
    IN_BODY
    %twice: i32 = arith.addi %i, %i
    scf.yield %a
  }}
  gpu.barrier
"""
IF = f"""  %last: {TILE} = scf.if %flag then_body() {{
    scf.yield %s
  }} else_body() {{
    %other: {TILE} = ttg.local_alloc src=%x
    scf.yield %other
  }}
  gpu.barrier
"""


def ends_at(body: str) -> str:
    """The last operation for which the first tile is alive."""
    func = parse_module(f"{HEAD}{body}  tt.return\n}}\n").kernel
    live = Liveness(func)
    names = [*(op.op_name for op in live.start), "the end"]
    return names[live.intervals[next(iter(live.intervals))].end]


def read(tile: str) -> str:
    return f"%y: {TENSOR} = ttg.local_load {tile}"


@pytest.mark.parametrize(
    ("place", "tile", "end"),
    [
        # What is read anywhere in a loop is read again in the next round: up to the loop's last operation.
        ("IN_BEFORE", "%s", "scf.yield"),
        ("IN_BEFORE", "%a", "scf.yield"),
        ("IN_AFTER", "%s", "scf.yield"),
        ("IN_AFTER", "%b", "scf.yield"),
        ("AFTER", "%last", "ttg.local_load"),
        ("AFTER", "%s", "ttg.local_load"),
    ],
)
def test_of_a_while(place: str, tile: str, end: str) -> None:
    head = WHILE if tile != "%s" else WHILE.replace("%n, %s", "%n, %o")
    body = head.replace("    IN_BEFORE\n", f"    {read(tile)}\n" if place == "IN_BEFORE" else "")
    body = body.replace("    IN_AFTER\n", f"    {read(tile)}\n" if place == "IN_AFTER" else "")
    assert ends_at(body + (f"  {read(tile)}\n" if place == "AFTER" else "")) == end


@pytest.mark.parametrize(
    ("place", "tile", "end"),
    [
        ("IN_BODY", "%s", "scf.yield"),
        ("IN_BODY", "%a", "scf.yield"),
        ("AFTER", "%last", "ttg.local_load"),
    ],
)
def test_of_a_for(place: str, tile: str, end: str) -> None:
    head = FOR if tile != "%s" else FOR.replace("[%s]", "[%o]")
    body = head.replace("    IN_BODY\n", f"    {read(tile)}\n" if place == "IN_BODY" else "")
    assert ends_at(body + (f"  {read(tile)}\n" if place == "AFTER" else "")) == end


def test_of_what_a_branch_hands_on() -> None:
    assert ends_at(f"{IF}  {read('%last')}\n") == "ttg.local_load"


COPY = "  ttg.async_copy_global_to_local %p, %s\n"
COMMIT = "  ttg.async_commit_group\n"


@pytest.mark.parametrize(
    ("after_the_copy", "end"),
    [
        (f"{COMMIT}  gpu.barrier\n  ttg.async_wait {{num = 0}}\n  gpu.barrier\n", "ttg.async_wait"),
        # One of two groups may still be on its way, and it is the younger one.
        (f"{COMMIT}{COMMIT}  ttg.async_wait {{num = 1}}\n  gpu.barrier\n", "ttg.async_wait"),
        (f"{COMMIT}  ttg.async_wait {{num = 1}}\n  gpu.barrier\n", "the end"),
        ("  ttg.async_wait {num = 0}\n  gpu.barrier\n", "the end"),
        # A commit or a wait of one branch does not count.
        (
            f"  scf.if %flag then_body() {{\n  {COMMIT}  scf.yield\n  }} else_body() {{\n  scf.yield\n  }}\n"
            "  ttg.async_wait {num = 0}\n  gpu.barrier\n",
            "the end",
        ),
    ],
)
def test_of_what_a_copy_is_on_its_way_to(after_the_copy: str, end: str) -> None:
    assert ends_at(COPY + after_the_copy) == end
