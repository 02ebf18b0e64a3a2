"""Dots by `mma.sync`: the constants that are hidden from ptxas."""

from typing import Any

import pytest

import kbuild
import kbuild.language as tl


@kbuild.jit
def constant_product(b, out, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    pair = tl.full((N, 2), 3, tl.float32).to(tl.float8e4nv)
    left = tl.gather(pair, tl.zeros((N, N), tl.int32), 1)
    right = tl.load(b + rows * N + columns)
    tl.store(out + rows * N + columns, tl.dot(left.T, right))


@kbuild.jit
def loaded_product(b, out, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    right = tl.load(b + rows * N + columns)
    tl.store(out + rows * N + columns, tl.dot(right.T, right))


@pytest.mark.parametrize(("kernel", "is_hidden"), [(constant_product, True), (loaded_product, False)])
def test_constant_operands_of_fp8_are_hidden_from_ptxas(kernel: Any, is_hidden: bool) -> None:
    """It widens them wrongly; the check of the cubin refuses what it would make of them."""
    signature = {"b": "*fp8e5:16", "out": "*fp32:16"}
    code = kbuild.compile(kernel, signature=signature, constexprs={"N": 32}, num_warps=1, texts=("ptx",))
    assert ("%lanemask_lt" in code.asm["ptx"]) is is_hidden and "e5m2.f32" in code.asm["ptx"]
