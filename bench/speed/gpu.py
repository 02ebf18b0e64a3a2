"""Speed on a GPU: the shipped package against Triton's JIT on the same source, torch, cuBLAS and cuDNN.

    python bench/speed/gpu.py --package dist/….whl --json out.json [--only matmul,attention] [--rows 'N4096 D128']
    [--plot …]

Needs torch and triton beside the built package.  Every result, the peers' too, is checked against float64 before
it is timed; times are medians by CUDA events with a cold L2 cache, in microseconds, of launches in random
order (`aot/tune/interleaved.py`); Triton gets the best of the listed configurations and of those of
kernels.toml.  `report.py` makes tables and a plot of the JSON, `ampere.py` compares sm_80 code, `static.py`
counts without a GPU.
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest
import report
import torch
import triton
from configurations import kernel_module
from gpu_attention import attention
from gpu_dots import fp8, matmul, persistent
from gpu_memory import add, copy, layer_norm, softmax, sum_


def main() -> None:
    """Parse the command line, run the groups asked for, print the table and write the JSON."""
    parser = contest.parser_of(__doc__)
    parser.add_argument("--plot", help="draw all rows here, as SVG")
    parser.add_argument(
        "--only", default="copy,add,sum,softmax,layer_norm,matmul,persistent,fp8,attention,launch"
    )
    options = parser.parse_args()
    contest.asked_for, contest.output = re.compile(options.rows), options.json
    contest.load_package(options.package, options.name)
    torch.manual_seed(0)
    triton.runtime.driver.active.get_current_target()  # Before threads ask for it.
    for group in options.only.split(","):
        started = time.time()
        try:
            GROUPS[group]()
        except Exception as error:
            print(f"FAILED {group}: {error!r}"[:600], flush=True)
        print(f"== {group}: {time.time() - started:.0f} s", flush=True)
    print(report.render(contest.ROWS))
    if options.plot:
        Path(options.plot).write_text(report.plot(contest.ROWS, torch.cuda.get_device_name()))


def launch() -> None:
    """Host microseconds of one call, through the package and through Triton's JIT; kernels too short to
    matter."""
    kernel = kernel_module("vector_add").vector_add_kernel
    x, y, out = (torch.zeros(1024, device="cuda") for _ in range(3))
    grid = kernel[(1,)]
    peers = host_times(
        {
            "kbuild": lambda: contest.package.launch.vector_add(x, y, out, 1024),
            "triton": lambda: grid(x, y, out, 1024, BLOCK=1024),
            "torch": lambda: torch.add(x, y, out=out),
        }
    )
    contest.record(
        "launch", "vector_add, host time of a call", peers.pop("kbuild"), 0.0, 0.0, "", peers, {}, True
    )


def host_times(calls: dict[str, Callable[[], Any]], count: int = 500, rounds: int = 25) -> dict[str, float]:
    """The median time of each, of so many calls in a row, which fit into the queue: none of them waits for
    the device."""
    names, order = list(calls), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            call = calls[name]
            call()
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - started) / count * 1e6)
    torch.cuda.synchronize()
    return {name: statistics.median(own) for name, own in times.items()}


GROUPS: dict[str, Callable[[], None]] = {
    "copy": copy,
    "add": add,
    "sum": sum_,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "persistent": persistent,
    "fp8": fp8,
    "attention": attention,
    "launch": launch,
}

if __name__ == "__main__":
    main()
