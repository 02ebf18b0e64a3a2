"""What kbuild itself takes for projects of many variants: expanding, planning, building with a compiler that takes no time,
finding out that there is nothing to do, and building after one kernel has changed.

    python bench/scale/measure.py [--variants 1000,10000] [--repeat 5] [--json out.json]

For each process the median of its wall-clock seconds, and the least CPU seconds and the largest memory, with all
processes that it started: on a busy machine CPU seconds are the figure to compare.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from projects import make_project

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import os, sys
sys.argv = ["kbuild", "build", "-q", "-C", sys.argv[1]]
from kbuild.aot.build import project
project.COMPILER = "tests.aot.build.fake_compiler:compile"
from kbuild.cli import run
run()
"""
"""A build whose compiler makes up what it writes."""


def measured(command: list[str]) -> dict[str, float]:
    """Runs a process to its end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "KBUILD_DISABLE_CACHE": "1"}
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }


def together(runs: list[dict[str, float]]) -> dict[str, float]:
    """Several runs as one."""
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "cpu_seconds": min(run["cpu_seconds"] for run in runs),
        "peak_mb": max(run["peak_mb"] for run in runs),
    }


def rows(variants: int, repeat: int, folder: Path) -> dict[str, dict[str, float]]:
    """All measurements for a project of so many variants."""
    make_project(folder, variants)
    kbuild, build = [sys.executable, "-m", "kbuild"], [sys.executable, "-c", BUILD, str(folder)]
    source = folder / "kernels/rows_0.py"

    def changed() -> dict[str, float]:
        source.write_text(source.read_text().replace("value = a * scale", "value = a * scale * 1.5", 1))
        return measured(build)

    return {
        "list": together([measured([*kbuild, "list", "-C", str(folder)]) for _ in range(repeat)]),
        "plan": together(
            [measured([*kbuild, "build", "--dry-run", "-C", str(folder)]) for _ in range(repeat)]
        ),
        "first build": measured(build),
        "no-op": together([measured(build) for _ in range(repeat + 1)][1:]),
        "one kernel changed": together([changed() for _ in range(min(repeat, 2))]),
        "jobs for 64 machines": together(
            [measured([*kbuild, "ci", "json", "--shards", "64", "-C", str(folder)]) for _ in range(repeat)]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", default="1000,10000")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "kbuild", quiet=2)  # As installing does.
    found = {}
    for count in map(int, options.variants.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            found[count] = rows(count, options.repeat, Path(folder))
        print(f"{count:,} variants")
        for name, row in found[count].items():
            print(
                f"  {name:20} {row['seconds']:7.2f} s {row['cpu_seconds']:7.2f} s CPU {row['peak_mb']:5.0f} MB",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
