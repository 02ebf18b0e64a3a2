"""Calls of a generated package with hostile arguments, its launcher built with AddressSanitizer and
UndefinedBehaviorSanitizer.

    python bench/hostile_calls.py [--calls 1000000] [--seed 1]

A fake driver takes the place of the real one, so that no GPU is needed.  Prints how the calls ended, by class of
exception, and ends with exit code 0 if the sanitizers had nothing to report and no call broke the rules of
Python (SystemError).  Each seed is a process of its own with 100,000 calls; a report names the seed, which
repeats it.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from kbuild.aot.artifact import rendering  # noqa: E402
from kbuild.aot.build.launcher import build_launcher  # noqa: E402
from tests.launcher.example_package import example_table, fake_torch, write_archives  # noqa: E402
from tests.launcher.hostile import Hostile  # noqa: E402

SANITIZE = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-g",
    "-fno-omit-frame-pointer",
)
CALLS_OF_A_PROCESS = 100_000


def make_package(root: Path) -> None:
    """The example package of the tests, its launcher under the sanitizers, and the fake driver."""
    table, rows = example_table()
    rendering.render(root / "example", table)
    build_launcher(root / "example", cc=["cc", *SANITIZE])
    write_archives(root / "example", rows)
    fake = HERE.parent / "tests/launcher/fake_libcuda.c"
    subprocess.run(
        ["cc", "-O1", "-g", "-shared", "-fPIC", fake, "-o", root / "libfakecuda.so", "-lpthread"], check=True
    )


def library(name: str) -> str:
    """A run-time library of the C compiler."""
    return subprocess.run(
        ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def run(root: Path, seed: int, calls: int) -> subprocess.CompletedProcess[str]:
    """One process of calls.  Memory of Python's comes from malloc, where the sanitizer sees what is freed."""
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "KBUILD_LIBCUDA": str(root / "libfakecuda.so"),
        "FAKE_CUDA_DEVICES": "90 80 86",
    }
    command = [sys.executable, __file__, "--root", str(root), "--seed", str(seed), "--calls", str(calls)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def attack(root: Path, seed: int, calls: int) -> None:
    """Makes the calls, and prints what they came to as JSON."""
    sys.path.insert(0, str(root))
    sys.modules["torch"] = fake_torch()
    hostile = Hostile(importlib.import_module("example.dispatch"), seed)
    for _ in range(calls):
        hostile.call()
    print(json.dumps(hostile.outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first process")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.root:
        attack(options.root, options.seed, options.calls)
        return 0
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        make_package(Path(directory))
        for number in range(-(-options.calls // CALLS_OF_A_PROCESS)):
            calls = min(CALLS_OF_A_PROCESS, options.calls - number * CALLS_OF_A_PROCESS)
            done = run(Path(directory), options.seed + number, calls)
            if done.returncode != 0:
                print(
                    f"seed {options.seed + number}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-8000:]}"
                )
                return 1
            outcomes.update(json.loads(done.stdout))
            print(f"{number + 1}: {sum(outcomes.values())} calls, no report", flush=True)
    for name, count in outcomes.most_common():
        print(f"{count:9d} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
