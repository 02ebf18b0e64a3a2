"""Loads through descriptors in loops: TMA does them on Hopper, with the meaning that they had."""

from __future__ import annotations

import numpy as np
import pytest

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal, LocalAlloc
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal, FenceAsyncShared, WaitBarrier
from kbuild.compiler.ops.tensor import Barrier
from kbuild.compiler.transforms.gpu.pipeline.pipeline import MIN_STAGES
from kbuild.errors import InterpretError
from tests.zoo.case import KERNELS

SOURCE = f"{KERNELS / 'dots.py'}:dot_descriptors"
ROWS, COLUMNS, LARGEST = 72, 90, 328
POINTERS = dict.fromkeys("abc", "*fp16:16")
SIZES = dict.fromkeys("MNK", "i32") | dict.fromkeys(("lda", "ldb", "ldc"), "i32:16")


def compiled(tile: tuple[int, int, int], stages: int, stop: str = "ttgir", **changed: str) -> kbuild.Artifact:
    constexprs: dict[str, int] = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile))
    signature = POINTERS | SIZES | changed
    return kbuild.compile(SOURCE, signature=signature, constexprs=constexprs, num_stages=stages, stop=stop)


def found_and_expected(module: Module, tile: tuple[int, int, int], k: int) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel computes, and the correct result; beyond the tensors there are numbers that must not be
    read."""
    generator = np.random.default_rng(k)
    a, b = (generator.integers(-2, 3, (size, LARGEST + 8)).astype(np.float16) for size in (ROWS, COLUMNS))
    out = np.full((ROWS, 96), np.nan, np.float16)
    grid = -(-ROWS // tile[0]), -(-COLUMNS // tile[1])
    interp.run(module, [a, b, out, ROWS, COLUMNS, k, LARGEST + 8, LARGEST + 8, 96], grid)
    return out[:, :COLUMNS], (a[:, :k].astype(np.float32) @ b[:, :k].T.astype(np.float32)).astype(np.float16)


@pytest.mark.parametrize("stages", [MIN_STAGES, 3, 4])
@pytest.mark.parametrize("tile", [(64, 64, 64), (64, 128, 32), (64, 64, 128)])
def test_same_meaning_for_every_trip_count(tile: tuple[int, int, int], stages: int) -> None:
    module = parse_module(compiled(tile, stages).asm["ttgir"])
    assert any(isinstance(op, AsyncTmaCopyGlobalToLocal) for op in module.kernel.body.walk())
    assert not any(isinstance(op, AsyncCopyGlobalToLocal) for op in module.kernel.body.walk())
    for k in (0, 8, 64, 72, 200, LARGEST):
        np.testing.assert_array_equal(*found_and_expected(module, tile, k), f"k = {k}")


def test_where_not_all_tiles_fit_twice_the_largest_is_no_copy() -> None:
    """Of two tiles of 64 KB, which do not fit twice, TMA brings one early and one where it is read."""
    artifact = compiled((128, 128, 128), MIN_STAGES, a="*fp32:16", b="*fp32:16", c="*fp32:16")
    module = parse_module(artifact.asm["ttgir"])
    assert [note.split(": ")[1] for note in module.kernel.attrs["tma"]] == [
        f"shared memory has no room for {MIN_STAGES} of its tiles",
        "by b_map",
        "by a_map",
    ]
    generator = np.random.default_rng(7)
    a, b = (generator.integers(-2, 3, (size, LARGEST)).astype(np.float32) for size in (ROWS, COLUMNS))
    out = np.full((ROWS, 96), np.nan, np.float32)
    interp.run(module, [a, b, out, ROWS, COLUMNS, 200, LARGEST, LARGEST, 96], (1, 1))
    np.testing.assert_array_equal(out[:, :COLUMNS], a[:, :200] @ b[:, :200].T)


def test_a_missing_wait_shows() -> None:
    tile = (64, 64, 64)
    module = parse_module(compiled(tile, 3).asm["ttgir"])
    for op in list(module.kernel.body.walk()):
        if isinstance(op, WaitBarrier):
            op.erase()
    with pytest.raises(InterpretError, match="a barrier"):
        found_and_expected(module, tile, LARGEST)


def test_one_barrier_an_iteration_and_no_fence() -> None:
    module = parse_module(compiled((64, 64, 64), 4).asm["ttgir"])
    (wait,) = (op for op in module.kernel.body.walk() if isinstance(op, WaitBarrier))
    body = list(wait.parent_block)
    assert sum(isinstance(op, Barrier) for op in body) == 1
    assert not any(isinstance(op, FenceAsyncShared) for op in body), "no thread writes what the dots read"


@pytest.mark.parametrize(("k", "by_tma"), [(128, False), (512, True)])
def test_loops_of_two_iterations_are_over_before_a_map_is_fetched(k: int, by_tma: bool) -> None:
    signature = {name: type_ for name, type_ in (POINTERS | SIZES).items() if name != "K"}
    tile = dict.fromkeys(("TILE_M", "TILE_N", "TILE_K"), 64)
    artifact = kbuild.compile(
        SOURCE, signature=signature, constexprs={"K": k, **tile}, num_stages=3, stop="ttgir"
    )
    module = parse_module(artifact.asm["ttgir"])
    copies = [
        op
        for op in module.kernel.body.walk()
        if isinstance(op, AsyncCopyGlobalToLocal | AsyncTmaCopyGlobalToLocal)
    ]
    assert {isinstance(op, AsyncTmaCopyGlobalToLocal) for op in copies} == {by_tma}


def test_the_maps_are_parameters_that_name_their_sources() -> None:
    artifact = compiled((64, 128, 128), 3, stop="ptx")
    assert artifact.metadata.params[-2:] == (
        ("a_map", "tensormap f16 64x64 128 a M,K lda"),
        ("b_map", "tensormap f16 128x64 128 b N,K ldb"),
    )
    ptx = artifact.asm["ptx"]
    assert ".param .align 64 .b8" in ptx and ".local" not in ptx, "the maps are read where they are"
    assert "mbarrier.try_wait.parity" in ptx and "cp.async.bulk.tensor.2d" in ptx and "cp.async.cg" not in ptx


@pytest.mark.parametrize(
    ("name", "arrays", "maps"),
    [
        ("dot_descriptors", ("a", "b", "c"), {"a_map": "tf32", "b_map": "tf32"}),
        (
            "dot_and_sum_specialized",
            ("a", "b", "c", "sums"),
            {"a_map": "f32", "b_map": "tf32", "c_map": "f32"},
        ),
    ],
)
def test_fp32_for_tensor_cores_is_rounded_on_its_way(
    name: str, arrays: tuple[str, ...], maps: dict[str, str]
) -> None:
    """And copied as it is where threads read it too."""
    signature = dict.fromkeys(arrays, "*fp32:16") | (
        SIZES if name == "dot_descriptors" else dict.fromkeys("MNK", "i32:16")
    )
    constexprs = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    artifact = kbuild.compile(
        f"{KERNELS / 'dots.py'}:{name}", signature=signature, constexprs=constexprs, stop="ttgir"
    )
    assert {
        key: text.split()[1] for key, text in artifact.metadata.params if text.startswith("tensormap")
    } == maps


def test_pointers_where_no_map_can_be_made() -> None:
    """A stride of two bytes."""
    artifact = compiled((64, 64, 64), 3, lda="i32:1")
    module = parse_module(artifact.asm["ttgir"])
    assert not any(isinstance(op, AsyncTmaCopyGlobalToLocal) for op in module.kernel.body.walk())
    assert len(artifact.metadata.params) == len(POINTERS | SIZES) - 1
    assert any(isinstance(op, LocalAlloc) for op in module.kernel.body.walk())


@pytest.mark.parametrize(
    "first, note",
    [
        ("i32:16", "x: by a_map"),
        ("i32", "x: where its rows begin is not known to be divisible by 8"),
    ],
)
def test_boxes_begin_at_16_bytes(first: str, note: str) -> None:
    """Elsewhere they would stop the kernel."""
    signature = POINTERS | dict.fromkeys("MNK", "i32") | {"ld": "i32:16", "first": first}
    constexprs = {"TILE": 64, "TILE_K": 32}
    artifact = kbuild.compile(
        f"{KERNELS / 'dots.py'}:dot_from", signature=signature, constexprs=constexprs, stop="ttgir"
    )
    assert artifact.metadata.tma[0] == note
    module = parse_module(artifact.asm["ttgir"])
    assert any(isinstance(op, AsyncTmaCopyGlobalToLocal) for op in module.kernel.body.walk()) == (
        first == "i32:16"
    )
