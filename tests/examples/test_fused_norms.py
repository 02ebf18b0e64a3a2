"""examples/fused_norms: operators with gradients, against their formulas in float64."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import EXAMPLES, built, copy_of, installed

RANDOM = np.random.default_rng(5)
EPS = 1e-5
TYPES = [(np.float32, 2e-6), (np.float16, 2e-3)]
"""Types with the error that is allowed, as a part of the largest number."""
SHAPES = [(2, 3, 72), (5, 1160)]
"""Rows shorter than a block, and longer ones."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of("fused_norms", tmp_path_factory)


@pytest.fixture(scope="module")
def wheel(project: Path) -> Path:
    return built(project)


@pytest.fixture(scope="module")
def package(project: Path, wheel: Path) -> Iterator[tuple[ModuleType, FakeDriver]]:
    with installed(wheel, project, "fused_norms") as package:
        yield package


def numbers(*shape: int, dtype: Any) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x * rstd_of(x)[..., None] * weight


def rstd_of(x: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt((x * x).mean(-1) + EPS)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def agree(array: Any, expected: np.ndarray, part: float) -> bool:
    got = array.copy_to_host()
    assert got.shape == expected.shape
    return bool(abs(got - expected).max() <= part * abs(expected).max())


def slope(function: Any, at: np.ndarray, direction: np.ndarray) -> float:
    """The derivative of a function of float64, by a difference."""
    return float((function(at + 1e-6 * direction) - function(at - 1e-6 * direction)) / 2e-6)


@pytest.mark.parametrize(("dtype", "part"), TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm_and_its_gradients(package, dtype, part, shape) -> None:
    norms, driver = package
    x, dy, weight = (
        numbers(*shape, dtype=dtype),
        numbers(*shape, dtype=dtype),
        numbers(shape[-1], dtype=dtype),
    )
    arrays = [driver.array(values) for values in (dy, x, weight)]
    rstd = driver.empty(shape[:-1], np.float32)
    y = norms.rms_norm(*arrays[1:], eps=EPS, rstd=rstd)
    x, dy, weight = (values.astype(np.float64) for values in (x, dy, weight))
    assert y.dtype == dtype and agree(y, rms_norm(x, weight), part) and agree(rstd, rstd_of(x), 1e-6)

    dx, dweight = norms.kernels.rms_norm_backward(*arrays, rstd)
    normal, weighted = x * rstd_of(x)[..., None], dy * weight
    of_x = (weighted - normal * (weighted * normal).mean(-1, keepdims=True)) * rstd_of(x)[..., None]
    of_weight = (dy * normal).reshape(-1, shape[-1]).sum(0)
    assert agree(dx, of_x, part) and agree(dweight, of_weight, part)

    direction = RANDOM.standard_normal(shape)
    by_difference = slope(lambda x: (rms_norm(x, weight) * dy).sum(), x, direction)
    assert abs(by_difference - (of_x * direction).sum()) < 1e-5 * abs(of_x * direction).sum()


def test_the_gradient_of_weight_is_the_same_in_each_run(package) -> None:
    """Also with more rows than programs, each of which then adds several."""
    norms, driver = package
    rows, columns = 4 * 132 + 70, 8
    dy, x = numbers(rows, columns, dtype=np.float32), numbers(rows, columns, dtype=np.float32)
    weight, rstd = numbers(columns, dtype=np.float32), rstd_of(x).astype(np.float32)
    runs = [
        norms.kernels.rms_norm_backward(*map(driver.array, (dy, x, weight, rstd)))[1].copy_to_host()
        for _ in range(2)
    ]
    expected = (dy.astype(np.float64) * x * rstd[:, None]).sum(0)
    assert (runs[0] == runs[1]).all() and abs(runs[0] - expected).max() < 1e-4


@pytest.mark.parametrize(("dtype", "part"), TYPES)
def test_swiglu_of_halves_and_its_gradients(package, dtype, part) -> None:
    norms, driver = package
    rows, columns = 3, 1096
    both, dout = numbers(rows, 2 * columns, dtype=dtype), numbers(rows, columns, dtype=dtype)
    array = driver.array(both)
    gate, up = (array.view((rows, columns), (2 * columns, 1), start) for start in (0, columns))
    out = norms.swiglu(gate, up)
    dgate, dup = norms.kernels.swiglu_backward(driver.array(dout), gate, up)
    g, u, d = (values.astype(np.float64) for values in (both[:, :columns], both[:, columns:], dout))
    assert out.dtype == dtype and agree(out, g * sigmoid(g) * u, part)
    of_gate = d * u * sigmoid(g) * (1 + g * (1 - sigmoid(g)))
    assert agree(dgate, of_gate, part) and agree(dup, d * g * sigmoid(g), part)

    direction = RANDOM.standard_normal(g.shape)
    by_difference = slope(lambda g: (g * sigmoid(g) * u * d).sum(), g, direction)
    assert abs(by_difference - (of_gate * direction).sum()) < 1e-5 * abs(of_gate * direction).sum()


def test_bf16_by_the_bare_launch(package) -> None:
    """numpy has no such type: its numbers are the upper halves of those of fp32, and are given by address."""
    norms, driver = package
    gate, up = (
        (numbers(2, 64, dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32) for _ in range(2)
    )
    arrays = [driver.array((values.view(np.uint32) >> 16).astype(np.uint16)) for values in (gate, up)]
    out = driver.empty((2, 64), np.uint16)
    addresses = [array.pointer for array in (*arrays, out)]
    norms.kernels.launch.swiglu(*addresses, 64, 64, 64, 2, dtype="bf16")
    got = (out.copy_to_host().astype(np.uint32) << 16).view(np.float32)
    expected = gate * sigmoid(gate) * up
    assert (abs(got - expected) <= 2**-8 * abs(expected)).all()


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((2, 12), (12, 1), "the last dimension has to be a multiple of 8"),
        ((2, 16), (20, 1), "rows of x have to begin at multiples of 8 elements"),
    ],
)
def test_what_the_hints_exclude_is_refused_by_name(package, shape, strides, message) -> None:
    norms, driver = package
    x = driver.empty(64, np.float32).view(shape, strides)
    with pytest.raises(ValueError, match=message):
        norms.rms_norm(x, driver.empty(shape[-1], np.float32))


def test_the_wheel_has_the_whole_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert {"fused_norms/__init__.py", "fused_norms/modules.py", "fused_norms/kernels/__init__.py"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    for line in (
        "License-Expression: Apache-2.0",
        'Requires-Dist: torch>=2.6; extra == "torch"',
        "# Fused norms",
    ):
        assert line in metadata.splitlines()


def test_the_variants_are_few() -> None:
    assert len(expand(load(EXAMPLES / "fused_norms/kernels.toml")).variants) == 15


def test_torch_is_imported_with_the_first_module(package, monkeypatch) -> None:
    norms, _ = package
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fused_norms.modules", raising=False)
    with pytest.raises(ImportError, match="torch"):
        _ = norms.RMSNorm
    with pytest.raises(AttributeError, match="'fused_norms' has no attribute 'LayerNorm'"):
        _ = norms.LayerNorm


def test_gradients_reach_the_parameters_of_a_module(package, monkeypatch) -> None:
    """With functions of torch's own in place of launches: there is no GPU here."""
    torch: Any = pytest.importorskip("torch")
    norms, _ = package
    run = importlib.import_module("fused_norms.kernels")._launcher._run
    # Tensors of the CPU go to the dispatcher only where torch traces.
    monkeypatch.setattr(
        importlib.import_module("fused_norms.kernels.operators"), "_is_compiling", lambda: True
    )

    def forward(x, weight, eps, *rest):
        rstd = (x * x).mean(-1).add(eps).rsqrt()
        return x * rstd[..., None] * weight, rstd

    def backward(dy, x, weight, rstd, *rest):
        normal, weighted = x * rstd[..., None], dy * weight
        dx = (weighted - normal * (weighted * normal).mean(-1, keepdim=True)) * rstd[..., None]
        return dx, (dy * normal).reshape(-1, weight.shape[0]).sum(0)

    monkeypatch.setattr(run, "rms_norm", forward)
    monkeypatch.setattr(run, "rms_norm_backward", backward)
    module, x = norms.RMSNorm(16), torch.randn(2, 3, 16, requires_grad=True)
    module(x).square().sum().backward()
    gradients = x.grad, module.weight.grad
    expected = torch.autograd.grad(
        forward(x, module.weight, module.eps)[0].square().sum(), (x, module.weight)
    )
    for one, other in zip(gradients, expected):
        torch.testing.assert_close(one, other)
