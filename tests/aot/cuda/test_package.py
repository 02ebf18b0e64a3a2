"""A project with kernels in CUDA C++, from its manifest to launches of its wheel on the fake driver."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kbuild.aot import backend
from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, BuildResult, build
from kbuild.aot.identity import unseal
from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.aot.cuda.conftest import edit, write_project
from tests.examples.conftest import installed


def built(project: Path, cache: Path | None = None) -> BuildResult:
    result = build(BuildOptions(project=project, environment=dict(os.environ), cache=cache), Progress())
    assert not result.failures, result.failures
    return result


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver, Path]]:
    project = write_project(tmp_path_factory.mktemp("cuda"))
    wheel = built(project).wheel
    assert wheel is not None
    with installed(wheel, project, "cuda_kernels") as (module, driver):
        yield module, driver, project


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("m, n, k", [(17, 20, 40), (3, 9, 5), (16, 16, 16)])
def test_an_operator_runs_a_template_of_cuda(
    package: Any, dtype: type, relu: bool, m: int, n: int, k: int
) -> None:
    module, driver, _ = package
    random = np.random.default_rng(1)
    a, b = random.integers(-3, 4, (m, k)).astype(dtype), random.integers(-3, 4, (k, n)).astype(dtype)
    c = module.matmul(driver.array(a), driver.array(b), alpha=0.5, RELU=relu).copy_to_host()
    product = a.astype(float) @ b.astype(float)
    np.testing.assert_array_equal(c, 0.5 * (np.maximum(product, 0) if relu else product))


def test_blocks_have_two_axes_and_macros_a_value(package: Any) -> None:
    module, driver, project = package
    x = np.arange(300, dtype=np.float32)
    y = driver.empty(300, np.float32)
    module.scale(driver.array(x), y, 300)
    np.testing.assert_array_equal(y.copy_to_host(), 3 * x)
    facts = [unseal(path.read_bytes()) for path in sorted((project / "build/sm_90/matmul").glob("*.json"))]
    assert {tuple(fact["block"]) for fact in facts if fact} == {(16, 16, 1), (8, 8, 1)}
    assert {fact["shared"] for fact in facts if fact} == {2048, 1024, 512, 256}


def test_explain_says_which_row_a_call_takes(package: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module, driver, _ = package
    x = driver.array(np.zeros((20, 20), np.float32))
    module.explain("matmul", x, x, RELU=True)
    out = capsys.readouterr().out
    assert "T=fp32 RELU=True TILE=16 block=16x16 shared=2048" in out
    assert "grid (2, 2, 1), 16x16 threads, 2048 bytes of shared memory" in out


def test_list_names_variants_by_block_and_shared_memory(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "-C", str(project), "--arch", "sm_80"]) == 0
    names = capsys.readouterr().out.split()
    assert "matmul.sm_80.fp16.RELU=1.a=any,b=any.TILE=16.M-ge-16.t16x16m1024" in names
    assert "scale.sm_80.x=any,y=any.FACTOR=3.t128" in names and len(names) == 9


def test_only_what_a_change_reaches_is_compiled_again(project: Path, tmp_path: Path) -> None:
    edit(
        project / "kernels.toml",
        'matrix = { T = ["fp32", "fp16"], RELU = [false, true] }',
        'matrix = { T = ["fp32"], RELU = [false] }',
    )
    edit(project / "kernels.toml", '"sm_80", "sm_90"', '"sm_80"')
    assert len(built(project).compiled) == 3
    text = (project / "kernels/matmul.cu").read_text()
    (project / "kernels/matmul.cu").write_text("// Moved down.\n\n" + text.replace("// filled", "/* full */"))
    assert built(project).compiled == ()
    edit(project / "kernels/index.cuh", "row * stride + column", "column + row * stride")
    assert [name.split(".")[0] for name in built(project).compiled] == ["matmul", "matmul"]


def test_a_source_distribution_has_what_kernels_include(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["kbuild"]\nbuild-backend = "kbuild.aot.backend"\n'
    )
    monkeypatch.chdir(project)
    with tarfile.open(project / backend.build_sdist(str(project))) as archive:
        names = {re.sub(r"^[^/]*/", "", name) for name in archive.getnames()}
    assert {"kernels/matmul.cu", "kernels/index.cuh", "kernels/scale.cu", "reference.py"} <= names


def test_without_nvrtc_one_message_says_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    source = f"{project / 'kernels/scale.cu'}:scale_all"
    assert main(["compile", source, "--block", "128", "-c", "FACTOR=2", "--emit", "ptx"]) == 1
    err = capsys.readouterr().err
    assert err == (
        "error: kernels in CUDA C++ are compiled by NVRTC, which is not installed\nhelp: pip install 'kbuild[cuda]'\n"
    )
