"""Blocks of tensors, read by plain pointer arithmetic in all the forms in which kernels do: what TMA
can do, and what it must not."""

import triton
import triton.language as tl


@triton.jit
def dot_tiles(
    a,
    b,
    c,
    starts,
    M,
    N,
    K,
    lda,
    ldb,
    ldc,
    stride_z,
    stride_h,
    heads,
    FORM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    LDA: tl.constexpr,
):
    """C = A·B for A of M×K, with a batch of A's in some forms; B is K×N."""
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    batch = tl.program_id(2)
    if FORM == "wrapped" or FORM == "column_sums":
        a_rows = a + (rows % M).to(tl.int64)[:, None] * lda + depth[None, :]
    elif FORM == "heads":
        a += (batch // heads).to(tl.int64) * stride_z + (batch % heads).to(tl.int64) * stride_h
        a_rows = a + rows[:, None] * lda + depth[None, :]
    elif FORM == "batch":
        a_rows = a + (batch * (M + 8) + rows)[:, None] * lda + depth[None, :]
    elif FORM == "constant_stride":
        a_rows = a + rows[:, None] * LDA + depth[None, :]
    elif FORM == "table":
        a_rows = a + (tl.load(starts + tl.program_id(0)) + rows)[:, None] * lda + depth[None, :]
    elif FORM == "above":
        a_rows = a + (rows - 3)[:, None] * lda + depth[None, :]
    else:
        a_rows = a + rows[:, None] * lda + depth[None, :]
    b_rows = b + depth[:, None] * ldb + columns[None, :]
    first = 0
    if FORM == "second_half":
        first = K // TILE_K // 2 * TILE_K
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    last, step = K, TILE_K
    if FORM == "blocks":
        last, step = tl.cdiv(K, TILE_K), 1
    for k in range(first, last, step):
        if FORM == "blocks":
            k *= TILE_K
        if FORM == "above":
            left = tl.load(
                a_rows + k,
                mask=(rows >= 3)[:, None] & (rows < M + 3)[:, None] & (depth < K - k)[None, :],
                other=0.0,
            )
        elif FORM == "ones":
            left = tl.load(a_rows + k, mask=(rows < M)[:, None] & (depth < K - k)[None, :], other=1.0)
        elif FORM == "wrapped" or FORM == "column_sums":
            left = tl.load(a_rows + k, mask=(k + depth < K)[None, :], other=0.0)
        elif FORM == "diagonal":
            left = tl.load(
                a_rows + k, mask=(rows < M)[:, None] & (rows[:, None] >= (k + depth)[None, :]), other=0.0
            )
        else:
            left = tl.load(a_rows + k, mask=(rows[:, None] < M) & (depth[None, :] < K - k), other=0.0)
        if FORM == "second_half":
            right = tl.load(
                b_rows + k * ldb, mask=(depth[:, None] < K - k) & (columns[None, :] < N), other=0.0
            )
        else:
            right = tl.load(b_rows, mask=(depth[:, None] < K - k) & (columns[None, :] < N), other=0.0)
            b_rows += TILE_K * ldb
        total = tl.dot(left, right, total)
    if FORM == "column_sums" or FORM == "sums":
        tl.store(c + columns, tl.sum(total, 0), mask=columns < N)
    elif FORM == "in_place":
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(a + rows[:, None] * lda + columns[None, :], total.to(tl.float16), mask=inside)
    else:
        if FORM == "heads" or FORM == "batch":
            c += batch * M * ldc
        tl.store(
            c + rows[:, None] * ldc + columns[None, :],
            total,
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )
