"""Groups of `gpu.py` that memory limits: copies, sums, softmax and layer norm."""

from __future__ import annotations

from typing import Any

import contest
import torch
import triton
from configurations import configurations, kernel_module
from contest import BRAIN, CLOCK, HALF, SHORT, SINGLE, copy_of, error_of, multiprocessors, name_of

from kbuild.aot.tune import interleaved

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


def copy() -> None:
    """The device's copy, which memory-bound kernels are compared with."""
    for power in (27, 28, 29):
        us = interleaved.interleave({"copy": copy_of(2 << power)}, CLOCK)["copy"]
        contest.record("copy", f"device copy of 2^{power} bytes", us, 0.0, 2 << power, "GB/s", {}, {}, True)


def add() -> None:
    kernel = kernel_module("vector_add").vector_add_kernel
    n = 1 << 26
    for dtype in (SINGLE, HALF, BRAIN):
        shape = f"{name_of(dtype)} n=2^26"
        if not contest.asked_for.search(shape):
            continue
        x, y = torch.randn(n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
        out = torch.full_like(x, float("nan"))
        ours = lambda: contest.package.launch.vector_add(x, y, out, n)  # noqa: E731
        right = x.double() + y.double()
        peer = contest.best_of(
            [{"BLOCK": b, "num_warps": w} for b in (1024, 2048, 4096) for w in (4, 8)],
            lambda c: kernel[(triton.cdiv(n, c["BLOCK"]),)](x, y, out, n, **c),
        )
        contest.row(
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
        contest.package.launch.sum(x, partial, n)
        contest.package.sum_partials(partial, out, triton.cdiv(n, 16384))

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

    once = lambda: contest.package.sum_at_once(x, partial, ticket, out, n)  # noqa: E731
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
        if not contest.asked_for.search(shape):
            continue
        right, scale = x.double().sum().item(), x.double().abs().sum().item()
        contest.row(
            "sum",
            shape,
            ours,
            out,
            lambda found: abs(found.item() - right) / scale,
            x.nbytes,
            "GB/s",
            contest.best_of(choices, theirs),
            {"torch": lambda: x.sum()},
            1e-6,
        )


def warps_for(block: int) -> list[int]:
    """How many warps may be best for a row: 8 to 64 elements for each thread."""
    return [warps for warps in (1, 2, 4, 8, 16, 32) if 8 <= block // (32 * warps) <= 64]


def softmax() -> None:
    kernel = kernel_module("softmax").softmax_kernel
    for rows, columns, dtype in SHAPES:
        shape = f"{rows}x{columns} {name_of(dtype)}"
        if not contest.asked_for.search(shape):
            continue
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        out = torch.full_like(x, float("nan"))
        arguments = (x, out, columns, columns, columns)
        ours = lambda: contest.package.launch.softmax(*arguments, rows)  # noqa: E731
        right = torch.softmax(x.double(), -1)
        block = triton.next_power_of_2(columns)
        choices = [{"num_warps": w, "BLOCK": block} for w in warps_for(block)]
        choices += [{"num_warps": w, "BLOCK": block, "AGAIN": True} for w in (8, 16) if columns >= 8192]
        choices += [c for c in configurations("softmax", SHORT[dtype]) if c["BLOCK"] == block]
        peer = contest.best_of(choices, lambda c: kernel[(rows,)](*arguments, **c))
        contest.row(
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
        if not contest.asked_for.search(shape):
            continue
        x = torch.randn(rows, columns, device="cuda").to(dtype)
        weight, bias = (
            torch.randn(columns, device="cuda").to(dtype),
            torch.randn(columns, device="cuda").to(dtype),
        )
        y = torch.full_like(x, float("nan"))
        mean, rstd = torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
        arguments = (x, y, weight, bias, mean, rstd, columns, columns, columns, 1e-5)
        ours = lambda: contest.package.launch.layer_norm(*arguments, rows)  # noqa: E731
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
        peer = contest.best_of(choices, lambda c: kernel[(rows,)](*arguments, **c))
        eager = lambda: torch.nn.functional.layer_norm(x, (columns,), weight, bias)  # noqa: E731
        contest.row("layer_norm", shape, ours, y, error, 2 * x.nbytes, "GB/s", peer, {"torch": eager}, 5e-3)
