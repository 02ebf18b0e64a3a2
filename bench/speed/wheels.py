"""Compares built packages on a GPU by interleaved timing, on the rows of gpu.py and on matmuls whose pointers
are one element off: whether a change makes a shipped kernel slower.

    python bench/speed/wheels.py OLD.whl NEW.whl [MORE.whl …] [--only matmul,attention] [--rows 'N4096 D128']
    [--json out.json]

All packages have one import name; the first is the baseline.  Every package's result is checked against float64
before it is timed; then all are launched in random order with a cold L2 cache, and medians are compared
(`aot/tune/interleaved.py`).  The table gives the baseline's time over each package's: below 1 the package is
slower.  Exit code 1 when a result is wrong or a row is slower than `--bound` allows.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import contest
import gpu
import torch
from gpu_dots import operands

from kbuild.aot.tune import interleaved

Call = Callable[[], Any]


def main() -> int:
    """Parse the command line, run the groups asked for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "wheels", nargs="+", metavar="WHEEL", help="two or more builds of the package, the baseline first"
    )
    parser.add_argument("--name", default="kbuild_kernels", help="import name of the packages")
    parser.add_argument(
        "--only", default="add,sum,softmax,layer_norm,matmul,unaligned,persistent,fp8,attention"
    )
    parser.add_argument(
        "--rows", default="", help="those alone in whose shape this regular expression is found"
    )
    parser.add_argument(
        "--seconds", type=float, default=interleaved.SECONDS, help="of device time for each row (%(default)s)"
    )
    parser.add_argument(
        "--bound", type=float, default=0.0, help="least ratio that passes: 0.99 allows 1 %% more time"
    )
    parser.add_argument("--json", type=Path, help="write all rows here, as they come")
    options = parser.parse_args()
    if len(options.wheels) < 2:
        parser.error("two wheels at least: one to compare the others with")
    table = Table([load(wheel, options.name, index) for index, wheel in enumerate(options.wheels)], options)
    contest.asked_for = re.compile(options.rows)
    contest.best_of = lambda choices, call: {}  # No peers here.
    contest.row = table.row
    torch.manual_seed(0)
    for group in options.only.split(","):
        started = time.time()
        GROUPS[group]()
        print(f"== {group}: {time.time() - started:.0f} s", flush=True)
    return table.close()


def unaligned() -> None:
    """Matmuls that only the variants for any pointers and strides take."""
    shapes, types = (
        ((16, 8192, 8192), (1024,) * 3, (4096,) * 3),
        (contest.HALF, contest.BRAIN, contest.SINGLE),
    )
    for (m, n, k), dtype in [*itertools.product(shapes, types), ((4096,) * 3, torch.float8_e4m3fn)]:
        shape = f"{m}x{n}x{k} {contest.name_of(dtype)}, unaligned"
        if not contest.asked_for.search(shape):
            continue
        is_fp8 = dtype.itemsize == 1
        a, b = map(one_off, operands(m, n, k, dtype, is_fp8))
        c = one_off(torch.empty((m, n), device="cuda", dtype=contest.HALF if is_fp8 else dtype))
        arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
        name = "matmul_fp8" if is_fp8 else "matmul"
        right = a.double() @ b.double()
        contest.row(
            "matmul",
            shape,
            lambda: getattr(contest.package, name)(*arguments),
            c,
            lambda found: contest.error_of(found, right),
            2 * m * n * k,
            "TFLOP/s",
            {},
            {},
            1e-3 if dtype == contest.SINGLE else 3e-3,
        )


def one_off(matrix: torch.Tensor) -> torch.Tensor:
    """A copy that begins one element behind where memory was allocated, which is a multiple of 16 bytes."""
    memory = torch.empty(matrix.numel() + 1, device=matrix.device, dtype=matrix.dtype)
    return memory[1:].as_strided(matrix.shape, matrix.stride()).copy_(matrix)


GROUPS = {**gpu.GROUPS, "unaligned": unaligned}


def load(wheel: str, name: str, index: int) -> ModuleType:
    """Import a package under a name of its own, for modules that it imports later must not be another
    wheel's."""
    folder = Path(tempfile.mkdtemp())
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    print(f"{wheel}: by ptxas {', '.join(ptxas_of(folder / name))}", flush=True)
    (folder / name).rename(folder / f"{name}_{index}")
    sys.path.insert(0, str(folder))
    return importlib.import_module(f"{name}_{index}")


def ptxas_of(package: Path) -> list[str]:
    """The versions of ptxas that a package's cubins name: of one PTX they make code whose speed differs by
    some per cent."""
    found: set[str] = set()
    for path in (package / "cubins").glob("*.kbz"):  # kbuild/aot/artifact/archive.py says what is in there.
        data = path.read_bytes()
        start = 40 + int.from_bytes(data[4:8], "little")
        entry = json.loads(data[40:start])["entries"][0]
        blob = data[start + entry["offset"] :][: entry["stored"]]
        cubin = zlib.decompress(blob) if entry["compression"] == "zlib" else blob
        found.update(
            version.decode()
            for version in re.findall(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)", cubin)
        )
    return sorted(found) or ["of an unknown version (before 13)"]


class Table:
    """The rows measured so far."""

    def __init__(self, packages: list[ModuleType], options: argparse.Namespace) -> None:
        self.packages, self.options = packages, options
        self.rows: list[dict[str, Any]] = []
        self.wrong = 0

    def row(
        self,
        group: str,
        shape: str,
        ours: Call,
        out: torch.Tensor,
        error: Callable[[torch.Tensor], float],
        work: float,
        unit: str,
        theirs: dict[str, Call],
        vendor: dict[str, Call],
        limit: float,
    ) -> None:
        """In the place of contest.row: `ours` takes the package from contest.package."""

        def of(package: ModuleType) -> Call:
            def call() -> None:
                contest.package = package
                ours()

            return call

        calls = {str(index): of(package) for index, package in enumerate(self.packages)}
        errors = contest.errors_of(calls, out, error)
        times = interleaved.interleave(calls, contest.CLOCK, self.options.seconds)
        ratios = [times["0"] / times[name] for name in calls]
        wrong = [name for name in calls if not errors[name] <= limit]
        self.wrong += len(wrong)
        self.rows.append(
            {"group": group, "shape": shape, "us": list(times.values()), "errors": list(errors.values())}
        )
        if self.options.json:
            self.options.json.write_text(
                json.dumps({"wheels": self.options.wheels, "rows": self.rows}, indent=1)
            )
        faster = "  ".join(f"{ratio:6.3f}" for ratio in ratios[1:])
        right = " ".join(f"{errors[name]:.3e}" for name in calls) + ("  WRONG" if wrong else "")
        print(f"{group:10} {shape:42} {times['0']:9.1f} µs  {faster}  errors {right}", flush=True)

    def close(self) -> int:
        """Print what each package comes to; the exit code."""
        slow = 0
        for index, wheel in enumerate(self.options.wheels[1:], 1):
            ratios = {f"{row['group']} {row['shape']}": row["us"][0] / row["us"][index] for row in self.rows}
            least = min(ratios, key=lambda name: ratios[name])
            mean = statistics.geometric_mean(ratios.values())
            print(f"{wheel}: geometric mean {mean:.3f}, least {ratios[least]:.3f} ({least})")
            slow += sum(ratio < self.options.bound for ratio in ratios.values())
        print(f"{len(self.rows)} rows, {self.wrong} wrong results, {slow} slower than {self.options.bound}")
        return int(bool(self.wrong or slow))


if __name__ == "__main__":
    sys.exit(main())
