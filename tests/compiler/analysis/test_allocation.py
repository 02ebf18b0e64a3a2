"""Places in shared memory: apart while alive together, together where they can be, and an error when there is not
enough."""

from __future__ import annotations

import random

import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler.analysis.allocation import Demand, place
from kbuild.compiler.analysis.liveness import Interval
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ops.tensor import Barrier
from kbuild.errors import CompileError
from kbuild.targets.sm_80 import TARGET as SM_80


def random_demands(seed: int) -> list[Demand]:
    generator = random.Random(seed)
    demands = []
    for _ in range(generator.randint(1, 30)):
        start = generator.randint(0, 50)
        life = Interval(start, start + generator.randint(0, 20))
        demands.append(
            Demand(Barrier(), generator.choice([4, 100, 512, 4096]), generator.choice([128, 1024]), life)
        )
    return demands


@pytest.mark.parametrize("seed", range(50))
def test_those_alive_together_lie_apart(seed: int) -> None:
    demands = random_demands(seed)
    offsets, total = place(demands)
    for demand in demands:
        start = offsets[demand.op]
        assert start % demand.alignment == 0 and start + demand.bytes <= total
        for other in demands:
            if other is not demand and other.life.overlaps(demand.life):
                assert start + demand.bytes <= offsets[other.op] or offsets[other.op] + other.bytes <= start


def test_those_of_different_times_share() -> None:
    demands = [Demand(Barrier(), 4096, 128, Interval(time, time)) for time in range(10)]
    assert place(demands)[1] == 4096


def test_small_ones_share_nothing_so_that_none_waits_for_another() -> None:
    assert place([Demand(Barrier(), 64, 128, Interval(time, time)) for time in range(8)])[1] == 7 * 128 + 64
    assert place([Demand(Barrier(), 64, 128, Interval(time, time)) for time in range(9)])[1] == 64


def test_too_much_is_reported_with_what_takes_it() -> None:
    text = """#s = swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}
tt.func @attention(%i: i32) attributes {num_warps = 4} {
  %a: !ttg.memdesc<4 x 128x128xf16, #s> = ttg.local_alloc loc("kernel.py":7:9)
  %b: !ttg.memdesc<4 x 128x64xf16, #s> = ttg.local_alloc loc("kernel.py":8:9)
  %x: !ttg.memdesc<128x128xf16, #s> = ttg.memdesc_index %a, %i
  ttg.local_dealloc %b
  ttg.local_dealloc %a
  tt.return
}
"""
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse_module(text), SM_80, ["allocate"])
    assert str(caught.value).splitlines() == [
        "kernel.py:7:9: error: attention needs 196608 bytes of shared memory, but sm_80 has 166912 per program:",
        "      131072 bytes for 4 tiles of 128x128 f16 (kernel.py:7:9)",
        "       65536 bytes for 4 tiles of 128x64 f16 (kernel.py:8:9)",
        "help: make the block sizes smaller, or num_stages: each stage has a buffer of its own",
    ]
