"""A library whose kernels are tuned, by itself and together with heuristics, as text, and a program that uses it."""

from __future__ import annotations

OPS = """\
import triton
import triton.language as tl

hooked = []
tried = []


def note(args):
    hooked.append((args["n"], args["BLOCK"], args["num_warps"]))


def keep(configs, named, **kwargs):
    tried.append(named["n"])
    return [one for one in configs if one.kwargs["BLOCK"] <= named["n"]]


def evenly(args):
    return args["n"] % args["BLOCK"] == 0


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": evenly})
@triton.jit
def scale_kernel(x, out, n, factor, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + places, tl.load(x + places) * factor)
    else:
        tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)


@triton.autotune(
    [triton.Config({"BLOCK": 64}, pre_hook=note), triton.Config({"BLOCK": 256}, pre_hook=note)],
    key=["n"],
    prune_configs_by={"early_config_prune": keep},
)
@triton.jit
def shift_kernel(x, out, n, shifts, BLOCK: tl.constexpr, SIGN: tl.constexpr = 1):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shift = (shifts[0] + shifts[1]) * SIGN
    tl.store(out + places, tl.load(x + places, mask=places < n) + shift, mask=places < n)


@triton.autotune(
    [triton.Config({"BLOCK": 128}, num_warps=2, num_ctas=2), triton.Config({"BLOCK": 512}, num_warps=2, num_ctas=4)],
    key=["n"],
)
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) * 2, mask=places < n)


@triton.jit
def halve_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) / 2, mask=places < n)


def double(x, out, _):
    n = x.shape[0]
    double_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)


def halve(x, out, ctas):
    n = x.shape[0]
    return halve_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256, num_warps=8, num_ctas=ctas)


def scale(x, out, factor):
    n = x.shape[0]
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)


def shift(x, out, shifts):
    n = x.shape[0]
    shift_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, shifts)
"""

USE = """\
from tuned.ops import double, halve, scale, shift


class Tensor:
    def __init__(self, n):
        self.shape, self.dtype = (n,), "fp32"

    def stride(self):
        return (1,)

    def data_ptr(self):
        return 256


for n in (640, 6400, 1000, 700):
    scale(Tensor(n), Tensor(n), 2.0)
    shift(Tensor(n), Tensor(n), (3, 40))
    double(Tensor(n), Tensor(n), None)
    halve(Tensor(n), Tensor(n), 2)
"""
