"""The commands that the benchmark of builds times are valid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import build_cost
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", build_cost.COLD)
def test_what_is_compiled_cold(name: str, tmp_path: Path) -> None:
    options = ["--arch", "sm_90", "--emit", "ttir", "-o", tmp_path]
    command = [sys.executable, "-m", "kbuild", "compile", *build_cost.COLD[name], *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and list(tmp_path.glob("*.ttir"))
