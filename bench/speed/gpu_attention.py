"""The group of `gpu.py` for attention."""

from __future__ import annotations

import contest
import torch
import triton
from configurations import configurations, kernel_module
from contest import BRAIN, HALF, SHORT, error_of, multiprocessors, name_of

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
            if not contest.asked_for.search(shape):
                continue
            q, k, v = (torch.randn(z, h, n, d, device="cuda").to(dtype) for _ in range(3))
            out, lse = torch.full_like(q, float("nan")), torch.empty(z * h, n, device="cuda")
            arguments = (q, k, v, out, lse, d**-0.5, *q.stride()[:3] * 4, h, h, n, n, z)
            ours = lambda: contest.package.launch.flash_attention(*arguments, HEAD_DIM=d, IS_CAUSAL=causal)  # noqa: E731
            right = attention_of(q, k, v, causal)
            choices = [
                {
                    "BLOCK_M": bm,
                    "BLOCK_N": bn,
                    "num_warps": w,
                    "num_stages": s,
                    "PERSISTENT": persistent,
                    "TOGETHER": 132 if causal and not persistent else 0,
                    "LAST": 924,
                }
                for bm, bn, w, s in ATTENTION_TILES
                for persistent in (False, True)
            ]
            choices += configurations("flash_attention", SHORT[dtype], HEAD_DIM=d, IS_CAUSAL=causal)
            peer = contest.best_of(
                choices,
                lambda t: kernel[
                    (min(triton.cdiv(n, t["BLOCK_M"]) * z * h, programs if t["PERSISTENT"] else 1 << 30),)
                ](*arguments, HEAD_DIM=d, IS_CAUSAL=causal, **t),
            )

            def cudnn() -> torch.Tensor:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            contest.row(
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
