"""The kernels of others on a GPU: each one's code by Triton and by kbuild, on the arguments that a command launches it with.

    python bench/others/timed.py [--seconds 300] [--floor 8] [--only REGEX] [--json FILE] [--table FILE] -- COMMAND
    python bench/others/timed.py --seconds 600 -- python -m pytest -q test/transformers

The command's processes take part by a folder on PYTHONPATH (`timed_site/`), and need Triton 3.3 or later, torch, and what
kbuild.load needs.  At the first launch of each of Triton's compiled kernels with a grid, both binaries run on the same
arguments: what they write is compared, and both are timed in random order with a cold L2 cache: the median of 12 launches,
the least of as many medians as it takes for it to come twice, since other processes' work delays launches (`timed_steady.py`).
Then the memory is as before, and the command's own launch goes on with Triton's binary.  A kernel that kbuild does not
compile, launch or get right is a line of the table, and no error of the command; but an illegal access is one, since CUDA
leaves its process nothing more to do: `--only` leaves such kernels out.

    ratio   Triton's time over ours: the geometric mean over launches for which Triton takes at least `--floor` us
    least   the least of them
    best    the same where each has the best of the configurations that were launched for the same sizes, as by a tuner
    spills  bytes: stores of ours, local memory of a thread for Triton's

Memory that kernels reach by addresses in memory alone is neither restored nor compared.  The exit code is 1 if a result
differs by more than 2e-2 where Triton's has no NaN, and is the same (`unstable` where not) when Triton's kernel runs again;
unless Triton left a value undefined (`poison`), as it leaves a loop's variable after the loop.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import timed_rows

from kbuild.aot.environment import prepare

SITE = Path(__file__).resolve().parent / "timed_site"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, join what its processes found, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="launches after these run once, as ever (300)"
    )
    parser.add_argument("--floor", type=float, default=8, help="us below which times are not summed up (8)")
    parser.add_argument(
        "--only",
        type=re.compile,
        default=re.compile(""),
        metavar="REGEX",
        help="functions alone in whose file:name this is found: '^(?!.*:bad_kernel)' leaves one out",
    )
    parser.add_argument("--json", type=Path, help="write all rows here")
    parser.add_argument("--table", type=Path, help="write the table here")
    parser.add_argument("command", nargs="+", help="after --, as -- python tutorial.py")
    options = parser.parse_args(arguments)
    if shutil.which(options.command[0]) is None:
        parser.error(f"no program {options.command[0]!r}")
    with tempfile.TemporaryDirectory(prefix="timed-") as folder:
        environment = hooked(os.environ, Path(folder), time.time() + options.seconds, options.only.pattern)
        code = run(options.command, environment)
        rows = timed_rows.read(Path(folder))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    text = timed_rows.table(rows, options.floor)
    if options.table:
        options.table.write_text(text + "\n")
    print(text)
    if code:
        print(f"the command ended with code {code}")
    return int(any(row.wrong for row in rows))


def hooked(environment: Mapping[str, str], folder: Path, until: float, only: str) -> dict[str, str]:
    """An environment whose processes write rows into a folder, until a time in seconds since 1970, of the functions in
    whose names a regular expression is found."""
    paths = [str(SITE), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    made = {
        **environment,
        "PYTHONPATH": os.pathsep.join(paths),
        "KBUILD_TIMED": str(folder),
        "KBUILD_TIMED_UNTIL": repr(until),
        "KBUILD_TIMED_ONLY": only,
    }
    prepare(made)
    return made


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit code."""
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:  # What was measured until then is worth a table.
        return 130


if __name__ == "__main__":
    sys.exit(main())
