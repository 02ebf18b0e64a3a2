"""The launches of `[kernel.verify]`: which go to which variants, with which data and in which order."""

from __future__ import annotations

from pathlib import Path

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.verify.cases import cases
from kbuild.aot.verify.verdict import ADVERSE, LaunchRun, Wanted, runs_of
from kbuild.cli import main
from tests.aot.manifest.mistakes import mistakes
from tests.aot.verify.conftest import TABLE

LAST = """
import triton, triton.language as tl

@triton.jit
def last_kernel(parts, count, out):
    tl.store(parts + tl.program_id(0), tl.program_id(0))
    if tl.atomic_add(count, 1, sem="acq_rel") == 2:
        tl.store(out, tl.load(parts) + tl.load(parts + 1) + tl.load(parts + 2))
        tl.store(count, 0)
"""
COUNTED = """
schema = 1
[package]
name = "counted"
version = "1"
archs = ["sm_90"]
[[kernel]]
name = "last"
source = "kernels/last.py"
grid = ["3"]
[kernel.args]
parts = "*i32"
count = "*i32"
out = "*i32"
[[kernel.config]]
[kernel.verify]
sizes = { parts = "3", count = "1", out = "1" }
values = [{}]
zeros = ["count"]
"""


def launches(project: Path, table: str) -> dict[tuple[str, bool], list[str]]:
    """The launches of the variants for sm_90, by the type of `n` and whether there is a guard."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + table)
    manifest = load(file)
    kernel = manifest.kernel("scale")
    return {
        (dict(variant.signature)["n"], bool(variant.guards)): [str(case) for case in cases(kernel, variant)]
        for variant in expand(manifest, ["sm_90"]).variants
    }


def test_launches_go_to_the_variants_whose_hints_they_fulfil(project: Path) -> None:
    assert launches(project, TABLE) == {
        ("i32:16", True): ["n=1024"],  # None fits: the first that can be is changed.
        ("i32", True): ["n=33"],
        ("i32:16", False): ["n=1600"],
        ("i32", False): ["n=1600", "n=33"],
    }


def test_values_may_be_expressions_and_loops_run_from_no_round_on(project: Path) -> None:
    table = '\n[kernel.verify]\nsizes = { x = "n", y = "n" }\nvalues = [{ n = "BLOCK - 16" }]\nloops = { n = "BLOCK" }\n'
    found = launches(project, table)
    assert found["i32:16", False] == [
        "n=2032",
        "n=16",
        "n=4096",
        "n=4112",
        "n=8192",
        "n=8208",
        "n=12288",
    ]  # n=0 starts nothing.
    assert found["i32", True] == ["n=1008", "n=1"]  # The guard is n <= 1024.


def test_each_launch_runs_adversely_and_the_first_in_lockstep() -> None:
    planned = runs_of([None, None])  # type: ignore[list-item]
    assert [(run.case, run.data, run.schedule) for run in planned] == [
        (1, "whole", ADVERSE[0][0]),
        (2, "whole", ADVERSE[1][0]),
        (1, "whole", "lockstep"),
        (1, "real", "lockstep"),
        (1, "special", "lockstep"),
    ]
    assert Wanted(case=1, data="real").of(planned) == [LaunchRun(1, "real", "lockstep", "early")]
    assert Wanted(case=2, data="special", schedule="reverse").of(planned) == [
        LaunchRun(2, "special", "reverse")
    ]


def test_counters_begin_at_zero(tmp_path: Path) -> None:
    """The last of three programs writes the sum of what the others have left; the counter is zero again."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/last.py").write_text(LAST)
    (tmp_path / "kernels.toml").write_text(COUNTED)
    assert main(["verify", "-C", str(tmp_path)]) == 0
    (tmp_path / "kernels/last.py").write_text(LAST.replace("acq_rel", "relaxed"))
    assert main(["verify", "-C", str(tmp_path)]) == 1
    (tmp_path / "kernels.toml").write_text(COUNTED.replace('["count"]', '["count", "n"]'))
    assert any("zeros[1]: expected an argument that is a pointer, found" in one for one in mistakes(tmp_path))


def test_mistakes_in_the_table_are_reported(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text()
    line = text.count("\n") + 3
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", z = "n" }\nvalues = [{ n = 1.5 }, {}]\n')
    found = mistakes(project)
    assert any(f"{line}: " in one and "sizes.z: unknown key" in one for one in found), found
    assert any('sizes: missing key "y"' in one for one in found), found
    assert any(
        "values[0].n: expected an integer or an expression, found the float 1.5" in one for one in found
    ), found
    assert any('values[1]: missing key "n"' in one for one in found), found
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", y = "n" }\nvalues = []\n')
    assert ['sizes.x: unknown name "m"' in one for one in mistakes(project)] == [True]
