"""A project with a library that launches through a stand-in of Triton, and the command line in its directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kbuild import cli
from kbuild.aot.capture.records import Capture, read_captures
from tests.cli.adopting.library import OPS, SHARED, USE

STAND_IN = Path(__file__).resolve().parent / "stand_in"
Recording = Callable[..., Capture]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the package `lib` and a program that uses it."""
    (tmp_path / "demo/lib").mkdir(parents=True)
    texts = {"lib/__init__.py": "", "lib/shared.py": SHARED, "lib/ops.py": OPS, "use.py": USE}
    for name, text in texts.items():
        (tmp_path / "demo" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "demo")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(tmp_path / "demo")]))
    monkeypatch.setenv("STAND_IN_GPU", "1")
    return tmp_path / "demo"


@pytest.fixture
def record(project: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Runs a program, by default that of the project, under `kbuild capture`; what capture.jsonl has then."""

    def record(*words: str, program: str = "", code: int = 0, **variables: str) -> Capture:
        if program:
            (project / "use.py").write_text(program)
        set_all(monkeypatch, variables)
        assert cli.main(["capture", "-q", *words, "--", sys.executable, "use.py"]) == code
        return read_captures([project / "capture.jsonl"] if (project / "capture.jsonl").exists() else [])

    return record


def set_all(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
