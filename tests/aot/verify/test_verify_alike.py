"""Variants with the same code share the runs that they have in common, and each has its own verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.verify import check
from kbuild.cli import main
from tests.aot.conftest import MANIFEST
from tests.aot.verify.conftest import TABLE

SMALL_FIRST = """
[[kernel.config]]
when = { n = "<= 1024" }
BLOCK = 512
[[kernel.config]]
BLOCK = 512
"""


@pytest.fixture
def alike(project: Path) -> Path:
    """Of two variants with equal code, on both architectures, the first is for calls with at most 1024 elements."""
    (project / "kernels.toml").write_text(
        MANIFEST[: MANIFEST.index("[[kernel.config]]")] + SMALL_FIRST + TABLE
    )
    return project


def test_a_launch_is_emulated_once_for_variants_with_the_same_code(
    alike: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated, run_once = alike / "emulated.log", check.check

    def check_and_log(*args: Any) -> check.Check:
        task, case, run = args[4:]
        code = json.dumps([task.signature, task.constexprs])
        with emulated.open("a") as log:
            log.write(f"{code} {case} {run.data} {run.schedule} {run.timing}\n")
        return run_once(*args)

    monkeypatch.setattr(check, "check", check_and_log)
    assert main(["verify", "-C", str(alike), "--no-cache", "--json", "-j", "2"]) == 0
    shown = capsys.readouterr()
    verdicts, runs = json.loads(shown.out), emulated.read_text().splitlines()
    assert len(verdicts) == 32 and all(verdict["checks"] for verdict in verdicts)
    assert len(runs) == len(set(runs))
    wanted, shared = (
        sum(len(verdict["checks"]) for verdict in verdicts),
        sum(verdict["shared"] for verdict in verdicts),
    )
    assert len(runs) == wanted - shared
    assert f"{shared} of {wanted} runs done once for variants with the same code" in shown.err
    for verdict in verdicts:
        numbers = [
            (one["run"]["case"], one["run"]["data"], one["run"]["schedule"]) for one in verdict["checks"]
        ]
        assert len(set(numbers)) == len(numbers)


def test_what_is_wrong_is_reported_for_each_of_them(
    alike: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_once = check.check

    def check_wrongly(*args: Any) -> check.Check:
        found = run_once(*args)
        return check.replace(found, problems=("y: it is wrong",))

    monkeypatch.setattr(check, "check", check_wrongly)
    assert main(["verify", "-C", str(alike), "--no-cache", "--json", "-k"]) == 1
    verdicts = json.loads(capsys.readouterr().out)
    assert [verdict["state"] for verdict in verdicts] == ["failed"] * len(verdicts)
    assert not any(verdict["shared"] for verdict in verdicts)
