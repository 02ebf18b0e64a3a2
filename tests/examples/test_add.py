"""examples/add: the smallest package, built as pip builds it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from kbuild.aot import backend
from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import EXAMPLES, copy_of, installed


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver]]:
    project = copy_of("add", tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("KBUILD_DISABLE_CACHE", "1")
        wheel = project / backend.build_wheel(str(project))
    assert wheel.name.startswith("adding-1.0-cp310-abi3-")
    with installed(wheel, project, "adding") as package:
        yield package


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2048,), (), (0, 4)])
def test_it_adds_tensors_of_any_shape(package, dtype, shape) -> None:
    adding, driver = package
    x, y = np.random.default_rng(1).standard_normal((2, *shape)).astype(dtype)
    out = adding.add(driver.array(x), driver.array(y))
    assert out.shape == shape and out.dtype == dtype
    assert (out.copy_to_host() == x + y).all()


def test_another_shape_is_an_error_with_both(package) -> None:
    adding, driver = package
    x, y = driver.empty((2, 3), np.float32), driver.empty((3, 2), np.float32)
    with pytest.raises(ValueError, match=r"x \(\*shape\) has the shape \(2, 3\), y \(\*shape\) has \(3, 2\)"):
        adding.add(x, y)


def test_the_manifest_is_as_short_as_its_page_says() -> None:
    lines = [line for line in (EXAMPLES / "add/kernels.toml").read_text().splitlines() if line]
    assert len(lines) == 10 and "a manifest of ten lines" in (EXAMPLES / "add/README.md").read_text()
