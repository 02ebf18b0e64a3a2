"""The functions that kernels of torch.compile import from torch, as numpy has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.errors import CompileError

MODULE = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import ReductionHint

triton_helpers.set_driver_to_gpu()

@triton_heuristics.reduction(size_hints=[64], reduction_hint=ReductionHint.INNER)
@triton.jit
def k(x, y, out, N: tl.constexpr):
    o = tl.arange(0, N)
    a, b = tl.load(x + o), tl.load(y + o)
    BODY
"""
RANDOM = np.random.default_rng(5)
FLOATS = np.where(np.arange(16) % 5 == 2, np.nan, RANDOM.standard_normal(16)).astype(np.float32)
WHOLE = RANDOM.integers(-9, 9, 16).astype(np.int32)
DIVISORS = np.where(WHOLE == 0, 3, WHOLE[::-1]).astype(np.int32)
DIVISORS[DIVISORS == 0] = -4


def computed(folder: Path, body: str, x: np.ndarray, y: np.ndarray, size: int = 16) -> np.ndarray:
    """What the body stores."""
    (folder / "k.py").write_text(MODULE.replace("BODY", body.replace("\n", "\n    ")))
    names = {"float32": "*fp32", "int32": "*i32", "float64": "*fp64"}
    signature = {"x": names[x.dtype.name], "y": names[y.dtype.name], "out": "*fp32"}
    out = np.full(size, 77, np.float32)
    interp.run(build_module(f"{folder}/k.py:k", signature, {"N": len(x)}), {"x": x, "y": y, "out": out})
    return out


def _first_place(values: np.ndarray, best: Any) -> int:
    wanted = np.isnan(values) if np.isnan(values).any() else values == best(values)
    return int(np.flatnonzero(wanted)[0])


@pytest.mark.parametrize(
    ("expression", "x", "y", "expected"),
    [
        ("triton_helpers.maximum(a, b)", FLOATS, FLOATS[::-1], np.maximum(FLOATS, FLOATS[::-1])),
        ("triton_helpers.minimum(a, b)", FLOATS, FLOATS[::-1], np.minimum(FLOATS, FLOATS[::-1])),
        ("triton_helpers.div_floor_integer(a, b)", WHOLE, DIVISORS, WHOLE // DIVISORS),
        ("triton_helpers.remainder_integer(a, b)", WHOLE, DIVISORS, WHOLE % DIVISORS),
        ("triton_helpers.pow_integer(a, b & 3)", WHOLE, DIVISORS, WHOLE ** (DIVISORS & 3)),
        ("triton_helpers.frexp(a)[0]", FLOATS * 9, WHOLE, np.frexp(FLOATS * 9)[0]),
        (
            "triton_helpers.frexp(a)[1]",
            np.nan_to_num(FLOATS) * 9,
            WHOLE,
            np.frexp(np.nan_to_num(FLOATS) * 9)[1],
        ),
        ("triton_helpers.promote_to_tensor(a)", WHOLE, WHOLE, WHOLE),
        ("triton_helpers.exp(a, True) + libdevice.exp(a) - tl_math.exp(a)", FLOATS, WHOLE, np.exp(FLOATS)),
        ("triton_helpers.fp8e4m3fn_to_float32(a)", np.abs(WHOLE), WHOLE, np.abs(WHOLE) / 512),
        ("triton_helpers.if_mask(o < 4, 2.0)", WHOLE, WHOLE, 2),
        ("triton_helpers.constexpr_next_power_of_2(N - 1)", WHOLE, WHOLE, 16),
        ("triton_helpers.device_assert_then(a == a, 'NaN', b)", WHOLE, DIVISORS, DIVISORS),
    ],
)
def test_functions_of_elements(
    tmp_path: Path, expression: str, x: np.ndarray, y: np.ndarray, expected: Any
) -> None:
    found = computed(tmp_path, f"tl.store(out + o, {expression})", x, y)
    np.testing.assert_allclose(found, np.broadcast_to(expected, 16), rtol=1e-6)


@pytest.mark.parametrize(
    ("expression", "x", "expected"),
    [
        ("triton_helpers.max2(a, 0)", FLOATS, np.nan),
        ("triton_helpers.min2(a, 0)", WHOLE, WHOLE.min()),
        ("triton_helpers.max_with_index(a, o, 0)[1]", FLOATS, _first_place(FLOATS, np.max)),
        ("triton_helpers.max_with_index(a, o, 0)[1]", WHOLE, _first_place(WHOLE, np.max)),
        ("triton_helpers.min_with_index(a, o, 0)[1]", WHOLE, _first_place(WHOLE, np.min)),
        ("triton_helpers.any(a == 7, 0)", WHOLE, (WHOLE == 7).any()),
        ("triton_helpers.prod(a, 0)", FLOATS[:2], FLOATS[:2].prod()),
        ("triton_helpers.select_one(a, o == 6, 0)", FLOATS, FLOATS[6]),
        ("triton_helpers.welford(a, a * 0.0, a * 0.0 + 1.0, 0)[1]", WHOLE * np.float32(1), WHOLE.var() * 16),
        (
            "triton_helpers.online_softmax_reduce(a, a * 0 + 1, 0, False)[1]",
            WHOLE,
            np.exp(WHOLE - WHOLE.max()).sum(),
        ),
    ],
)
def test_reductions(tmp_path: Path, expression: str, x: np.ndarray, expected: float) -> None:
    found = computed(tmp_path, f"tl.store(out, {expression})", x, x, 1)
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


def test_means_and_softmax_over_blocks(tmp_path: Path) -> None:
    body = """
mean, m2, weight = tl.zeros([8], tl.float32), tl.zeros([8], tl.float32), tl.zeros([8], tl.float32)
top, total = tl.full([8], float("-inf"), tl.float32), tl.zeros([8], tl.float32)
for start in range(0, N, 8):
    v = tl.load(x + start + tl.arange(0, 8))
    mean, m2, weight = triton_helpers.welford_reduce(v, mean, m2, weight, start == 0)
    top, total = triton_helpers.online_softmax_combine(top, total, v, True)
mean, m2, weight = triton_helpers.welford(mean, m2, weight, 0)
top, total = triton_helpers.online_softmax_reduce(top, total, 0, True)
tl.store(out, mean)
tl.store(out + 1, m2 / weight)
tl.store(out + 2, top + tl.log(total))"""
    x = RANDOM.standard_normal(64).astype(np.float32)
    found = computed(tmp_path, body, x, x, 3)
    np.testing.assert_allclose(found, [x.mean(), x.var(), np.log(np.exp(x).sum())], rtol=1e-5)


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_with_indices(tmp_path: Path, descending: bool) -> None:
    body = f"""
v, i = triton_helpers.sort_with_index(a[None, :], o[None, :], 13, 1, stable=True, descending={descending})
tl.store(out + o[None, :], v)
tl.store(out + N + o[None, :], i)"""
    x = np.round(FLOATS * 2) / 2
    found = computed(tmp_path, body, x, x, 32)
    keys = np.where(np.isnan(x), np.inf, x)[:13]
    order = np.argsort(-keys if descending else keys, kind="stable")
    np.testing.assert_array_equal(found[16:29], order)
    np.testing.assert_array_equal(found[:13], x[order])
    assert set(found[29:]) == {13, 14, 15}


@pytest.mark.parametrize("right", [False, True])
def test_searching(tmp_path: Path, right: bool) -> None:
    body = f"""
found = triton_helpers.bucketize_binary_search(a, y, 5, 5, 1, tl.zeros([N], tl.int32), tl.int32, {right})
tl.store(out + o, found)"""
    bounds = np.array([-1, 0, 0, 0.5, 2] + [9] * 11, np.float32)
    x = np.where(np.arange(16) % 4 == 0, 0, np.nan_to_num(FLOATS)).astype(np.float32)
    found = computed(tmp_path, body, x, bounds)
    np.testing.assert_array_equal(found, np.searchsorted(bounds[:5], x, side="right" if right else "left"))


def test_random_numbers_and_barriers(tmp_path: Path) -> None:
    body = """
tl.store(out + o, triton_helpers.randint64(7, o, tl.full([1], -5, tl.int64), tl.full([1], 5, tl.int64)))
triton_helpers.x_grid_barrier(y.to(tl.pointer_type(tl.uint32)))"""
    found = computed(tmp_path, body, WHOLE, np.zeros(16, np.int32))
    assert set(found) <= set(range(-5, 5)) and len(set(found)) > 4


def test_a_function_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="decoupled is not among the functions that kbuild knows"):
        computed(tmp_path, "triton_helpers.decoupled(a)", WHOLE, WHOLE)
