"""Stores and atomics through descriptors: which TMA does, in what order, and kernels
without them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.nvidia import AsyncTmaCopyLocalToGlobal, TmaStoreWait
from kbuild.errors import InterpretError
from tests.emulator.artifacts import left_in
from tests.zoo.case import KERNELS

SIZES = {"rows": "i32", "columns": "i32:16", "pitch": "i32:16"}
HEAD = """
import triton
import triton.language as tl

@triton.jit
def k(x, out, rows, columns, pitch, TILE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE, TILE])
    target = tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [TILE, TILE])
    tile = source.load([0, 0])
"""


def compiled(
    source: str,
    element: str = "fp32",
    tile: int = 16,
    stop: str = "ttgir",
    columns: str = "i32:16",
    **options: Any,
) -> kbuild.Artifact:
    signature = {"x": f"*{element}:16", "out": f"*{element}:16"} | SIZES | {"columns": columns}
    return kbuild.compile(source, signature=signature, constexprs={"TILE": tile}, stop=stop, **options)


def written(folder: Path, *lines: str, **options: Any) -> kbuild.Artifact:
    """A kernel that does something with a tile."""
    path = folder / "kernel.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in lines))
    return compiled(f"{path}:k", **options)


def copies(artifact: kbuild.Artifact) -> list[AsyncTmaCopyLocalToGlobal]:
    body = parse_module(artifact.asm["ttgir"]).kernel.body
    return [op for op in body.walk() if isinstance(op, AsyncTmaCopyLocalToGlobal)]


def waits(artifact: kbuild.Artifact) -> list[tuple[int, bool, int]]:
    """Of each wait: the copies that may be unfinished, whether it is for reads only, and the tiles that it is
    for."""
    body = parse_module(artifact.asm["ttgir"]).kernel.body
    return [(op.pendings, op.only_reads, len(op.tiles)) for op in body.walk() if isinstance(op, TmaStoreWait)]


REFUSED = {
    "the same array is read": ["target.store([0, 0], target.load([0, TILE]) + tile)"],
    "others are notified": ["target.store([0, 0], tile)", "tl.atomic_add(x + rows * pitch, 1.0)"],
    "the threads write there too": ["target.store([0, 0], tile)", "tl.store(out + rows * pitch, 1.0)"],
    "the stride is computed": [
        "odd = tl.make_tensor_descriptor(out, [rows, columns], [2 * pitch, 1], [TILE, TILE])",
        "odd.store([0, 0], tile)",
    ],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_the_threads_write_where_nothing_would_order_copies(reason: str, tmp_path: Path) -> None:
    assert not copies(written(tmp_path, *REFUSED[reason]))
    assert (
        len(copies(written(tmp_path, "target.store([0, 0], tile)", "tl.atomic_add(x, 1.0, sem='relaxed')")))
        == 1
    )


def test_the_threads_write_where_units_of_16_bytes_may_end_beyond_the_tensor(tmp_path: Path) -> None:
    """Which TMA of the H200 writes whole."""
    for offset, count in (
        ("8", 1),
        ("rows * 4", 1),
        ("3", 0),
        ("rows", 0),
        ("-16", 0),
        ("tl.program_id(0) * TILE", 1),
    ):
        assert len(copies(written(tmp_path, f"target.store([0, {offset}], tile)"))) == count
    for columns, element, count in (
        ("i32:4", "fp32", 1),
        ("i32:4", "fp16", 0),
        ("i32:8", "fp16", 1),
        ("i32", "fp32", 0),
    ):
        assert (
            len(copies(written(tmp_path, "target.store([0, 0], tile)", element=element, columns=columns)))
            == count
        )


def test_the_threads_write_where_shared_memory_has_no_room(tmp_path: Path) -> None:
    artifact = written(tmp_path, "target.store([0, 0], tile)", tile=256, num_warps=8)
    assert not copies(artifact)
    assert artifact.metadata.tma == ("out: shared memory has no room for its tiles, the threads write them",)


def test_a_copy_waits_for_those_alone_that_it_may_lie_over(tmp_path: Path) -> None:
    loop = ("for row in range(0, rows, TILE):",)
    beside = written(
        tmp_path, *loop, "    target.store([row, 0], tile)", "    target.store([row, TILE], tile + 1)"
    )
    assert waits(beside) == [(0, False, 1), (1, False, 1), (0, True, 2)]
    over = written(
        tmp_path, *loop, "    target.store([row, 0], tile)", "    target.store([row, 8], tile + 1)"
    )
    assert waits(over) == [(0, False, 1), (0, False, 1), (0, True, 2)]
    sums = written(
        tmp_path, *loop, "    target.atomic_add([row, 0], tile)", "    target.atomic_add([0, 0], tile)"
    )
    assert waits(sums) == [(0, True, 1), (1, True, 1), (0, True, 2)]
    assert waits(written(tmp_path, "target.store([0, 0], tile)")) == [(0, True, 1)]


def test_accesses_share_a_tile_where_each_had_no_room_for_its_own(tmp_path: Path) -> None:
    lines = (
        "for row in range(0, rows, TILE):",
        *(f"    target.store([row, {part} * TILE], tile + {part})" for part in range(4)),
    )
    artifact = written(tmp_path, *lines, tile=128, num_warps=8)
    assert artifact.metadata.shared == 128 * 128 * 4
    read, end = (0, True, 1), (0, True, 1)
    assert waits(artifact) == [
        (0, False, 1),
        (1, False, 0),
        read,
        (2, False, 0),
        read,
        (3, False, 0),
        read,
        end,
    ]
    x, out = np.random.default_rng(1).random((140, 512), np.float32), np.full((140, 512), np.nan, np.float32)
    interp.run(parse_module(artifact.asm["ttgir"]), [x, out, 140, 496, 512])
    right = np.concatenate([np.pad(x[:128, :128], ((0, 12), (0, 0))) + part for part in range(4)], axis=1)[
        :, :496
    ]
    right[128:] = right[:12]
    np.testing.assert_array_equal(out[:, :496], right)


def test_accesses_share_a_tile_inside_a_loop_where_it_has_no_room_around(tmp_path: Path) -> None:
    """Three operands of the loop's dots take as much memory as three tiles; one lies where they were."""
    value = "tl.dot(source.load([row, TILE]), tile, tl.dot(source.load([row, 0]), tile))"
    stores = (f"    target.store([row, {part} * TILE], value + {part})" for part in range(4))
    loop = "for row in tl.range(0, rows, TILE, num_stages=1):"
    artifact = written(tmp_path, loop, f"    value = {value}", *stores, tile=128, num_warps=8)
    assert artifact.metadata.shared == 3 * 128 * 128 * 4
    assert sum(tiles for _, _, tiles in waits(artifact)) == 4 and len(copies(artifact)) == 4


def test_each_warp_copies_its_own_where_nothing_else_makes_warps_wait() -> None:
    signature = (
        dict.fromkeys("abc", "*fp16:16")
        | dict.fromkeys("MNK", "i32:16")
        | dict.fromkeys(("lda", "ldb", "ldc"), "i32:16")
    )
    constexprs = {"TILE_M": 128, "TILE_N": 128, "TILE_K": 64}
    source = f"{KERNELS / 'dots.py'}:dot_specialized"
    artifact = kbuild.compile(source, signature=signature, constexprs=constexprs, num_warps=8, stop="ptx")
    assert [op.warp_bits for op in copies(artifact)] == [(11, 12, 13)] and len(waits(artifact)) == 2
    assert dict(artifact.metadata.params)["c_map"] == "tensormap f16 16x64 128 c M,N ldc"
    ptx = artifact.asm["ptx"]
    assert ptx.count("elect.sync") == 2 and ptx.count("cp.async.bulk.tensor.2d.global") == 2
    assert len(re.findall(r"bar\.sync", ptx)) == 1, "after the barriers in shared memory have been made"


def test_what_is_missing_shows() -> None:
    source = f"{KERNELS / 'dots.py'}:descriptor_shift"
    signature = {"x": "*fp16:16", "out": "*fp16:16"} | SIZES | {"up": "i32", "left": "i32"}
    artifact = kbuild.compile(source, signature=signature, constexprs={"TILE": 16}, stop="ttgir")
    x = np.arange(40 * 48, dtype=np.float16).reshape(40, 48)
    for number, message in ((0, "overwritten before"), (1, "a program ends")):
        module = parse_module(artifact.asm["ttgir"])
        [op for op in module.kernel.body.walk() if isinstance(op, TmaStoreWait)][number].erase()
        with pytest.raises(InterpretError, match=message):
            interp.run(module, [x, np.zeros_like(x), 40, 48, 48, 0, 0])


def test_a_tile_shares_memory_where_more_programs_run_then(tmp_path: Path) -> None:
    """The tile of a loop lives around it, so that its copy runs on; not where it takes memory of the
    dot's operands."""
    value = "tl.dot(source.load([row, 0]), tile).to(tl.float16)"
    lines = ("for row in tl.range(0, rows, TILE, num_stages=1):", f"    target.store([row, 0], {value})")
    around = written(tmp_path, *lines, element="fp16", tile=32)
    assert waits(around) == [(0, False, 1), (0, True, 1)]
    shared = written(tmp_path, *lines, element="fp16", tile=128, num_warps=8)
    assert waits(shared) == [(0, False, 0), (0, True, 1)]
    assert shared.metadata.shared == 2 * 128 * 128 * 2


def launched(artifact: kbuild.Artifact, *given: Any) -> np.ndarray:
    """What a program writes to its second argument, in the emulator."""
    names = [name for name, type_ in artifact.metadata.params if not type_.startswith("tensormap")]
    return left_in(names[1], artifact, dict(zip(names, given)))


@pytest.mark.parametrize(("name", "function"), [("min", np.minimum), ("max", np.maximum)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_extremes_of_halves_are_by_the_tma_or_by_swapping(
    name: str, function: Any, target: str, tmp_path: Path
) -> None:
    line = f"target.atomic_{name}([8, 8], tile)"
    x, out = (np.random.default_rng(seed).integers(-99, 99, (20, 16)).astype(np.float16) for seed in (1, 2))
    right = out.copy()
    right[8:, 8:] = function(out[8:, 8:], x[:12, :8])
    artifact = written(tmp_path, line, element="fp16", target=target, stop="ptx")
    assert ("cas.b16" in artifact.asm["ptx"]) == (target == "sm_80")
    np.testing.assert_array_equal(launched(artifact, x, out, 20, 16, 16), right)


@pytest.mark.parametrize(("rows", "columns"), [(0, 16), (16, 0)])
def test_a_tensor_without_elements_stays_so(rows: int, columns: int, tmp_path: Path) -> None:
    artifact = written(tmp_path, "target.store([0, 0], tile)", stop="ptx")
    out = np.ones((20, 16), np.float32)
    np.testing.assert_array_equal(
        launched(artifact, np.zeros((20, 16), np.float32), out, rows, columns, 16), 1
    )
