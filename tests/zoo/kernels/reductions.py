"""Reductions and scans along each dimension, with library and own combine functions."""

import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers  # pyright: ignore[reportMissingImports]


@triton.jit
def reduce_matrix(x, sums, maxima, places, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    values = tl.load(x + rows[:, None] * N + columns[None, :])
    along = tl.arange(0, N if AXIS == 0 else M)
    tl.store(sums + along, tl.sum(values, axis=AXIS))
    tl.store(maxima + along, tl.max(values, axis=AXIS))
    tl.store(places + along, tl.argmin(values, axis=AXIS))


@triton.jit
def reduce_all(x, out, M: tl.constexpr, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out, tl.sum(values))
    tl.store(out + 1, tl.max(values))
    tl.store(out + 2, tl.min(tl.min(values, axis=1), axis=0))


@triton.jit
def largest_with_index(x, values_out, index_out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=-float("inf"))
    best, index = tl.max(values, axis=0, return_indices=True)
    tl.store(values_out, best)
    tl.store(index_out, index)


@triton.jit
def add_pairs(a_value, a_count, b_value, b_count):
    return a_value + b_value, a_count + b_count


@triton.jit
def reduce_pairs(x, out, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    total, count = tl.reduce((values, (values > 0).to(tl.int32)), 0, add_pairs)
    tl.store(out, total)
    tl.store(out + 1, count.to(tl.float32))


@triton.jit
def scan_matrix(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.cumsum(tl.load(x + place), axis=AXIS, reverse=REVERSE))


@triton.jit
def linear_recurrence(a_left, b_left, a_right, b_right):
    return a_left * a_right, b_left * a_right + b_right


@triton.jit
def scan_recurrence(a, b, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    _, states = tl.associative_scan((tl.load(a + offsets), tl.load(b + offsets)), 0, linear_recurrence)
    tl.store(out + offsets, states)


@triton.jit
def sum_in_loop(x, out, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0), axis=0)
    tl.store(out, total)


@triton.jit
def softmax_rows(x, out, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    values = tl.load(x + place)
    exponentials = tl.exp(values - tl.max(values, axis=1, keep_dims=True))
    tl.store(out + place, exponentials / tl.sum(exponentials, axis=1)[:, None])


@triton.jit
def sort_vector(x, out, BLOCK: tl.constexpr, DESCENDING: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.sort(tl.load(x + offsets), descending=DESCENDING))


@triton.jit
def count_values(x, out, BLOCK: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, BLOCK)), BINS))


@triton.jit
def helpers_of_torch(x, sorted, places, moments, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows sorted, and their means and variances, by functions that torch.compile's kernels call."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    at = rows * COLUMNS + columns
    values = tl.load(x + at)
    ordered, indices = triton_helpers.sort_with_index(values, columns, None, 1, descending=True)
    tl.store(sorted + at, ordered)
    tl.store(places + at, indices)
    mean, m2, weight = triton_helpers.welford(values, values * 0.0, values * 0.0 + 1.0, 1)
    tl.store(moments + tl.arange(0, ROWS), mean)
    tl.store(moments + ROWS + tl.arange(0, ROWS), m2 / weight)


@triton.jit
def sums_of_products(a, b, rows, columns, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    """a·b from three dimensions, and the same of transposed matrices."""
    m, k, n = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    left, right = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    tl.store(rows + m[:, None] * N + n[None, :], tl.sum(left[:, :, None] * right[None, :, :], 1))
    tl.store(columns + n[:, None] * M + m[None, :], tl.sum(left[None, :, :] * right.T[:, None, :], 2))


@triton.jit
def vector_times_rows(x, y, out, n, M: tl.constexpr, N: tl.constexpr):
    """Sums of more products than there are registers, the last rows masked."""
    m, k = tl.arange(0, M), tl.arange(0, N)
    rows = tl.load(y + m[:, None] * N + k[None, :], mask=m[:, None] < n, other=0.0)
    tl.store(out + m, tl.sum(tl.load(x + k)[None, :].to(tl.float32) * rows.to(tl.float32), 1))
