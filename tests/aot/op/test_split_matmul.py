"""The shipped operator `matmul` where tiles are fewer than multiprocessors, or few in a last round: built for fp16 with
one configuration for whole tiles, over the fake driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver
from kbuild.emulator.driver.devices import Device
from tests.aot.op.project import KERNELS, built, imported, shipped_products

RANDOM = np.random.default_rng(11)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The package, built."""
    folder = tmp_path_factory.mktemp("split")
    shutil.copytree(KERNELS, folder / "kernels")
    names = "matmul(_split|_across|_across_split|_parts)?"
    (folder / "kernels.toml").write_text(shipped_products("split_matmul", names))
    return built(folder)


@pytest.fixture(scope="module")
def driver(root) -> Iterator[FakeDriver]:
    """A device with three multiprocessors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Device, "multiprocessors", 3)
        with FakeDriver(["sm_90"], builds=[root / "build"]) as driver:
            yield driver


@pytest.fixture(scope="module")
def matmul(root, driver) -> Iterator[Callable[..., Any]]:
    """The operator."""
    with imported("split_matmul", root / "site", driver) as package:
        yield package.matmul


def product(driver, matmul, m: int, n: int, k: int, is_row_major: bool) -> tuple[np.ndarray, list]:
    """What the operator makes of random matrices, having compared it, and its launches."""
    a, b = (RANDOM.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    before = len(driver.launches)
    right = driver.array(b) if is_row_major else driver.array(b.T.copy()).view((k, n), (1, k))
    operands = driver.array(a), right
    out = matmul(*operands).copy_to_host()
    launches = driver.launches[before:]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(out - expected).max() <= 2e-3 * np.abs(expected).max()
    assert (matmul(*operands).copy_to_host() == out).all(), "the order of the sums is fixed"
    return out, launches


@pytest.mark.parametrize("is_row_major", [True, False])
@pytest.mark.parametrize(("m", "n", "k"), [(13, 56, 4104), (40, 128, 6144)])
def test_one_tile_is_divided_among_all_multiprocessors(driver, matmul, m, n, k, is_row_major) -> None:
    _, launches = product(driver, matmul, m, n, k, is_row_major)
    assert [launch.entry for launch in launches] == ["matmul_split_kernel", "matmul_parts_kernel"]
    assert launches[0].grid == (3, 1, 1)


def test_the_tiles_of_the_last_round_alone_are_divided(driver, matmul) -> None:
    _, launches = product(driver, matmul, 200, 512, 4096, True)
    assert [launch.entry for launch in launches] == ["matmul_split_kernel", "matmul_parts_kernel"]
    assert launches[0].grid == (6, 1, 1), "three tiles, and three parts of the fourth"


@pytest.mark.parametrize("is_row_major", [True, False])
@pytest.mark.parametrize(("m", "n", "parts"), [(136, 128, 3), (136, 384, 1)])
def test_rows_between_two_tiles_go_across(driver, matmul, m, n, parts, is_row_major) -> None:
    """As columns of the transpose, whose tiles have 136 of them, in as many parts as there is room for."""
    _, launches = product(driver, matmul, m, n, 4096, is_row_major)
    entries = ["matmul_split_kernel", "matmul_parts_kernel"] if parts > 1 else ["matmul_kernel"]
    assert [launch.entry for launch in launches] == entries
    assert launches[0].grid == ((parts, 1, 1) if parts > 1 else (1, 3, 1))


@pytest.mark.parametrize("is_row_major", [True, False])
def test_of_several_rows_of_tiles_across_the_last_is_divided(driver, matmul, is_row_major) -> None:
    """800 rows are four of 200 each, with 128 columns: four tiles, of which three are whole."""
    _, launches = product(driver, matmul, 800, 128, 4096, is_row_major)
    assert [launch.entry for launch in launches] == ["matmul_split_kernel", "matmul_parts_kernel"]
    assert launches[0].grid == (6, 1, 1)


@pytest.mark.parametrize("is_row_major", [True, False])
@pytest.mark.parametrize(("n", "grid"), [(896, (3, 1, 1)), (192, (1, 3, 1))])
def test_many_tiles_across_are_shared_by_persistent_programs(driver, matmul, n, grid, is_row_major) -> None:
    """Seven tiles of 128 columns by three programs; three of 64 have a program each."""
    _, launches = product(driver, matmul, 136, n, 256, is_row_major)
    assert [(launch.entry, launch.grid) for launch in launches] == [("matmul_kernel", grid)]


@pytest.mark.parametrize("is_row_major", [True, False])
def test_rows_of_whole_tiles_across_are_as_few_as_fit(driver, matmul, is_row_major) -> None:
    """312 rows are three of 104 each."""
    _, launches = product(driver, matmul, 312, 128, 512, is_row_major)
    assert [(launch.entry, launch.grid) for launch in launches] == [("matmul_kernel", (1, 3, 1))]


def test_little_work_is_not_divided(driver, matmul) -> None:
    _, launches = product(driver, matmul, 16, 64, 256, True)
    assert [launch.entry for launch in launches] == ["matmul_kernel"]


def test_rows_that_begin_anywhere_are_not_divided(driver, matmul) -> None:
    _, launches = product(driver, matmul, 13, 56, 2049, True)
    assert [launch.entry for launch in launches] == ["matmul_kernel"]


def test_an_output_that_begins_anywhere_is_not_divided(driver, matmul) -> None:
    memory = driver.array(np.zeros((16, 57), np.float16))
    a, b = np.ones((16, 4096), np.float16), np.ones((4096, 56), np.float16)
    matmul(driver.array(a), driver.array(b), out=memory.view((16, 56), (57, 1)))
    assert driver.launches[-1].entry == "matmul_kernel"
    written = memory.copy_to_host()
    assert (written[:, :56] == 4096).all() and (written[:, 56] == 0).all()
