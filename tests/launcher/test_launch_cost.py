"""The benchmark of launches runs, without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench/launch_cost.py"


def test_the_benchmark_reports_the_time_of_each_kernel() -> None:
    pytest.importorskip("cuda.core", reason="cuda-core is not installed: pip install 'kbuild[gpu]'")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--count", "40"], capture_output=True, text=True, check=True
    )
    assert re.findall(
        r"(\d+) parameters: launch [\d.]+ us, kbuild.load [\d.]+ us, bare C loop [\d.]+ us", done.stdout
    ) == [
        "4",
        "10",
        "23",
    ]
