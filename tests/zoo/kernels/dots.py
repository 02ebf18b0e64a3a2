"""Dots of one tile, of loops over tiles, chained, batched and transposed."""

import triton
import triton.language as tl


@triton.jit
def dot_tile(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    result = tl.dot(left, right, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
    tl.store(c + m[:, None] * N + n[None, :], result)


@triton.jit
def dot_add_rows(a, b, rows, c, ldb, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A·Bᵀ plus a number for each row, with which the sums of that row can start."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + n[None, :] * ldb + k[:, None])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right) + tl.load(rows + m)[:, None])


@triton.jit
def two_dots_add_rows(a, b, rows, c, d, ldb, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A·Bᵀ and (A·Bᵀ)ᵀ, each plus a number for each row: two dots in flight at once, with sums that start
    from something."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + n[:, None] * ldb + k[None, :])
    one = tl.dot(left, tl.trans(right)) + tl.load(rows + m)[:, None]
    other = tl.dot(right, tl.trans(left)) + tl.load(rows + M + n)[:, None]
    tl.store(c + m[:, None] * N + n[None, :], one)
    tl.store(d + n[:, None] * M + m[None, :], other)


@triton.jit
def two_dots_of_types(a, b, words, counts, c, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A·B of floating-point numbers and W·C of integers, in flight at once."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = m[:, None] * K + k[None, :], n[None, :] * K + k[:, None]
    other = tl.dot(tl.load(words + left), tl.load(counts + right))
    one = tl.dot(tl.load(a + left), tl.load(b + right))
    tl.store(c + m[:, None] * N + n[None, :], one)
    tl.store(d + m[:, None] * N + n[None, :], other)


@triton.jit
def dot_transposed(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A is stored K×M and B is stored N×K."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.trans(tl.load(a + k[:, None] * M + m[None, :]))
    right = tl.trans(tl.load(b + n[:, None] * K + k[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right))


@triton.jit
def dot_kept(a, b, c, K, ldb, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A, which is stored BLOCK_K×M, by all the tiles of Bᵀ, of which a round of the loop takes two."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    left = tl.load(a + k[None, :] * M + m[:, None])
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK_K, loop_unroll_factor=2):
        total = tl.dot(left, tl.load(b + n[None, :] * ldb + (start + k)[:, None]), total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def dot_loop(a, b, c, K, lda, ldb, ldc, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * lda + k[None, :]
    b_tile = b + k[:, None] * ldb + n[None, :]
    total = tl.zeros((M, N), dtype=c.dtype.element_ty)
    for start in range(0, K, BLOCK_K):
        left = tl.load(a_tile, mask=k[None, :] < K - start, other=0.0)
        right = tl.load(b_tile, mask=k[:, None] < K - start, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * ldb
    tl.store(c + m[:, None] * ldc + n[None, :], total)


@triton.jit
def dot_and_sum_loop(
    a, b, c, sums, K, lda, ldb, ldc, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A load that feeds both a dot and a sum."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), dtype=tl.float32)
    row_sums = tl.zeros((M,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = tl.load(a + m[:, None] * lda + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * ldb + n[None, :])
        total = tl.dot(left, right, total)
        row_sums += tl.sum(left.to(tl.float32), axis=1)
    tl.store(c + m[:, None] * ldc + n[None, :], total)
    tl.store(sums + m, row_sums)


@triton.jit
def dot_chain(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """(A·B)·C, the first dot an operand of the second."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    middle = tl.load(b + k[:, None] * N + n[None, :])
    right = tl.load(c + n[:, None] * K + k[None, :])
    inner = tl.dot(left, middle).to(right.dtype)
    tl.store(out + m[:, None] * K + k[None, :], tl.dot(inner, right))


@triton.jit
def dot_batch(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    s, m, n, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + s[:, None, None] * (M * K) + m[None, :, None] * K + k[None, None, :])
    right = tl.load(b + s[:, None, None] * (K * N) + k[None, :, None] * N + n[None, None, :])
    tl.store(c + s[:, None, None] * (M * N) + m[None, :, None] * N + n[None, None, :], tl.dot(left, right))


@triton.jit
def dot_block_pointers(a, b, c, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    row, column = tl.program_id(0) * TILE_M, tl.program_id(1) * TILE_N
    a_tile = tl.make_block_ptr(a, (M, K), (K, 1), (row, 0), (TILE_M, TILE_K), (1, 0))
    b_tile = tl.make_block_ptr(b, (K, N), (N, 1), (0, column), (TILE_K, TILE_N), (1, 0))
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(0, K, TILE_K):
        left = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(left, right, total)
        a_tile = tl.advance(a_tile, (0, TILE_K))
        b_tile = tl.advance(b_tile, (TILE_K, 0))
    c_tile = tl.make_block_ptr(c, (M, N), (N, 1), (row, column), (TILE_M, TILE_N), (1, 0))
    tl.store(c_tile, total.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def dot_descriptors(
    a, b, c, M, N, K, lda, ldb, ldc, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    row, column = tl.program_id(0) * TILE_M, tl.program_id(1) * TILE_N
    left = tl.make_tensor_descriptor(a, [M, K], [lda, 1], [TILE_M, TILE_K])
    right = tl.make_tensor_descriptor(b, [N, K], [ldb, 1], [TILE_N, TILE_K])
    out = tl.make_tensor_descriptor(c, [1, M, N], [M * ldc, ldc, 1], [1, TILE_M, TILE_N])
    acc = tl.zeros((TILE_M, TILE_N), tl.float32)
    for k in range(0, K, TILE_K):
        acc += tl.dot(left.load([row, k]), right.load([column, k]).T)
    out.store([0, row, column], acc.to(tl.float16)[None, :, :])


@triton.jit
def dot_from(a, b, c, M, N, K, ld, first, TILE: tl.constexpr, TILE_K: tl.constexpr):
    """A dot over the columns from one on that need not begin at 16 bytes, where no box of a tensor map
    may begin."""
    left = tl.make_tensor_descriptor(a, [M, K], [ld, 1], [TILE, TILE_K])
    right = tl.make_tensor_descriptor(b, [N, K], [ld, 1], [TILE, TILE_K])
    acc = tl.zeros((TILE, TILE), tl.float32)
    for start in range(first, K, TILE_K):
        x, y = left.load([0, start]), right.load([0, start])
        acc += tl.dot(x, y.T)
    i = tl.arange(0, TILE)
    tl.store(c + i[:, None] * TILE + i[None, :], acc.to(tl.float16))


@triton.jit
def dot_batched(a, b, c, M, N, K, size_a, size_b, ld_a, ld_b, TILE: tl.constexpr, TILE_K: tl.constexpr):
    """A dot of one matrix of each array of matrices: its blocks are one matrix thick."""
    batch, row, column = tl.program_id(2), tl.program_id(0) * TILE, tl.program_id(1) * TILE
    left = tl.make_tensor_descriptor(a, [2, M, K], [size_a, ld_a, 1], [1, TILE, TILE_K])
    right = tl.make_tensor_descriptor(b, [2, K, N], [size_b, ld_b, 1], [1, TILE_K, TILE])
    out = tl.make_tensor_descriptor(c, [2, M, N], [M * N, N, 1], [1, TILE, TILE])
    acc = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, TILE_K):
        x = tl.reshape(left.load([batch, row, k]), [TILE, TILE_K])
        y = tl.reshape(right.load([batch, k, column]), [TILE_K, TILE])
        acc = tl.dot(x, y, acc)
    out.store([batch, row, column], tl.reshape(acc.to(tl.float16), [1, TILE, TILE]))


@triton.jit
def dot_specialized(
    a, b, c, M, N, K, lda, ldb, ldc, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    left = tl.make_tensor_descriptor(a, [M, K], [lda, 1], [TILE_M, TILE_K])
    right = tl.make_tensor_descriptor(b, [K, N], [ldb, 1], [TILE_K, TILE_N])
    out = tl.make_tensor_descriptor(c, [M, N], [ldc, 1], [TILE_M, TILE_N])
    tiles_m = tl.cdiv(M, TILE_M)
    for tile in tl.range(tl.program_id(0), tiles_m * tl.cdiv(N, TILE_N), tl.num_programs(0)):
        row, column = tile % tiles_m * TILE_M, tile // tiles_m * TILE_N
        acc = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in tl.range(0, K, TILE_K, warp_specialize=True):
            acc = tl.dot(left.load([row, k]), right.load([k, column]), acc)
        out.store([row, column], acc.to(tl.float16))


@triton.jit
def dot_and_sum_specialized(
    a, b, c, sums, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    """Tiles that a dot and the threads themselves read."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TILE_M, TILE_K])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [TILE_K, TILE_N])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [TILE_M, TILE_N])
    acc = tl.zeros((TILE_M, TILE_N), tl.float32)
    row_sums = tl.zeros((TILE_M,), tl.float32)
    for k in tl.range(0, K, TILE_K, warp_specialize=True):
        tile = left.load([0, k])
        acc = tl.dot(tile, right.load([k, 0]), acc)
        row_sums += tl.sum(tile.to(tl.float32), axis=1)
    out.store([0, 0], acc.to(tl.float16))
    tl.store(sums + tl.arange(0, TILE_M), row_sums)


@triton.jit
def dot_of_written(
    a, b, scratch, c, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    """A dot of operands that the kernel itself has written before."""
    source = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TILE_M, TILE_K])
    left = tl.make_tensor_descriptor(scratch, [M, K], [K, 1], [TILE_M, TILE_K])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [TILE_K, TILE_N])
    for k in range(0, K, TILE_K):
        left.store([0, k], source.load([0, k]) * 2)
    tl.debug_barrier()
    acc = tl.zeros((TILE_M, TILE_N), tl.float32)
    for k in range(0, K, TILE_K):
        acc = tl.dot(left.load([0, k]), right.load([k, 0]), acc)
    tl.make_tensor_descriptor(c, [M, N], [N, 1], [TILE_M, TILE_N]).store([0, 0], acc.to(tl.float16))


@triton.jit
def attention_specialized(q, k, v, out, rows, pitch, TILE: tl.constexpr, HEAD: tl.constexpr):
    start = tl.program_id(0) * TILE
    queries = tl.make_tensor_descriptor(q, [rows, HEAD], [pitch, 1], [TILE, HEAD])
    keys = tl.make_tensor_descriptor(k, [rows, HEAD], [pitch, 1], [TILE, HEAD])
    values = tl.make_tensor_descriptor(v, [rows, HEAD], [pitch, 1], [TILE, HEAD])
    result = tl.make_tensor_descriptor(out, [rows, HEAD], [pitch, 1], [TILE, HEAD])
    query = queries.load([start, 0])
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    acc = tl.zeros((TILE, HEAD), tl.float32)
    for other in tl.range(0, rows, TILE, warp_specialize=True):
        scores = tl.dot(query, keys.load([other, 0]).T)
        new = tl.maximum(highest, tl.max(scores, 1))
        weights, scale = tl.exp2(scores - new[:, None]), tl.exp2(highest - new)
        total = total * scale + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.float16), values.load([other, 0]), acc * scale[:, None])
        highest = new
    result.store([start, 0], (acc / total[:, None]).to(tl.float16))


@triton.jit
def descriptor_shift(x, out, rows, columns, pitch, up, left, TILE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE, TILE])
    target = tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [TILE, TILE])
    for row in range(0, rows, TILE):
        for column in range(0, columns, TILE):
            target.store([row, column], source.load([row + up, column + left]) + 1)


@triton.jit
def dot_of_grids(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Dots of 2×4 pairs of matrices."""
    left = tl.reshape(tl.load(a + tl.arange(0, 8 * M * K)), (2, 4, M, K))
    right = tl.reshape(tl.load(b + tl.arange(0, 8 * K * N)), (2, 4, K, N))
    tl.store(c + tl.arange(0, 8 * M * N), tl.reshape(tl.dot(left, right), (8 * M * N,)))


@triton.jit
def dot_of_chosen(a, b, out, n, N: tl.constexpr):
    """An operand whose mask goes through shared memory with it."""
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    mask = i > n
    chosen = tl.where(mask, tl.load(b + i, mask=mask), tl.full((N, N), 1, b.dtype.element_ty))
    tl.store(out + i, tl.dot(tl.load(a + i), chosen))


@triton.jit
def dot_stored_turned(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Neighbours in memory are of one column of the result; TMA stores it."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    result = tl.dot(tl.load(a + m[:, None] * K + k), tl.load(b + k[:, None] * N + n))
    turned = tl.make_tensor_descriptor(out, shape=[N, M], strides=[M, 1], block_shape=[N, M])
    turned.store([0, 0], result.to(tl.float16).T)


@triton.jit
def dot_exact(
    a, b, c, N, K, ak, bk, M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, TURNED: tl.constexpr
):
    """A·B without rounding of products, of a tile of N.  TURNED says of A and of B whether the one is stored K×M, the
    other N×K, with rows of `ak` and `bk` elements."""
    m, n, k = tl.arange(0, M), tl.program_id(0) * TILE_N + tl.arange(0, TILE_N), tl.arange(0, TILE_K)
    pa = a + (m[:, None] + k[None, :] * ak if TURNED[0] else m[:, None] * ak + k[None, :])
    pb = b + (k[:, None] + n[None, :] * bk if TURNED[1] else k[:, None] * bk + n[None, :])
    total = tl.zeros((M, TILE_N), c.dtype.element_ty)
    for start in range(0, K, TILE_K):
        left = tl.load(pa, mask=k[None, :] < K - start, other=0.0)
        right = tl.load(pb, mask=k[:, None] < K - start, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
        pa += TILE_K * (ak if TURNED[0] else 1)
        pb += TILE_K * (1 if TURNED[1] else bk)
    tl.store(c + m[:, None] * N + n[None, :], total)
