"""Attention at the lengths that models meet: the shipped operator `flash_attention` against cuDNN's.

    python bench/speed/lengths.py --package dist/….whl [--json out.json] [--rows 'N1500|H64:8'] [--seconds 0.3]

Needs torch beside the built package.  Shapes are batches, heads of q and of k and v, length and size of a head: of
Llama, Qwen, Mistral, Phi, ViT and Whisper, most lengths no multiple of a tile.  Each result is compared with float64
(the first and the last head), in memory that was full of NaN, before it is timed.  Times are medians by CUDA events
with a cold L2 cache, of calls in random order (`aot/tune/interleaved.py`).  The last line is the mean of the ratios and
the least; the exit code is 1 where a result is wrong.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import contest
import torch
from contest import BRAIN, CLOCK, HALF, error_of, name_of
from duel import Peer, Row
from torch.nn.attention import SDPBackend, sdpa_kernel

from kbuild.aot.tune import interleaved

CUDNN = Peer("cudnn", "cuDNN")
LIMIT = 1e-2
"""The relative error allowed, as the norm of the difference over that of the right result."""


class Shape(NamedTuple):
    """One attention: lengths of q and of k and v are the same."""

    batches: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    causal: bool

    def __str__(self) -> str:
        heads = f"H{self.heads}" + (f":{self.kv_heads}" if self.kv_heads < self.heads else "")
        return (
            f"Z{self.batches} {heads} N{self.length} D{self.head_dim} {'causal' if self.causal else 'full'}"
        )


SHAPES = (
    # Llama 3, 8B and 70B, prefill
    *(
        Shape(z, 32, 8, n, 128, True)
        for z, n in ((1, 1000), (1, 2048), (2, 3000), (1, 5000), (4, 777), (1, 8192))
    ),
    *(Shape(z, 64, 8, n, 128, True) for z, n in ((1, 511), (1, 1536), (2, 2500), (1, 4096), (1, 12345))),
    # Qwen 2.5 7B and Qwen 3 32B
    *(Shape(z, 28, 4, n, 128, True) for z, n in ((1, 333), (4, 1024), (1, 3333), (2, 6000))),
    *(Shape(z, 40, 8, n, 128, True) for z, n in ((8, 1500), (1, 2222), (1, 16384))),
    # Without groups: Llama 2 7B, GPT-2 XL and Phi
    *(Shape(z, 32, 32, n, 128, True) for z, n in ((1, 4096), (4, 1111), (2, 2049))),
    *(Shape(z, 25, 25, n, 64, True) for z, n in ((8, 1024), (4, 777))),
    *(Shape(z, 32, 32, n, 64, True) for z, n in ((2, 2048), (4, 1999), (1, 9000))),
    # Encoders: ViT, Whisper, BERT, diffusion transformers
    *(Shape(z, 16, 16, n, 64, False) for z, n in ((64, 197), (32, 577), (16, 257))),
    *(Shape(z, 20, 20, n, 64, False) for z, n in ((8, 1500), (1, 1500))),
    *(Shape(z, 12, 12, n, 64, False) for z, n in ((16, 512), (32, 384), (8, 300))),
    *(
        Shape(z, 24, 24, n, 128, False)
        for z, n in ((1, 4250), (2, 4096), (4, 1280), (1, 9999), (8, 77), (1, 17000))
    ),
)
"""Each has fp16 or bf16, in turns."""


def main() -> int:
    """Parse the command line, time what is asked for, print it."""
    parser = contest.parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="device time for each row (%(default)s)")
    options = parser.parse_args()
    contest.load_package(options.package, options.name)
    torch.manual_seed(0)
    found: list[Row] = []
    print(CUDNN.heading)
    for number, shape in enumerate(SHAPES):
        dtype = (HALF, BRAIN)[number % 2]
        name = f"{shape} {name_of(dtype)}"
        if not re.search(options.rows, name):
            continue
        CUDNN.add(found, {"shape": name, **timed(shape, dtype, options.seconds)}, options.json)
    return CUDNN.conclude(found, statistics.geometric_mean) if found else 0


def timed(shape: Shape, dtype: torch.dtype, seconds: float) -> Row:
    """Microseconds of both, and the error of ours."""
    q, k, v = (
        torch.randn(shape.batches, heads, shape.length, shape.head_dim, device="cuda").to(dtype)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    out = torch.full_like(q, float("nan"))

    def cudnn() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=shape.causal, enable_gqa=shape.kv_heads < shape.heads
            )

    calls: dict[str, Callable[[], Any]] = {
        "kbuild": lambda: contest.package.flash_attention(q, k, v, out=out, causal=shape.causal),
        "cudnn": cudnn,
    }
    calls["kbuild"]()
    error = max(error_of_head(shape, (q, k, v), out, place) for place in (0, -1))
    us = interleaved.interleave(calls, CLOCK, seconds)
    return {"us": us, "error": error, "right": error <= LIMIT and bool(torch.isfinite(out).all())}


def error_of_head(shape: Shape, given: tuple[torch.Tensor, ...], out: torch.Tensor, place: int) -> float:
    """The error of the first head of the first batch, or of the last one of the last, beside float64."""
    q, k, v = (each[place, place].double()[None, None] for each in given)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)
    return error_of(out[place, place], right[0, 0])


if __name__ == "__main__":
    sys.exit(main())
