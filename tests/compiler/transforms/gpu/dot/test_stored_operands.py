"""Dots in tf32 by warpgroups whose operands are computed: A stays in registers, B is stored along k.

The emulator finds tiles that are read before they are stored or overwritten while they are read, and accumulators that
are touched while a dot is in flight.
"""

import re

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from tests.emulator.artifacts import left_in

STEPS = 4
RUNS = (("late", "random(1)"), ("early", "random(2)"), ("random(3)", "lockstep"))


@kbuild.jit
def scaled(a, b, x, y, c, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TURNED: tl.constexpr):
    """(A·x)(y·B), where x and y are numbers for each k."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        places = step * K + k
        left = tl.load(a + m[:, None] * steps * K + places[None, :]).to(tl.float32)
        left = left * tl.load(x + places)[None, :]
        if TURNED:
            right = tl.load(b + n[None, :] * steps * K + places[:, None]).to(tl.float32)
        else:
            right = tl.load(b + places[:, None] * N + n[None, :]).to(tl.float32)
        total += tl.dot(left, right * tl.load(y + places)[:, None])
    tl.store(c + m[:, None] * N + n[None, :], total)


@kbuild.jit
def chained(q, k, v, out, steps, D: tl.constexpr, E: tl.constexpr, N: tl.constexpr):
    """Blocks of rows of Q·Kᵀ, of which those below the diagonal count, times V; the sum of Kᵀ·V of the blocks before goes
    around the loop."""
    d, e, n = tl.arange(0, D), tl.arange(0, E), tl.arange(0, N)
    kv = tl.zeros((D, E), tl.float32)
    for step in range(steps):
        rows = step * N + n
        left = tl.load(q + rows[:, None] * D + d[None, :]).to(tl.float32)
        turned = tl.load(k + rows[None, :] * D + d[:, None]).to(tl.float32)
        values = tl.load(v + rows[:, None] * E + e[None, :]).to(tl.float32)
        scores = tl.where(n[:, None] >= n[None, :], tl.dot(left, turned), 0)
        tl.store(out + rows[:, None] * E + e[None, :], tl.dot(scores, values) + tl.dot(left, kv))
        kv += tl.dot(turned, values)


@kbuild.jit
def attention(q, k, v, out, scale, count, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Attention with everything widened: the scaled queries are in shared memory, since they stay the same."""
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    left = tl.load(q + m[:, None] * D + d[None, :]).to(tl.float32) * scale
    most, total = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, count, N):
        keys = tl.load(k + (start + n)[:, None] * D + d[None, :]).to(tl.float32)
        values = tl.load(v + (start + n)[:, None] * D + d[None, :]).to(tl.float32)
        scores = tl.dot(left, tl.trans(keys))
        more = tl.maximum(most, tl.max(scores, 1))
        weights, kept = tl.exp2(scores - more[:, None]), tl.exp2(most - more)
        total = total * kept + tl.sum(weights, 1)
        sums = tl.dot(weights, values, sums * kept[:, None])
        most = more
    tl.store(out + m[:, None] * D + d[None, :], sums / total[:, None])


def tf32(array: np.ndarray) -> np.ndarray:
    """The numbers that the tensor cores take, who cut off what a tf32 lacks."""
    return (array.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)


def launched(artifact: kbuild.Artifact, arguments: dict, name: str) -> np.ndarray:
    """What a kernel leaves in an argument, the same whenever copies and dots end and warps run."""
    first, *others = (
        left_in(name, artifact, arguments, schedule=schedule, timing=timing) for timing, schedule in RUNS
    )
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


@pytest.mark.parametrize("element", ["fp16", "fp32"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "warps"),
    [(64, 32, 64, 4), (64, 32, 32, 4), (128, 64, 32, 8), (64, 128, 32, 8), (128, 128, 16, 4)],
)
def test_computed_operands(element: str, turned: bool, m: int, n: int, k: int, warps: int) -> None:
    artifact = kbuild.compile(
        scaled,
        signature=dict.fromkeys("ab", f"*{element}:16") | dict.fromkeys("xyc", "*fp32:16") | {"steps": "i32"},
        constexprs={"M": m, "N": n, "K": k, "TURNED": turned},
        target="sm_90",
        num_warps=warps,
    )
    ptx = artifact.asm["ptx"]
    assert "k8.f32.tf32.tf32" in ptx
    assert not re.search(r"\bmma\.sync", ptx) and artifact.metadata.serialized == ()
    rng = np.random.default_rng(3)
    dtype = np.float16 if element == "fp16" else np.float32
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, STEPS * k), (STEPS * k, n)))
    x, y = (rng.random(STEPS * k, np.float32) for _ in "xy")
    given = np.ascontiguousarray(b.T) if turned else b
    arguments = {"a": a.ravel(), "b": given.ravel(), "x": x, "y": y, "steps": STEPS}
    c = launched(artifact, arguments | {"c": np.zeros((m, n), np.float32)}, "c")
    right = tf32(a.astype(np.float32) * x) @ tf32(b.astype(np.float32) * y[:, None])
    np.testing.assert_allclose(c.reshape(m, n), right, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("element", "e", "n", "warps"),
    [("fp16", 32, 64, 4), ("fp16", 64, 128, 8), ("fp32", 32, 64, 4), ("bf16", 64, 64, 8)],
)
def test_dots_that_feed_dots_and_sums_that_are_operands(element: str, e: int, n: int, warps: int) -> None:
    d = 64
    artifact = kbuild.compile(
        chained,
        signature=dict.fromkeys("qkv", f"*{element}:16") | {"out": "*fp32:16", "steps": "i32"},
        constexprs={"D": d, "E": e, "N": n},
        target="sm_90",
        num_warps=warps,
    )
    ptx = artifact.asm["ptx"]
    assert not re.search(r"\bmma\.sync", ptx) and artifact.metadata.serialized == ()
    # What was loaded in 16 bits is multiplied so, where nothing else enters.
    assert bool(re.search(r"wgmma\.mma_async\S*k16\.", ptx)) == (element != "fp32")
    rng = np.random.default_rng(4)
    arrays = [rng.integers(-2, 3, (STEPS * n, width)).astype(np.float32) for width in (d, d, e)]
    held = [
        (array.view(np.uint32) >> 16).astype(np.uint16)
        if element == "bf16"
        else array.astype(np.float16 if element == "fp16" else np.float32)
        for array in arrays
    ]
    q, k, v = (array.astype(float) for array in arrays)
    out = np.zeros((STEPS * n, e), np.float32)
    arguments = dict(zip("qkv", (array.ravel() for array in held))) | {"out": out, "steps": STEPS}
    # Small integers, of which all sums are exact in tf32 but for those of the last steps.
    np.testing.assert_allclose(
        launched(artifact, arguments, "out").reshape(out.shape),
        np.tril(q @ k.T) @ v,
        rtol=2e-3,
        atol=8,
    )


@pytest.mark.parametrize(("d", "warps"), [(64, 4), (128, 8)])
def test_attention_of_widened_numbers(d: int, warps: int) -> None:
    """Rows wider than a swizzle are copied by TMA, too, as ldmatrix and wgmma read both."""
    rows, count = 128, 256
    artifact = kbuild.compile(
        attention,
        signature=dict.fromkeys("qkv", "*fp16:16") | {"out": "*fp32:16", "scale": "fp32", "count": "i32:16"},
        constexprs={"M": rows, "N": 64, "D": d},
        target="sm_90",
        num_warps=warps,
    )
    ptx = artifact.asm["ptx"]
    assert not re.search(r"\bmma\.sync", ptx) and artifact.metadata.serialized == ()
    assert ptx.count("stmatrix") and "cp.async.bulk.tensor" in ptx
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((size, d)).astype(np.float16) for size in (rows, count, count))
    out = np.zeros((rows, d), np.float32)
    arguments = {"q": q.ravel(), "k": k.ravel(), "v": v.ravel(), "out": out, "scale": 0.125, "count": count}
    scores = tf32(q.astype(np.float32) * np.float32(0.125)) @ k.astype(float).T
    weights = np.exp2(scores - scores.max(axis=1, keepdims=True))
    right = weights @ v.astype(float) / weights.sum(axis=1, keepdims=True)
    found = launched(artifact, arguments, "out").reshape(out.shape)
    np.testing.assert_allclose(found, right, rtol=2e-3, atol=2e-3)


@kbuild.jit
def from_state(a, state, c, has_state, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A times a state's transpose, which is zero at first."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.zeros((K, N), tl.float16)
    if has_state:
        right = tl.load(state + n[None, :] * K + k[:, None]).to(tl.float16)
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right))


def test_what_a_branch_loads_is_stored_as_it_was_loaded():
    """Along k, several elements of a thread at a time: the other branch is in no order."""
    signature = {"a": "*fp16:16", "state": "*fp32:16", "c": "*fp32:16", "has_state": "i32"}
    artifact = kbuild.compile(
        from_state, signature=signature, constexprs={"M": 64, "N": 64, "K": 64}, target="sm_90", stop="ptx"
    )
    assert "wgmma" in artifact.asm["ptx"] and "st.shared.b16" not in artifact.asm["ptx"]
    random = np.random.default_rng(0)
    a, state = (random.integers(-3, 4, (64, 64)).astype(type_) for type_ in (np.float16, np.float32))
    for has_state in (0, 1):
        given = {"a": a, "state": state, "c": np.zeros((64, 64), np.float32), "has_state": has_state}
        right = a.astype(np.float32) @ state.T * has_state
        np.testing.assert_array_equal(left_in("c", artifact, given), right)
