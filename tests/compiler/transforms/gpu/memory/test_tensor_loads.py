"""Loads through descriptors that TMA does outside of pipelines: which, and that blocks of tensors of any sizes come as they
should, wherever they begin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal
from tests.emulator.artifacts import left_in

HEAD = """
import triton
import triton.language as tl
"""
DTYPES = {
    "fp32": np.float32,
    "fp16": np.float16,
    "i8": np.int8,
    "fp8e5": np.uint8,
    "i64": np.int64,
    "fp64": np.float64,
}
MATRIX = """
@triton.jit
def k(x, out, rows, columns, pitch, i, j, TILE: tl.constexpr, WIDTH: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE, WIDTH])
    places = tl.arange(0, TILE)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
"""
HINTS = {"rows": "i32", "columns": "i32", "pitch": "i32:16", "i": "i32", "j": "i32:16"}


def compiled(
    folder: Path, text: str, signature: Mapping[str, str], constexprs: Mapping[str, int], **options: Any
) -> kbuild.Artifact:
    path = folder / "kernel.py"
    path.write_text(HEAD + text)
    chosen: dict[str, Any] = {"stop": "ptx", "target": "sm_90"} | options
    return kbuild.compile(f"{path}:k", signature=signature, constexprs=constexprs, **chosen)


def matrix(
    folder: Path, *lines: str, element: str = "fp32", tile: int = 32, width: int = 64, **more: Any
) -> kbuild.Artifact:
    """A kernel that does something with blocks of a matrix."""
    text = MATRIX + "".join(f"    {line}\n" for line in lines)
    signature = {"x": f"*{element}:16", "out": f"*{element}:16"} | HINTS | more.pop("hints", {})
    return compiled(folder, text, signature, {"TILE": tile, "WIDTH": width}, **more)


def copies(artifact: kbuild.Artifact) -> list[AsyncTmaCopyGlobalToLocal]:
    body = parse_module(artifact.asm["ttgir"]).kernel.body
    return [op for op in body.walk() if isinstance(op, AsyncTmaCopyGlobalToLocal)]


def launch(artifact: kbuild.Artifact, values: Mapping[str, Any], out: str = "out") -> np.ndarray:
    """What a kernel leaves in `out`, in lockstep and in an adverse schedule with all checks, and by the
    interpreter."""
    found = left_in(out, artifact, values, checks="")
    other = left_in(out, artifact, values, schedule="random(1)")
    assert np.array_equal(found, other, equal_nan=found.dtype.kind == "f")
    return found


def block_of(
    x: np.ndarray, sizes: Sequence[int], start: Sequence[int], shape: Sequence[int], fill: float = 0
) -> np.ndarray:
    """The block of a tensor that has these sizes in an array."""
    result = np.full(shape, fill, x.dtype)
    places = [np.arange(first, first + count) for first, count in zip(start, shape)]
    inside = [(place >= 0) & (place < size) for place, size in zip(places, sizes)]
    result[np.ix_(*inside)] = x[np.ix_(*(place[own] for place, own in zip(places, inside)))]
    return result


def numbers(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    dtype = DTYPES[element]
    return rng.integers(1, 100, shape).astype(dtype)


BLOCKS = {
    1: [(1024,), (4096,)],
    2: [(32, 64), (16, 256), (256, 16), (4, 512)],
    3: [(1, 32, 64), (4, 8, 64)],
    4: [(1, 1, 32, 64), (2, 2, 16, 32)],
    5: [(1, 1, 1, 32, 64), (1, 2, 2, 16, 32)],
}


def copying(shape: Sequence[int]) -> str:
    """A kernel that stores a block of a tensor of any rank."""
    rank = len(shape)
    sizes = ", ".join(f"n{axis}" for axis in range(rank))
    strides = ", ".join([f"s{axis}" for axis in range(rank - 1)] + ["1"])
    starts = ", ".join(f"i{axis}" for axis in range(rank))
    names = (
        [f"n{axis}" for axis in range(rank)]
        + [f"s{axis}" for axis in range(rank - 1)]
        + [f"i{axis}" for axis in range(rank)]
    )
    count = int(np.prod(shape))
    return f"""
@triton.jit
def k(x, out, {", ".join(names)}):
    source = tl.make_tensor_descriptor(x, [{sizes}], [{strides}], {list(shape)})
    block = tl.reshape(source.load([{starts}]), [{count}])
    tl.store(out + tl.arange(0, {count}), block)
"""


@pytest.mark.parametrize("element", ["fp32", "fp16", "i8", "fp8e5", "i64"])
@pytest.mark.parametrize("shape", [shape for shapes in BLOCKS.values() for shape in shapes], ids=str)
def test_blocks_of_any_tensor_come_from_any_place(
    element: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    rank, size = len(shape), np.dtype(DTYPES[element]).itemsize
    unit = 16 // size
    signature = {"x": f"*{element}:16", "out": f"*{element}:16"}
    signature |= {f"n{axis}": "i32" for axis in range(rank)} | {f"s{axis}": "i32" for axis in range(rank - 1)}
    signature |= {f"i{axis}": "i32" for axis in range(rank - 1)} | {f"i{rank - 1}": "i32:16"}
    artifact = compiled(tmp_path, copying(shape), signature, {})
    assert "cp.async.bulk.tensor" in artifact.asm["ptx"]
    rng = np.random.default_rng(sum(shape))
    for trial in range(4):
        sizes = [int(rng.integers(1, 2 * count + 2)) for count in shape]
        if trial == 3:
            sizes[int(rng.integers(rank))] = 0
        pitch = -(-max(sizes[-1], 1) // unit) * unit
        x = numbers(rng, element, *(max(count, 1) for count in sizes[:-1]), pitch)
        start = [int(rng.integers(-count - 1, count + 2)) for count in shape[:-1]]
        start.append(int(rng.integers(-2, 3)) * 16)
        if trial == 0:
            start = [0] * rank
        strides = [stride // size for stride in x.strides[:-1]]
        values = {"x": x, "out": np.zeros(int(np.prod(shape)), x.dtype)}
        values |= {f"n{axis}": count for axis, count in enumerate(sizes)} | {
            f"i{axis}": at for axis, at in enumerate(start)
        }
        values |= {f"s{axis}": stride for axis, stride in enumerate(strides)}
        assert np.array_equal(launch(artifact, values), block_of(x, sizes, start, shape).ravel())


def check(
    artifact: kbuild.Artifact,
    expect: Any,
    element: str = "fp32",
    shape: Sequence[int] = (32, 64),
    trials: int = 3,
) -> None:
    """Compare with numpy for random sizes and places; `expect` gets the matrix, its sizes, and the place."""
    rng = np.random.default_rng(5)
    for _ in range(trials):
        rows, columns = int(rng.integers(1, 80)), int(rng.integers(1, 150))
        x = numbers(rng, element, rows, -(-columns // 16) * 16)
        i, j = int(rng.integers(-20, 60)), int(rng.integers(-2, 8)) * 16
        values = {
            "x": x,
            "out": np.zeros(shape, x.dtype),
            "rows": rows,
            "columns": columns,
            "pitch": x.shape[1],
            "i": i,
            "j": j,
        }
        right = expect(x, (rows, columns), i, j)
        found = launch(artifact, values)
        assert np.array_equal(found, right, equal_nan=found.dtype.kind == "f")
        given = {
            name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in values.items()
        }
        interp.run(parse_module(artifact.asm["ttgir"]), list(given.values()))
        assert np.array_equal(given["out"], right, equal_nan=found.dtype.kind == "f")


@pytest.mark.parametrize("element", ["fp32", "fp16", "fp64"])
def test_nan_lies_beyond_where_it_is_asked_for(element: str, tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        'padded = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE, WIDTH], padding_option="nan")',
        "tl.store(out + places, padded.load([i, j]))",
        element=element,
    )
    assert copies(artifact)
    check(artifact, lambda x, sizes, i, j: block_of(x, sizes, (i, j), (32, 64), np.nan), element)


def test_copies_that_follow_each_other_have_one_barrier(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "first = source.load([i, j]) + 1",
        "second = source.load([i + 3, j + 16])",
        "third = source.load([i - 1, j - 16])",
        "tl.store(out + places, first + second * third)",
    )
    assert len({copy.barrier for copy in copies(artifact)}) == 1 and len(copies(artifact)) == 3
    check(
        artifact,
        lambda x, sizes, i, j: (
            block_of(x, sizes, (i, j), (32, 64))
            + 1
            + block_of(x, sizes, (i + 3, j + 16), (32, 64)) * block_of(x, sizes, (i - 1, j - 16), (32, 64))
        ),
    )


def test_a_block_whose_place_another_one_says_comes_after_it(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "first = source.load([i, j])",
        "row = tl.max(tl.max(first, 1), 0).to(tl.int32) % 7",
        "tl.store(out + places, source.load([row, 0]) + first)",
    )
    assert len({copy.barrier for copy in copies(artifact)}) == 2

    def expect(x, sizes, i, j):
        first = block_of(x, sizes, (i, j), (32, 64))
        return block_of(x, sizes, (int(first.max()) % 7, 0), (32, 64)) + first

    check(artifact, expect)


def test_loops_and_branches_copy_each_time(tmp_path: Path) -> None:
    loop = matrix(
        tmp_path,
        "total = tl.zeros((TILE, WIDTH), tl.float32)",
        "for row in range(0, rows, TILE):",
        "    total += source.load([row, j])",
        "    for column in range(0, columns, WIDTH):",
        "        total += source.load([row, column])",
        "tl.store(out + places, total)",
    )
    assert len(copies(loop)) == 2

    def total(x, sizes, i, j):
        places = [(row, at) for row in range(0, sizes[0], 32) for at in (j, *range(0, sizes[1], 64))]
        return sum(block_of(x, sizes, place, (32, 64)) for place in places)

    check(loop, total)
    branch = matrix(
        tmp_path,
        "value = tl.zeros((TILE, WIDTH), tl.float32)",
        "if i > 3:",
        "    value = source.load([i, j])",
        "else:",
        "    value = source.load([0, 0]) * 2",
        "while tl.max(tl.max(value, 1), 0) > 50:",
        "    value = tl.minimum(value - 20, source.load([1, 0]))",
        "tl.store(out + places, value)",
    )
    assert len(copies(branch)) == 3

    def chosen(x, sizes, i, j):
        value = block_of(x, sizes, (i, j), (32, 64)) if i > 3 else block_of(x, sizes, (0, 0), (32, 64)) * 2
        while value.max() > 50:
            value = np.minimum(value - 20, block_of(x, sizes, (1, 0), (32, 64)))
        return value

    check(branch, chosen)


@pytest.mark.parametrize("element", ["fp16", "fp32"])
def test_dots_and_sums_read_them(element: str, tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "a = source.load([i, j])",
        "b = source.load([0, 0])",
        "product = tl.dot(a, tl.trans(b)) + source.load([i, 0])",
        "product += tl.sum(a, 1)[:, None]",
        "tl.store(out + places, product.to(out.dtype.element_ty))",
        element=element,
        tile=64,
    )
    assert len(copies(artifact)) == 3

    def expect(x, sizes, i, j):
        a, b, c = (
            block_of(x % 3, sizes, place, (64, 64)).astype(np.float64) for place in ((i, j), (0, 0), (i, 0))
        )
        return (a @ b.T + c + a.sum(1)[:, None]).astype(DTYPES[element])

    rng = np.random.default_rng(3)
    for _ in range(3):
        rows, columns, i, j = (int(rng.integers(1, 80)) for _ in range(4))
        x = numbers(rng, element, rows, -(-columns // 16) * 16) % 3
        values = {
            "x": x,
            "out": np.zeros((64, 64), x.dtype),
            "rows": rows,
            "columns": columns,
            "pitch": x.shape[1],
            "i": i,
            "j": j * 16 % 48,
        }
        assert np.array_equal(launch(artifact, values), expect(x, (rows, columns), i, values["j"]))


def test_threads_load_where_they_do_it_as_well_or_tma_cannot(tmp_path: Path) -> None:
    stored = "tl.store(out + places, source.load([i, j]))"
    assert copies(matrix(tmp_path, stored, stop="ttgir"))
    assert copies(matrix(tmp_path, stored, stop="ttgir", element="fp16", hints={"columns": "i32:4"}))
    for arch in ("sm_80", "sm_89"):
        assert not copies(matrix(tmp_path, stored, stop="ttgir", target=arch))
    for hints in ({"columns": "i32:4"}, {"columns": "i32:16"}, {"j": "i32"}):
        assert not copies(matrix(tmp_path, stored, stop="ttgir", hints=hints))
    assert not copies(matrix(tmp_path, stored, stop="ttgir", tile=8, width=16))
    assert not copies(matrix(tmp_path, stored, "tl.store(x, 1.0)", stop="ttgir"))
    narrowed = "tl.store(out.to(tl.pointer_type(tl.int8)) + places, source.load([i, j]).to(tl.int8))"
    assert not copies(matrix(tmp_path, narrowed, stop="ttgir", tile=64, hints={"columns": "i32:16"}))
    for size, stride in (("columns + 1", "pitch"), ("columns", "2 * pitch")):
        computed = f"other = tl.make_tensor_descriptor(x, [rows, {size}], [{stride}, 1], [TILE, WIDTH])"
        assert not copies(matrix(tmp_path, computed, stored.replace("source", "other"), stop="ttgir"))


def test_blocks_that_lie_in_the_tensor_have_no_mask(tmp_path: Path) -> None:
    lines = (
        "whole = tl.make_tensor_descriptor(x, [TILE, WIDTH], [WIDTH, 1], [TILE, WIDTH])",
        "turned = tl.arange(0, TILE)[:, None] + tl.arange(0, WIDTH)[None, :] * TILE",
        "tl.store(out + places, whole.load([0, 0]))",
    )
    assert not copies(matrix(tmp_path, *lines, stop="ttgir"))
    turned = matrix(tmp_path, *lines[:2], "tl.store(out + turned, whole.load([0, 0]))")
    assert copies(turned)
    x = numbers(np.random.default_rng(2), "fp32", 32, 64)
    values = {
        "x": x,
        "out": np.zeros((64, 32), x.dtype),
        **dict.fromkeys(("rows", "columns", "pitch", "i", "j"), 0),
    }
    assert np.array_equal(launch(turned, values), x.T)


def test_what_descriptors_guarantee_needs_no_hint(tmp_path: Path) -> None:
    stored = "tl.store(out + places, source.load([i, j]))"
    assert copies(matrix(tmp_path, stored, stop="ttgir", hints={"x": "*fp32", "pitch": "i32"}))
    assert copies(matrix(tmp_path, stored, stop="ttgir", hints={"x": "*fp32", "pitch": "i64"}))
    loop = ("for row in range(0, rows, TILE):", "    tl.store(out + row + places, source.load([row, j]))")
    assert copies(matrix(tmp_path, *loop, stop="ttgir", hints={"x": "*fp32", "pitch": "i64"}))
    whole = matrix(tmp_path, stored, hints={"x": "*fp32", "pitch": "i64", "columns": "i32:4"})
    assert re.findall(r"ld\.global\S*", whole.asm["ptx"]) == ["ld.global.v4.b32"] * 4


def test_loads_through_pointers_stay_theirs_outside_of_pipelines(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "total = tl.zeros((TILE, WIDTH), tl.float32)",
        "at, across = tl.arange(0, TILE)[:, None], tl.arange(0, WIDTH)[None, :]",
        "for column in range(0, columns, WIDTH):",
        "    total += tl.load(x + at * pitch + across + column, mask=(at < rows) & (across < columns - column), other=0)",
        "tl.store(out + places, total)",
    )
    assert "tt.make_tensor_descriptor" not in artifact.asm["ttgir"] and not copies(artifact)


def test_threads_load_where_shared_memory_has_no_room(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "tl.store(out + places, source.load([i, j]))",
        tile=256,
        width=256,
        stop="ttgir",
        num_warps=16,
    )
    assert not copies(artifact)
    assert artifact.metadata.tma == ("a load: shared memory has no room for its tile",)


def test_threads_load_neighbours_where_others_use_them_and_there_is_no_room(tmp_path: Path) -> None:
    """The layout of the values is that of the store, which is turned around."""
    lines = (
        "turned = tl.arange(0, TILE)[:, None] + tl.arange(0, WIDTH)[None, :] * TILE",
        "tl.store(out + turned, source.load([i, j]))",
    )
    assert copies(matrix(tmp_path, *lines, tile=64, hints={"columns": "i32:4"}))
    artifact = matrix(tmp_path, *lines, tile=256, width=256, hints={"columns": "i32:4"}, num_warps=16)
    assert not copies(artifact)
    assert "ld.global.v4" in artifact.asm["ptx"] and "ld.global.b32" not in artifact.asm["ptx"]
    x = numbers(np.random.default_rng(2), "fp32", 300, 320)
    values = {"x": x, "out": np.zeros((256, 256), x.dtype), "rows": 300, "columns": 300, "pitch": 320}
    right = block_of(x, (300, 300), (99, 48), (256, 256)).T
    assert np.array_equal(launch(artifact, values | {"i": 99, "j": 48}), right)


def test_what_all_iterations_multiply_is_read_in_each_where_registers_are_short(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "tile = source.load([0, 0])",
        "for row in tl.range(0, rows, TILE, num_stages=1):",
        "    tl.store(out + row * WIDTH + places, tl.dot(source.load([row, 0]), tile))",
        tile=64,
        width=64,
        num_warps=1,  # One warp has no wgmma, which would read the tile from shared memory.
        stop="ttgir",
        hints={"columns": "i32:16"},
    )
    assert len(copies(artifact)) == 1
    before, _, inside = artifact.asm["ttgir"].partition("scf.for")
    assert "ttg.local_load" not in before and "ttg.local_load" in inside


def test_what_a_sum_of_dots_is_combined_with_comes_in_its_layout(tmp_path: Path) -> None:
    lines = (
        "total = tl.zeros((TILE, WIDTH), tl.float32)",
        "for column in range(0, columns, WIDTH):",
        "    total = tl.dot(source.load([i, column]), tl.trans(source.load([0, column])), total)",
        "factor = source.load([i, j]).to(tl.float32)",
        "tl.store(out + places, (total % 1000 + factor * factor).to(tl.float16))",
    )
    for columns in ("i32", "i32:16"):
        artifact = matrix(tmp_path, *lines, element="fp16", tile=64, hints={"columns": columns})
        assert artifact.metadata.tma is not None and len(artifact.metadata.tma) == 3
        assert "ld.global" not in artifact.asm["ptx"]
        x = numbers(np.random.default_rng(2), "fp16", 50, 160) % 5
        count = 130 if columns == "i32" else 144
        values = {"x": x, "out": np.zeros((64, 64), x.dtype), "rows": 50, "columns": count, "pitch": 160}
        a, b, c = (
            block_of(x, (50, count), place, shape).astype(np.float64)
            for place, shape in (((3, 0), (64, 192)), ((0, 0), (64, 192)), ((3, 96), (64, 64)))
        )
        found = launch(artifact, values | {"i": 3, "j": 96})
        assert np.array_equal(found, (a @ b.T % 1000 + c * c).astype(np.float16))


def test_a_loop_that_issues_its_loads_early_keeps_them(tmp_path: Path) -> None:
    artifact = matrix(
        tmp_path,
        "total = tl.zeros((TILE, TILE), tl.float32)",
        "for column in range(0, columns, WIDTH):",
        "    total = tl.dot(source.load([i, column]), tl.trans(source.load([0, column])), total)",
        "square = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]",
        "tl.store(out + square, total.to(tl.float16))",
        element="fp16",
        tile=64,
        stop="ttgir",
    )
    assert len({copy.barrier for copy in copies(artifact)}) > 1
    assert artifact.metadata.tma is not None and all("x_map" in note for note in artifact.metadata.tma)
