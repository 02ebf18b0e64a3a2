"""A library that launches kernels through Triton's JIT, as text, and programs that use it."""

from __future__ import annotations

SHARED = """\
import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def above(x):
    # The least that a result may be.
    return tl.maximum(x, EPS)
"""

OPS = """\
import triton
import triton.language as tl
from lib.shared import above


class Tensor:
    def __init__(self, *shape, dtype="fp32", address=256):
        self.shape, self.dtype, self.address = shape, dtype, address

    def stride(self):
        return tuple([*self.shape[1:], 1])

    def data_ptr(self):
        return self.address


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


@triton.jit
def norm_kernel(x, bias, out, stride, n, eps, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < n, other=0.0)
    if HAS_BIAS:
        values += tl.load(bias + columns, mask=columns < n, other=0.0)
    values = values / tl.sqrt(above(tl.sum(values * values, 0) / n + eps))
    tl.store(out + row * stride + columns, values, mask=columns < n)


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_kernel(x, out, n, factor, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + places, tl.load(x + places) * factor)
    else:
        tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)


def made(factor):
    @triton.jit
    def times(x, out, n, BLOCK: tl.constexpr):
        places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + places, above(tl.load(x + places, mask=places < n) * factor), mask=places < n)

    return times


times_three = made(tl.constexpr(3.0))


@triton.jit
def broken_kernel(x, BLOCK: tl.constexpr):
    tl.store(x, BLOCK)


def add(x, y):
    out, n = Tensor(*x.shape, dtype=x.dtype), x.shape[0]
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)


def norm(x, bias=None):
    rows, n = x.shape
    block = 128 if n <= 128 else 512
    norm_kernel[(rows,)](
        x, bias, Tensor(*x.shape, dtype=x.dtype), n, n, 1e-5,
        HAS_BIAS=bias is not None, BLOCK=block, num_warps=4 if block < 512 else 8,
    )


def scale(x):
    n = x.shape[0]
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, Tensor(n, dtype=x.dtype), n, 2.0)


def triple(x):
    times_three[(1,)](x, Tensor(*x.shape, dtype=x.dtype), x.shape[0], BLOCK=256)
"""

USE = """\
from lib.ops import Tensor, add, norm, scale, triple

for dtype in ("fp16", "fp32"):
    for n in (1000, 4096, 4096):
        add(Tensor(n, dtype=dtype), Tensor(n, dtype=dtype))
    for n in (100, 512):
        norm(Tensor(8, n, dtype=dtype))
        norm(Tensor(8, n, dtype=dtype), Tensor(n, dtype=dtype))
    for n in (640, 6400, 640):
        scale(Tensor(n, dtype=dtype))
    triple(Tensor(200, dtype=dtype))
"""
