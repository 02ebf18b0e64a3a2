"""examples/adopt: a library's launches through Triton's JIT, recorded once and built without Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import EXAMPLES, built, copy_of, installed

EXAMPLE = EXAMPLES / "adopt"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver]]:
    """The package of a manifest that is made anew of the capture."""
    project = copy_of(EXAMPLE.name, tmp_path_factory)
    made = [project / "kernels.toml", *sorted((project / "captured").iterdir())]
    before = {file: file.read_text() for file in made}
    for file in made:
        file.unlink()
    assert main(["import", "-C", str(project), str(project / "capture.jsonl"), "-q"]) == 0
    assert {file: file.read_text() for file in made} == before
    with installed(built(project), project, "adopt") as package:
        yield package


def test_ten_kernels_were_captured() -> None:
    names = [
        line
        for line in Path(EXAMPLE / "kernels.toml").read_text().splitlines()
        if line.startswith("function")
    ]
    assert len(set(names)) == 10


@pytest.mark.parametrize(("dtype", "n"), [(np.float32, 1000), (np.float16, 4096)])
def test_a_launch_is_what_the_wrapper_asked_for(package, dtype, n) -> None:
    adopt, driver = package
    random = np.random.default_rng(1)
    x, y = (random.standard_normal(n).astype(dtype) for _ in range(2))
    out = driver.empty(n, dtype)
    adopt.add(driver.array(x), driver.array(y), out, n, BLOCK=1024, grid=(-(-n // 1024), 1, 1))
    assert (out.copy_to_host() == x + y).all()


def test_numbers_of_warps_follow_the_block(package) -> None:
    adopt, driver = package
    for n, block, warps in ((100, 128, 4), (2048, 2048, 8)):
        x = np.random.default_rng(2).standard_normal((2, n)).astype(np.float32)
        out = driver.empty(x.shape, np.float32)
        adopt.softmax(driver.array(x), out, n, n, BLOCK=block, grid=(2, 1, 1))
        powers = np.exp(x - x.max(1, keepdims=True))
        assert abs(out.copy_to_host() - powers / powers.sum(1, keepdims=True)).max() < 1e-6
        assert driver.launches[-1].block == (32 * warps, 1, 1)


def test_with_a_weight_and_without_are_two_kernels(package) -> None:
    adopt, driver = package
    random = np.random.default_rng(3)
    x, weight = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 512), 512))
    expected = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)
    how = {"BLOCK": 512, "grid": (2, 1, 1)}
    out = driver.empty(x.shape, np.float32)
    adopt.rms_norm(driver.array(x), out, 512, 512, HAS_WEIGHT=False, **how)
    assert abs(out.copy_to_host() - expected).max() < 1e-5
    adopt.rms_norm_2(driver.array(x), driver.array(weight), out, 512, 512, HAS_WEIGHT=True, **how)
    assert abs(out.copy_to_host() - expected * weight).max() < 1e-5


def test_what_was_never_asked_for_is_not_built(package) -> None:
    adopt, driver = package
    x = driver.array(np.zeros((2, 100), np.float32))
    with pytest.raises(adopt.dispatch.NoVariantError, match="BLOCK = 256 is not 128"):
        adopt.softmax(x, x, 100, 100, BLOCK=256, grid=(2, 1, 1))


def test_the_package_has_the_kernels_of_the_library_by_name(package) -> None:
    adopt, driver = package
    x = np.random.default_rng(4).standard_normal((8, 100)).astype(np.float32)
    out = driver.empty(x.shape, np.float32)
    adopt.triton.softmax_kernel[(8,)](driver.array(x), out, 100, 100, BLOCK=128)
    powers = np.exp(x - x.max(1, keepdims=True))
    assert abs(out.copy_to_host() - powers / powers.sum(1, keepdims=True)).max() < 1e-6
    a = np.eye(64, dtype=np.float16)
    product = driver.empty(a.shape, np.float16)
    adopt.triton.matmul_kernel[lambda meta: (64 // meta["BLOCK_M"], 64 // meta["BLOCK_N"])](
        driver.array(a), driver.array(2 * a), product, 64, 64, 64
    )
    assert (product.copy_to_host() == 2 * a).all()
    with pytest.raises(AttributeError, match="has no kernel norm; it has add_kernel, cross_entropy_kernel"):
        adopt.triton.norm  # noqa: B018
