"""`kbuild verify` and `kbuild count` of kernels in CUDA C++: right ones pass, and planted faults are shown at their lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbuild.cli import main
from tests.aot.cuda.conftest import edit


@pytest.fixture
def small(project: Path) -> Path:
    """The project with few variants."""
    edit(project / "kernels.toml", 'matrix = { T = ["fp32", "fp16"], RELU', 'matrix = { T = ["fp32"], RELU')
    edit(project / "kernels.toml", '"sm_80", "sm_90"', '"sm_80"')
    edit(project / "kernels.toml", "RELU = [false, true] }", "RELU = [false] }")
    return project


def line_of(file: Path, text: str) -> int:
    """The number of the only line that has a text."""
    (found,) = [number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line]
    return found


def verified(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The exit code of `kbuild verify`, and what it says."""
    code = main(["verify", "-C", str(project), "--no-cache", "-k", "-j", "1", *options])
    return code, capsys.readouterr().err


def test_results_are_compared_with_numpy_and_with_a_kernel(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project / "kernels.toml", '"sm_80", "sm_90"', '"sm_90"')
    assert main(["verify", "-C", str(project), "--no-cache", "--json", "-j", "2"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert len(verdicts) == 9 and {verdict["state"] for verdict in verdicts} == {"ok"}
    # Sums of whole numbers need no rounding in float32: they have to be equal.
    assert all(
        check["exact"]
        for verdict in verdicts
        for check in verdict["checks"]
        if check["run"]["data"] == "whole"
    )


@pytest.mark.parametrize(
    "before, after, says",
    [
        ("    __syncthreads();  // filled\n", "", "race: "),
        ("    __syncthreads();  // read\n", "", "race: "),
        ("if (row < M && column < N)\n", "if (row <= M && column < N)\n", "out-of-bounds: 4 bytes at c["),
        ("row < M && k + x < K ? a", "k + x < K ? a", "out-of-bounds: 4 bytes at a["),
        ("sum += float", "sum -= float", "elements differ; [0] is "),
        ("float sum = 0;", "float sum = as[y * TILE + x];", "uninitialised-read"),
        ("*bs = as + TILE * TILE;", "*bs = as + TILE * TILE + 1;", "out-of-bounds: "),
    ],
    ids=["not filled", "not read", "store", "load", "wrong", "not written", "too large"],
)
def test_a_planted_fault_is_found(
    small: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, says: str
) -> None:
    edit(small / "kernels/matmul.cu", before, after)
    code, err = verified(small, capsys, "matmul")
    assert code == 1 and says in err, err


def test_findings_name_lines_of_the_source(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small / "kernels/matmul.cu"
    edit(source, "    __syncthreads();  // read\n", "")
    edit(source, "if (row < M && column < N)\n", "if (row <= M && column < N)\n")
    _, err = verified(small, capsys, "matmul", "--schedule", "reverse")
    race = err[err.index("race: ") :]
    lines = [int(line) for line in re.findall(rf"from {re.escape(str(source))}:(\d+):", race)]
    assert {line_of(source, "as[y * TILE + x] ="), line_of(source, "sum += ")} & {*lines[:2]}
    assert re.search(rf"out-of-bounds: .*\n.*\n.*from .*:{line_of(source, 'c[at(row')}:", err)


def test_what_lies_in_a_header_is_shown_with_the_call(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / "kernels/index.cuh").write_text(
        "#pragma once\n__device__ __forceinline__ int at(int row, int column, int stride) { return row * stride + column; }\n"
        "template <class T> __device__ __forceinline__ void put(T *p, int i, T v) {\n  p[i] = v;\n}\n"
    )
    source = small / "kernels/matmul.cu"
    edit(
        source,
        "c[at(row, column, N)] = alpha * (RELU && sum < 0 ? 0 : sum);",
        "put(c, at(row, column, N) + M * N, sum);",
    )
    _, err = verified(small, capsys, "matmul")
    assert re.search(
        rf"from \S*index\.cuh:4:\d+, called from {re.escape(str(source))}:{line_of(source, 'put(c')}:", err
    ), err


def test_a_reference_that_fails_is_shown_at_its_line(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(small / "reference.py", "a.reshape(M, K)", "a.reshape(M, K + 1)")
    code, err = verified(small, capsys, "matmul")
    assert code == 1 and "reference.py:4: error: the reference" in err and "ValueError: cannot reshape" in err


def test_a_tolerance_is_in_place_of_the_usual_one(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(small / "kernels/matmul.cu", "alpha * (RELU", "1.001f * alpha * (RELU")
    assert verified(small, capsys, "matmul", "--data", "real")[0] == 1
    edit(
        small / "kernels.toml",
        'reference = "reference.py:matmul"',
        'reference = "reference.py:matmul"\ntolerance = 2e-3',
    )
    assert verified(small, capsys, "matmul", "--data", "real")[0] == 0


def test_bank_conflicts_and_sectors_are_counted_by_line(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = small / "kernels/matmul.cu"
    edit(source, "bs[i * TILE + x]);", "bs[x * TILE + i]);")  # Neighbours read one bank.
    edit(source, "bs[y * TILE + x] =", "bs[x * TILE + y] =")
    assert main(["count", "-C", str(small), "matmul", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)[0]
    found = {
        (int(line["place"].rpartition(":")[2]), line["space"], line["kind"]): line["units"] / line["ideal"]
        for line in counts["lines"]
    }
    assert found[line_of(source, "sum += "), "shared", "load"] > 2
    assert found[line_of(source, "bs[x * TILE + y]"), "shared", "store"] > 4
    assert found[line_of(source, "as[y * TILE + x] ="), "shared", "store"] == 1
    assert (
        counts["block"] == [16, 16]
        and counts["limited_by"] == "warps and registers"
        and counts["occupancy"] == 1
    )


def test_counts_are_a_table_with_the_source(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "-C", str(small), "scale"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scale.sm_80.x=any,y=any.FACTOR=3.t128: n=300; grid 3"
    assert re.split("  +", lines[1].strip()) == [
        *("line", "access", "requests", "bytes", "units", "per request", "fewest", "excess", "source"),
    ]
    row = "kernels/scale.cu:5 global load 10 1,200 38 sectors 3.80 38 0 y[i] = x[i] * FACTOR;"
    assert lines[2].split() == row.split()
    assert (
        "16 blocks of 128 threads at once on a multiprocessor, 100 % of its warps, limited by warps"
        in lines[-2]
    )


def test_a_kernel_in_triton_s_language_may_have_a_reference(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = small / "kernels.toml"
    edit(
        manifest,
        'source = "kernels/scale.cu"\nfunction = "tools::scale_all"\nblock = [128]\n',
        'source = "kernels/scale.py"\nfunction = "scale_kernel"\n',
    )
    edit(manifest, "config = [{ FACTOR = 3 }]", "config = [{ FACTOR = 3, BLOCK = 128 }]")
    edit(manifest, 'reference = "kernels/scale.py:scale_kernel"', 'reference = "reference.py:scale"')
    edit(manifest, 'reference_constexprs = { BLOCK = 64 }\nreference_grid = ["cdiv(n, BLOCK)"]\n', "")
    with (small / "reference.py").open("a") as references:
        references.write("\n\ndef scale(x, y, n, FACTOR):\n    y[:n] = FACTOR * x[:n]\n")
    code, err = verified(small, capsys, "scale")
    assert code == 0, err
    edit(small / "kernels/scale.py", "* FACTOR,", "* FACTOR + 1,")
    code, err = verified(small, capsys, "scale")
    assert code == 1 and "elements differ" in err


def test_one_launch_from_the_command_line(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(small / "kernels/scale.cu")
    launch = [f"{source}:tools::scale_all", "-c", "FACTOR=3", "--block", "128", "--grid", "2"]
    given = ["--arg", "x=range:200,y=zeros:200,n=200", "--races", "--schedule", "reverse"]
    assert main(["run", *launch, *given]) == 0
    assert "y: 200 elements of f32, 199 changed: 0.0, 3.0, 6.0" in capsys.readouterr().out
    assert main(["run", *launch, "--arg", "x=range:200,y=zeros:200,n=201"]) == 1
    found = capsys.readouterr().out
    assert "out-of-bounds" in found and f"scale.cu:{line_of(Path(source), 'FACTOR')}:" in found
