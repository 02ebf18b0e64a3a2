"""Loops without dots whose iterations wait for the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For
from tests.compiler.transforms.gpu.loops import ops
from tests.emulator.artifacts import left_in

SIZE = 64


@kbuild.jit
def sums(x, flags, out, n, HOW: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    state = tl.zeros((N,), tl.float32)
    for step in range(n):
        if HOW == "atomic":  # As where it waits for another program.
            state += tl.atomic_add(flags + step, 0)
        elif HOW == "count":
            tl.atomic_add(flags + step, 1)
        elif HOW == "asm":
            tl.inline_asm_elementwise(
                "fence.acq_rel.gpu; mov.b32 $0, $1;", "=r,r", [i], tl.int32, is_pure=False, pack=1
            )
        new = tl.load(x + step * N + i)
        state = 0.5 * state + new
        if HOW == "own":  # The array that it reads next.
            tl.store(x + step * N + N + i, state)
        if HOW == "last":
            state = state + 1.0
        else:
            tl.store(out + step, tl.sum(state))
    tl.store(out + n, tl.sum(state))


def compiled(how: str, **options: Any) -> kbuild.Artifact:
    signature = {"x": "*fp32:16", "flags": "*i32", "out": "*fp32", "n": "i32"}
    return kbuild.compile(
        sums, signature=signature, constexprs={"HOW": how, "N": SIZE}, target="sm_90", num_warps=2, **options
    )


def holds(made: kbuild.Artifact) -> bool:
    """Whether the loop carries what it has loaded."""
    (loop,) = ops(parse_module(made.asm["ttgir"]), For)
    return any(value.name.endswith("_held") for value in loop.carried)


@pytest.mark.parametrize("how", ["", "count"])
def test_loads_come_an_iteration_early(how: str) -> None:
    assert holds(compiled(how))


@pytest.mark.parametrize("how", ["atomic", "asm", "own", "last"])
def test_loads_stay_where_something_may_have_to_come_before_them(how: str) -> None:
    assert not holds(compiled(how))


def test_one_stage_is_none_early() -> None:
    assert not holds(compiled("", num_stages=1))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("how", ["", "count", "own", "atomic"])
def test_results_stay(how: str, n: int) -> None:
    x = np.random.default_rng(n).integers(-8, 8, ((n + 1), SIZE)).astype(np.float32)
    given = {"x": x, "flags": np.zeros(n + 1, np.int32), "out": np.zeros(n + 1, np.float32), "n": n}
    rows, state, right = x.copy(), np.zeros(SIZE, np.float32), []
    for step in range(n):
        state = np.float32(0.5) * state + rows[step]
        if how == "own":
            rows[step + 1] = state
        right.append(state.sum())
    np.testing.assert_allclose(left_in("out", compiled(how), given), [*right, state.sum()], rtol=1e-6)
