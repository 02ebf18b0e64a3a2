"""`kbuild verify` and `kbuild run`: right kernels pass, and code that does something else is caught."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kbuild.aot import verify as verifying
from kbuild.aot.cases import Case, cases
from kbuild.aot.load import load
from kbuild.aot.matrix import expand
from kbuild.cli import main
from kbuild.compiler import driver
from tests.aot.test_load import mistakes

TABLE = """
[kernel.verify]
sizes = { x = "n", y = "n" }
values = [{ n = 0 }, { n = 1600 }, { n = 33 }]
"""


@pytest.fixture
def verified(project: Path) -> Path:
    """The project, with a table `[kernel.verify]`."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    return project


def wrong(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Let the compiler make PTX with a mistake in it."""
    right = driver.compile

    def compile_wrong(*args: object, **options: object) -> driver.Artifact:
        artifact = right(*args, **options)  # type: ignore[arg-type]
        assert before in artifact.asm["ptx"]
        return driver.Artifact({**artifact.asm, "ptx": artifact.asm["ptx"].replace(before, after)}, artifact.metadata)

    monkeypatch.setattr(driver, "compile", compile_wrong)


def test_cases_go_to_the_variants_whose_promises_they_keep(verified: Path) -> None:
    manifest = load(verified / "kernels.toml")
    kernel = manifest.kernel("scale")
    fitting = {}
    for variant in expand(manifest, ["sm_90"]).variants:
        hint = dict(variant.signature)["n"]
        fitting[hint, bool(variant.guards)] = [str(case) for case in cases(kernel, variant)]
    assert fitting == {
        ("i32:16", True): [], ("i32", True): ["n=33"], ("i32:16", False): ["n=1600"], ("i32", False): ["n=1600", "n=33"],
    }  # fmt: skip


def test_right_kernels_pass(verified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(verified), "--arch", "sm_90", "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert {verdict["state"] for verdict in verdicts} == {"ok", "no cases"}
    assert {check["schedule"] for verdict in verdicts for check in verdict["checks"]} == set(verifying.SCHEDULES)


def test_without_a_table_there_is_nothing_to_do(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(project)]) == 0
    assert "0 ok, 0 failed, 18 no cases" in capsys.readouterr().err


@pytest.mark.parametrize("before, after, message", [
    ("%ctaid.x", "%ctaid.y", "elements differ; "),
    ("scale_kernel_param_1]", "scale_kernel_param_0]", "y: 1600 of 1600 elements differ; [0] is nan, expected "),
    ("setp.lt", "setp.ne", "out-of-bounds: "),
    ("mov.u32", "mov.u33", "mov.u33"),
], ids=["same program", "nothing written", "beyond the end", "no such instruction"])  # fmt: skip
def test_wrong_code_is_caught(
    verified: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: str, after: str, message: str
) -> None:
    wrong(monkeypatch, before, after)
    assert main(["verify", "-C", str(verified), "--arch", "sm_80", "-k"]) == 1
    output = capsys.readouterr()
    assert "failed" in output.out and message in output.out


TEXT = """\
tt.func @f(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) attributes {num_warps = 1} {
  %v: f32 = tt.load %x
  tt.store %y, %v
  tt.return
}
"""


def test_arrays_that_are_only_written_are_poisoned_before() -> None:
    module = verifying.module_of(TEXT)
    assert verifying.loaded_arguments(module.kernel) == {"x"}
    types = {argument.hint: argument.type for argument in module.kernel.arguments}
    made = verifying.inputs(types, frozenset("x"), Case((), (("x", 5), ("y", 5)), (1,)), np.random.default_rng(0))
    assert set(made["x"]) <= {-3, -2, -1, 0, 1, 2, 3} and np.isnan(made["y"]).all()


def test_bounds_are_relative_and_nan_is_no_number() -> None:
    f32 = verifying.pointee_of(verifying.module_of(TEXT).kernel.arguments[0].type)
    right = np.array([1, 1000, np.nan, np.inf], np.float32)
    assert verifying.compare(f32, right, right * np.float32(1.000001))[1] == ""
    found = verifying.compare(f32, right, np.array([1, 1001, np.nan, np.inf], np.float32))[1]
    assert found == "1 of 4 elements differ; [1] is 1001.0, expected 1000.0"
    assert verifying.compare(f32, right, np.array([1, 1000, 0, np.inf], np.float32))[1]


def test_mistakes_in_the_table_are_told(project: Path) -> None:
    file = project / "kernels.toml"
    text = file.read_text()
    line = text.count("\n") + 3
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", z = "n" }\nvalues = [{ n = 1.5 }, {}]\n')
    found = mistakes(project)
    assert any(f"{line}: " in one and "sizes.z: unknown key" in one for one in found), found
    assert any('sizes: missing key "y"' in one for one in found), found
    assert any("values[0].n: expected an integer, found the float 1.5" in one for one in found), found
    assert any('values[1]: missing key "n"' in one for one in found), found
    file.write_text(text + '\n[kernel.verify]\nsizes = { x = "m", y = "n" }\nvalues = []\n')
    assert ['sizes.x: unknown name "m"' in one for one in mistakes(project)] == [True]


def test_run_prints_arrays_and_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ["-C", str(project), "kernels/scale.py:scale_kernel", "-s", "x=*fp32,y=*fp32,n=i32", "-c", "BLOCK=64,NEGATE=true"]
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50", "--arg", "n=50"]) == 0
    assert "y: 50 elements of f32, 50 changed: 0.0, -2.0, -4.0" in capsys.readouterr().out
    assert main(["run", *source, "--arg", "x=range:50,y=poison:50,n=64"]) == 1
    found = capsys.readouterr().out
    assert "out-of-bounds" in found and "scale.py:" in found
    assert main(["run", *source, "--arg", "x=5,y=poison:50,n=64"]) == 2
    assert "--arg x=5: " in capsys.readouterr().err
