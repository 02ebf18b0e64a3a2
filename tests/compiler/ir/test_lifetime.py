"""Operations are gone when their compilation is done, without a search for cycles."""

from __future__ import annotations

import gc
from pathlib import Path

from kbuild.compiler.driver import compile
from kbuild.compiler.ir.core import Block, Op
from kbuild.compiler.ir.lifetime import taken_apart_later
from kbuild.compiler.ir.types import I32
from kbuild.compiler.ops.elementwise import Constant

KERNEL = """
import triton, triton.language as tl

@triton.jit
def highest(x, out, n, BLOCK: tl.constexpr):
    best = tl.full((), 0, tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.max(tl.load(x + offsets, mask=offsets < n, other=0)))
    tl.store(out, best)
"""


def test_a_compilation_leaves_no_cycles(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)

    def left(stop: str) -> int:
        """Objects in cycles after a compilation."""
        compile(
            f"{file}:highest",
            signature={"x": "*fp32:16", "out": "*fp32", "n": "i32"},
            constexprs={"BLOCK": 1024},
            stop=stop,
        )
        return gc.collect()

    left("ptx")  # What is made once, for all compilations, may leave some.
    gc.collect()
    gc.freeze()  # What earlier tests have left is not looked through.
    gc.disable()
    try:
        found = {stop: left(stop) for stop in ("ttir", "ttgir", "llir", "ptx")}
    finally:
        gc.enable()
        gc.unfreeze()
    assert max(found.values()) < 100, found  # Those of a visitor for each call.


def test_operations_of_the_caller_stay() -> None:
    outside = Constant(value=1, type=I32)
    with taken_apart_later():
        inside = Constant(value=2, type=I32)
        block = Block([I32])
        block.append(inside)
        with taken_apart_later():
            innermost = Constant(value=3, type=I32)
        assert not vars(innermost) and inside.parent is block
    assert outside.result.type == I32 and not vars(inside)
    assert isinstance(Constant(value=4, type=I32).result.owner, Op)
