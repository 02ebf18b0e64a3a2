"""The operators of the built wheel by other ways than torch's: its library for C, and custom calls of XLA."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.aot.op.c_tensors import CUDA, DLTensor, integers

torch: Any = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import DTYPES  # noqa: E402  torch may be missing
from test_operators import LIMITS, assert_near, randn, right_attention  # noqa: E402

_BFLOAT, _FLOAT = 4, 2


def view(tensor: Any) -> DLTensor:
    code = _BFLOAT if tensor.dtype is torch.bfloat16 else _FLOAT
    layout = integers(tensor.shape), integers(tensor.stride())
    return DLTensor(tensor.data_ptr(), CUDA, 0, tensor.ndim, code, 8 * tensor.element_size(), 1, *layout)


@pytest.fixture(scope="session")
def call(package: ModuleType) -> Callable[..., None]:
    """Calls a function of the library, with tensors of torch's, on torch's current stream."""
    assert package.__file__ is not None
    name = package.__name__
    library = ctypes.CDLL(str(Path(package.__file__).with_name(f"lib{name}.so")))
    error = getattr(library, f"{name}_last_error")
    error.restype = ctypes.c_char_p

    def call(operator: str, *arguments: Any) -> None:
        passed = [ctypes.byref(view(each)) if isinstance(each, torch.Tensor) else each for each in arguments]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert getattr(library, f"{name}_{operator}")(*passed, stream) == 0, error().decode()

    return call


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_products_from_c(call, dtype) -> None:
    x, y, weight, bias = (randn(*shape, dtype=dtype) for shape in ((3, 1001), (3, 1001), (1001,), (1001,)))
    a, b = randn(300, 257, dtype=dtype), randn(130, 257, dtype=dtype).t()
    out, number = torch.full_like(x, math.nan), torch.full((), math.nan, device="cuda", dtype=x.dtype)
    call("vector_add", x, y, out)
    assert torch.equal(out, x + y)
    call("sum", x, number)
    assert_near(number, x.double().sum(), LIMITS[dtype])
    call("softmax", x, out)
    assert_near(out, torch.softmax(x.double(), -1), LIMITS[dtype])
    call("layer_norm", x, weight, bias, ctypes.c_double(1e-5), out, None, None)
    wide = [tensor.double() for tensor in (weight, bias)]
    assert_near(out, torch.nn.functional.layer_norm(x.double(), (1001,), *wide), LIMITS[dtype])
    product = torch.full((300, 130), math.nan, device="cuda", dtype=x.dtype)
    call("matmul", a, b, product)
    assert_near(product, a.double() @ b.double(), LIMITS[dtype])


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_attention_and_linear_from_c(call, dtype) -> None:
    q, k, v = (randn(2, heads, n, 64, dtype=dtype) for heads, n in ((8, 256), (2, 300), (2, 300)))
    out = torch.full_like(q, math.nan)
    call("flash_attention", q, k, v, ctypes.c_bool(True), None, out, None)
    assert_near(out, right_attention(q, k, v, True), LIMITS[dtype])
    x, weight, bias = randn(77, 512, dtype=dtype), randn(768, 512, dtype=dtype) / 20, randn(768, dtype=dtype)
    made = torch.full((77, 768), math.nan, device="cuda", dtype=x.dtype)
    call("linear", x, weight, bias, b"relu", made)
    assert_near(made, torch.relu(x.double() @ weight.double().t() + bias.double()), LIMITS[dtype])


def test_a_stream_and_a_graph_from_c(call, package) -> None:
    x, out = randn(64, 512), torch.empty(64, 512, device="cuda")
    call("softmax", x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call("softmax", x, out)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert_near(out, torch.softmax(x.double(), -1), 1e-5)


def test_custom_calls_of_xla(package) -> None:
    jax: Any = pytest.importorskip("jax")
    x = jax.random.normal(jax.random.key(0), (5, 128))
    right = torch.softmax(torch.from_dlpack(x).double(), -1)
    for function in (package.softmax, jax.jit(package.softmax)):
        assert_near(torch.from_dlpack(function(x)), right, 1e-5)
    tensors = [jax.random.normal(jax.random.key(i), (1, 4, 128, 64), jax.numpy.float16) for i in range(3)]

    def loss(*tensors: Any) -> Any:
        return package.flash_attention(*tensors, causal=True).astype(jax.numpy.float32).sum()

    found = jax.jit(jax.grad(loss, (0, 1, 2)))(*tensors)
    q, k, v = (torch.from_dlpack(tensor).double().requires_grad_() for tensor in tensors)
    right_attention(q, k, v, True).sum().backward()
    for one, other in zip(found, (q, k, v)):
        assert_near(torch.from_dlpack(one), other.grad, 3 * LIMITS["fp16"])
