"""Barriers: enough of them by a checker of all pairs, and none too many in the loops that matter."""

from __future__ import annotations

import random

import pytest

import kbuild.compiler.transforms.gpu.memory.allocate
import kbuild.compiler.transforms.gpu.memory.barriers
import kbuild.compiler.transforms.gpu.pipeline.pipeline  # noqa: F401
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Barrier
from kbuild.errors import InternalError
from kbuild.targets.sm_80 import TARGET as SM_80
from tests.compiler.analysis.programs import matmul
from tests.compiler.analysis.races import races

LAYOUTS = """
#rows = blocked{sizePerThread=[1,1], threadsPerWarp=[2,16], warpsPerCTA=[4,1], order=[1,0]}
#columns = blocked{sizePerThread=[1,1], threadsPerWarp=[16,2], warpsPerCTA=[1,4], order=[0,1]}
#shared = swizzled{vector=8, perPhase=1, maxPhase=1, order=[1,0]}
"""
TILE = "!ttg.memdesc<16x16xf16, #shared>"
RING = "!ttg.memdesc<3 x 16x16xf16, #shared>"
TENSOR = "tensor<16x16xf16, #rows>"
POINTERS = "tensor<16x16x!tt.ptr<f16>, #rows>"


def compiled(text: str, *passes: str) -> Func:
    module = parse_module(text)
    run_pipeline(module, SM_80, passes)
    return module.kernel


class Program:
    """A random program over a ring of three buffers and a few tiles."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.slots = ["%c0", "%c1", "%c2"]
        self.tiles: list[str] = []
        self.write(f"%ring: {RING} = ttg.local_alloc")
        self.statements(8, depth=0)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def write(self, line: str) -> None:
        self.lines.append(line)

    def buffer(self) -> str:
        if self.tiles and self.random.random() < 0.3:
            return self.random.choice(self.tiles)
        name = self.name()
        self.write(f"{name}: {TILE} = ttg.memdesc_index %ring, {self.random.choice(self.slots)}")
        return name

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            control = ["loop", "loop", "rounds", "branch"] if depth < 2 else []
            kinds = ["store", "load", "load", "copy", "convert", "alloc", *control]
            getattr(self, self.random.choice(kinds))(depth)

    def store(self, depth: int) -> None:
        self.write(f"ttg.local_store %x, {self.buffer()}")

    def copy(self, depth: int) -> None:
        self.write(f"ttg.async_copy_global_to_local %p, {self.buffer()}")
        self.write("ttg.async_commit_group")
        self.write("ttg.async_wait {num = 0}")

    def load(self, depth: int) -> None:
        buffer = self.buffer()
        self.write(f"{self.name()}: {TENSOR} = ttg.local_load {buffer}")

    def convert(self, depth: int) -> None:
        self.write(f"{self.name()}: tensor<16x16xf16, #columns> = ttg.convert_layout %x")

    def alloc(self, depth: int) -> None:
        name = self.name()
        self.write(f"{name}: {TILE} = ttg.local_alloc src=%x")
        self.tiles.append(name)

    def branch(self, depth: int) -> None:
        self.write("scf.if %flag then_body() {")
        self.nested(depth)
        self.write("scf.yield")
        self.write("} else_body() {")
        self.nested(depth)
        self.write("scf.yield")
        self.write("}")

    def loop(self, depth: int) -> None:
        start = self.random.choice(["%c0", "%c1", "%c2"])
        slot, other = self.name(), self.name()
        results = f"{self.name()}, {self.name()}"
        self.write(f"{results}: i32, i32 = scf.for %c0, %n, %c1, init=[{start}, %c0]")
        self.write(f"    body({self.name()}: i32, {slot}: i32, {other}: i32) {{")
        following = [self.successor(slot), self.successor(other)]
        self.slots += [slot, other, *following]
        self.nested(depth)
        del self.slots[-4:]
        self.write(f"scf.yield {', '.join(following)}")
        self.write("}")

    def rounds(self, depth: int) -> None:
        """A while that does something before the test, too; what it carries is `n` counting down, and two
        buffers' numbers."""
        start = self.random.choice(["%c0", "%c1", "%c2"])
        before, after, end = ([self.name() for _ in range(3)] for _ in range(3))
        self.write(f"{', '.join(end)}: i32, i32, i32 = scf.while %n, {start}, %c0")
        self.write(f"    before({', '.join(f'{name}: i32' for name in before)}) {{")
        self.slots += before[1:]
        self.nested(depth, most=2)
        more = self.name()
        self.write(f'{more}: i1 = arith.cmpi {before[0]}, %c0 {{predicate = "sgt"}}')
        self.write(f"scf.condition {more}, values=[{', '.join(before)}]")
        self.write(f"}} after({', '.join(f'{name}: i32' for name in after)}) {{")
        self.slots[-2:] = after[1:]
        less = self.name()
        self.write(f"{less}: i32 = arith.subi {after[0]}, %c1")
        following = [self.successor(name) for name in after[1:]]
        self.slots += following
        self.nested(depth, most=2)
        del self.slots[-4:]
        self.write(f"scf.yield {', '.join([less, *following])}")
        self.write("}")

    def successor(self, slot: str) -> str:
        sum_, inside, result = self.name(), self.name(), self.name()
        self.write(f"{sum_}: i32 = arith.addi {slot}, %c1")
        self.write(f'{inside}: i1 = arith.cmpi {sum_}, %c3 {{predicate = "slt"}}')
        self.write(f"{result}: i32 = arith.select {inside}, {sum_}, %c0")
        return result

    def nested(self, depth: int, most: int = 4) -> None:
        tiles = len(self.tiles)
        self.statements(self.random.randint(1, most), depth + 1)
        del self.tiles[tiles:]

    def text(self) -> str:
        constants = "\n".join(f"  %c{value}: i32 = arith.constant {{value = {value}}}" for value in range(4))
        body = "\n".join("  " + line for line in self.lines)
        return (
            f"{LAYOUTS}tt.func @f(%x: {TENSOR}, %p: {POINTERS}, %n: i32, %flag: i1) attributes {{num_warps = 4}} {{\n"
            f"{constants}\n{body}\n  tt.return\n}}\n"
        )


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_have_no_races(seed: int) -> None:
    func = compiled(Program(seed).text(), "allocate", "barriers")
    for trips in range(5):
        for flag in (0, 1):
            assert not races(func, n=trips, flag=flag)


def test_the_checker_sees_races() -> None:
    found = [races(compiled(Program(seed).text(), "allocate"), n=3, flag=1) for seed in range(20)]
    assert sum(bool(races) for races in found) >= 15


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_a_pipelined_loop_has_one_barrier_which_it_needs(stages: int) -> None:
    func = compiled(matmul(stages), "pipeline", "allocate", "barriers")
    loop = next(op for op in func.body if isinstance(op, For))
    inside = [op for op in loop.body if isinstance(op, Barrier)]
    assert len(inside) == 1
    for trips in range(2 * stages + 1):
        assert not races(func, n=32 * trips)
    inside[0].erase()
    assert races(func, n=32 * 2 * stages)


def test_a_barrier_before_the_loop_saves_one_inside() -> None:
    text = f"""{LAYOUTS}
tt.func @f(%x: {TENSOR}, %n: i32) attributes {{num_warps = 4}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %tile: {TILE} = ttg.local_alloc src=%x
  scf.for %c0, %n, %c1 body(%i: i32) {{
    %y: tensor<16x16xf16, #columns> = ttg.local_load %tile
    scf.yield
  }}
  tt.return
}}
"""
    func = compiled(text, "allocate", "barriers")
    assert [op.op_name for op in func.body][3:5] == ["gpu.barrier", "scf.for"]
    assert not any(isinstance(op, Barrier) for loop in func.body if isinstance(loop, For) for op in loop.body)


def test_counters_start_again_when_an_inner_loop_does() -> None:
    """The last iteration reads buffer 1 (of two trips); the first one of the next round writes buffer 1."""
    text = f"""{LAYOUTS}
tt.func @f(%x: {TENSOR}, %n: i32) attributes {{num_warps = 4}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %c3: i32 = arith.constant {{value = 3}}
  %ring: {RING} = ttg.local_alloc
  scf.for %c0, %c3, %c1 body(%i: i32) {{
    %r_end, %w_end: i32, i32 = scf.for %c0, %n, %c1, init=[%c0, %c1] body(%j: i32, %r: i32, %w: i32) {{
      %to: {TILE} = ttg.memdesc_index %ring, %w
      ttg.local_store %x, %to
      gpu.barrier
      %from: {TILE} = ttg.memdesc_index %ring, %r
      %y: {TENSOR} = ttg.local_load %from
      %r1: i32 = arith.addi %r, %c1
      %r2: i1 = arith.cmpi %r1, %c3 {{predicate = "slt"}}
      %r3: i32 = arith.select %r2, %r1, %c0
      %w1: i32 = arith.addi %w, %c1
      %w2: i1 = arith.cmpi %w1, %c3 {{predicate = "slt"}}
      %w3: i32 = arith.select %w2, %w1, %c0
      scf.yield %r3, %w3
    }}
    scf.yield
  }}
  tt.return
}}
"""
    func = compiled(text, "allocate", "barriers")
    for trips in range(7):
        assert not races(func, n=trips)


COMMIT = "ttg.async_commit_group"


@pytest.mark.parametrize(
    ("then", "other", "pending", "landed"),
    [
        (COMMIT, COMMIT, 0, True),
        (COMMIT, "", 0, False),
        ("", COMMIT, 0, False),
        ("", "", 0, False),
        (f"{COMMIT}\n{COMMIT}", f"{COMMIT}\n{COMMIT}", 1, True),
        (f"{COMMIT}\n{COMMIT}", COMMIT, 1, False),
        (COMMIT, f"{COMMIT}\n{COMMIT}", 1, False),
    ],
)
def test_a_copy_has_landed_only_where_both_branches_committed_it(
    then: str, other: str, pending: int, landed: bool
) -> None:
    """Whichever way the program came, the wait covers the copy: it is as young as in the branch that commits
    less."""
    text = f"""{LAYOUTS}
tt.func @f(%p: {POINTERS}, %flag: i1) attributes {{num_warps = 4}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %ring: {RING} = ttg.local_alloc
  %tile: {TILE} = ttg.memdesc_index %ring, %c0
  ttg.async_copy_global_to_local %p, %tile
  scf.if %flag then_body() {{
    {then}
    scf.yield
  }} else_body() {{
    {other}
    scf.yield
  }}
  ttg.async_wait {{num = {pending}}}
  %y: {TENSOR} = ttg.local_load %tile
  tt.return
}}
"""
    if landed:
        func = compiled(text, "allocate", "barriers")
        assert not races(func, flag=0) and not races(func, flag=1)
    else:
        with pytest.raises(InternalError, match="while an asynchronous copy into it is unfinished"):
            compiled(text, "allocate", "barriers")
