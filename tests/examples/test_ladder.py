"""examples/ladder: every step, in CUDA C++ and in Gluon, multiplies on the fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import built, copy_of, installed

STEPS = (
    "naive", "coalesced", "shared_tiles", "column_tiles", "square_tiles", "vector_accesses", "warp_tiles",
    "double_buffered", "async_copies", "tma_copies",
)  # fmt: skip
M, N, K = 128, 256, 48
"""A size that all steps take: one block of the largest tile, several along K."""


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver]]:
    project = copy_of("ladder", tmp_path_factory)
    with installed(built(project), project, "ladder") as found:
        yield found


@pytest.mark.parametrize("language", ["cuda", "gluon"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_multiplies(ladder: tuple[ModuleType, FakeDriver], step: str, language: str) -> None:
    package, driver = ladder
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 5, (M, K)).astype(np.float32)
    b = rng.integers(-4, 5, (K, N)).astype(np.float32)
    c = getattr(package, f"{language}_{step}")(driver.array(a), driver.array(b))
    assert (c.copy_to_host() == a @ b).all()


def test_tensor_cores_multiply(ladder: tuple[ModuleType, FakeDriver]) -> None:
    package, driver = ladder
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((M, 72), (72, N)))
    c = package.gluon_tensor_cores(driver.array(a), driver.array(b))
    assert (c.copy_to_host() == a @ b).all()


def test_other_sizes_are_refused_in_words(ladder: tuple[ModuleType, FakeDriver]) -> None:
    package, driver = ladder
    odd = driver.array(np.zeros((100, 100), dtype=np.float32))
    with pytest.raises(ValueError, match="M and N have to be multiples of 128, and K of 8"):
        package.cuda_square_tiles(odd, odd)
