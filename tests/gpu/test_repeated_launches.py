"""The kernels of the built wheel give the same bits at every one of 1,000 launches: no result depends on
the order of warps.

Outputs are NaN before each launch, and compared on the device with those of the first: the host looks at the
end alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import DTYPES, bits, normal  # noqa: E402  torch may be missing

LAUNCHES = 1000


@pytest.fixture
def generator():
    return torch.Generator(device="cuda").manual_seed(1)


def assert_repeats(call: Callable[[], Any], *outputs: Any) -> None:
    """Assert that a call fills its outputs with finite numbers, the same bits at every launch."""

    def results() -> list[Any]:
        for output in outputs:
            output.fill_(math.nan)
        call()
        return [bits(output) for output in outputs]

    first = [result.clone() for result in results()]
    assert all(torch.isfinite(output).all() for output in outputs), (
        "not all elements are written, or not with numbers"
    )
    different = torch.zeros(len(outputs), dtype=torch.int64, device="cuda")
    for _ in range(LAUNCHES - 1):
        different += torch.stack([(now != once).any() for now, once in zip(results(), first)])
    assert different.tolist() == [0] * len(outputs), "launches whose result is another, by output"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [100_003, 1 << 22])
def test_vector_add(package, generator, dtype, n):
    x, y = (normal(generator, (n,), DTYPES[dtype]) for _ in range(2))
    out = torch.empty_like(x)
    assert_repeats(lambda: package.launch.vector_add(x, y, out, n), out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [100_003, 1 << 24])
def test_sum(package, generator, dtype, n):
    """Both launches, of which the second begins while the first one runs."""
    x = normal(generator, (n,), DTYPES[dtype])
    count = partial_sums(package, x)
    partial, out = (
        torch.empty(count, device="cuda", dtype=torch.float64),
        torch.empty(1, dtype=x.dtype, device="cuda"),
    )

    def call() -> None:
        package.launch.sum(x, partial, n)
        package.sum_partials(partial, out, count)

    assert_repeats(call, partial, out)


def partial_sums(package: Any, x: Any) -> int:
    """How many partial sums the package makes of an array."""
    partial = torch.full((x.numel(),), math.nan, device="cuda", dtype=torch.float64)
    package.launch.sum(x, partial, x.numel())
    return int(torch.isfinite(partial).sum())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [100_003, 1 << 24])
def test_sum_at_once(package, generator, dtype, n):
    """The program that finishes last adds up the partial sums, whichever it is."""
    x = normal(generator, (n,), DTYPES[dtype])
    partial, out = (
        torch.empty(4096, device="cuda", dtype=torch.float64),
        torch.empty(1, dtype=x.dtype, device="cuda"),
    )
    ticket = torch.zeros(1, dtype=torch.int32, device="cuda")
    assert_repeats(lambda: package.sum_at_once(x, partial, ticket, out, n), out)


WIDTHS = (17, 1000, 1024, 4096, 8192, 16_384, 32_768)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_softmax(package, generator, dtype, columns):
    x = normal(generator, (264, columns), DTYPES[dtype])
    out = torch.empty_like(x)
    assert_repeats(lambda: package.launch.softmax(x, out, columns, columns, columns, 264), out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_layer_norm(package, generator, dtype, columns):
    x = normal(generator, (264, columns), DTYPES[dtype])
    weight, bias = (normal(generator, (columns,), DTYPES[dtype]) for _ in range(2))
    y, mean, rstd = torch.empty_like(x), *(torch.empty(264, device="cuda") for _ in range(2))
    arguments = (x, y, weight, bias, mean, rstd, columns, columns, columns, 1e-5, 264)
    assert_repeats(lambda: package.launch.layer_norm(*arguments), y, mean, rstd)


def operands(generator: Any, shape: tuple[int, int, int], dtype: Any, transposed: bool) -> tuple[Any, Any]:
    """A of M x K, and B of K x N, which lies along K if it is transposed; results are about one."""
    m, n, k = shape
    a, b = (
        normal(generator, (m, k), torch.float32, k**-0.25),
        normal(generator, (n, k), torch.float32, k**-0.25),
    )
    return a.to(dtype), b.to(dtype).t() if transposed else b.t().contiguous().to(dtype)


SHAPES = (
    (131, 257, 67),
    (16, 8192, 8192),
    (64, 64, 8192),
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    *((size, size, 512) for size in (1536, 1664, 1792, 2304, 2560, 3000, 3072, 3328, 4096)),
)
"""Among the last ones are sizes for each of the tiles."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True], ids=["row-major", "B-transposed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul(package, generator, dtype, transposed, shape):
    a, b = operands(generator, shape, DTYPES[dtype], transposed)
    c = torch.empty(shape[:2], dtype=DTYPES[dtype], device="cuda")
    assert_repeats(lambda: package.launch.matmul(a, b, c, *shape, *a.stride(), *b.stride(), *c.stride()), c)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["odd strides", "all transposed"])
def test_matmul_of_other_layouts(package, generator, dtype, layout):
    """Those that TMA cannot read."""
    m, n, k = 520, 528, 1040
    a, b = operands(generator, (m, n, k), DTYPES[dtype], transposed=layout == "all transposed")
    if layout == "odd strides":
        a, b = torch.nn.functional.pad(a, (0, 3))[:, :k], torch.nn.functional.pad(b, (0, 5))[:, :n]
    else:
        a = a.t().contiguous().t()
    c = torch.empty(m, n, dtype=DTYPES[dtype], device="cuda")
    assert_repeats(lambda: package.launch.matmul(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()), c)


SQUARES = (1000, 1024, 2048, 4096)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("size", SQUARES)
def test_fp8_matmul(package, generator, dtype, size):
    needs(package, "matmul_fp8")
    shape = (size, size, size // 16 * 16)
    a, b = operands(generator, shape, torch.float8_e4m3fn, transposed=True)
    c = torch.empty(shape[:2], dtype=DTYPES[dtype], device="cuda")
    assert_repeats(lambda: package.matmul_fp8(a, b, c, *shape, *a.stride(), *b.stride(), *c.stride()), c)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("transposed", [False, True], ids=["row-major", "B-transposed"])
@pytest.mark.parametrize("size", SQUARES[1:])
def test_persistent_matmul(package, generator, dtype, transposed, size):
    needs(package, "matmul_persistent")
    a, b = operands(generator, (size,) * 3, DTYPES[dtype], transposed)
    c = torch.empty(size, size, dtype=DTYPES[dtype], device="cuda")
    arguments = (a, b, c, *(size,) * 6)
    assert_repeats(lambda: package.matmul_persistent(*arguments, B_COLUMN_MAJOR=transposed), c)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("size", SQUARES[1:])
def test_persistent_fp8_matmul(package, generator, dtype, size):
    needs(package, "matmul_persistent_fp8")
    a, b = operands(generator, (size,) * 3, torch.float8_e4m3fn, transposed=True)
    c = torch.empty(size, size, dtype=DTYPES[dtype], device="cuda")
    assert_repeats(lambda: package.matmul_persistent_fp8(a, b, c, *(size,) * 6), c)


def needs(package: Any, kernel: str) -> None:
    """Skip the test where the package has no such kernel: those of tiled copies are not for sm_80."""
    if kernel not in package.dispatch.KERNELS:
        pytest.skip(f"{package.__name__} has no {kernel}")


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("n", [100, 512, 1111, 2048])
def test_flash_attention(package, generator, dtype, head_dim, causal, n):
    batch, heads = 2, 8
    q, k, v = (normal(generator, (batch, heads, n, head_dim), DTYPES[dtype]) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(batch * heads, n, device="cuda")
    arguments = (q, k, v, out, lse, head_dim**-0.5, *q.stride()[:3] * 4, heads, heads, n, n, batch)
    assert_repeats(
        lambda: package.launch.flash_attention(*arguments, HEAD_DIM=head_dim, IS_CAUSAL=causal), out, lse
    )
