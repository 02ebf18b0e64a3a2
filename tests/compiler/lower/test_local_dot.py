"""Dots by scalar fma of operands in shared memory: the code stays small, and each sum is right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from zoo.case import KERNELS

import kbuild
from kbuild.compiler.driver import Artifact
from kbuild.compiler.lower.mma.local_dot import tiles
from tests.emulator.artifacts import left_in


def compiled(kernel: str, type_name: str, num_warps: int, **constexprs: object) -> Artifact:
    signature = dict.fromkeys("abc", f"*{type_name}:16")
    source = f"{KERNELS}/dots.py:{kernel}"
    # The registers are stated, so that there are no more warps than these.
    return kbuild.compile(
        source,
        signature=signature,
        constexprs=constexprs,
        target="sm_90",
        stop="ptx",
        num_warps=num_warps,
        max_registers=255,
    )


def check_product(made: Artifact, batches: int, m: int, n: int, k: int) -> None:
    """Emulate a kernel, and compare C with A·B in whole numbers."""
    rng = np.random.default_rng(0)
    given = {
        "a": rng.integers(-8, 9, (batches, m, k)).astype(float),
        "b": rng.integers(-8, 9, (batches, k, n)).astype(float),
        "c": np.zeros((batches, m, n)),
    }
    assert np.array_equal(left_in("c", made, given), given["a"] @ given["b"])


@pytest.mark.parametrize("type_name, most", [("fp64", 4 * 512), ("fp32", 2 * 512)])
def test_code_does_not_grow_with_the_sums(type_name: str, most: int) -> None:
    """256 sums of a thread over k = 32 and 64, in tiles of 64 (f64) or 128 (f32), each with 512 multiply-adds
    written out."""
    for k in (32, 64):
        made = compiled("dot_tile", type_name, 1, M=64, N=128, K=k, PRECISION="ieee")
        assert len(re.findall(r"fma\.rn\.f(?:32|64)", made.asm["ptx"])) == most


def test_few_multiply_adds_are_written_out() -> None:
    made = compiled("dot_tile", "fp32", 4, M=32, N=32, K=64, PRECISION="ieee")
    assert "local_dot" not in made.asm["ttgir"] and len(re.findall(r"fma\.rn\.f32", made.asm["ptx"])) == 512


@pytest.mark.parametrize("shape", [(8, 16, 32, 16), (1, 64, 64, 16)])
def test_every_tile_has_its_own_rows_columns_and_batches(shape: tuple[int, ...]) -> None:
    """At most 64 of a thread's 128 sums at a time: other batches, other rows."""
    made = compiled("dot_batch", "fp64", 1, **dict(zip("BMNK", shape)))
    assert made.asm["ptx"].count('.pragma "nounroll"') == 2
    check_product(made, *shape)


def test_operands_may_be_parts_of_tiles(tmp_path: Path) -> None:
    """The second half of k first."""
    text = compiled("dot_tile", "fp64", 1, M=32, N=64, K=32, PRECISION="ieee").asm["ttgir"]
    found = re.search(r"%result: (tensor<.*>) = ttg\.local_dot %left_1, %right_1, (%\d+)", text)
    assert found is not None
    left, right = "!ttg.memdesc<32x16xf64, #shared, 32x32>", "!ttg.memdesc<16x64xf64, #shared, 32x64>"
    halves = [
        f"%l{k}: {left} = ttg.memdesc_subslice %left_1 {{offsets = [0, {k}]}}\n"
        f"  %r{k}: {right} = ttg.memdesc_subslice %right_1 {{offsets = [{k}, 0]}}\n"
        f"  %{name}: {found[1]} = ttg.local_dot %l{k}, %r{k}, {total}\n"
        for k, name, total in ((16, "half", found[2]), (0, "result", "%half"))
    ]
    path = tmp_path / "halves.ttgir"
    path.write_text(text.replace(found[0], "  ".join(halves)))
    check_product(kbuild.compile(path, target="sm_90", stop="ptx"), 1, 32, 64, 32)


def test_tiles_are_as_square_as_can_be() -> None:
    elements = [
        (batch, row, column)
        for batch in range(2)
        for row in (0, 1, 16, 17)
        for column in (0, 1, 2, 3, 32, 33, 34, 35)
    ]
    assert [len(tile) for tile in tiles(elements, 64)] == [64]
    assert [len({at[0] for at in tile}) for tile in tiles(elements, 32)] == [1, 1]
    assert {at[2] for at in tiles(elements, 16)[0]} == {0, 1, 2, 3} and len(tiles(elements, 16)) == 4
    assert {at[1:] for at in tiles(elements, 8)[0]} == {
        (row, column) for row in (0, 1) for column in (0, 1, 2, 3)
    }
