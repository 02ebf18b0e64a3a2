"""Tuned kernels are served with what was captured: nothing is tried, and hooks and heuristics are the library's."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kbuild import cli
from kbuild.aot.capture.records import read_captures
from kbuild.aot.manifest.load import load
from kbuild.emulator.driver import FakeDriver
from tests.cli.adopting.conftest import STAND_IN
from tests.cli.adopting.serving.conftest import adopted, compiled, taken
from tests.cli.adopting.serving.inductor import Program, put_inductor
from tests.cli.adopting.serving.tensors import Tensor
from tests.cli.adopting.serving.tuned_library import OPS, USE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adopted(tmp_path_factory.mktemp("tuned") / "tuned_kernels", OPS, USE)


@pytest.fixture(scope="module")
def driver(made: Path) -> Iterator[FakeDriver]:
    with FakeDriver(["sm_90"], builds=[made / "build"]) as driver:
        yield driver


@pytest.fixture
def served(made: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library's module, with the package installed, which is its attribute `package`."""
    monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for folder in (made / "site", STAND_IN, made):
        monkeypatch.syspath_prepend(str(folder))
    before = taken()
    ops: Any = importlib.import_module("tuned.ops")
    ops.package = importlib.import_module("tuned_kernels")
    ops.package.install(strict=True)
    yield ops
    assert not driver.findings
    taken()
    sys.modules.update(before)


def run(driver: FakeDriver, function: Any, n: int, how: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """What goes into a function of the library, what comes out, and the threads of a block."""
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    out = Tensor(driver.empty((n,), np.float32))
    function(Tensor(driver.array(x)), out, how)
    return x, out.numpy(), driver.launches[-1].block[0]


@pytest.mark.parametrize(("n", "threads"), [(640, 64), (6400, 256), (1000, 64), (700, 64)])
def test_the_choice_of_a_size_is_looked_up(served: Any, driver: FakeDriver, n: int, threads: int) -> None:
    x, out, found = run(driver, served.scale, n, 2.0)
    assert (out == x * 2).all() and found == threads
    assert compiled() == 0


@pytest.mark.parametrize(("n", "threads"), [(64, 64), (320, 64), (1300, 64), (2560, 256), (12800, 256)])
def test_a_size_that_was_never_seen_gets_the_choice_of_the_nearest(
    served: Any, driver: FakeDriver, n: int, threads: int
) -> None:
    x, out, found = run(driver, served.scale, n, 3.0)
    assert (out == x * 3).all() and found == threads


def test_a_size_that_was_never_seen_is_recorded(
    served: Any, driver: FakeDriver, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBUILD_RECORD", str(tmp_path / "record"))
    served.package.install(strict=True)
    run(driver, served.scale, 6400, 2.0)
    assert not (tmp_path / "record").exists()
    run(driver, served.scale, 12800, 2.0)
    (file,) = (tmp_path / "record").iterdir()
    (launch,) = [
        line for line in map(json.loads, file.read_text().splitlines()) if line.get("kind") == "launch"
    ]
    assert launch["near"] and launch["key"] == {"n": 12800} and launch["grid"] == [100]
    (variant,) = read_captures([file]).variants.values()
    assert variant.constexprs == {"BLOCK": 128, "EVEN": True} and variant.options["num_warps"] == 8
    shutil.copytree(made / "tuned", tmp_path / "tuned")
    captures = [str(made / "capture.jsonl"), str(file)]
    assert cli.main(["import", "-q", "-C", str(tmp_path), *captures]) == 0
    (scale,) = (one for one in load(tmp_path / "kernels.toml", "kernels.toml").kernels if one.name == "scale")
    assert dict(scale.seen) == {"n": (640, 700, 1000, 6400, 12800)}


@pytest.mark.parametrize(("n", "threads", "grid"), [(640, 128, 5), (6400, 256, 13), (12800, 256, 25)])
def test_programs_of_several_ctas_are_single_blocks(
    served: Any, driver: FakeDriver, n: int, threads: int, grid: int
) -> None:
    x, out, found = run(driver, served.double, n, None)
    assert (out == x * 2).all() and found == threads and driver.launches[-1].grid == (grid, 1, 1)
    tuner = served.double_kernel
    assert tuner.best_config is tuner.configs[n > 640]


@pytest.mark.parametrize("ctas", [2, 1, 4])
def test_how_many_ctas_a_call_asks_for_changes_the_speed_alone(
    served: Any, driver: FakeDriver, made: Path, ctas: int
) -> None:
    (halve,) = (one for one in load(made / "kernels.toml").kernels if one.name == "halve")
    assert [(one.options.num_warps, one.options.num_ctas) for one in halve.configs] == [(8, 2)]
    launched: list[Any] = []
    x, out, found = run(driver, lambda *given: launched.append(served.halve(*given)), 640, ctas)
    assert (out == x / 2).all() and found == 512
    facts = launched[0].metadata
    assert (facts.num_warps, facts.num_ctas, launched[0].n_max_threads) == (8, 2, 512)


@pytest.mark.parametrize(("n", "block"), [(640, 64), (6400, 256)])
def test_hooks_of_configurations_are_called(served: Any, driver: FakeDriver, n: int, block: int) -> None:
    x, out, _ = run(driver, served.shift, n, (3, 40))
    assert (out == x + 43).all() and served.hooked == [(n, block, 4)]
    assert served.shift_kernel.best_config.kwargs == {"BLOCK": block}
    run(driver, served.shift, n, (3, 40))
    assert served.tried == [n]  # Once for a size.


def test_a_warmup_loads_the_configuration_that_is_taken(served: Any, driver: FakeDriver) -> None:
    x = Tensor(driver.array(np.ones(6400, np.float32)))
    before = len(driver.launches)
    (made,) = served.shift_kernel.warmup(x, x, 6400, (3, 40), grid=(1,))
    assert made.metadata.BLOCK == 256 and not served.hooked and len(driver.launches) == before


def test_a_configuration_that_a_library_takes_out_is_not_launched(served: Any, driver: FakeDriver) -> None:
    with pytest.raises(
        served.package.dispatch.NoVariantError, match="takes the configuration that was built out"
    ):
        run(driver, served.shift, 60, (3, 40))


def test_without_the_library_a_tuned_kernel_is_launched_by_name(served: Any, driver: FakeDriver) -> None:
    x = np.arange(700, dtype=np.float32)
    out = driver.empty((700,), np.float32)
    kernel = served.package.triton.shift_kernel
    seen: list[Any] = []
    kernel[lambda meta: seen.append(meta["BLOCK"]) or (-(-700 // meta["BLOCK"]),)](
        driver.array(x), out, 700, (1, 2)
    )
    assert (out.copy_to_host() == x + 3).all() and seen == [64]


def test_what_only_a_heuristic_could_say_has_to_be_given(served: Any, driver: FakeDriver) -> None:
    x, out = driver.array(np.ones(700, np.float32)), driver.empty((700,), np.float32)
    kernel = served.package.triton.scale_kernel
    with pytest.raises(
        served.package.dispatch.NoVariantError, match="EVEN is not given, and was captured with"
    ):
        kernel[(11,)](x, out, 700, 2.0)
    kernel[lambda meta: (-(-700 // meta["BLOCK"]),)](x, out, 700, 2.0, EVEN=False)
    assert (out.copy_to_host() == 2).all()


@pytest.mark.parametrize(("n", "threads"), [(640, 64), (6400, 256)])
def test_a_graph_launches_the_tuner_with_the_grid_of_its_choice(
    served: Any, driver: FakeDriver, tmp_path: Path, n: int, threads: int
) -> None:
    put_inductor(torch := ModuleType("torch"), tmp_path)
    sys.modules["torch"] = torch
    tuner = served.scale_kernel
    # Torch adds what heuristics compute to each configuration, and makes another tuner of these.
    configs = [copy(config) for config in tuner.configs]
    for config in configs:
        config.kwargs = {**config.kwargs, "EVEN": n % config.kwargs["BLOCK"] == 0}
    grids = [(-(-n // config.kwargs["BLOCK"]), 1, 1) for config in configs]
    ir: Any = importlib.import_module("torch._inductor.ir")
    given = {"x": ir.Buffer("x"), "out": ir.Buffer("out"), "n": n, "factor": 3.0}
    kernel = SimpleNamespace(fn=tuner.fn.fn, configs=configs)
    ir.UserDefinedTritonKernel(kernel, grids, given).codegen(program := Program())
    assert "[lambda meta: {(64,): (" in program.lines[0] and "}[meta['BLOCK'],]]" in program.lines[0]

    def launch(x: Tensor, out: Tensor, _: Any) -> None:
        assert program.run(x=x, out=out) == 0

    x, out, found = run(driver, launch, n, None)
    assert (out == x * 3).all() and found == threads
    assert driver.launches[-1].grid == grids[(64, 256).index(threads)]


def test_a_configuration_that_is_the_only_one_is_taken(served: Any, driver: FakeDriver) -> None:
    tuner = copy(served.scale_kernel)
    tuner.configs = [config for config in tuner.configs if config.kwargs["BLOCK"] == 128]

    def launch(x: Tensor, out: Tensor, factor: float) -> None:
        tuner[(x.shape[0] // 128,)](x, out, x.shape[0], factor)

    x, out, found = run(driver, launch, 6400, 2.0)
    assert (out == x * 2).all() and found == 256
    # The size's own choice is another block, for which this grid would be wrong.
    with pytest.raises(served.package.dispatch.NoVariantError, match="BLOCK"):
        run(driver, launch, 640, 2.0)
