"""The operators of the built wheel on a device, in torch: eager, compiled, exported, captured, differentiated."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import DTYPES  # noqa: E402  torch may be missing

LIMITS = {"fp32": 2e-3, "fp16": 3e-3, "bf16": 2e-2}
"""The largest norm of an error over the norm of what is right; fp32 products are those of tf32."""
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def randn(*shape: int, dtype: str = "fp32"):
    return torch.randn(shape, device="cuda", dtype=DTYPES[dtype])


def assert_near(found, right, limit: float) -> None:
    assert found.shape == right.shape and torch.isfinite(found).all()
    error = ((found.double() - right.double()).norm() / right.double().norm().clamp(min=1e-30)).item()
    assert error <= limit, error


def right_attention(q, k, v, causal: bool):
    """Attention in float64."""
    q, k, v = q.double(), *(t.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        rows, columns = scores.shape[-2:]
        seen = torch.ones(rows, columns, dtype=torch.bool, device="cuda").tril(columns - rows)
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ v


def gradients(function, tensors, gradient) -> list:
    """The gradients of a function of tensors."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    function(*leaves).backward(gradient.to(leaves[0].dtype))
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_add_and_sum(package, dtype) -> None:
    x, y = randn(2, 3, 1001, dtype=dtype)
    assert torch.equal(package.vector_add(x, y), x + y)
    out = torch.full_like(x, math.nan)
    assert package.vector_add(x, y, out=out) is out and torch.equal(out, x + y)
    assert_near(package.sum(x), x.double().sum(), LIMITS[dtype])


@pytest.mark.parametrize(
    "columns", [1, 3, 5, 16, 33, 64, 100, 255, 512, 513, 1000, 4096, 8193, 32_769, 50_257, 131_072]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_and_layer_norm(package, dtype, columns) -> None:
    x, strided = randn(2, 5, columns, dtype=dtype), randn(7, columns + 24, dtype=dtype)[:, 8 : 8 + columns]
    for tensor in (x, strided):
        assert_near(package.softmax(tensor), torch.softmax(tensor.double(), -1), LIMITS[dtype])
    weight, bias = randn(2, columns, dtype=dtype)

    def norm(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (columns,), weight, bias)

    wide = [tensor.double() for tensor in (x, weight, bias)]
    assert_near(package.layer_norm(x, weight, bias), norm(*wide), LIMITS[dtype])
    gradient = torch.randn_like(x)
    for found, right in zip(
        gradients(package.layer_norm, (x, weight, bias), gradient), gradients(norm, wide, gradient)
    ):
        assert_near(found, right, LIMITS[dtype])


@pytest.mark.parametrize("rows", [1, 2, 67, 1000, 100_001])
@pytest.mark.parametrize("columns", [1, 5, 8, 40, 100, 129, 512, 32_776])
def test_softmax_and_layer_norm_of_many_rows(package, rows, columns) -> None:
    """Programs of several rows have one that is not full, and few wide rows are done in parts."""
    if rows * columns > 1 << 26:
        pytest.skip("too large")
    x, weight, bias = randn(rows, columns, dtype="fp16"), *randn(2, columns, dtype="fp16")
    out = torch.full_like(x, math.nan)
    assert_near(package.softmax(x, out=out), torch.softmax(x.double(), -1), LIMITS["fp16"])
    wide = [tensor.double() for tensor in (x, weight, bias)]
    right = torch.nn.functional.layer_norm(wide[0], (columns,), *wide[1:])
    out.fill_(math.nan)
    assert_near(package.layer_norm(x, weight, bias, y=out), right, LIMITS["fp16"])


@pytest.mark.parametrize("columns", [40, 1000, 40_000])
def test_softmax_of_infinities_and_nan(package, columns) -> None:
    """As torch has it: minus infinity is nothing, a row of nothing else, of plus infinity or of NaN is NaN."""
    for rows in (6, 600):
        x = randn(rows, columns)
        x[0, : columns // 2], x[1], x[2, 7], x[3, -1] = -math.inf, -math.inf, math.inf, math.nan
        x[4] += 1e6
        found, right = package.softmax(x), torch.softmax(x.double(), -1)
        assert torch.equal(found.isnan(), right.isnan())
        assert_near(found.nan_to_num(), right.nan_to_num(), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_any_strides(package, dtype) -> None:
    a, b = randn(300, 257, dtype=dtype), randn(257, 130, dtype=dtype)
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            assert_near(package.matmul(left, right), a.double() @ b.double(), LIMITS[dtype])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_linear(package, dtype, activation) -> None:
    x, weight, bias = (
        randn(2, 77, 512, dtype=dtype),
        randn(768, 512, dtype=dtype) / 20,
        randn(768, dtype=dtype),
    )
    product = x.double() @ weight.double().t()
    activated = ACTIVATIONS[activation]
    assert_near(
        package.linear(x, weight, bias, activation), activated(product + bias.double()), LIMITS[dtype]
    )
    assert_near(package.linear(x, weight, activation=activation), activated(product), LIMITS[dtype])


@pytest.mark.parametrize("shape", [(2, 4, 4, 256, 256), (1, 8, 2, 200, 333), (2, 4, 1, 1, 100)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_attention_and_its_gradients(package, dtype, depth, causal, shape) -> None:
    batch, heads, shared, queries, keys = shape
    q = randn(batch, heads, queries, depth, dtype=dtype)
    k, v = randn(2, batch, shared, keys, depth, dtype=dtype)
    right = right_attention(q, k, v, causal)
    assert_near(package.flash_attention(q, k, v, causal), right, LIMITS[dtype])
    apart = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    assert_near(package.flash_attention(*apart, causal), right, LIMITS[dtype])
    gradient = torch.randn_like(q)
    found = gradients(lambda *tensors: package.flash_attention(*tensors, causal), (q, k, v), gradient)
    wide = [tensor.double() for tensor in (q, k, v)]
    expected = gradients(lambda q, k, v: right_attention(q, k, v, causal), wide, gradient)
    for one, other in zip(found, expected):
        assert_near(one, other, 3 * LIMITS[dtype])


def test_compiled_without_a_break(package) -> None:
    x, y = randn(2, 64, 512)
    weight, bias = randn(2, 512)

    def function(x, y, weight, bias):
        return package.layer_norm(package.vector_add(x, y), weight, bias) * 2

    compiled = torch.compile(function, fullgraph=True)
    assert_near(compiled(x, y, weight, bias), function(x, y, weight, bias), 1e-6)


def test_exported_and_loaded(package, tmp_path) -> None:
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return package.flash_attention(q, k, v, causal=True)

    q, k, v = randn(3, 1, 4, 256, 64, dtype="fp16")
    torch.export.save(torch.export.export(Attention(), (q, k, v)), tmp_path / "attention.pt2")
    again = torch.export.load(tmp_path / "attention.pt2").module()
    assert torch.equal(again(q, k, v), package.flash_attention(q, k, v, causal=True))


def test_captured_in_a_graph(package) -> None:
    x, y = randn(2, 64, 512)
    package.preload(0)
    package.softmax(package.vector_add(x, y))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = package.softmax(package.vector_add(x, y))
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert_near(out, torch.softmax((x + y).double(), -1), 1e-5)


def test_opcheck_is_clean(package) -> None:
    operators = getattr(torch.ops, package.__name__)
    x = randn(64, 512)
    half = randn(1, 4, 256, 64, dtype="fp16")
    leaves = [tensor.clone().requires_grad_() for tensor in (x, randn(512), randn(512))]
    heads = [half.clone().requires_grad_() for _ in range(3)]
    package.vector_add(leaves[0], x)  # The first call that the dispatcher has to see registers them.
    for operator, arguments in (
        (operators.vector_add, (x, x)),
        (operators.softmax, (x,)),
        (operators.sum, (x,)),
        (operators.layer_norm, (*leaves, 1e-5)),
        (operators.matmul, (x, x.t())),
        (operators.linear, (half[0, 0], half[0, 1], None, "relu")),
        (operators.flash_attention, (*heads, True, None)),
    ):
        torch.library.opcheck(operator.default, arguments, atol=1e-2, rtol=1e-2)


def test_autocast_and_inference_mode(package) -> None:
    x = randn(64, 512)
    with torch.autocast("cuda", torch.bfloat16):
        assert package.matmul(x, x.t()).dtype is torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(package.vector_add(x, x), 2 * x)


def test_arrays_of_cupy(package) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((5, 100), dtype=cupy.float32)
    assert isinstance(package.softmax(x), cupy.ndarray) and (package.vector_add(x, x) == 2 * x).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_of_jax_by_dlpack(package, dtype) -> None:
    """What computes them is still at work when the launch is made."""
    jax = pytest.importorskip("jax")
    made = jax.jit(
        lambda key, y: jax.random.normal(key, (5, 128), dtype) + (0 * (y @ y @ y)[:5, :128]).astype(dtype)
    )
    y = jax.numpy.ones((4096, 4096), "float32")
    for number in range(4):
        x = made(jax.random.key(number), y)
        out = torch.empty(5, 128, device="cuda", dtype=getattr(torch, dtype))
        package.softmax(x, out=out)
        right = torch.softmax(torch.from_dlpack(x).double(), -1)
        assert_near(out, right, 1e-5 if dtype == "float32" else 1e-2)
