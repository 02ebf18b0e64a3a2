"""Operations on each element."""

import torch
import triton
import triton.language as tl

from tiny_ops.functions import tanh


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) * factor, mask=inside)


@triton.jit
def lerp_kernel(x, y, weight, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    left, right = tl.load(x + places, mask=inside), tl.load(y + places, mask=inside)
    tl.store(out + places, left + tl.load(weight + places, mask=inside) * (right - left), mask=inside)


@triton.jit
def gelu_kernel(x, out, n, APPROXIMATE: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    value = tl.load(x + places, mask=inside).to(tl.float32)
    if APPROXIMATE == "tanh":
        result = 0.5 * value * (1 + tanh(0.7978845608 * (value + 0.044715 * value * value * value)))
    else:
        result = 0.5 * value * (1 + tl.erf(value * 0.7071067812))
    tl.store(out + places, result, mask=inside)


def add(x, y):
    out, n = torch.empty_like(x), x.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    return out


def scale(x, factor):
    out, n = torch.empty_like(x), x.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor, BLOCK=1024)
    return out


def lerp(x, y, weight):
    out, n = torch.empty_like(x), x.numel()
    lerp_kernel[(triton.cdiv(n, 512),)](x, y, weight, out, n, BLOCK=512, num_warps=8)
    return out


def gelu(x, approximate="none"):
    out, n = torch.empty_like(x), x.numel()
    gelu_kernel[(triton.cdiv(n, 1024),)](x, out, n, APPROXIMATE=approximate, BLOCK=1024)
    return out
