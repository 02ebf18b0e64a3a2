"""The shipped operator `linear` over the fake driver: its bias and activations in each of the ways that a call is launched,
with some of the tiles, in fp16."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver
from kbuild.emulator.driver.devices import Device
from tests.aot.op.project import KERNELS, built, imported, mistakes, shipped_products

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def manifest() -> str:
    """The kernels of products and layers, with one configuration for whole tiles and a few for those across."""
    text = shipped_products("linear_example", "(matmul|linear)(_split|_across|_across_split|_parts|_odd)?")
    across = r"  \{ (BLOCK_M = 64, BLOCK_N = \d+|BLOCK_N = (?!104)\d+, GROUP_M = 0|BLOCK_M = 256).*cost = \d+, when.*\n"
    return re.sub(across, "", text)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The package, built."""
    folder = tmp_path_factory.mktemp("linear")
    shutil.copytree(KERNELS, folder / "kernels")
    (folder / "kernels.toml").write_text(manifest())
    return built(folder)


@pytest.fixture(scope="module")
def driver(root) -> Iterator[FakeDriver]:
    """A device with three multiprocessors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Device, "multiprocessors", 3)
        with FakeDriver(["sm_90"], builds=[root / "build"]) as driver:
            yield driver


@pytest.fixture(scope="module")
def package(root, driver) -> Iterator[ModuleType]:
    with imported("linear_example", root / "site", driver) as package:
        yield package


WAYS = {
    "a tile for each program": ((50, 128, 64), ["linear_kernel"]),
    "all tiles in parts": ((13, 56, 4104), ["matmul_split_kernel", "linear_parts_kernel"]),
    "the last tile in parts": ((200, 512, 4096), ["linear_split_kernel", "linear_parts_kernel"]),
    "tiles across": ((312, 128, 512), ["linear_kernel"]),
    "all tiles across in parts": ((136, 128, 4096), ["matmul_split_kernel", "linear_parts_kernel"]),
    "the last tile across in parts": ((800, 128, 4096), ["linear_split_kernel", "linear_parts_kernel"]),
    "rows that begin anywhere": ((20, 67, 128), ["linear_kernel"]),
    "operands that begin anywhere": ((20, 40, 61), ["linear_kernel"]),
}
"""By what is launched: rows, columns and the length of the sums, and the kernels."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("activation", "has_bias"), [("silu", True), ("none", False)])
def test_a_layer_in_each_way(package, driver, way: str, activation: str, has_bias: bool) -> None:
    (m, n, k), entries = WAYS[way]
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    bias = (k**0.5 * random.standard_normal(n)).astype(np.float16) if has_bias else None
    operands = driver.array(x), driver.array(w), None if bias is None else driver.array(bias)
    before = len(driver.launches)
    out = package.linear(*operands, activation).copy_to_host()
    assert [launch.entry for launch in driver.launches[before:]] == entries
    sums = x.astype(np.float64) @ w.astype(np.float64).T + (0 if bias is None else bias)
    expected = ACTIVATIONS[activation](sums)
    assert np.abs(out - expected).max() <= 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_is_the_number_of_its_word(package, driver, activation: str) -> None:
    """Of infinite sums and of sums that are no numbers as well."""
    x = np.linspace(-9, 9, 61, dtype=np.float16)
    x = np.concatenate([x, np.array([np.inf, np.nan, -60000], np.float16)])[:, None].repeat(8, 1)
    w = np.zeros((8, 8), np.float16)
    w[:, 0] = 1
    x[:, 1:] = 0
    found = package.linear(driver.array(x), driver.array(w), activation=activation).copy_to_host()
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[activation](x[:, :1].astype(np.float64)).repeat(8, 1)
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-6, equal_nan=True)


def test_the_word_has_to_be_one_of_the_list(package, driver) -> None:
    x = driver.array(np.ones((8, 8), np.float16))
    with pytest.raises(
        ValueError, match=r"activation is 'tanh', and 'none', 'relu', 'gelu' or 'silu' are expected"
    ):
        package.linear(x, x, activation="tanh")
    assert (package.linear(x, x).copy_to_host() == 8).all(), "the first is the default"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("[]", "scalars.activation: expected a list of words, found an empty list"),
        ('["none", "none"]', 'scalars.activation[1]: "none" is named twice'),
        ('["none", 1]', "scalars.activation[1]: expected a word, found the int 1"),
        ('["none", "re lu"]', 'scalars.activation[1]: "re lu" is no plain word'),
    ],
)
def test_a_list_of_words_has_some_that_differ(root, words: str, message: str) -> None:
    (found,) = mistakes(root, manifest(), '["none", "relu", "gelu", "silu"]', words)
    assert f'kernel "linear": op.{message}' in found
