"""Rows of `gpu.py`: the calls for one shape, checked against float64 and timed interleaved."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import report
import torch
from torch_clock import TorchClock

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from kbuild.aot.tune import interleaved  # noqa: E402

ROWS: list[dict[str, Any]] = []
CLOCK = TorchClock(torch)
COMPILERS = 8
"""Threads in which Triton compiles."""
package: Any = None
asked_for: re.Pattern[str] = re.compile("")
output: Path | None = None
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
SHORT = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser of what the commands on the built package share: which package, which rows, and where to."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--package", required=True, help="the built wheel, or a folder that holds the package"
    )
    parser.add_argument("--name", default="kbuild_kernels", help="import name of the package")
    parser.add_argument(
        "--rows", default="", help="those alone in whose shape this regular expression is found"
    )
    parser.add_argument("--json", type=Path, help="write all rows here, as they come")
    return parser


def load_package(path: str, name: str) -> None:
    """Import the package from a wheel (unpacked into a temporary folder) or from its parent folder."""
    global package
    folder = path
    if path.endswith(".whl"):
        folder = tempfile.mkdtemp()
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
    sys.path.insert(0, folder)
    package = importlib.import_module(name)


def best_of(
    choices: Iterable[dict[str, Any]], call: Callable[[dict[str, Any]], Any]
) -> dict[str, Callable[[], Any]]:
    """The calls with those of Triton's configurations that may be the fastest; configurations that do not
    compile or fit are skipped."""

    def runs(choice: dict[str, Any]) -> bool:
        try:
            call(choice)
        except Exception:
            return False
        return True

    choices = list(choices)
    with ThreadPoolExecutor(
        COMPILERS
    ) as pool:  # Each in the context of this thread, which has Triton's allocator.
        fit = list(
            pool.map(
                lambda context, choice: context.run(runs, choice), [copy_context() for _ in choices], choices
            )
        )
    torch.cuda.synchronize()
    calls = {
        "triton " + " ".join(f"{name}={value}" for name, value in sorted(choice.items())): lambda c=choice: (
            call(c)
        )
        for choice, fits in zip(choices, fit)
        if fits
    }
    return {name: calls[name] for name in interleaved.shortlist(calls, CLOCK)}


def error_of(found: torch.Tensor, right: torch.Tensor) -> float:
    """Norm of the difference over the norm of the right result, in float64."""
    return ((found.double() - right.double()).norm() / right.double().norm()).item()


def errors_of(
    calls: dict[str, Callable[[], Any]], out: torch.Tensor, error: Callable[[torch.Tensor], float]
) -> dict[str, float]:
    """The error of each call: of the tensor that it returns, or else of `out`, which it must overwrite
    completely."""
    errors = {}
    for name, call in calls.items():
        out.fill_(float("nan"))
        given = call()
        errors[name] = error(given if isinstance(given, torch.Tensor) else out)
    return errors


def row(
    group: str,
    shape: str,
    ours: Callable[[], Any],
    out: torch.Tensor,
    error: Callable[[torch.Tensor], float],
    work: float,
    unit: str,
    theirs: dict[str, Callable[[], Any]],
    vendor: dict[str, Callable[[], Any]],
    limit: float,
) -> None:
    """Check each contender's result, time them interleaved, record and print one line.

    What is written goes to `out`, `error` says how far a result is off, of which `limit` is allowed; `work`
    is bytes or operations.  `theirs` are Triton's best configurations, of which the best one counts.  Where
    there are enough bytes, a device copy that moves as many is timed as well.
    """
    calls = {"kbuild": ours, **theirs, **vendor}
    errors = errors_of(calls, out, error)
    if unit == "GB/s" and work >= report.LARGE:
        calls["copy"] = copy_of(work)
    times = interleaved.interleave(calls, CLOCK)
    own, copied = times.pop("kbuild"), times.pop("copy", None)
    best = min(theirs, key=lambda name: times[name])
    peers = {"triton": times[best], **{name: times[name] for name in vendor}}
    wrong = {"triton": errors[best], **{name: errors[name] for name in vendor}}
    record(
        group, shape, own, errors["kbuild"], work, unit, peers, wrong, bool(errors["kbuild"] <= limit), copied
    )
    print(f"           {best}", flush=True)


def copy_of(moved: float) -> Callable[[], Any]:
    """A device copy that moves so many bytes: half of them are read, half written."""
    x = torch.empty(int(moved) // 2, device="cuda", dtype=torch.uint8)
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def record(
    group: str,
    shape: str,
    us: float,
    error: float,
    work: float,
    unit: str,
    peers: dict[str, float],
    errors: dict[str, float],
    right: bool,
    copied: float | None = None,
) -> None:
    """Keep and print one line of the table; `errors` are the peers', `copied` is the time of a copy that
    moves as many bytes."""
    moved = {"bytes": work} if unit == "GB/s" else {}
    if copied is not None:
        moved["copy"] = copied
    entry = {
        "group": group,
        "shape": shape,
        "us": us,
        "error": error,
        "rate": work / us / 1e3,
        "unit": unit,
        "right": right,
        "peers": peers,
        "errors": errors,
        **moved,
    }
    ROWS.append(entry)
    if output:
        output.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": ROWS}, indent=1))
    print(report.line_of(entry, report.copy_rate(ROWS)), flush=True)


def multiprocessors() -> int:
    """How many the device has: the programs of a persistent kernel."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
