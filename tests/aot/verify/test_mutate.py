"""`kbuild mutate`: mistakes made in the PTX of a manifest's variants, and which of them its launches find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.aot.verify import mutants
from kbuild.cli import main
from kbuild.errors import UsageError

TABLE = """
[kernel.verify]
sizes = { x = "n", y = "n" }
values = [{ n = 16 }, { n = 1600 }, { n = 33 }]
"""


@pytest.fixture
def described(project: Path) -> Path:
    """The project, with a table `[kernel.verify]`."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    return project


def command(project: Path, *words: str) -> list[str]:
    return ["mutate", "-C", str(project), "--arch", "sm_80", "-j", "1", "--limit", "2", *words]


def test_mistakes_are_caught(
    described: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(described)
    assert main(command(described)) == 0
    out = capsys.readouterr().out
    assert "setp lt ↔ le, gt ↔ ge" in out and "0 survived" in out and "runs of unchanged kernels" in out
    assert main(command(described, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {result["state"] for result in found} <= {"caught", "equivalent"}
    assert any(
        result["place"] == "kernels/scale.py:11" and result["kind"] == "address + element" for result in found
    )


def test_it_says_what_it_is_at(
    described: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbuild.aot.build.progress._SECONDS_OF_SILENCE", 0)
    monkeypatch.setattr("kbuild.aot.verify.pool._SECONDS_BETWEEN_NOTES", 0)
    assert main(command(described, "--limit", "1", "--group", "logic")) == 0
    err = capsys.readouterr().err
    assert ": what n=16 has to give\n" in err and ": unchanged, on " in err and ": mutant 2 of " in err


def test_launches_that_let_mistakes_pass_fail_with_the_survivors(
    described: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows where every output is taken for right."""
    monkeypatch.setattr(mutants._Judge, "__call__", lambda self, outputs: "")
    assert main(command(described)) == 1
    printed = capsys.readouterr()
    assert "of the mutants of logic are caught; 90 % have to be" in printed.err
    assert "at PTX line" in printed.out and "scale.py:" in printed.out


def test_marks_have_to_fit(described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = described / "marks"
    marks.write_text("scale* | predicate negated | no such instruction | scale.py:1 | none\n")
    assert main(command(described, "--marks", "marks")) == 1
    assert "no mutant is scale* | predicate negated" in capsys.readouterr().err
    marks.write_text("scale*\n")
    assert main(command(described, "--marks", "marks")) != 0
    assert "marks:1: expected subject | kind" in capsys.readouterr().err
    assert main(command(described, "--marks", "none")) == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_unknown_variant_is_reported(described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(described, "--variant", "scale.sm_80.other")) == UsageError.exit_code
    assert "no variant scale.sm_80.other" in capsys.readouterr().err
    assert main(command(described, "--dry-run", "--sample", "2")) == 0
    assert capsys.readouterr().out.count("scale.sm_80") == 2
