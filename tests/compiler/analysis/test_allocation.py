"""Places in shared memory: apart while alive together, together where they can be, and an error when there is not
enough."""

from __future__ import annotations

import random

import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler.analysis.allocation import Demand, place
from kbuild.compiler.analysis.liveness import Interval
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ops.gpu import ConvertLayout
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


def test_small_ones_lie_apart_within_what_a_large_one_takes_at_another_time() -> None:
    """The reductions of a loop, and a conversion behind it."""
    reductions = [Demand(Barrier(), 32, 128, Interval(time, time)) for time in (1, 2)]
    conversion = Demand(Barrier(), 16384, 128, Interval(9, 9))
    offsets, total = place([*reductions, conversion])
    assert [offsets[demand.op] for demand in reductions] == [0, 128]
    assert total == 16384


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


def converting(tiles: int) -> str:
    """A conversion of 128 KB, alone and beside tiles of 16 KB."""
    return f"""#s = swizzled{{vector=8, perPhase=1, maxPhase=8, order=[1,0]}}
#rows = blocked{{sizePerThread=[1,4], threadsPerWarp=[1,32], warpsPerCTA=[4,1], order=[1,0]}}
#columns = blocked{{sizePerThread=[4,1], threadsPerWarp=[32,1], warpsPerCTA=[1,4], order=[0,1]}}
tt.func @turn(%x: tensor<128x256xf32, #rows>) attributes {{num_warps = 4}} {{
  %y: tensor<128x256xf32, #columns> = ttg.convert_layout %x loc("kernel.py":2:9)
  %a: !ttg.memdesc<{tiles} x 32x128xf32, #s> = ttg.local_alloc loc("kernel.py":3:9)
  %z: tensor<128x256xf32, #rows> = ttg.convert_layout %y loc("kernel.py":4:9)
  ttg.local_dealloc %a
  tt.return
}}
"""


@pytest.mark.parametrize(("tiles", "bound"), [(2, None), (4, 65536), (8, 32768), (10, 2048)])
def test_what_has_no_room_beside_others_moves_in_rounds(tiles: int, bound: int | None) -> None:
    module = parse_module(converting(tiles))
    run_pipeline(module, SM_80, ["allocate"])
    func: Func = module.kernel
    alone, beside = (op for op in func.body if isinstance(op, ConvertLayout))
    assert alone.max_scratch is None and beside.max_scratch == bound
    assert func.attrs["shared"] == max(131072, tiles * 16384 + (bound or 131072))
    assert func.attrs["shared"] <= SM_80.limits.shared_bytes


def test_nothing_is_divided_where_that_does_not_help() -> None:
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse_module(converting(16)), SM_80, ["allocate"])
    assert str(caught.value).splitlines() == [
        "kernel.py:3:9: error: turn needs 393216 bytes of shared memory, but sm_80 has 166912 per program:",
        "      262144 bytes for 16 tiles of 32x128 f32 (kernel.py:3:9)",
        "      131072 bytes for moving data between threads in ttg.convert_layout (kernel.py:2:9)",
        "      131072 bytes for moving data between threads in ttg.convert_layout (kernel.py:4:9)",
        "help: make the block sizes smaller, or num_stages: each stage has a buffer of its own",
    ]
