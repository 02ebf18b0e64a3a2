"""Products of the sizes that layers of language models have: the shipped operator `matmul` against cuBLAS.

    python bench/speed/layers.py --package dist/….whl [--json out.json] [--rows '^100x2112'] [--seconds 0.4]
    python bench/speed/layers.py --package dist/….whl --parts --rows '^(100x2112|32x4096)' > parts.jsonl

Needs torch beside the built package.  Each result is checked on fresh numbers and in memory that was full of NaN
before it is timed: rows of it against fp32, and all of it against torch's.  Times are medians by CUDA events with a
cold L2 cache, of calls in random order (`aot/tune/interleaved.py`).  The last lines are the mean of the ratios and
the least; the exit code is 1 where a result is wrong.

`--parts` times what the operator chooses between instead: the kernel `matmul`, and `matmul_split` with
`matmul_parts` for each tile and number of parts that make sense.  Each is a line of JSON, for the model of times in
kernels.toml.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import contest
import torch
from contest import BRAIN, CLOCK, HALF, error_of, multiprocessors, name_of
from duel import Peer, Row

from kbuild.aot.tune import interleaved

CUBLAS = Peer("cublas", "cuBLAS")
EIGHT = torch.float8_e4m3fn
LIMITS = {HALF: 1e-3, BRAIN: 8e-3, EIGHT: 8e-3}
"""Relative errors allowed, as the norm of the difference over that of the right result."""
CHECKED_ROWS = 64
FEW, SOME, MANY = (1, 16, 64, 200, 1000, 4096), (4, 32, 100, 256, 1024, 8192), (8, 48, 128, 512, 2048, 3000)
LAYERS = (
    # Llama 3, 8B and 70B
    *((6144, 4096, FEW), (4096, 4096, MANY), (28672, 4096, SOME), (4096, 14336, SOME)),
    *((10240, 8192, FEW), (8192, 8192, SOME), (57344, 8192, MANY), (8192, 28672, FEW)),
    # Qwen 2.5 7B and Qwen 3 32B
    *((4608, 3584, MANY), (3584, 3584, SOME), (37888, 3584, FEW), (3584, 18944, MANY)),
    *((10240, 5120, SOME), (5120, 8192, FEW), (51200, 5120, MANY), (5120, 25600, FEW)),
    # DeepSeek V3
    *((2112, 7168, SOME), (24576, 1536, FEW), (7168, 16384, MANY), (7168, 2048, SOME)),
)
"""Columns, the length of the sums, and the rows that are timed."""
TILES = ((16, 64), (64, 128), (128, 256))
"""Those of `matmul_split`."""
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


class Product(NamedTuple):
    """Operands of one product, and where it goes."""

    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor

    @property
    def shape(self) -> str:
        """Such as `100x2112x7168 float16 column-major`."""
        order = "row-major" if self.b.stride(1) == 1 else "column-major"
        return f"{self.a.shape[0]}x{self.b.shape[1]}x{self.b.shape[0]} {name_of(self.a.dtype)} {order}"


def main() -> int:
    """Parse the command line, time what is asked for, print it."""
    parser = contest.parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="device time for each row (%(default)s)")
    parser.add_argument("--parts", action="store_true", help="time each way to divide a product")
    options = parser.parse_args()
    contest.load_package(options.package, options.name)
    torch.manual_seed(0)
    found: list[Row] = []
    for product in products(options.rows):
        if options.parts:
            if product.a.dtype is EIGHT:
                continue
            for line in timed_parts(product, options.seconds):
                print(json.dumps(line), flush=True)
            continue
        CUBLAS.add(found, timed(product, options.seconds), options.json)
    return print_end(found) if found else 0


def products(asked: str) -> Iterator[Product]:
    """The products whose shape is asked for: types and orders of B take turns, but that B of fp8 is contiguous along
    K, as cuBLAS wants it; C is bf16 then."""
    for number, (n, k, rows) in enumerate(LAYERS):
        for place, m in enumerate(rows):
            dtype = (HALF, BRAIN, EIGHT)[(number + place) % 3]
            is_row_major = dtype is not EIGHT and (number + place) % 2 == 0
            order = "row-major" if is_row_major else "column-major"
            if not re.search(asked, f"{m}x{n}x{k} {name_of(dtype)} {order}"):
                continue
            a = torch.empty(m, k, device="cuda", dtype=dtype)
            b = torch.empty((k, n) if is_row_major else (n, k), device="cuda", dtype=dtype)
            out = torch.empty(m, n, device="cuda", dtype=BRAIN if dtype is EIGHT else dtype)
            yield Product(a, b if is_row_major else b.T, out)


def timed(product: Product, seconds: float) -> Row:
    """Microseconds of both, and the error of ours."""
    calls = {"kbuild": own_call(product), "cublas": lambda: by_cublas(product)}
    error = checked_error(product, calls["kbuild"])
    us = interleaved.interleave(calls, CLOCK, seconds)
    return {"shape": product.shape, "us": us, "error": error, "right": error <= LIMITS[product.a.dtype]}


def own_call(product: Product) -> Callable[[], Any]:
    """The operator."""
    a, b, out = product
    operator = contest.package.matmul_e4m3 if a.dtype is EIGHT else contest.package.matmul
    return lambda: operator(a, b, out=out)


def by_cublas(product: Product) -> torch.Tensor:
    """torch's product: where the sums of fp8 are kept, both choose speed."""
    a, b, out = product
    if a.dtype is not EIGHT:
        return torch.mm(a, b, out=out)
    return torch._scaled_mm(a, b, unscaled(), unscaled(), out_dtype=out.dtype, use_fast_accum=True)


@cache
def unscaled() -> torch.Tensor:
    return torch.ones((), device="cuda")


def checked_error(product: Product, call: Callable[[], Any]) -> float:
    """The error of a call on numbers that it has not seen; infinite where two calls differ in a bit, or where it is
    further from torch's than rounding explains."""
    a, b, out = product
    for operand in (a, b if b.is_contiguous() else b.T):
        operand.copy_(torch.randn(operand.shape, device="cuda"))
    out.fill_(float("nan"))
    call()
    first = out.clone()
    out.fill_(float("nan"))
    call()
    picked = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], CHECKED_ROWS), device="cuda").long()
    error = error_of(out[picked], a[picked].float() @ b.float())
    found = out.clone()
    is_near = error_of(found, by_cublas(product)) <= 2 * LIMITS[a.dtype]
    return error if is_near and torch.equal(first, found) else float("inf")


def timed_parts(product: Product, seconds: float) -> Iterator[dict[str, Any]]:
    """Every way to divide a product that leaves no part without a step, with its time; a wrong result has none."""
    a, b, _ = product
    num_sms, steps = multiprocessors(), -(-a.shape[1] // 64)
    calls: dict[tuple[int, int, int, int], Callable[[], Any]] = {(0, 0, 0, 0): plain_call(product)}
    for block_m, block_n in TILES:
        tiles = -(-a.shape[0] // block_m) * -(-b.shape[1] // block_n)
        is_sized = block_m < 4 * max(a.shape[0], 16) and (block_m == 128 or a.shape[0] <= 2 * block_m)
        if not is_sized or tiles > 4 * num_sms:
            continue
        for whole in {0, tiles // num_sms * num_sms, max(0, tiles // num_sms - 1) * num_sms}:
            for parts in PARTS:
                is_sensible = whole < tiles and parts * (tiles - whole) <= 5 * num_sms and 2 * parts <= steps
                if is_sensible:
                    calls[block_m, block_n, whole, parts] = split_call(
                        product, block_m, block_n, whole, parts, tiles
                    )
    errors = {way: checked_error(product, call) for way, call in calls.items()}
    timed_calls: dict[str | tuple[int, int, int, int], Callable[[], Any]] = {
        way: call for way, call in calls.items() if errors[way] <= LIMITS[a.dtype]
    }
    timed_calls["cublas"] = lambda: by_cublas(product)
    times = interleaved.interleave(timed_calls, CLOCK, 2 * seconds)
    yield {"shape": product.shape, "way": "cublas", "us": times["cublas"]}
    for way in calls:
        block_m, block_n, whole, parts = way
        split = {"block_m": block_m, "block_n": block_n, "whole": whole, "parts": parts}
        line = {"shape": product.shape, "way": "split" if block_m else "matmul", **split}
        yield {**line, "us": times.get(way), "error": errors[way]}


def plain_call(product: Product) -> Callable[[], Any]:
    """The kernel `matmul`, which makes each tile at once."""
    a, b, out = product
    arguments = (a, b, out, a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), *out.stride())
    return lambda: contest.package.launch.matmul(*arguments)


def split_call(
    product: Product, block_m: int, block_n: int, whole: int, parts: int, tiles: int
) -> Callable[[], Any]:
    """The tiles from number `whole` on in so many parts, and their sums."""
    a, b, out = product
    launch = contest.package.launch
    partial = torch.empty((tiles - whole) * parts * block_m * block_n, device="cuda", dtype=torch.float32)
    sizes = (a.shape[0], b.shape[1])
    split = (a, b, out, partial, *sizes, a.shape[1], *a.stride(), *b.stride(), out.stride(0), whole, parts)
    added = (partial, out, *sizes, out.stride(0), whole, parts, block_m, block_n)

    def call() -> None:
        launch.matmul_split(*split, BLOCK_M=block_m, BLOCK_N=block_n)
        launch.matmul_parts(*added)

    return call


def print_end(found: list[Row]) -> int:
    """The worst rows, and what `Peer.conclude` prints and returns."""
    print(f"\n{CUBLAS.heading}")
    for row in sorted(found, key=CUBLAS.ratio)[:20]:
        print(CUBLAS.line_of(row))
    return CUBLAS.conclude(found, statistics.fmean)


if __name__ == "__main__":
    sys.exit(main())
