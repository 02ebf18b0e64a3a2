"""Exact products in pipelined loops: each sum is that of fma in the order of k, however operands lie in memory."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from zoo.case import KERNELS

import kbuild
from kbuild.compiler.driver import Artifact
from kbuild.compiler.lower.mma.dot import serpentine
from tests.emulator.artifacts import left_in

ORDERS = list(product((False, True), repeat=2))


def compiled(
    turned: tuple[bool, bool],
    *,
    tile: tuple[int, int, int] = (64, 64, 16),
    type_name: str = "fp32",
    **options,
):
    """The kernel `dot_exact`, for rows of a multiple of 16 elements."""
    m, n, k = tile
    return kbuild.compile(
        f"{KERNELS}/dots.py:dot_exact",
        signature={
            **dict.fromkeys("abc", f"*{type_name}:16"),
            "N": "i32:16",
            "K": "i32",
            "ak": "i32:16",
            "bk": "i32:16",
        },
        constexprs={"M": m, "TILE_N": n, "TILE_K": k, "TURNED": turned},
        target="sm_90",
        stop="ptx",
        **{"num_warps": 4, "num_stages": 3, **options},
    )


def check_sums(made: Artifact, turned: tuple[bool, bool], tile: tuple[int, int, int], depth: int) -> None:
    """Emulate two programs, and compare each bit with sums by fma in the order of k."""
    rng, (m, n, _) = np.random.default_rng(0), tile
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, 64), (64, 2 * n)))
    total = np.zeros((m, 2 * n), np.float32)
    for k in range(depth):
        # The product of two floats is exact in double, and its sum with a third rounds twice at worst to the same.
        total = (a[:, k : k + 1].astype(float) * b[k].astype(float) + total).astype(np.float32)
    stored = [value.T.copy() if is_turned else value for value, is_turned in zip((a, b), turned)]
    given = {"a": stored[0], "b": stored[1], "c": np.zeros_like(total), "N": 2 * n, "K": depth}
    given |= {"ak": stored[0].shape[1], "bk": stored[1].shape[1]}
    assert np.array_equal(left_in("c", made, given, grid=(2,)), total)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("turned", ORDERS)
def test_sums_are_by_fma_in_the_order_of_k(turned: tuple[bool, bool], stages: int) -> None:
    tile = (32, 64, 16)
    made = compiled(turned, tile=tile, num_warps=2, num_stages=stages)
    check_sums(made, turned, tile, 41)
    check_sums(made, turned, tile, 16)


def test_long_tiles_are_stored_in_the_order_of_k() -> None:
    """Sixteen lanes along k, more than a warp's banks hold vectors of."""
    tile = (64, 64, 64)
    made = compiled((False, False), tile=tile)
    assert "ttg.local_store" in made.asm["ttgir"]
    check_sums(made, (False, False), tile, 64)


def test_a_swizzle_within_vectors_is_undone(tmp_path: Path) -> None:
    """A step begins within a vector where rows are turned by two elements: it loads the vector that it is in."""
    tile, turned = (32, 64, 16), (True, False)
    text = compiled(turned, tile=tile, num_stages=2).asm["ttgir"]
    plain = "swizzled{vector=1, perPhase=1, maxPhase=1, order=[1,0]}"
    assert plain in text
    path = tmp_path / "kernel.ttgir"
    path.write_text(text.replace(plain, "swizzled{vector=2, perPhase=4, maxPhase=4, order=[1,0]}"))
    check_sums(kbuild.compile(path, target="sm_90", stop="ptx"), turned, tile, 41)


@pytest.mark.parametrize("turned", ORDERS)
def test_what_memory_holds_along_k_goes_through_registers(turned: tuple[bool, bool]) -> None:
    """It is stored contiguous across k; the other operand is copied as it is.  Threads have 4 rows and 8 columns of the
    result, and read three vectors for each k: two k are a step, of which the loop reads the next iteration's first; in the
    end the result goes to the threads that store it in eight."""
    made = compiled(turned)
    loop = made.asm["ttgir"].partition("scf.for")[2]
    along_k = [not turned[0], turned[1]].count(True)
    assert loop.count("ttg.local_store") == loop.count("tt.load") == along_k
    assert loop.count("ttg.async_copy_global_to_local") == 2 - along_k
    assert set(re.findall(r"ld\.shared\S*", made.asm["ptx"])) == {"ld.shared.v4.b32"}
    assert made.asm["ptx"].count("ld.shared.v4.b32") == 3 * (16 + 2) + 8


@pytest.mark.parametrize(
    "tile, num_stages", [((128, 16, 16), 3), ((32, 64, 16), 3), ((64, 64, 16), 1), ((256, 32, 64), 2)]
)
def test_other_tiles_along_k_stay_as_they_are(tile: tuple[int, int, int], num_stages: int) -> None:
    """Few columns of B do not pay for stores of single elements, nor do few sums of a thread; without pipelining a load is
    used at once; 128 registers are too many to hold."""
    made = compiled((False, False), tile=tile, num_stages=num_stages)
    assert "ttg.local_store" not in made.asm["ttgir"]


@pytest.mark.parametrize(
    "tile, type_name, is_stepped",
    [
        ((64, 64, 32), "fp32", True),
        ((128, 128, 16), "fp32", True),
        ((64, 64, 128), "fp32", False),
        ((128, 256, 8), "fp32", False),
        ((128, 64, 16), "fp64", True),
        ((128, 128, 16), "fp64", False),
    ],
)
def test_dots_of_a_loop_are_in_steps_where_code_is_short_and_registers_are_enough(
    tile: tuple[int, int, int], type_name: str, is_stepped: bool
) -> None:
    made = compiled((False, False), tile=tile, type_name=type_name, max_registers=255)
    assert ("ttg.local_dot" not in made.asm["ttgir"]) == is_stepped


def test_each_product_shares_an_operand_with_the_one_before() -> None:
    """But for the first of a step, whose operands are others: one in 64."""
    found = re.findall(
        r"fma\.rn\.f32 \s*%\w+, (%\w+), (%\w+)", compiled((True, False), tile=(128, 64, 16)).asm["ptx"]
    )
    assert len(found) == 1024 and sum(not {*a} & {*b} for a, b in pairwise(found)) == 1024 // 64 - 1


def test_elements_share_a_row_or_a_column_with_the_ones_before() -> None:
    order = serpentine([(row, column) for column in (0, 1, 32) for row in (5, 4)])
    assert order == [(4, 0), (4, 1), (4, 32), (5, 32), (5, 1), (5, 0)]
