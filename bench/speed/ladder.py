"""Times every step of examples/ladder on a GPU, in both languages, beside cuBLAS: the figures of docs/ladder.md.

    (cd examples/ladder && pip wheel . --no-build-isolation)
    python bench/speed/ladder.py examples/ladder/ladder-1.0-….whl [--size 4096] [--json out.json]

Results are checked against float64 first.  Then all calls are launched in random order with a cold L2 cache, and medians are
compared (`aot/tune/interleaved.py`).  Exit code 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch_clock import TorchClock
from wheels import load

from kbuild.aot.tune import interleaved

STEPS = (
    "naive", "coalesced", "shared_tiles", "column_tiles", "square_tiles", "vector_accesses", "warp_tiles",
    "double_buffered", "async_copies", "tma_copies",
)  # fmt: skip
ROUNDS = 16
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3}
"""Largest errors, relative to the largest element: of sums of some thousand products in fp32 (cuBLAS's is 2.4e-6 at 4096), and
one rounding to fp16."""


def main() -> int:
    """Parse the command line, check, time, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", help="the package of examples/ladder")
    parser.add_argument(
        "--size", type=int, default=4096, help="rows and columns of all matrices (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the times in microseconds here")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    package = load(options.wheel, "ladder", 0)
    print(f"{torch.cuda.get_device_name()}, {options.size} x {options.size} x {options.size}")
    names = [f"{language}_{step}" for step in STEPS for language in ("cuda", "gluon")]
    times, is_right = compared(package, names, options.size, torch.float32)
    print_table(times, options.size)
    cores, cores_right = compared(package, ["gluon_tensor_cores"], options.size, torch.float16)
    print_table(cores, options.size)
    if options.json:
        options.json.write_text(
            json.dumps({**times, **{f"fp16 {key}": cores[key] for key in cores}}, indent=1)
        )
    return 0 if is_right and cores_right else 1


def compared(
    package: ModuleType, names: list[str], size: int, dtype: torch.dtype
) -> tuple[dict[str, float], bool]:
    """The median time in microseconds of cuBLAS and of each kernel that this device has, and whether all are right."""
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=dtype)
    right = a.double() @ b.double()
    calls: dict[str, Callable[[], object]] = {"cuBLAS": lambda: torch.mm(a, b, out=out)}
    is_right = True
    for name in names:
        function = getattr(package, name)
        out.fill_(float("nan"))
        try:
            function(a, b, C=out)
        except package.NoVariantError:
            continue  # TMA is not for all GPUs.
        error = float((out.double() - right).abs().max() / right.abs().max())
        if not error <= BOUNDS[dtype]:
            print(f"{name}: WRONG, by {error:.1e}")
            is_right = False
        calls[name] = lambda function=function: function(a, b, C=out)
    return interleaved.interleave(calls, TorchClock(torch), rounds=ROUNDS), is_right


def print_table(times: dict[str, float], size: int) -> None:
    """TFLOP/s of each call, and the share of cuBLAS's speed."""
    for name, microseconds in times.items():
        speed = 2 * size**3 / microseconds / 1e6
        print(f"{name:24} {microseconds:11.1f} µs {speed:8.2f} TFLOP/s {times['cuBLAS'] / microseconds:7.3f}")


if __name__ == "__main__":
    raise SystemExit(main())
