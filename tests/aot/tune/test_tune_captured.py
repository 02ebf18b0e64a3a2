"""`kbuild tune` of kernels with captured launches, which need no table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.aot.build import project as builder
from kbuild.aot.build.compile_variant import resolve
from kbuild.aot.manifest import tuned
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.tuned import TunedEntry
from kbuild.aot.tune.tasks import launch_of, tasks
from kbuild.cli import main
from kbuild.errors import KbuildError
from tests.manifests import COPY_KERNEL, package_table

TABLE = """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["grid_0"]
grid_args = { grid_0 = "i32" }
args = { "x, y" = "*fp32:16", n = "i32" }
launches = "scale.launches.jsonl"
variants = "scale.jsonl"
"""
ROWS = [
    {"kbuild": "variants", "schema": 1, "axes": [], "hints": ["n"], "config": ["BLOCK", "num_warps"]},
    [[], ["16"], [64, 1], ["n <= 512"]],
    [[], ["16"], [128, 32]],
    [[], [""], [64, 4]],
]
LAUNCHES = [
    {
        "kbuild": "launches",
        "schema": 1,
        "at": ["BLOCK"],
        "hints": ["n"],
        "values": ["grid_0", "n"],
        "arrays": ["x", "y"],
    },
    [[64], ["16"], [2, 128], [[128], [128]]],
    [[64], ["16"], [8, 512], [[512], [512]]],
    [[128], ["16"], [10, 1280], [[1280], [[10, 128], [256, 1]]]],
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A captured kernel, in place of the usual project."""
    folder = tmp_path / "captured"
    folder.mkdir()
    (folder / "scale.py").write_text(COPY_KERNEL)
    (folder / "kernels.toml").write_text(package_table("demo", "sm_90") + TABLE)
    for name, lines in (("scale.jsonl", ROWS), ("scale.launches.jsonl", LAUNCHES)):
        (folder / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def found(project: Path, more: str = "") -> dict[str, tuple[str, dict[str, int], list[int]]]:
    """The tasks by what holds of their calls: the launch, its sizes, and the numbers of warps that are tried."""
    file = project / "kernels.toml"
    file.write_text(package_table("demo", "sm_90") + TABLE + more)
    manifest = load(file)
    result = {}
    for task in tasks(manifest, ["sm_90"], []):
        case = launch_of(manifest.kernel("scale"), task.default, task.bucket)
        assert case is not None and case.sizes is not None
        warps = [one.options.num_warps for one in task.candidates]
        result[" ".join(map(str, task.facts))] = str(case), dict(case.sizes), warps
    return result


def test_each_variant_is_tuned_on_its_largest_launch(project: Path) -> None:
    assert found(project) == {  # Of the third row no launch was captured.
        "n<=512": ("n=512, grid_0=8", {"x": 512, "y": 512}, [1, 2]),
        "": ("n=1280, grid_0=10", {"x": 1280, "y": 2432}, [16, 32]),
    }


def test_a_table_says_what_else_to_try(project: Path) -> None:
    some = found(project, "tune = { candidates = { num_warps = [2, 8] } }\n")
    assert [warps for _, _, warps in some.values()] == [[2, 8], [2, 8]]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("candidates = { BLOCK = [64] }", "captured launches have the grid for the BLOCK that was captured"),
        ("sizes = { x = 'n', y = 'n' }", "is for buckets, and there are none"),
    ],
)
def test_what_needs_buckets(project: Path, table: str, message: str) -> None:
    with pytest.raises(KbuildError, match=message):
        found(project, f"tune = {{ {table} }}\n")


def test_an_entry_is_for_the_hints_of_its_row(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after another row was added in front."""
    monkeypatch.chdir(project)
    task = next(tasks(load(project / "kernels.toml"), ["sm_90"], []))
    digest = resolve(builder.SOURCE_DIGEST)("scale.py", "scale_kernel")
    config = (("BLOCK", 64), ("num_warps", 2), ("num_stages", 3))
    entry = TunedEntry("scale", "NVIDIA H200", 90, digest, task.when, task.facts, config, 1.0, 2.0)
    tuned.write(project / tuned.FILE, [entry])
    rows = [ROWS[0], [[], ["8"], [256, 4]], *ROWS[1:]]
    (project / "scale.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert main(["list", "-q"]) == 0
    assert capsys.readouterr().out.split() == [
        "scale.sm_90.n=d8.BLOCK=256.w4s3",
        "scale.sm_90.n=d16.BLOCK=64.n-le-512.w2s3",
        "scale.sm_90.n=d16.BLOCK=128.w32s3",
        "scale.sm_90.BLOCK=64.w4s3",
    ]
