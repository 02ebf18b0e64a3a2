"""Gradients of attention and layer norm, and attention of unlike shapes, on a device, against float64."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import DTYPES, Memory, normal  # noqa: E402  torch may be missing

ROWS = 128
"""Rows of a head's sums are rounded up to a multiple of it."""
LIMITS = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2}
"""The largest norm of an error over the norm of what is right."""


@pytest.fixture
def generator():
    return torch.Generator(device="cuda").manual_seed(2)


def assert_near(found, right, limit, what) -> None:
    assert torch.isfinite(found).all(), what
    error = ((found.double() - right).norm() / right.norm().clamp(min=1e-9)).item()
    assert error <= limit, (what, error)


def right_attention(q, k, v, dout, scale, causal):
    """out, lse, dq, dk and dv in float64; rows that see no key have zeros."""
    group, (n_q, n_k) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    q, k, v, dout = (t.double() for t in (q, k, v, dout))
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if causal:
        hidden = torch.ones(n_q, n_k, dtype=torch.bool, device="cuda").triu(1 + n_k - n_q)
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores, -1)
    p = torch.exp(scores - torch.where(lse.isfinite(), lse, 0.0)[..., None])
    return p @ v, lse, *softmax_gradients(p, q, k, v, dout, scale, group)


def softmax_gradients(p, q, k, v, dout, scale, group):
    """dq, dk and dv from p; heads of a group add to the same dk and dv."""
    dp = dout @ v.transpose(2, 3)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    dk, dv = ds.transpose(2, 3) @ q, p.transpose(2, 3) @ dout
    shape = (q.shape[0], q.shape[1] // group, group, *k.shape[2:])
    return ds @ k, *(t.reshape(shape).sum(2) for t in (dk, dv))


def strides_of(heads: int, n: int, head_dim: int, padding: int) -> tuple[int, int, int]:
    """Of batches, heads and positions: heads apart or, if padded, side by side."""
    width = head_dim + padding
    return (n * heads * width, width, heads * width) if padding else (heads * n * width, n * width, width)


SHAPES = [  # heads, heads of k and v, queries, keys
    (2, 2, 1, 1),
    (2, 2, 64, 64),
    (3, 3, 129, 129),
    (4, 2, 100, 300),
    (4, 1, 1, 257),
    (2, 2, 300, 100),
    (8, 2, 513, 1000),
    (2, 2, 2051, 2051),
]


@pytest.mark.parametrize("padding", [0, 16])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_attention_and_its_gradients(package, generator, dtype, head_dim, causal, padding):
    """Heads apart or, if padded, side by side, so that all arrays have strides of their own."""
    z, scale, limit = 2, 1.3 * head_dim**-0.5, LIMITS[dtype]
    for heads, kv_heads, n_q, n_k in SHAPES:
        what = (heads, kv_heads, n_q, n_k)
        memory = Memory()

        of_q, of_k = (heads, n_q), (kv_heads, n_k)
        q, dout, k, v = (
            memory.input(
                normal(generator, (z, h, n, head_dim), DTYPES[dtype]),
                (*strides_of(h, n, head_dim, padding), 1),
            )
            for h, n in (of_q, of_q, of_k, of_k)
        )
        out, dq, dk, dv = (
            memory.output((z, h, n, head_dim), DTYPES[dtype], (*strides_of(h, n, head_dim, padding), 1))
            for h, n in (of_q, of_q, of_k, of_k)
        )
        lse = memory.output((z * heads, n_q), torch.float32)
        padded = max(1, -(-n_q // ROWS)) * ROWS
        log2_sum, delta = (memory.output((z * heads, padded), torch.float32) for _ in range(2))
        dq_sum = memory.output((z * heads, padded, head_dim), torch.float32)
        choice = {"HEAD_DIM": head_dim, "IS_CAUSAL": causal}

        def strides(*tensors):
            return [stride for tensor in tensors for stride in tensor.stride()[:3]]

        package.launch.flash_attention(
            q, k, v, out, lse, scale, *strides(q, k, v, out), heads, kv_heads, n_q, n_k, z, **choice
        )
        package.flash_attention_backward_prepare(
            out, dout, lse, log2_sum, delta, dq_sum, *strides(out, dout), heads, n_q, z, HEAD_DIM=head_dim
        )
        package.launch.flash_attention_backward(
            q, k, v, dout, dk, dv, log2_sum, delta, dq_sum, scale, *strides(q, k, v, dout, dk, dv),
            heads, kv_heads, n_q, n_k, z, **choice,
        )  # fmt: skip
        package.flash_attention_backward_finish(
            dq_sum, dq, scale, *strides(dq), heads, n_q, z, HEAD_DIM=head_dim
        )
        right = right_attention(q, k, v, dout, scale, causal)
        assert_near(out, right[0], limit, ("out", what))
        expected = right[1].view(z * heads, n_q)
        assert torch.equal(lse.isfinite(), expected.isfinite()), ("lse", what)
        assert_near(lse[lse.isfinite()], expected[expected.isfinite()], 1e-5, ("lse", what))
        for name, found, correct in zip(("dq", "dk", "dv"), (dq, dk, dv), right[2:]):
            # One key has p of one, and so no gradient but that of v, but for what is rounded.
            if n_k > 1 or name == "dv":
                assert_near(found, correct, 2 * limit, (name, what))
        memory.check(what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_backward(package, generator, dtype):
    for n_rows, n_cols in (
        (1, 8),
        (5, 200),
        (33, 1000),
        (70, 2048),
        (9, 4097),
        (300, 8192),
        (7, 16_384),
        (5, 32_768),
    ):
        for padding in (0, 3, 8):
            what, memory = (n_rows, n_cols, padding), Memory()
            dy, x = (
                memory.input(normal(generator, (n_rows, n_cols), DTYPES[dtype]), (n_cols + padding, 1))
                for _ in range(2)
            )
            weight = memory.input(normal(generator, (n_cols,), DTYPES[dtype]))
            wide = x.double()
            mean = memory.input(wide.mean(1).float())
            rstd = memory.input(((wide.var(1, unbiased=False) + 1e-5) ** -0.5).float())
            dx = memory.output((n_rows, n_cols), DTYPES[dtype], (n_cols + padding, 1))
            dweight, dbias = (memory.output((n_cols,), DTYPES[dtype]) for _ in range(2))
            package.layer_norm_backward(dy, x, weight, mean, rstd, dx=dx, dweight=dweight, dbias=dbias)
            normalised = (wide - mean.double()[:, None]) * rstd.double()[:, None]
            weighted = dy.double() * weight.double()
            first, second = weighted.mean(1, keepdim=True), (weighted * normalised).mean(1, keepdim=True)
            limit = LIMITS[dtype]
            assert_near(
                dx, (weighted - first - normalised * second) * rstd.double()[:, None], limit, ("dx", what)
            )
            assert_near(dweight, (dy.double() * normalised).sum(0), limit, ("dweight", what))
            assert_near(dbias, dy.double().sum(0), limit, ("dbias", what))
            memory.check(what)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_linear(package, generator, dtype, activation):
    functions = {
        "none": lambda x: x,
        "relu": torch.relu,
        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }
    for m, n, k in ((1, 8, 8), (70, 136, 75), (1000, 1000, 1000), (2050, 4096, 1024)):
        for has_bias in (False, True):
            what, memory = (m, n, k, has_bias), Memory()
            x = memory.input(normal(generator, (m, k), DTYPES[dtype]), (-(-k // 8) * 8, 1))
            w = memory.input(normal(generator, (n, k), DTYPES[dtype]), (-(-k // 8) * 8 + 8, 1))
            bias = memory.input(normal(generator, (n,), DTYPES[dtype]))
            out = memory.output((m, n), DTYPES[dtype], (n + 8, 1))
            strides = (x.stride(0), 1, 1, w.stride(0), out.stride(0), 1, [*functions].index(activation))
            package.launch.linear(x, w, bias if has_bias else 0, out, m, n, k, *strides)
            total = x.double() @ w.double().T + (bias.double() if has_bias else 0.0)
            assert_near(out, functions[activation](total), LIMITS[dtype], what)
            memory.check(what)
