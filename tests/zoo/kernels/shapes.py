"""Tensors reshaped, transposed, joined, split and gathered."""

import triton
import triton.language as tl


@triton.jit
def transpose(x, out, M: tl.constexpr, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], tl.trans(values))


@triton.jit
def permute(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A), tl.arange(0, B), tl.arange(0, C)
    values = tl.load(x + a[:, None, None] * (B * C) + b[None, :, None] * C + c[None, None, :])
    place = c[:, None, None] * (A * B) + a[None, :, None] * B + b[None, None, :]
    tl.store(out + place, tl.permute(values, (2, 0, 1)))


@triton.jit
def repeat_elements(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each element K times in a row."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    values = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None, None] * (N * K) + n[None, :, None] * K + k[None, None, :], values[:, :, None])


@triton.jit
def reshape(x, out, M: tl.constexpr, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    flat = tl.reshape(values, (M * N,))
    tl.store(out + tl.arange(0, M * N), flat * 2)


@triton.jit
def join_and_split(x, y, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    joined = tl.join(tl.load(x + offsets), tl.load(y + offsets))
    tl.store(out + offsets[:, None] * 2 + tl.arange(0, 2)[None, :], joined)
    first, second = tl.split(joined)
    tl.store(out + 2 * BLOCK + offsets, first - second)
    tl.store(out + 3 * BLOCK + tl.arange(0, 2 * BLOCK), tl.interleave(first, second))


@triton.jit
def join_columns(out, n, BLOCK: tl.constexpr):
    """The pairs as two columns: what is next to a number in memory is not its other half."""
    offsets = tl.arange(0, BLOCK)
    joined = tl.join(offsets % n, offsets - n)
    tl.store(out + offsets[:, None] + tl.arange(0, 2)[None, :] * BLOCK, joined)


@triton.jit
def outer(x, y, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    product = tl.load(x + rows)[:, None] * tl.load(y + columns)[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], product + tl.broadcast_to(tl.load(x), (M, N)))


@triton.jit
def gather(x, index, out, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.gather(tl.load(x + place), tl.load(index + place), 1))


@triton.jit
def flip(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.flip(tl.load(x + offsets)))
