"""`kbuild why` and `kbuild report` of kernels in CUDA C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild import cli
from tests.aot.cuda.conftest import edit, write_project
from tests.aot.report.test_report import sections


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with `scale`, which includes a header, built for one architecture."""
    folder = write_project(tmp_path_factory.mktemp("reported"))
    source = folder / "kernels/scale.cu"
    source.write_text(f'#include "index.cuh"\n{source.read_text()}')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KBUILD_CACHE_DIR", str(folder / "cache"))
        assert cli.main(["build", "scale", "-q", "--arch", "sm_80"]) == 0
    return folder


def test_the_page_has_source_ptx_and_machine_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(project / "cache"))
    assert cli.main(["report", "scale", "-q", "--arch", "sm_80"]) == 0
    found = sections(project / "report.html")
    (one,) = (found[name] for name in found if name.startswith("detail"))
    assert one["passes"] == [] and one["layouts"] == {} and "error" not in one
    code = one["code"]
    (store,) = (
        place for place, line in zip(code["ptx"]["places"], code["ptx"]["lines"]) if "st.global" in line
    )
    ((file, line, _),) = one["places"][store]
    (part,) = (part for part in code["source"] if part["file"] == file)
    assert "y[" in part["text"].splitlines()[line - part["line"]]


def test_a_line_of_the_source_and_one_of_a_header(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    edit(project / "kernels/scale.cu", "x[i] * FACTOR;", "FACTOR * x[i];  // a comment")
    edit(project / "kernels/index.cuh", "row * stride + column", "column + row * stride")
    capsys.readouterr()
    assert cli.main(["why", "scale", "--arch", "sm_80", "--no-cache"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  source   kernels/scale.cu:6",
        "    - 6      y[i] = x[i] * FACTOR;",
        "    + 6      y[i] = FACTOR * x[i];",
        "  source   kernels/index.cuh:2",
        "    - 2  __device__ __forceinline__ int at(int row, int column, int stride) { return row * stride + column; }",
        "    + 2  __device__ __forceinline__ int at(int row, int column, int stride) { return column + row * stride; }",
    ]
