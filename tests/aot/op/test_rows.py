"""The shipped operators over rows: which kernels a call launches, by how long and how many its rows are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver
from tests.aot.op.project import ROOT, built, imported


def manifest() -> str:
    """The shipped softmax and layer norm, of two types and without gradients."""
    head, *kernels = (ROOT / "kernels.toml").read_text().split("[[kernel]]\n")
    name = re.compile(r'name = "(softmax|layer_norm)(_short|_long|_parts|_of_parts)?"')
    text = "[[kernel]]\n".join((head, *(kernel for kernel in kernels if name.match(kernel))))
    return re.sub(r"(?m)^backward = .*\n", "", text.replace('"fp16", "bf16"]', '"fp16"]'))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    (folder / "kernels.toml").write_text(manifest())
    return built(folder, "sm_90")


@pytest.fixture(scope="module")
def driver(root: Path) -> Iterator[FakeDriver]:
    with FakeDriver(["sm_90"], builds=[root / "build"]) as driver:
        yield driver


@pytest.fixture(scope="module")
def package(root: Path, driver: FakeDriver) -> Iterator[ModuleType]:
    with imported("kbuild_kernels", root / "site", driver) as package:
        yield package


KERNELS = {
    (70, 100): ["short"],
    (1032, 1): ["short"],
    **{(5, columns): ["short"] for columns in (2, 3, 5, 9, 17, 33, 65, 129, 257)},
    (4101, 35): ["short"],
    (16385, 1): ["short"],
    (3, 512): ["short"],
    (3, 513): [""],
    (300, 1000): [""],
    (1, 32_768): [""],
    (2, 32_776): ["parts", "of_parts"],
    (2, 32_769): ["parts", "of_parts"],
    (67, 32_769): ["long"],
    (0, 7): [],
}
"""By shape, what the names of the kernels end in; the device has 132 multiprocessors."""


@pytest.mark.parametrize("shape", KERNELS, ids=str)
def test_rows_of_every_length(package, driver, shape) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    weight, bias = rng.normal(size=(2, shape[1])).astype(np.float32)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-99))
    centred = wide - wide.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    right = {"softmax": powers / powers.sum(axis=1, keepdims=True), "layer_norm": normal * weight + bias}
    for name, others in (("softmax", ()), ("layer_norm", (weight, bias))):
        before = len(driver.launches)
        found = getattr(package, name)(*map(driver.array, (x, *others))).copy_to_host()
        launched = [launch.entry for launch in driver.launches[before:]]
        assert launched == [f"{name}_{end}_kernel" if end else f"{name}_kernel" for end in KERNELS[shape]]
        assert np.abs(found - right[name]).max(initial=0) < 2e-5
    statistics = driver.empty(shape[0], np.float32), driver.empty(shape[0], np.float32)
    package.layer_norm(*map(driver.array, (x, weight, bias)), mean=statistics[0], rstd=statistics[1])
    mean, rstd = (array.copy_to_host() for array in statistics)
    assert np.abs(mean - wide.mean(axis=1)).max(initial=0) < 1e-6
    assert np.abs(rstd * np.sqrt(wide.var(axis=1) + 1e-5) - 1).max(initial=0) < 1e-6


def test_rows_far_apart_take_programs_of_their_own(package, driver) -> None:
    """Places within the rows of one program have 32 bits."""
    x = np.zeros((2, 1 << 20), np.float32)
    before = len(driver.launches)
    out = package.softmax(driver.array(x).view((2, 100), (1 << 20, 1), 0))
    assert [launch.entry for launch in driver.launches[before:]] == ["softmax_kernel"]
    assert np.allclose(out.copy_to_host(), 0.01)


@pytest.mark.parametrize("rows", (5, 16_385))
def test_rows_of_nothing_are_left_alone(package, driver, rows) -> None:
    """The variants that expect some columns of all rows are not for these."""
    places = driver.array(np.zeros(rows, np.float32)), driver.array(np.full(rows, 7, np.float32))
    package.launch.softmax_short(*places, 1, 1, 0, rows)
    assert (places[1].copy_to_host() == 7).all()
