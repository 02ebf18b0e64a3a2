"""Operations on each row of a matrix."""

import torch
import triton
import triton.language as tl

from tiny_ops.functions import inverse_root


@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * stride + columns, powers / tl.sum(powers, 0), mask=columns < n)


@triton.jit
def rms_norm_kernel(x, weight, out, stride, n, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    result = values * inverse_root(tl.sum(values * values, 0) / n)
    if HAS_WEIGHT:
        result *= tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(out + row * stride + columns, result, mask=inside)


@triton.jit
def row_max_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf"))
    tl.store(out + row, tl.max(values, 0))


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def cross_entropy_kernel(x, target, loss, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    largest = tl.max(values, 0)
    total = tl.log(tl.sum(tl.exp(values - largest), 0)) + largest
    tl.store(loss + row, total - tl.load(x + row * stride + tl.load(target + row)))


def settings(n):
    block = triton.next_power_of_2(n)
    return {"BLOCK": block, "num_warps": 8 if block >= 2048 else 4}


def softmax(x):
    out, (rows, n) = torch.empty_like(x), x.shape
    softmax_kernel[(rows,)](x, out, x.stride(0), n, **settings(n))
    return out


def rms_norm(x, weight=None):
    out, (rows, n) = torch.empty_like(x), x.shape
    rms_norm_kernel[(rows,)](x, weight, out, x.stride(0), n, HAS_WEIGHT=weight is not None, **settings(n))
    return out


def row_max(x):
    rows, n = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    row_max_kernel[(rows,)](x, out, x.stride(0), n, **settings(n))
    return out


def cross_entropy(x, target):
    rows, n = x.shape
    loss = torch.empty(rows, dtype=torch.float32, device=x.device)
    cross_entropy_kernel[(rows,)](x, target, loss, x.stride(0), n)
    return loss
