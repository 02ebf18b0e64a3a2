"""`launches = "FILE.jsonl"`: launches that were captured, and the mistakes in them, each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.verify.cases import LaunchCase, cases
from kbuild.errors import KbuildError
from tests.manifests import COPY_KERNEL, package_table

TABLE = """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["grid_0"]
args = { "x, y" = "*{dtype}:16", n = "i32:16?" }
grid_args = { grid_0 = "i32" }
matrix = { dtype = ["fp16", "fp32"] }
launches = "scale.launches.jsonl"
config = [{ BLOCK = 64 }]
"""
HEADER = {
    "kbuild": "launches",
    "schema": 1,
    "at": ["dtype", "BLOCK"],
    "hints": ["n"],
    "values": ["grid_0", "n"],
    "arrays": ["x", "y"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scale.py").write_text(COPY_KERNEL)
    (tmp_path / "kernels.toml").write_text(package_table("demo", "sm_90") + TABLE)
    return tmp_path


def launches(project: Path, *rows: object, header: object = HEADER) -> dict[str, list[LaunchCase]]:
    """The launches of each variant; a string is a line as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in (header, *rows)]
    (project / "scale.launches.jsonl").write_text("\n".join(lines) + "\n")
    manifest = load(project / "kernels.toml", "kernels.toml")
    return {
        ".".join(variant.file_name.split(".")[:2]): cases(manifest.kernel("scale"), variant)
        for variant in expand(manifest).variants
    }


def test_a_variant_has_the_smallest_launch_with_its_values_and_hints(project: Path) -> None:
    found = launches(
        project,
        [["fp16", 64], [""], [30, 1900], [[1900], [1900]]],
        [["fp16", 64], [""], [2, 100], [[100], [100]]],
        [["fp16", 64], ["16"], [5, 320], [[320], [[4, 80], [100, 1]]]],
        [["fp32", 128], [""], [1, 7], [[7], [7]]],
    )
    assert {name: str(case) for name, (case,) in found.items()} == {
        "fp16.n=d16": "n=320, grid_0=5; programs (0, 0, 0) (1, 0, 0) (3, 0, 0) (4, 0, 0)",
        "fp16.BLOCK=64": "n=100, grid_0=2",
        "fp32.n=d16": "n=48, grid_0=40",  # None is of BLOCK = 64: it is guessed.
        "fp32.BLOCK=64": "n=40, grid_0=40",
    }
    recorded = found["fp16.n=d16"][0].recorded
    assert recorded is not None and recorded.extents == (("x", 320), ("y", 380))
    assert recorded.flat == ("x",) and recorded.least == 4


def test_hints_that_were_not_captured_take_a_launch_that_fulfils_them(project: Path) -> None:
    row = [["fp16", 64], ["16"], [2, 128], [[128], None]]
    assert str(launches(project, row)["fp16.BLOCK=64"][0]) == "n=128, grid_0=2"


def test_of_large_arrays_only_the_first_programs_run(project: Path) -> None:
    size = 64 << 20
    (case,) = launches(project, [["fp16", 64], [""], [size // 64, size], [[size], [size]]])["fp16.BLOCK=64"]
    assert case.recorded is not None and case.recorded.programs == ((0, 0, 0), (1, 0, 0))
    assert case.grid == (size // 64,)


@pytest.mark.parametrize(
    ("header", "row", "line", "message"),
    [
        ({**HEADER, "schema": 9}, "", 1, "not the first line of a list of launches of schema 1"),
        ("[]", "", 1, "not the first line of a list of launches of schema 1"),
        (HEADER, [["fp16", 64], [""], [2], [[1], [1]]], 2, "not a launch"),
        (HEADER, [["fp16", 64], [""], [2, []], [[1], [1]]], 2, "not a launch"),
        (HEADER, [["fp16", 64], [""], [2, 3], [[1], [[1], [2, 3]]]], 2, "not a launch"),
        (HEADER, "[", 2, "not a launch"),
    ],
)
def test_mistakes_have_their_lines(
    project: Path, header: object, row: object, line: int, message: str
) -> None:
    with pytest.raises(KbuildError, match=message) as caught:
        launches(project, row, header=header)
    (error,) = caught.value.errors()
    assert error.loc is not None and error.loc.line == line
    assert error.loc.file.endswith("scale.launches.jsonl") and 'kernel "scale"' in str(error)


def test_a_file_that_is_missing(project: Path) -> None:
    with pytest.raises(KbuildError, match=r'launches: no file "scale.launches.jsonl" in the project'):
        load(project / "kernels.toml", "kernels.toml")
