"""Functions of the language compared with numpy, through the interpreter."""

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.types import F32, element_of
from kbuild.compiler.ops.tensor import Reduce

RNG = np.random.default_rng(7)


@kbuild.jit
def integers(x, y, out, N: tl.constexpr):
    o = tl.arange(0, N)
    a, b = tl.load(x + o), tl.load(y + o)
    tl.store(out + o, a // b)
    tl.store(out + N + o, a % b)
    tl.store(out + 2 * N + o, a << (b & 7))
    tl.store(out + 3 * N + o, a >> (b & 7))
    tl.store(out + 4 * N + o, (~a & b) | (a ^ 5))
    tl.store(out + 5 * N + o, tl.where(a < b, -a, abs(b)))
    tl.store(out + 6 * N + o, a**3)


def truncated(a, b):
    quotient = np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64))
    return quotient * np.sign(a.astype(np.int64)) * np.sign(b.astype(np.int64))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint32])
def test_integers_divide_as_in_c(dtype):
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -100
    a, b = RNG.integers(low, 100, 32).astype(dtype), RNG.integers(1, 100, 32).astype(dtype)
    if low:
        b *= RNG.choice([-1, 1], 32).astype(dtype)
    out = np.zeros((7, 32), dtype)
    integers.interpret[1](a, b, out, N=32)
    quotient = truncated(a, b)
    shift = b & dtype(7)
    right = [
        quotient,
        a - quotient * b,
        a << shift,
        a >> shift,
        (~a & b) | (a ^ dtype(5)),
        np.where(a < b, -a, np.abs(b)),
        a * a * a,
    ]
    for found, wanted in zip(out, right):
        np.testing.assert_array_equal(found, np.asarray(wanted).astype(dtype))


@kbuild.jit
def truths(flags, out, N: tl.constexpr):
    o = tl.arange(0, N)
    flag = tl.load(flags + o)
    tl.static_assert(flag.dtype == tl.int1 and tl.load(flags).dtype == tl.int1)
    tl.store(out + o, tl.where(~flag, 10, 20) + flag)
    tl.store(flags + o, ~flag)


def test_truth_values_in_memory():
    """They are bytes there and int1 once loaded: to invert one is `not`, where inverting a byte gives -1 or
    -2, both true."""
    flags, out = np.array([True, False, True, True]), np.zeros(4, np.int32)
    truths.interpret[1](flags, out, N=4)
    assert out.tolist() == [21, 10, 21, 21] and flags.tolist() == [False, True, False, False]


@kbuild.jit
def doubles(x, out):
    tl.store(out, tl.load(x) * 0.1)
    tl.store(out + 1, tl.where(tl.load(x) > 0, 0.1, tl.load(x)))
    tl.store(out + 2, tl.maximum(tl.load(x), 0.1))


def test_numbers_beside_doubles_are_doubles():
    out = np.zeros(3)
    doubles.interpret[1](np.array([0.01]), out)
    assert out.tolist() == [0.01 * 0.1, 0.1, float(np.float32(0.1))], (
        "tl.maximum first makes a tensor of a number, as Triton's"
    )


@kbuild.jit
def reductions(x, values, places, R: tl.constexpr, C: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    t = tl.load(x + row * C + column)
    r = tl.arange(0, R)
    largest, where_largest = tl.max(t, 1, return_indices=True)
    tl.store(values + r, largest)
    tl.store(places + r, where_largest)
    tl.store(places + R + r, tl.argmin(t, 1))
    tl.store(values + R + r, tl.sum(t, axis=1))
    tl.store(values + 2 * R + r, tl.min(t, 1, keep_dims=True).reshape(R))
    tl.store(values + 3 * R + r, tl.sum(t) + tl.max(t.T, axis=0))
    whole, place = tl.max(t, return_indices=True)
    tl.store(values + 4 * R, whole)
    tl.store(places + 2 * R, place)


def test_reductions_and_ties():
    x = RNG.integers(-3, 4, (8, 16)).astype(np.float32)
    values, places = np.zeros((5, 8), np.float32), np.zeros((3, 8), np.int32)
    reductions.interpret[1](x, values, places, R=8, C=16)
    np.testing.assert_array_equal(values[:4], [x.max(1), x.sum(1), x.min(1), x.sum() + x.max(1)])
    np.testing.assert_array_equal(places[:2], [x.argmax(1), x.argmin(1)])
    assert (values[4, 0], places[2, 0]) == (x.max(), x.argmax())


@kbuild.jit
def sum_of_halves(x, out, N: tl.constexpr):
    total = tl.sum(tl.load(x + tl.arange(0, N)))
    tl.static_assert(total.dtype == tl.float16)
    tl.store(out, total)


def test_halves_are_added_in_float32():
    x, out = np.full(512, 0.1, np.float16), np.zeros(1, np.float16)
    sum_of_halves.interpret[1](x, out, N=512)
    assert out[0] == np.float16(x.astype(np.float64).sum()) == 51.1875
    module = build_module(sum_of_halves, {"x": "*fp16", "out": "*fp16"}, {"N": 512})
    (reduction,) = (op for op in module.kernel.walk() if isinstance(op, Reduce))
    assert element_of(reduction.srcs[0].type) == F32, (
        "additions in float16 would give 51.125 to 51.25, by their order"
    )


@kbuild.jit
def subscripts_of_a_number(x, out):
    n = tl.load(x)
    tl.static_assert(n[:, None].shape == [1] and n[None, :].shape == [1] and n[:, None, None].shape == [1, 1])
    tl.store(out + tl.arange(0, 4), tl.arange(0, 4) + n[:, None])


def test_colons_beyond_the_last_dimension_keep_nothing():
    out = np.zeros(4, np.int32)
    subscripts_of_a_number.interpret[1](np.array([5], np.int32), out)
    assert out.tolist() == [5, 6, 7, 8]


@kbuild.jit
def scans(x, out, R: tl.constexpr, C: tl.constexpr):
    o = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    t = tl.load(x + o)
    tl.store(out + o, tl.cumsum(t, 1))
    tl.store(out + R * C + o, tl.cumsum(t, 0, reverse=True))
    tl.store(out + 2 * R * C + o, tl.cumprod(t, axis=1))
    tl.store(out + 3 * R * C + o, tl.associative_scan(t, 1, running_maximum))


@kbuild.jit
def running_maximum(a, b):
    return tl.maximum(a, b)


def test_scans():
    x = RNG.integers(-2, 3, (4, 8)).astype(np.int32)
    out = np.zeros((4, 4, 8), np.int32)
    scans.interpret[1](x, out, R=4, C=8)
    right = [x.cumsum(1), x[::-1].cumsum(0)[::-1], x.cumprod(1), np.maximum.accumulate(x, 1)]
    np.testing.assert_array_equal(out, right)


@kbuild.jit
def orders(x, out, best, R: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    o = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    t = tl.load(x + o)
    tl.store(out + o, tl.sort(t))
    tl.store(out + R * C + o, tl.sort(t, descending=True))
    tl.store(out + 2 * R * C + o, tl.flip(t, 1))
    tl.store(out + 3 * R * C + o, tl.flip(t, 0))
    tl.store(best + tl.arange(0, R)[:, None] * K + tl.arange(0, K)[None, :], tl.topk(t, K))


@pytest.mark.parametrize(("rows", "columns", "k"), [(4, 16, 4), (1, 32, 1), (2, 8, 8), (8, 2, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
def test_sorting(rows, columns, k, dtype):
    x = RNG.integers(-9, 9, (rows, columns)).astype(dtype)
    out, best = np.zeros((4, rows, columns), dtype), np.zeros((rows, k), dtype)
    orders.interpret[1](x, out, best, R=rows, C=columns, K=k)
    up = np.sort(x, 1)
    np.testing.assert_array_equal(out, [up, up[:, ::-1], x[:, ::-1], x[::-1]])
    np.testing.assert_array_equal(best, up[:, ::-1][:, :k])


@kbuild.jit
def random_numbers(ints, floats, seed, N: tl.constexpr):
    o = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, o)
    for i, value in enumerate((a, b, c, d)):
        tl.store(ints + i * N + o, value)
    tl.store(floats + o, tl.rand(seed, o))
    tl.store(floats + N + o, tl.randn(seed, o))


def philox(counter, key, rounds=10):
    """Philox 4x32 as its paper has it."""
    c, k = [int(value) for value in counter], list(key)
    for _ in range(rounds):
        low, high = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [high >> 32 ^ c[1] ^ k[0], high & 0xFFFFFFFF, low >> 32 ^ c[3] ^ k[1], low & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_random_numbers_are_philox():
    seed, size = 0x1234_5678, 64
    ints, floats = np.zeros((4, size), np.uint32), np.zeros((2, size), np.float32)
    random_numbers.interpret[1](ints, floats, seed, N=size, types={"seed": "i64"})
    np.testing.assert_array_equal(ints.T, [philox((i, 0, 0, 0), (seed, 0)) for i in range(size)])
    signed = ints[0].view(np.int32).astype(np.int64)
    uniform = np.where(signed < 0, -signed - 1, signed) * np.float32(4.6566127342e-10)
    np.testing.assert_allclose(floats[0], uniform, rtol=1e-6)
    assert floats[0].min() >= 0 and floats[0].max() < 1 and abs(floats[1].mean()) < 0.5


@kbuild.jit
def shapes(x, out, M: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    t = tl.load(x + o)
    tl.store(out + o, tl.trans(t.reshape(N, M)))
    low, high = tl.split(t.reshape(M, N // 2, 2))
    tl.store(out + M * N + o, tl.interleave(high, low))
    tl.store(out + 2 * M * N + o, tl.join(low, high).permute(0, 2, 1).reshape([M, N]))
    tl.store(out + 3 * M * N + o, tl.ravel(t)[None, :].broadcast_to(1, M * N).reshape(M, N))
    tl.store(out + 4 * M * N + o, tl.gather(t, (tl.arange(0, N)[None, :] ^ 1).broadcast_to(M, N), 1))


def test_shapes():
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    out = np.zeros((5, 4, 8), np.int32)
    shapes.interpret[1](x, out, M=4, N=8)
    pairs = x.reshape(4, 4, 2)
    right = [
        x.reshape(8, 4).T,
        pairs[:, :, ::-1].reshape(4, 8),
        pairs.transpose(0, 2, 1).reshape(4, 8),
        x,
        pairs[:, :, ::-1].reshape(4, 8),
    ]
    np.testing.assert_array_equal(out, right)


@kbuild.jit
def one_row(x, out, n, N: tl.constexpr):
    columns, rows = tl.arange(0, N), tl.arange(0, 4)
    loaded = tl.load(x + columns[None, :], mask=(rows[:, None] < 2) & (columns[None, :] < n), other=-1)
    beside = tl.load(x + columns, mask=columns < n, other=rows[:, None])
    tl.store(out + rows[:, None] * N + columns[None, :], loaded + 100 * beside)


def test_pointers_of_loads_spread_to_the_mask():
    x, out = np.arange(8, dtype=np.int32), np.zeros((4, 8), np.int32)
    one_row.interpret[1](x, out, 5, N=8)
    rows, columns = np.indices((4, 8))
    known = columns < 5
    right = np.where(known & (rows < 2), columns, -1) + 100 * np.where(known, columns, rows)
    np.testing.assert_array_equal(out, right)


@kbuild.jit
def blocks(x, out, rows, columns, pitch, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (M, N), (1, 0))
    target = tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [M, N])
    for column in range(0, columns, N):
        tile = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        target.store([0, column], tile + target.load([0, column]))
        source = tl.advance(source, (0, N))


def test_block_pointers_and_descriptors_keep_to_the_tensor():
    x = RNG.integers(0, 9, (5, 21)).astype(np.float32)
    out = np.ones((5, 24), np.float32)
    blocks.interpret[1](x, out, 5, 21, 24, M=8, N=8)
    np.testing.assert_array_equal(out[:, :21], x + 1)
    np.testing.assert_array_equal(out[:, 21:], 1)


@kbuild.jit
def atomics(memory, old, values, N: tl.constexpr):
    o = tl.arange(0, N)
    v = tl.load(values + o)
    tl.store(old + o, tl.atomic_max(memory + o, v))
    tl.atomic_min(memory + N + o, v, mask=o < 4, sem="relaxed")
    tl.atomic_add(memory + 2 * N, tl.sum(v))


def test_atomic_extremes_of_floats_compare_their_bits():
    memory = np.array([[-1, 1, -2.5, 0, 3, -0.5, 7, -8]] * 3, np.float32)
    values = np.array([-2, 2, 1, -1, -3, -0.25, 8, -9], np.float32)
    before, old = memory.copy(), np.zeros(8, np.float32)
    atomics.interpret[1](memory, old, values, N=8)
    np.testing.assert_array_equal(old, before[0])
    np.testing.assert_array_equal(memory[0], np.maximum(before[0], values))
    np.testing.assert_array_equal(
        memory[1], np.where(np.arange(8) < 4, np.minimum(before[1], values), before[1])
    )
    assert memory[2, 0] == before[2, 0] + values.sum()


@kbuild.jit
def casts(x, out, half, byte):
    o = tl.arange(0, 8)
    v = tl.load(x + o)
    tl.store(out + o, v.to(tl.int32))
    tl.store(out + 8 + o, v.to(tl.int32, bitcast=True))
    tl.store(half + o, v)
    tl.store(half + 8 + o, v.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(byte + o, v != 0)


def test_casts():
    x = np.array([0, 1.9, -1.9, 1.0009, -2049.7, 65504, 0.1, -7], np.float32)
    out, half, byte = np.zeros((2, 8), np.int32), np.zeros((2, 8), np.float16), np.zeros(8, bool)
    casts.interpret[1](x, out, half, byte)
    np.testing.assert_array_equal(out, [x.astype(np.int32), x.view(np.int32)])
    nearest = x.astype(np.float16)
    toward_zero = np.where(
        np.abs(nearest.astype(np.float32)) > np.abs(x), np.nextafter(nearest, np.float16(0)), nearest
    )
    np.testing.assert_array_equal(half, [nearest, toward_zero])
    np.testing.assert_array_equal(byte, x != 0)


@kbuild.jit
def dots(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + n[:, None] * K + k[None, :])
    z = tl.load(c + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(x, y.T, z))


@pytest.mark.parametrize(
    ("name", "dtype", "result"), [("fp16", np.float16, np.float32), ("i8", np.int8, np.int32)]
)
def test_dots(name, dtype, result):
    a, b = RNG.integers(-4, 5, (16, 32)).astype(dtype), RNG.integers(-4, 5, (8, 32)).astype(dtype)
    c, out = RNG.integers(-4, 5, (16, 8)).astype(result), np.zeros((16, 8), result)
    module = build_module(
        dots,
        {
            "a": f"*{name}",
            "b": f"*{name}",
            "c": "*fp32" if result is np.float32 else "*i32",
            "out": "*fp32" if result is np.float32 else "*i32",
        },
        {"M": 16, "N": 8, "K": 32},
    )
    interp.run(module, [a, b, c, out])
    np.testing.assert_array_equal(out, a.astype(np.int64) @ b.T.astype(np.int64) + c)


@kbuild.jit
def to_floats(x, out, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, tl.load(x + o).to(tl.float32))


def test_integers_of_64_bits_are_rounded_once():
    """A bit above the tie counts, also where doubles have no place for it."""
    x = np.array([(1 << 60) + (1 << 36) + 1, (1 << 60) + (1 << 36), -(1 << 60) - (1 << 36) - 1, 3], np.int64)
    out = np.zeros(4, np.float32)
    to_floats.interpret[1](x, out, N=4)
    assert out.tolist() == [2.0**60 + 2.0**37, 2.0**60, -(2.0**60) - 2.0**37, 3.0]


@kbuild.jit
def random_words(x, out, PLACE: tl.constexpr):
    bits = tl.load(x + tl.arange(0, 4))
    counters = (tl.zeros_like(bits),) * 4
    given = counters[:PLACE] + (bits,) + counters[PLACE + 1 :]
    a, b, c, d = tl.philox(7, given[0], given[1], given[2], given[3])
    tl.store(out + tl.arange(0, 4), (a ^ b ^ c ^ d).to(tl.uint32, bitcast=True))


@pytest.mark.parametrize("place", range(4))
def test_counters_of_random_numbers_are_taken_by_their_bits(place):
    """A float as a counter stands for its bits, as in Triton."""
    floats = np.array([1.5, -2.0, 3e9, 1e-9], np.float32)
    one, other = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    random_words.interpret[1](floats, one, PLACE=place)
    random_words.interpret[1](floats.view(np.int32), other, PLACE=place)
    assert one.tolist() == other.tolist() and len(set(one.tolist())) == 4
