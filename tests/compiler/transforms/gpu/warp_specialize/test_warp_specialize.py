"""Kernels with a producer's thread: the same meaning, mistakes that show, and code without needless waiting."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    WaitBarrier,
    WarpGroupDot,
    WarpGroupDotWait,
    WarpSpecialize,
)
from kbuild.errors import InterpretError
from tests.compiler.transforms.gpu.loops import ops
from tests.emulator.artifacts import left_in
from tests.zoo.case import KERNELS

SOURCE = f"{KERNELS / 'dots.py'}:dot_specialized"
ROWS, COLUMNS, LARGEST = 100, 88, 336
SIGNATURE = (
    dict.fromkeys("abc", "*fp16:16")
    | dict.fromkeys("MNK", "i32")
    | dict.fromkeys(("lda", "ldb", "ldc"), "i32:16")
)


def compiled(
    tile: tuple[int, int, int], stages: int, stop: str = "ttgir", warps: int = 4, **changed: str
) -> kbuild.Artifact:
    constexprs: dict[str, int] = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile))
    signature = SIGNATURE | changed
    return kbuild.compile(
        SOURCE, signature=signature, constexprs=constexprs, num_warps=warps, num_stages=stages, stop=stop
    )


def values(k: int) -> dict[str, np.ndarray | int]:
    generator = np.random.default_rng(k)
    a, b = (
        generator.integers(-2, 3, shape).astype(np.float16) for shape in ((ROWS, LARGEST), (LARGEST, COLUMNS))
    )
    sizes = {"M": ROWS, "N": COLUMNS, "K": k, "lda": LARGEST, "ldb": COLUMNS, "ldc": COLUMNS}
    return {"a": a, "b": b, "c": np.full((ROWS, COLUMNS), np.nan, np.float16), **sizes}


def right(given: dict[str, np.ndarray | int]) -> np.ndarray:
    a, b, k = (np.asarray(given[name]) for name in ("a", "b", "K"))
    return (a[:, :k].astype(np.float32) @ b[:k].astype(np.float32)).astype(np.float16)


def found_and_expected(module: Module, k: int, programs: int) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel computes, and the correct result."""
    given = values(k)
    interp.run(module, list(given.values()), (programs,))
    return np.asarray(given["c"]), right(given)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("tile", [(64, 64, 64), (128, 64, 32)])
def test_same_meaning_for_every_trip_count(tile: tuple[int, int, int], stages: int) -> None:
    module = parse_module(compiled(tile, stages).asm["ttgir"])
    assert ops(module, WarpSpecialize)
    for k, programs in ((0, 2), (8, 1), (64, 3), (136, 1), (LARGEST, 2)):
        np.testing.assert_array_equal(*found_and_expected(module, k, programs), f"k = {k}")


@pytest.mark.parametrize(
    "schedule, timing", [("reverse", "early"), ("random(1)", "late"), ("starve(4)", "random(2)")]
)
def test_no_race_whichever_side_is_slow(schedule: str, timing: str) -> None:
    artifact, given = compiled((64, 64, 64), 3, "ptx"), values(200)
    found = left_in("c", artifact, given, grid=(2,), schedule=schedule, timing=timing)
    np.testing.assert_array_equal(found, right(given))


def test_a_buffer_that_is_not_given_back_stops_the_producer() -> None:
    module = parse_module(compiled((64, 64, 64), 3).asm["ttgir"])
    for op in ops(module, ArriveBarrier):
        op.erase()
    with pytest.raises(InterpretError, match="a wait that never ends"):
        found_and_expected(module, LARGEST, 1)


def test_a_buffer_given_back_too_early_shows() -> None:
    module = parse_module(compiled((64, 64, 64), 3).asm["ttgir"])
    for wait in ops(module, WarpGroupDotWait):
        assert isinstance(wait, WarpGroupDotWait)
        if not wait.values:
            wait.pendings = 2
    found, expected = found_and_expected(module, LARGEST, 1)
    assert not np.array_equal(found, expected)


def test_reading_before_the_copies_have_landed_shows() -> None:
    module = parse_module(compiled((64, 64, 64), 3).asm["ttgir"])
    (split,) = ops(module, WarpSpecialize)
    assert isinstance(split, WarpSpecialize)
    for op in list(split.default.walk()):
        if isinstance(op, WaitBarrier):
            op.erase()
    with pytest.raises(InterpretError):
        found_and_expected(module, LARGEST, 1)


def test_two_dots_in_flight_and_no_barrier_between_the_program_s_warps() -> None:
    artifact = compiled((128, 256, 64), 3, "ptx", warps=8)
    module = parse_module(artifact.asm["ttgir"])
    (dot,) = ops(module, WarpGroupDot)
    assert [op.pendings for op in dot.parent_block if isinstance(op, WarpGroupDotWait)] == [1]
    assert not any(op.op_name.partition(".")[2] == "barrier" for op in dot.parent_block)
    assert artifact.metadata.warps == 12
    ptx = artifact.asm["ptx"]
    assert "stmatrix" in ptx and "bar.warp.sync" in ptx, "what a warp has is stored by that warp"
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", ptx) == [
        ("dec", "40"),
        ("inc", "232"),
    ]
    assert len(re.findall(r"bar\.sync", ptx)) == 1, "after the barriers in shared memory have been made"


def test_nothing_orders_twice_what_is_ordered() -> None:
    """One fence shows both arrays of barriers; a wait for dots has brought the warp together, reads by
    its lanes have not; and where no tile follows, the last buffer is not released."""
    ptx = compiled((64, 64, 64), 3, "ptx").asm["ptx"]
    assert ptx.count("fence.proxy.async") == 1 and ptx.count("mbarrier.init") == 6
    assert ptx.count("mbarrier.arrive.shared") == 2, "the tiles of a program are a loop"
    assert ptx.count("bar.warp.sync") == 2, (
        "before and after the result passes through memory of the warp's own"
    )
    signature = dict.fromkeys("abc", "*fp16:16") | {"sums": "*fp32:16"} | dict.fromkeys("MNK", "i32:16")
    source = f"{KERNELS / 'dots.py'}:dot_and_sum_specialized"
    tiles = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64}
    ptx = kbuild.compile(source, signature=signature, constexprs=tiles, num_warps=4, stop="ptx").asm["ptx"]
    assert ptx.count("bar.warp.sync") == 2 and ptx.count("mbarrier.arrive.shared") == 1


def test_registers_stay_where_they_are_enough() -> None:
    assert "setmaxnreg" not in compiled((128, 64, 64), 3, "ptx", warps=8).asm["ptx"]


def test_one_side_for_all_where_no_launcher_could_make_the_maps() -> None:
    artifact = compiled((64, 64, 64), 3, lda="i32:1")
    assert not ops(parse_module(artifact.asm["ttgir"]), WarpSpecialize)
    assert artifact.metadata.warps == 4


def test_dots_of_attention_stay_asynchronous() -> None:
    """V's buffer is released where the scores are waited for: an earlier wait, for the previous dot alone,
    would make ptxas serialise them all, which fails the compilation."""
    source = f"{KERNELS / 'dots.py'}:attention_specialized"
    signature = dict.fromkeys(("q", "k", "v", "out"), "*fp16:16") | {"rows": "i32", "pitch": "i32:16"}
    artifact = kbuild.compile(
        source, signature=signature, constexprs={"TILE": 128, "HEAD": 128}, num_warps=8, num_stages=2
    )
    assert artifact.metadata.warps == 12 and artifact.metadata.spill_stores == 0
    module = parse_module(artifact.asm["ttgir"])
    releases = [
        op
        for op in ops(module, ArriveBarrier)
        if any(isinstance(other, WarpGroupDot) for other in op.parent_block)
    ]
    assert len(releases) == 2 and releases[0].parent is releases[1].parent
    order = list(releases[0].parent_block)
    (last,) = (
        number
        for number, op in enumerate(order)
        if isinstance(op, WarpGroupDot) and op.result in order[-1].operands
    )
    assert max(map(order.index, releases)) < last, (
        "both buffers are free before the second dot of the iteration"
    )


ATTENTION = dict.fromkeys(("q", "k", "v", "out"), "*fp16:16") | {"lse": "*fp32", "sm_scale": "fp32"}
ATTENTION |= dict.fromkeys((f"stride_{array}{axis}" for array in "qkvo" for axis in "zhn"), "i32:16")
ATTENTION |= dict.fromkeys(("n_heads", "n_kv_heads", "n_ctx_q", "n_ctx_k", "n_batch"), "i32")


def attention(stop: str) -> kbuild.Artifact:
    """The shipped kernel as programs that go from tile to tile, with small tiles."""
    source = Path(__file__).parents[5] / "kernels" / "flash_attention.py"
    constexprs = {"HEAD_DIM": 64, "IS_CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "PERSISTENT": True}
    return kbuild.compile(
        f"{source}:flash_attention_kernel",
        signature=ATTENTION,
        constexprs=constexprs,
        num_stages=2,
        stop=stop,
    )


def attended(module: Module) -> float:
    """The largest error over three tiles of each of two heads, which one program makes."""
    heads, rows, width = 2, 150, 64
    generator = np.random.default_rng(1)
    q, k, v = (generator.standard_normal((heads, rows, width)).astype(np.float16) for _ in range(3))
    out, sums = np.full_like(q, np.nan), np.full((heads, rows), np.nan, np.float32)
    strides = [q.size, rows * width, width] * 4
    interp.run(module, [q, k, v, out, sums, -0.125, *strides, heads, heads, rows, rows, 1], (1,))
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * -0.125
    weights = np.exp(np.where(np.tri(rows, dtype=bool), scores, -np.inf))
    expected = weights / weights.sum(2, keepdims=True) @ v.astype(np.float64)
    return float(np.abs(out - expected).max())


def test_no_barrier_of_all_warps_from_tile_to_tile_of_attention() -> None:
    artifact = attention("ptx")
    assert re.findall(r"bar\.sync\s+.*;", artifact.asm["ptx"]) == ["bar.sync \t0;"], (
        "but that after the barriers are set up"
    )
    assert artifact.metadata.conversions == 0 and "queries: by q_map" in artifact.metadata.tma
    assert attended(parse_module(artifact.asm["ttgir"])) < 2e-3


def release_of_queries(module: Module) -> ArriveBarrier:
    """The only one that is neither in the innermost loop nor of one of its tiles."""
    found = [
        op
        for op in ops(module, ArriveBarrier)
        if isinstance(op, ArriveBarrier) and op.tiles[0].name.startswith("queries")
    ]
    (release,) = found
    return release


def test_queries_that_are_not_given_back_stop_the_producer() -> None:
    module = parse_module(attention("ttgir").asm["ttgir"])
    release_of_queries(module).erase()
    with pytest.raises(InterpretError, match="a wait that never ends"):
        attended(module)


def test_queries_released_before_the_dots_show() -> None:
    module = parse_module(attention("ttgir").asm["ttgir"])
    release = release_of_queries(module)
    (loop,) = {op.parent_op for op in ops(module, WarpGroupDot)}
    for op in (release.barrier.op, release.tiles[0].op, release.predicate.op, release):
        assert op is not None and loop is not None
        op.move_before(loop)
    with pytest.raises((InterpretError, AssertionError)):
        assert attended(module) < 2e-3


WAITING = """\
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, TILE: tl.constexpr, INSIDE: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TILE, TILE])
    y = tl.make_tensor_descriptor(b, [K, N], [N, 1], [TILE, TILE])
    sums = tl.zeros((TILE, TILE), tl.float32)
    if not INSIDE:
        tl.extra.cuda.gdc_wait()
    for k in tl.range(0, K, TILE, warp_specialize=True):
        if INSIDE:
            tl.extra.cuda.gdc_wait()
        sums = tl.dot(x.load([0, k]), y.load([k, 0]), sums)
    tl.extra.cuda.gdc_launch_dependents()
    tl.make_tensor_descriptor(c, [M, N], [N, 1], [TILE, TILE]).store([0, 0], sums.to(tl.float16))
"""


@pytest.mark.parametrize("is_inside", [False, True])
def test_no_copy_comes_before_the_wait_for_the_launches_before(tmp_path: Path, is_inside: bool) -> None:
    """The producer waits for itself; a loop that waits in each iteration has neither a producer nor copies
    ahead."""
    (tmp_path / "matmul.py").write_text(WAITING)
    signature = dict.fromkeys("abc", "*fp16:16") | dict.fromkeys("MNK", "i32:16")
    artifact = kbuild.compile(
        f"{tmp_path / 'matmul.py'}:matmul",
        signature=signature,
        constexprs={"TILE": 64, "INSIDE": is_inside},
        stop="ptx",
    )
    ptx = artifact.asm["ptx"]
    assert bool(ops(parse_module(artifact.asm["ttgir"]), WarpSpecialize)) != is_inside
    assert (
        ptx.count("griddepcontrol.wait") == (1 if is_inside else 2) and artifact.metadata.waits_for_launches
    )
    assert not re.search(r"bulk.tensor|cp.async|ld.global", ptx.partition("griddepcontrol.wait")[0])
