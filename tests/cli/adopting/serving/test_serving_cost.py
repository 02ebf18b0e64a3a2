"""The benchmark of served launches runs, without a GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.adopting.conftest import STAND_IN
from tests.cli.adopting.serving.conftest import ROOT


def test_the_benchmark_reports_the_time_of_each_kernel(project: Path, site: Path, tmp_path: Path) -> None:
    for folder in (project / "tiny_ops", site / "adopt"):
        shutil.copytree(folder, tmp_path / folder.name)
    done = subprocess.run(
        [sys.executable, ROOT / "bench/serving_cost.py", "--count", "40", "--site", tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(STAND_IN)},
    )
    assert re.findall(r"^(.+?) +[\d.]+ +[\d.]+ +[\d.]+$", done.stdout, re.MULTILINE) == [
        "add",
        "add, grid is a function",
        "rms_norm",
        "matmul, tuned",
    ]
