"""The kernels of the built wheel, from torch tensors, against float64: exact wherever whole numbers allow it.

Every cubin that the package holds for the device is launched at least once.
"""

from __future__ import annotations

import importlib
import math

import pytest

torch = pytest.importorskip("torch", reason="the package is tested with torch tensors")

from memory import DTYPES, ROUNDING, Memory, assert_close, assert_equal, normal, whole  # noqa: E402  torch may be missing


@pytest.fixture
def generator():
    return torch.Generator(device="cuda").manual_seed(1)


def never_launched(package, kernel: str, dtype: str) -> list[str]:
    """The cubins for a type that the device could run, and that no call has taken yet; without those whose calls a tuned row,
    which stands before them, takes."""
    launcher, index = package.dispatch._launcher, package.dispatch.KERNELS.index(kernel)
    capability, shared_limit, *_ = launcher._device(0)
    have = launcher._device_facts(index, capability, shared_limit)
    table = importlib.import_module(f"{package.__name__}._table").KERNELS[index]
    names = []
    for number, row in enumerate(table.rows):
        runs = all(a & b == b for a, b in zip(have, row.required))
        is_replaced = any(is_tuned(other.name, row.name) for other in table.rows[:number])
        is_loaded = launcher._is_loaded(table.first_row + number, 0)
        if runs and f" dtype={dtype} " in row.name and not is_loaded and not is_replaced:
            names.append(row.name)
    return names


def is_tuned(other: str, row: str) -> bool:
    """Whether a row is for the calls of another one that one fact more tells from those of smaller rows."""
    facts, of_row = (name.split(" num_stages=")[1] for name in (other, row))
    return (
        " if " in of_row and facts.startswith(f"{of_row} if ") and other.split(" ")[:2] == row.split(" ")[:2]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_add(package, generator, dtype):
    for n in (1, 15, 16, 17, 1023, 1024, 1025, 4096, 100_003, 1 << 20):
        for offsets in ((0, 0, 0), (1, 0, 0), (0, 3, 0), (0, 0, 1)):
            memory = Memory()
            x, y = (
                memory.input(whole(generator, (n,), DTYPES[dtype], 100), offset=offset)
                for offset in offsets[:2]
            )
            out = memory.output((n,), DTYPES[dtype], offset=offsets[2])
            package.launch.vector_add(x, y, out, n)
            assert_equal(out, x.double() + y.double(), (n, offsets))
            memory.check((n, offsets))
    x, y = (normal(generator, (65_536,), DTYPES[dtype]) for _ in range(2))
    out = torch.empty_like(x)
    package.launch.vector_add(x=x, y=y, out=out, n=65_536, dtype=dtype)
    assert_close(out, x.double() + y.double(), "normal numbers", absolute=ROUNDING[DTYPES[dtype]] * 2**-10)
    assert never_launched(package, "vector_add", dtype) == []


def total(package, memory, x, n, dtype, offset=0):
    """The sum by both launches; the package knows how many partial sums there are, so all others are zero
    beforehand."""
    partial = memory.output((n // 1024 + 1,), torch.float64).zero_()
    out = memory.output((1,), dtype, offset=offset)
    package.launch.sum(x, partial, n)
    package.sum_partials(partial, out, partial.numel())
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum(package, generator, dtype):
    for n in (1, 15, 16, 17, 2047, 2048, 16_384, 16_385, 100_003, 1 << 20, (1 << 22) + 16):
        for offset in (0, 1):
            memory = Memory()
            x = memory.input(whole(generator, (n,), DTYPES[dtype], 8), offset=offset)
            out = total(package, memory, x, n, DTYPES[dtype], offset)
            assert_equal(out, x.double().sum().view(1), (n, offset))
            memory.check((n, offset))
    memory = Memory()
    x = normal(generator, (1 << 20,), DTYPES[dtype])
    out = total(package, memory, x, 1 << 20, torch.float32)
    assert_close(out, x.double().sum().view(1), "normal numbers")
    assert never_launched(package, "sum", dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_partials(package, generator, dtype):
    for count in (1, 5, 4096, 8191, 8192, 8193, 100_000):
        memory = Memory()
        partial = memory.input(whole(generator, (count,), torch.float64, 20))
        out = memory.output((1,), DTYPES[dtype], offset=1)
        package.sum_partials(partial, out, count)
        assert_equal(out, partial.double().sum().view(1), count)
        memory.check(count)
    assert never_launched(package, "sum_partials", dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_at_once(package, generator, dtype):
    ticket = torch.zeros(1, dtype=torch.int32, device="cuda")
    for n in (1, 16, 17, 4096, 4097, 100_003, 1 << 20, (1 << 24) + 16):
        memory = Memory()
        x = memory.input(whole(generator, (n,), DTYPES[dtype], 8), offset=n % 2)
        partial, out = (
            torch.empty(4096, device="cuda", dtype=torch.float64),
            memory.output((1,), DTYPES[dtype], offset=1),
        )
        for _ in range(3):
            package.sum_at_once(x, partial, ticket, out, n)
            assert_equal(out, x.double().sum().view(1), n)
        memory.check(n)
    assert ticket.item() == 0 and never_launched(package, "sum_at_once", dtype) == []


COLUMNS = (
    1,
    2,
    16,
    17,
    128,
    255,
    256,
    257,
    512,
    513,
    1000,
    1024,
    1025,
    2000,
    2048,
    2049,
    4096,
    4099,
    8192,
    8200,
    16_384,
    16_390,
    24_000,
    32_767,
    32_768,
)


def row_layouts(columns: int) -> dict[str, tuple[int, int, int]]:
    """Ways for a matrix and its result to lie in memory: stride of either, and distance from an aligned
    address."""
    aligned = -(-columns // 16) * 16
    return {
        "packed": (columns, columns, 0),
        "padded": (aligned + 16, aligned + 48, 0),
        "odd strides": (columns + 3, columns + 1, 0),
        "odd addresses": (columns, columns, 1),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(package, generator, dtype):
    for columns, rows in [*((columns, 3) for columns in COLUMNS), (17, 70_001)]:
        values = normal(generator, (rows, columns), DTYPES[dtype], 4.0)
        values[1] += 1000
        values[:, 1::7] = -math.inf
        right = torch.softmax(values.double(), dim=1)
        for name, (stride_x, stride_out, offset) in row_layouts(columns).items():
            memory = Memory()
            x = memory.input(values, (stride_x, 1), offset)
            out = memory.output(values.shape, DTYPES[dtype], (stride_out, 1), offset)
            package.launch.softmax(x, out, stride_x, stride_out, columns, rows)
            assert_close(out, right, (rows, columns, name), relative=1e-5)
            memory.check((rows, columns, name))
    assert never_launched(package, "softmax", dtype) == []


def test_softmax_of_fp32_is_exact_but_for_roundings(package, generator):
    """Also far from zero, where x - max loses no digits but e^x has none left, and with all but one minus
    infinity."""
    for columns in (200, 4096, 16_384):
        for center in (0.0, -300.0, 1e6, -1e9, 1e30):
            x = center + normal(generator, (4, columns), torch.float32, 4.0)
            x[1, 1:] = -math.inf
            x[2, ::3] = -1e35
            out = torch.empty_like(x)
            package.launch.softmax(x, out, columns, columns, columns, 4)
            assert_close(out, torch.softmax(x.double(), dim=1), (columns, center), relative=4 * 2.0**-24)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_equal_numbers_is_exact(package, dtype):
    for columns in (1, 2, 64, 1024, 8192, 32_768):
        x = torch.full((2, columns), -3.0, dtype=DTYPES[dtype], device="cuda")
        out = torch.empty_like(x)
        package.launch.softmax(x, out, columns, columns, columns, 2)
        assert_equal(out, torch.full(x.shape, 1 / columns, dtype=torch.float64, device="cuda"), columns)


def layer_norm(package, dtype, values, scale, shift, strides, offsets, eps, what):
    """One launch, with all three results checked."""
    rows, columns = values.shape
    memory = Memory()
    x = memory.input(values, (strides[0], 1), offsets[0])
    y = memory.output(values.shape, dtype, (strides[1], 1), offsets[1])
    weight, bias = memory.input(scale, offset=offsets[2]), memory.input(shift, offset=offsets[3])
    mean, rstd = (memory.output((rows,), torch.float32, offset=1) for _ in range(2))
    package.launch.layer_norm(x, y, weight, bias, mean, rstd, strides[0], strides[1], columns, eps, rows)
    right_mean = values.double().mean(dim=1)
    right_rstd = (values.double().var(dim=1, correction=0) + eps).rsqrt()
    normalised = (values.double() - right_mean[:, None]) * right_rstd[:, None]
    assert_close(mean, right_mean, ("mean", what), absolute=1e-5)
    assert_close(rstd, right_rstd, ("rstd", what), relative=1e-5)
    right = normalised * scale.double() + shift.double()
    assert_close(y, right, what, absolute=3e-5 * (1 + scale.double().abs()))
    memory.check(what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(package, generator, dtype):
    """Also of more rows than those of which each gets many threads."""
    more = 2 * torch.cuda.get_device_properties(0).multi_processor_count + 1
    for columns, rows in ((columns, rows) for columns in COLUMNS for rows in (3, more)):
        values = normal(generator, (rows, columns), DTYPES[dtype], 2.0) + 1
        values[:, 0] += 4
        scale, shift = (normal(generator, (columns,), DTYPES[dtype]) for _ in range(2))
        layouts = row_layouts(columns) if rows == 3 else {"packed": row_layouts(columns)["packed"]}
        for name, (stride_x, stride_y, offset) in layouts.items():
            for eps in (1e-5, 0.5):
                strides, offsets = (stride_x, stride_y), (offset,) * 4
                layer_norm(
                    package, DTYPES[dtype], values, scale, shift, strides, offsets, eps, (columns, name, eps)
                )
        if columns == 1024:
            for one in range(4):
                offsets = tuple(int(place == one) for place in range(4))
                layer_norm(
                    package,
                    DTYPES[dtype],
                    values,
                    scale,
                    shift,
                    (1024, 1024),
                    offsets,
                    1e-5,
                    ("misaligned", one),
                )
    assert never_launched(package, "layer_norm", dtype) == []


SHAPES = (
    (1, 1, 1),
    (1, 7, 1),
    (5, 3, 17),
    (13, 64, 257),
    (16, 17, 64),
    (17, 31, 2),
    (61, 67, 71),
    (127, 131, 1),
    (131, 257, 67),
    (1031, 257, 131),
    (1, 16, 16),
    (7, 48, 80),
    (16, 272, 1024),
    (24, 96, 80),
    (33, 64, 64),
    (64, 128, 32),
    (128, 256, 96),
    (200, 80, 48),
    (520, 144, 272),
    (1024, 128, 64),
    (1040, 272, 144),
    (2500, 512, 208),
    (2064, 1040, 48),
    (4100, 16, 16),
    (64, 64, 8192),
    (33, 17_024, 48),
    (1040, 1664, 48),
    (1664, 1664, 48),
    (1792, 1792, 48),
    (2304, 2304, 48),
    (2560, 2560, 48),
    (3072, 3072, 48),
    (3328, 3328, 48),
    (8512, 48, 48),
    # Tiles of each size that take the fewest rounds, by persistent programs of 132 multiprocessors, and rows of 64 for long sums.
    (72, 8192, 8192),
    (520, 1536, 64),
    (3008, 3584, 64),
    (4096, 2432, 64),
    (8192, 2112, 64),
    (8192, 4096, 64),
    # Rows of 8 elements more than a multiple of 16, which programs of a cluster share.
    (200, 120, 72),
    (80, 24, 2056),
    (1104, 1000, 40),
    (1560, 1400, 40),
    (1560, 1640, 40),
    (1560, 2056, 40),
    (2568, 2056, 40),
    (2568, 2600, 40),
    (3080, 2600, 40),
    (4104, 2600, 40),
)
LAYOUTS = {
    "row-major": ("row", "row", "row"),
    "B transposed": ("row", "column", "row"),
    "padded": ("padded", "padded", "padded"),
    "padded, B transposed": ("padded", "padded column", "padded"),
    "odd strides": ("odd", "odd", "odd"),
    "all transposed": ("column", "column", "column"),
    "every second element": ("sparse", "sparse", "sparse"),
}


def strides_of(layout: str, rows: int, columns: int) -> tuple[int, int]:
    """Strides of a matrix in elements."""
    return {
        "row": (columns, 1),
        "column": (1, rows),
        "padded": (-(-columns // 16) * 16 + 16, 1),
        "padded column": (1, -(-rows // 16) * 16 + 16),
        "odd": (columns + 3, 1),
        "sparse": (2 * columns + 1, 2),
    }[layout]


def matmul(
    package, a_values, b_values, layouts=("row", "row", "row"), offsets=(0, 0, 0), right=None, what=None
):
    """One launch on whole numbers, whose dots are exact in every type."""
    memory = Memory()
    (m, k), n = a_values.shape, b_values.shape[1]
    a = memory.input(a_values, strides_of(layouts[0], m, k), offsets[0])
    b = memory.input(b_values, strides_of(layouts[1], k, n), offsets[1])
    c = memory.output((m, n), a.dtype, strides_of(layouts[2], m, n), offsets[2])
    package.launch.matmul(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    assert_equal(c, a_values.double() @ b_values.double() if right is None else right, what)
    memory.check(what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul(package, generator, dtype):
    for m, n, k in SHAPES:
        a, b = whole(generator, (m, k), DTYPES[dtype], 3), whole(generator, (k, n), DTYPES[dtype], 3)
        right = a.double() @ b.double()
        for name, layouts in LAYOUTS.items():
            matmul(package, a, b, layouts, right=right, what=(m, n, k, name))
    assert never_launched(package, "matmul", dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_misaligned_repeated_and_nan_operands(package, generator, dtype):
    a, b = whole(generator, (48, 96), DTYPES[dtype], 3), whole(generator, (96, 80), DTYPES[dtype], 3)
    for offsets in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (8, 8, 8)):
        matmul(package, a, b, offsets=offsets, what=offsets)
    c = torch.full((48, 80), math.nan, dtype=DTYPES[dtype], device="cuda")
    repeated = b[:, :1].expand(96, 80)
    package.launch.matmul(a, repeated, c, 48, 80, 96, *a.stride(), *repeated.stride(), *c.stride())
    assert_equal(c, a.double() @ repeated.double(), "strides of zero")
    matmul(package, a[:, :0], b[:0], what="K = 0 gives zeros")


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_normal_numbers(package, generator, dtype):
    """fp32 is multiplied as tf32, which has ten bits behind the point."""
    limit = {"fp16": 5e-4, "bf16": 3.5e-3, "fp32": 2e-3}[dtype]
    for m, n, k in ((256, 256, 512), (131, 257, 67), (8, 96, 96), (2048, 256, 128)):
        a, b = normal(generator, (m, k), DTYPES[dtype]), normal(generator, (k, n), DTYPES[dtype])
        c = torch.full((m, n), math.nan, dtype=DTYPES[dtype], device="cuda")
        package.launch.matmul(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
        right = a.double() @ b.double()
        error = ((c.double() - right).norm() / right.norm()).item()
        assert error <= limit, (m, n, k, error)


def attention(q, k, v, scale: float, causal: bool):
    """Result, log-sum-exp of each row, and the largest sum of the roundings of p to the type of v."""
    scores = q.double() @ k.double().transpose(-1, -2) * scale
    if causal:
        n = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool, device="cuda").triu(1), -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse[..., None])
    return weights @ v.double(), lse, weights @ v.double().abs()


def attention_layouts(heads: int, n: int, head_dim: int) -> dict[str, tuple[int, int, int]]:
    """Strides between batches, heads and positions."""
    return {
        "heads apart": (heads * n * head_dim, n * head_dim, head_dim),
        "heads side by side": (n * heads * head_dim, head_dim, heads * head_dim),
        "padded": (heads * (n + 1) * (head_dim + 16), (n + 1) * (head_dim + 16), head_dim + 16),
    }


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_flash_attention(package, generator, dtype, head_dim, causal):
    batch, heads = 2, 3
    for n in (1, 2, 15, 16, 63, 64, 65, 100, 127, 128, 129, 255, 257, 640, 1000, 2051):
        shape = (batch, heads, n, head_dim)
        values = [normal(generator, shape, DTYPES[dtype]) for _ in range(3)]
        scale = 1.3 * head_dim**-0.5
        right, right_lse, bound = attention(*values, scale=scale, causal=causal)
        for name, strides in attention_layouts(heads, n, head_dim).items():
            memory = Memory()
            q, k, v = (memory.input(value, (*strides, 1), offset=8) for value in values)
            out = memory.output(shape, DTYPES[dtype], (*strides, 1))
            lse = memory.output((batch * heads, n), torch.float32, offset=1)
            package.launch.flash_attention(
                q,
                k,
                v,
                out,
                lse,
                scale,
                *strides * 4,
                heads,
                heads,
                n,
                n,
                batch,
                HEAD_DIM=head_dim,
                IS_CAUSAL=causal,
            )
            assert_close(out, right, (n, name), absolute=(1.05 * ROUNDING[DTYPES[dtype]] + 3e-5) * bound)
            assert_close(lse, right_lse.view(batch * heads, n), ("lse", n, name), absolute=3e-5)
            memory.check((n, name))
    taken = f"HEAD_DIM={head_dim} IS_CAUSAL={causal} "
    assert [name for name in never_launched(package, "flash_attention", dtype) if taken in name] == []


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_attention_to_equal_keys_is_the_mean(package, generator, dtype, head_dim):
    """Zero queries weigh every position alike; where their number is a power of two, the mean of whole
    numbers is exact."""
    n = 512
    values = whole(generator, (1, 2, n, head_dim), DTYPES[dtype], 8)
    q, k = torch.zeros_like(values), normal(generator, values.shape, DTYPES[dtype])
    out, lse = torch.empty_like(q), torch.empty(2, n, device="cuda")
    for causal in (False, True):
        arguments = (q, k, values, out, lse, 0.125, *q.stride()[:3] * 4, 2, 2, n, n, 1)
        package.launch.flash_attention(*arguments, HEAD_DIM=head_dim, IS_CAUSAL=causal)
        count = (
            torch.arange(1, n + 1, device="cuda").double()
            if causal
            else torch.full((n,), float(n), device="cuda").double()
        )
        sums = (
            values.double().cumsum(dim=2)
            if causal
            else values.double().sum(dim=2, keepdim=True).expand(values.shape)
        )
        exact = torch.tensor([n.bit_count() == 1 for n in count.long().tolist()], device="cuda")
        right = sums / count[:, None]
        assert_equal(out[:, :, exact], right[:, :, exact], causal)
        assert_close(out, right, causal, relative=1e-6)
        assert_close(lse, count.log().expand(2, n), causal, absolute=2e-6)
