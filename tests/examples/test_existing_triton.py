"""examples/existing_triton: a file of Triton as it is, packaged by `kbuild init` and `kbuild build`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import EXAMPLES, built, copy_of, installed

EXAMPLE = EXAMPLES / "existing_triton"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver]]:
    """The package of a folder that has gelu.py alone at first."""
    project = copy_of(EXAMPLE.name, tmp_path_factory)
    for file in project.iterdir():
        if file.name != "gelu.py":
            file.unlink()
    assert main(["init", "-C", str(project), "gelu.py"]) == 0
    assert (project / "kernels.toml").read_text() == (EXAMPLE / "kernels.toml").read_text()
    with installed(built(project), project, "existing_triton") as package:
        yield package


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-6), (np.float16, 2e-3)])
def test_the_bare_launch_takes_what_the_kernel_takes(package, dtype, error) -> None:
    gelu, driver = package
    random = np.random.default_rng(2)
    x, bias = random.standard_normal((7, 100)).astype(dtype), random.standard_normal(100).astype(dtype)
    out = driver.empty(x.shape, dtype)
    gelu.bias_gelu(driver.array(x), driver.array(bias), out, x.size, x.shape[1])
    total = x.astype(np.float64) + bias
    expected = total * 0.5 * (1 + np.vectorize(math.erf)(total / math.sqrt(2)))
    assert abs(out.copy_to_host() - expected).max() < error
    assert driver.launches[-1].grid == (2, 1, 1)
