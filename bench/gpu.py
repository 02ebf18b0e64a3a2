"""Speed on a GPU: the shipped package against Triton's JIT on the same source, torch, cuBLAS and cuDNN.

    python bench/gpu.py --package dist/….whl --json out.json [--only matmul,attention] [--rows 'N4096 D128']
    [--plot …]

Needs torch and triton beside the built package.  Every result, the peers' too, is held against float64 before
it is timed; times are medians by CUDA events with a cold L2 cache, in microseconds, of launches in random
order (`aot/tune/interleaved.py`); Triton gets the best of the listed configurations and of those of
kernels.toml.  `report.py` makes tables and a plot of the JSON, `ampere.py` compares sm_80 code, `static.py`
counts without a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import report
import torch
import triton
from configurations import configurations, grid_of, kernel_module
from torch_clock import TorchClock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from kbuild.aot.tune import interleaved  # noqa: E402

ROWS: list[dict[str, Any]] = []
CLOCK = TorchClock(torch)
COMPILERS = 8
"""Threads in which Triton compiles."""
package: Any = None
asked_for: re.Pattern[str] = re.compile("")
output: Path | None = None


def main() -> None:
    """Parse the command line, run the groups asked for, print the table and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--package", required=True, help="the built wheel, or a folder that holds the package"
    )
    parser.add_argument("--name", default="kbuild_kernels", help="import name of the package")
    parser.add_argument("--json", type=Path, help="write all rows here, as they come")
    parser.add_argument("--plot", help="draw all rows here, as SVG")
    parser.add_argument(
        "--only", default="copy,add,sum,softmax,layer_norm,matmul,persistent,fp8,attention,launch"
    )
    parser.add_argument(
        "--rows", default="", help="those alone in whose shape this regular expression is found"
    )
    options = parser.parse_args()
    global asked_for, output
    asked_for, output = re.compile(options.rows), options.json
    load_package(options.package, options.name)
    torch.manual_seed(0)
    triton.runtime.driver.active.get_current_target()  # Before threads ask for it.
    for group in options.only.split(","):
        started = time.time()
        try:
            GROUPS[group]()
        except Exception as error:
            print(f"FAILED {group}: {error!r}"[:600], flush=True)
        print(f"== {group}: {time.time() - started:.0f} s", flush=True)
    print(report.render(ROWS))
    if options.plot:
        Path(options.plot).write_text(report.plot(ROWS, torch.cuda.get_device_name()))


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
    """The calls with those of Triton's configurations that may be the fastest; what does not compile or fit
    is passed over."""

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
    """The error of each call: of the tensor that it gives, or else of `out`, which it has to write as a
    whole."""
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
    """Check everyone's result, time them in turns, record and print one line.

    What is written goes to `out`, `error` tells how far a result is off, of which `limit` is allowed; `work`
    is bytes or operations.  `theirs` are Triton's best configurations, of which the best one counts.  Where
    there are enough bytes, a device copy that moves as many takes its turns as well.
    """
    calls = {"kbuild": ours, **theirs, **vendor}
    errors = errors_of(calls, out, error)
    if unit == "GB/s" and work >= report.LARGE:
        calls["copy"] = copy_of(work)
    times = interleaved.in_turns(calls, CLOCK)
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


def copy() -> None:
    """The device's copy, which memory-bound kernels are held against."""
    for power in (27, 28, 29):
        us = interleaved.in_turns({"copy": copy_of(2 << power)}, CLOCK)["copy"]
        record("copy", f"device copy of 2^{power} bytes", us, 0.0, 2 << power, "GB/s", {}, {}, True)


def add() -> None:
    kernel = kernel_module("vector_add").vector_add_kernel
    n = 1 << 26
    for dtype in (SINGLE, HALF, BRAIN):
        shape = f"{name_of(dtype)} n=2^26"
        if not asked_for.search(shape):
            continue
        x, y = torch.randn(n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
        out = torch.full_like(x, float("nan"))
        ours = lambda: package.vector_add(x, y, out, n)  # noqa: E731
        right = x.double() + y.double()
        peer = best_of(
            [{"BLOCK": b, "num_warps": w} for b in (1024, 2048, 4096) for w in (4, 8)],
            lambda c: kernel[(triton.cdiv(n, c["BLOCK"]),)](x, y, out, n, **c),
        )
        row(
            "add",
            shape,
            ours,
            out,
            lambda found: error_of(found, right),
            3 * x.nbytes,
            "GB/s",
            peer,
            {"torch": lambda: torch.add(x, y, out=out)},
            5e-3,
        )


def sum_() -> None:
    """In two launches and in one, of 256 MB and of 1 GB."""
    for power in (26, 28):
        sum_of(power)


def sum_of(power: int) -> None:
    module, n = kernel_module("sum"), 1 << power
    x = torch.randn(n, device="cuda")
    partial, out = torch.empty(1 << 17, device="cuda", dtype=torch.float64), torch.empty(1, device="cuda")
    ticket = torch.zeros(1, device="cuda", dtype=torch.int32)
    programs = multiprocessors()

    def twice() -> None:
        package.sum(x, partial, n)
        package.sum_partials(partial, out, triton.cdiv(n, 16384))

    def their_twice(c: dict[str, Any]) -> None:
        c, end = {**c}, ends[c["end"]]
        del c["end"]
        count = triton.cdiv(n, c["BLOCK"] * c["STEPS"])
        module.sum_kernel[(count,)](x, partial, n, **c)
        module.sum_partials_kernel[(1,)](partial, out, count, **end)

    def their_once(c: dict[str, Any]) -> None:
        c, each = {**c}, c["each"]
        del c["each"]
        module.sum_at_once_kernel[(each * programs,)](x, partial, ticket, out, n, **c)

    once = lambda: package.sum_at_once(x, partial, ticket, out, n)  # noqa: E731
    ends = [{"BLOCK": 8192, "num_warps": 16, "launch_pdl": True}, *configurations("sum_partials", x.dtype)]
    firsts = [
        {"BLOCK": b, "STEPS": s, "num_warps": w}
        for b in (1024, 2048, 4096)
        for s in (4, 8, 16)
        for w in (4, 8)
    ]
    firsts += configurations("sum", x.dtype)
    steps = [{**first, "end": end} for first in firsts for end in range(len(ends))]
    sizes = [(4096, 3, 4, 4), (4096, 4, 8, 2), (8192, 3, 8, 2), (8192, 4, 8, 1)]
    rings = [{"BLOCK": b, "STAGES": s, "num_warps": w, "each": e} for b, s, w, e in sizes]
    for name, ours, theirs, choices in (
        ("two launches", twice, their_twice, steps),
        ("one launch", once, their_once, rings),
    ):
        shape = f"float32 n=2^{power}, {name}"
        if not asked_for.search(shape):
            continue
        right, scale = x.double().sum().item(), x.double().abs().sum().item()
        row(
            "sum",
            shape,
            ours,
            out,
            lambda found: abs(found.item() - right) / scale,
            x.nbytes,
            "GB/s",
            best_of(choices, theirs),
            {"torch": lambda: x.sum()},
            1e-6,
        )


SHAPES = [
    (4096, 1000, torch.float16),
    (4096, 4096, torch.float16),
    (8192, 8192, torch.float16),
    (16384, 8192, torch.float16),
    (8192, 16384, torch.bfloat16),
    (4096, 32768, torch.bfloat16),
    (4096, 4096, torch.float32),
    (4096, 16384, torch.float32),
]


def warps_for(block: int) -> list[int]:
    """How many warps may be best for a row: 8 to 64 elements for each thread."""
    return [warps for warps in (1, 2, 4, 8, 16, 32) if 8 <= block // (32 * warps) <= 64]


def softmax() -> None:
    kernel = kernel_module("softmax").softmax_kernel
    for rows, columns, dtype in SHAPES:
        shape = f"{rows}x{columns} {name_of(dtype)}"
        if not asked_for.search(shape):
            continue
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        out = torch.full_like(x, float("nan"))
        arguments = (x, out, columns, columns, columns)
        ours = lambda: package.softmax(*arguments, rows)  # noqa: E731
        right = torch.softmax(x.double(), -1)
        block = triton.next_power_of_2(columns)
        choices = [{"num_warps": w, "BLOCK": block} for w in warps_for(block)]
        choices += [{"num_warps": w, "BLOCK": block, "AGAIN": True} for w in (8, 16) if columns >= 8192]
        choices += [c for c in configurations("softmax", SHORT[dtype]) if c["BLOCK"] == block]
        peer = best_of(choices, lambda c: kernel[(rows,)](*arguments, **c))
        row(
            "softmax",
            shape,
            ours,
            out,
            lambda found: error_of(found, right),
            2 * x.nbytes,
            "GB/s",
            peer,
            {"torch": lambda: torch.softmax(x, -1)},
            5e-3,
        )


def layer_norm() -> None:
    kernel = kernel_module("layer_norm").layer_norm_kernel
    for rows, columns, dtype in SHAPES:
        shape = f"{rows}x{columns} {name_of(dtype)}"
        if not asked_for.search(shape):
            continue
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        weight, bias = (
            torch.randn(columns, device="cuda").to(dtype),
            torch.randn(columns, device="cuda").to(dtype),
        )
        y = torch.full_like(x, float("nan"))
        mean, rstd = torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
        arguments = (x, y, weight, bias, mean, rstd, columns, columns, columns, 1e-5)
        ours = lambda: package.layer_norm(*arguments, grid=(rows,))  # noqa: E731
        right = torch.nn.functional.layer_norm(x.double(), (columns,), weight.double(), bias.double())
        means = x.double().mean(1)

        def error(found: torch.Tensor) -> float:
            """Of the rows and, where it is written too, of their mean."""
            return max(error_of(found, right), (mean - means).abs().max().item() if found is y else 0.0)

        block = triton.next_power_of_2(columns)
        choices = [{"num_warps": w, "BLOCK": block} for w in warps_for(block)]
        split = [(2, 8), (2, 16), (4, 16), (1, 32)] if columns >= 8192 else []
        choices += [{"num_warps": w, "BLOCK": block // p, "PARTS": p, "AGAIN": True} for p, w in split]
        choices += [
            c for c in configurations("layer_norm", SHORT[dtype]) if c["BLOCK"] * c.get("PARTS", 1) == block
        ]
        peer = best_of(choices, lambda c: kernel[(rows,)](*arguments, **c))
        eager = lambda: torch.nn.functional.layer_norm(x, (columns,), weight, bias)  # noqa: E731
        row("layer_norm", shape, ours, y, error, 2 * x.nbytes, "GB/s", peer, {"torch": eager}, 5e-3)


SHORT = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
TILES = [
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 4),
    (64, 256, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (128, 128, 32, 4, 4),
]


SKINNY_TILES = [(16, *rest) for rest in itertools.product((64, 128), (128, 256), (4, 8), (3, 4, 5))]
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
PRODUCTS = [
    ((4096,) * 3, HALF),
    ((8192,) * 3, HALF),
    ((1024,) * 3, HALF),
    ((8192,) * 3, BRAIN),
    ((4096,) * 3, SINGLE),
    ((16, 8192, 8192), HALF),
    ((4096, 14336, 4096), BRAIN),
]


def matmul() -> None:
    """Both major orders of B, and shapes more: a short K, sizes that nothing divides, and numbers of tiles
    that fill no round."""
    kernel = kernel_module("matmul").matmul_kernel
    torch.backends.cuda.matmul.allow_tf32 = True
    programs = multiprocessors()
    shapes = [(shape, dtype, transposed) for shape, dtype in PRODUCTS for transposed in (False, True)]
    shapes += [
        ((8192, 8192, 512), HALF, True),
        *(((size,) * 3, HALF, False) for size in (1000, 1536, 3000, 3072, 4088)),
    ]
    for (m, n, k), dtype, transposed in shapes:
        shape = f"{m}x{n}x{k} {name_of(dtype)}{' B^T' if transposed else ''}"
        if not asked_for.search(shape):
            continue
        a, b = operands(m, n, k, dtype, transposed)
        c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
        arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
        ours = lambda: package.matmul(*arguments)  # noqa: E731
        right = a.double() @ b.double()
        order = "column_major" if transposed else "row_major"
        own = configurations("matmul", SHORT[dtype], specialize=order)
        # Without tiles of two products: what Triton's warp specialisation makes of them reads outside of the
        # operands.
        own = [c for c in own if (c["BLOCK_M"] <= 16) == (m <= 16) and not c.get("FIRST_N")]
        peer = best_of(
            [*tiles(m), *own], lambda t: kernel[grid_of("matmul", m, n, t, programs)](*arguments, **t)
        )
        row(
            "matmul",
            shape,
            ours,
            c,
            lambda found: error_of(found, right),
            2 * m * n * k,
            "TFLOP/s",
            peer,
            {"cublas": lambda: torch.mm(a, b)},
            5e-4 if dtype == SINGLE else 3e-3,
        )


def persistent() -> None:
    """Products by as many programs as there are multiprocessors."""
    kernel = kernel_module("matmul").matmul_persistent_kernel
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    programs = multiprocessors()
    shapes = [
        (size, dtype, transposed)
        for size in (4096, 8192)
        for dtype in (HALF, BRAIN)
        for transposed in (False, True)
    ]
    for size, dtype, transposed in [*shapes, (8192, torch.float8_e4m3fn, True)]:
        shape = f"{size}x{size}x{size} {name_of(dtype)}{' B^T' if transposed else ''}, persistent"
        if not asked_for.search(shape):
            continue
        a, b = operands(size, size, size, dtype, transposed)
        is_fp8 = dtype.itemsize == 1
        c = torch.full((size, size), float("nan"), device="cuda", dtype=HALF if is_fp8 else dtype)
        arguments = (a, b, c, size, size, size, size, size, size)
        choice = {} if is_fp8 else {"B_COLUMN_MAJOR": transposed}
        name = "matmul_persistent_fp8" if is_fp8 else "matmul_persistent"
        ours = lambda: getattr(package, name)(*arguments, **choice)  # noqa: E731
        right = a.double() @ b.double()
        choices = [
            {**tile, "BLOCK_K": 64 * (1 + is_fp8), "B_COLUMN_MAJOR": transposed} for tile in tiles(size)
        ]
        choices += [{"B_COLUMN_MAJOR": transposed, **own} for own in configurations(name, SHORT[c.dtype])]
        peer = best_of(choices, lambda t: kernel[grid_of(name, size, size, t, programs)](*arguments, **t))
        one = torch.ones((), device="cuda")
        scaled = lambda: torch._scaled_mm(a, b, one, one, out_dtype=HALF, use_fast_accum=True)  # noqa: E731
        vendor = scaled if is_fp8 else lambda: torch.mm(a, b)
        row(
            "matmul",
            shape,
            ours,
            c,
            lambda found: error_of(found, right),
            2 * size**3,
            "TFLOP/s",
            peer,
            {"cublas": vendor},
            3e-3,
        )


def fp8() -> None:
    """Operands of fp8, both contiguous along K; cuBLAS by `torch._scaled_mm`, and all with its fast
    accumulation."""
    kernel = kernel_module("matmul").matmul_kernel
    m = n = k = 8192
    shape = f"{m}x{n}x{k} float8_e4m3fn B^T"
    if not asked_for.search(shape):
        return
    a, b = operands(m, n, k, torch.float8_e4m3fn, True)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=HALF)
    arguments = (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    ours = lambda: package.matmul_fp8(*arguments)  # noqa: E731
    right = a.double() @ b.double()
    deep = [{**tile, "BLOCK_K": 128} for tile in tiles(m) if tile["num_stages"] == 3]
    programs = multiprocessors()
    own = configurations("matmul_fp8", "fp16", specialize="column_major")
    peer = best_of(
        [*tiles(m), *deep, *own], lambda t: kernel[grid_of("matmul_fp8", m, n, t, programs)](*arguments, **t)
    )
    one = torch.ones((), device="cuda")
    vendor = lambda: torch._scaled_mm(a, b, one, one, out_dtype=HALF, use_fast_accum=True)  # noqa: E731
    row(
        "matmul",
        shape,
        ours,
        c,
        lambda found: error_of(found, right),
        2 * m * n * k,
        "TFLOP/s",
        peer,
        {"cublas": vendor},
        3e-3,
    )


def operands(
    m: int, n: int, k: int, dtype: torch.dtype, transposed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random matrices; `transposed`: B contiguous along K.  B is scaled for results of about one."""
    a = torch.randn(m, k, device="cuda").to(dtype)
    b = (
        torch.randn(*((n, k) if transposed else (k, n)), device="cuda")
        / (1 if dtype.itemsize == 1 else k**0.5)
    ).to(dtype)
    return a, b.t() if transposed else b


def tiles(m: int) -> list[dict[str, int]]:
    """What Triton may choose from."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return [{**dict(zip(names, tile)), "GROUP_M": 8} for tile in (TILES if m > 64 else SKINNY_TILES)]


ATTENTION_TILES = [
    (128, 64, 8, 3),
    (128, 64, 8, 4),
    (64, 64, 4, 3),
    (128, 128, 8, 3),
    (128, 64, 4, 2),
    (128, 64, 4, 3),
]


def attention() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernel = kernel_module("flash_attention").flash_attention_kernel
    programs = multiprocessors()
    for z, h, n, d in [
        (1, 32, 2048, 128),
        (1, 32, 4096, 128),
        (2, 16, 8192, 128),
        (1, 16, 16384, 128),
        (16, 12, 512, 64),
        (4, 16, 8192, 64),
        (1, 8, 1111, 128),
    ]:
        for causal, dtype in ((False, HALF), (True, HALF), (True, BRAIN)):
            shape = f"Z{z} H{h} N{n} D{d} {'causal' if causal else 'full'} {name_of(dtype)}"
            if not asked_for.search(shape):
                continue
            q, k, v = (torch.randn(z, h, n, d, device="cuda").to(dtype) for _ in range(3))
            out, lse = torch.full_like(q, float("nan")), torch.empty(z * h, n, device="cuda")
            arguments = (q, k, v, out, lse, d**-0.5, *q.stride()[:3], h, n, z)
            ours = lambda: package.flash_attention(*arguments, HEAD_DIM=d, IS_CAUSAL=causal)  # noqa: E731
            right = attention_of(q, k, v, causal)
            choices = [
                {
                    "BLOCK_M": bm,
                    "BLOCK_N": bn,
                    "num_warps": w,
                    "num_stages": s,
                    "PERSISTENT": persistent,
                    "HEADS_TOGETHER": 64 if causal else 1,
                }
                for bm, bn, w, s in ATTENTION_TILES
                for persistent in (False, True)
            ]
            choices += configurations("flash_attention", SHORT[dtype], HEAD_DIM=d, IS_CAUSAL=causal)
            peer = best_of(
                choices,
                lambda t: kernel[
                    (min(triton.cdiv(n, t["BLOCK_M"]) * z * h, programs if t["PERSISTENT"] else 1 << 30),)
                ](*arguments, HEAD_DIM=d, IS_CAUSAL=causal, **t),
            )

            def cudnn() -> torch.Tensor:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            row(
                "attention",
                shape,
                ours,
                out,
                lambda found: error_of(found, right),
                4 * z * h * n * n * d * (0.5 if causal else 1),
                "TFLOP/s",
                peer,
                {"cudnn": cudnn},
                1e-2,
            )


def attention_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """In float64, head by head: the scores of all would not fit."""
    heads = zip(*(t.flatten(0, 1).double() for t in (q, k, v)))
    return torch.stack(
        [
            torch.nn.functional.scaled_dot_product_attention(*(t[None] for t in head), is_causal=causal)[0]
            for head in heads
        ]
    ).view_as(q)


def launch() -> None:
    """Host microseconds of one call, through the package and through Triton's JIT; kernels too short to
    matter."""
    kernel = kernel_module("vector_add").vector_add_kernel
    x, y, out = (torch.zeros(1024, device="cuda") for _ in range(3))
    grid = kernel[(1,)]
    peers = host_times(
        {
            "kbuild": lambda: package.vector_add(x, y, out, 1024),
            "triton": lambda: grid(x, y, out, 1024, BLOCK=1024),
            "torch": lambda: torch.add(x, y, out=out),
        }
    )
    record("launch", "vector_add, host time of a call", peers.pop("kbuild"), 0.0, 0.0, "", peers, {}, True)


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


def multiprocessors() -> int:
    """How many the device has: the programs of a persistent kernel."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
