"""C = A·B with tensor cores, programs ordered in groups so that neighbours share tiles in the L2 cache."""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of a tile: they are numbered down GROUP_M rows first, then on to the next column."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = tile // per_group * GROUP_M
    group_m = min(tiles_m - first_m, GROUP_M)
    within = tile % per_group
    return first_m + within % group_m, within // group_m


@triton.jit
def store_part(c, values, rows, columns, M, N, stride_cm, stride_cn):
    """Stores the part of C that is inside it."""
    pointers = c + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(pointers, values.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def product_of_tile(
    tile_m,
    tile_n,
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FIRST_N: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Makes one tile of C; SPECIALIZE gives the copies of its operands a warp of their own.

    A tile has powers of two of rows and columns, or is two that share their rows: FIRST_N columns, and the
    rest of BLOCK_N."""
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, FIRST_N)
    depth = tl.arange(0, BLOCK_K)
    # What is past the edge is not stored, so it may be read from rows and columns that wrap around, and the
    # loads need no mask for it.  But a program of several tiles has stored between its reads: where it
    # wrapped around might have been written.
    accumulator = tl.zeros((BLOCK_M, FIRST_N), dtype=tl.float32)
    in_a = rows < M if SPECIALIZE else tl.full((BLOCK_M,), True, tl.int1)
    in_b = columns < N if SPECIALIZE else tl.full((FIRST_N,), True, tl.int1)
    a_tile = (
        a + (rows if SPECIALIZE else rows % M).to(tl.int64)[:, None] * stride_am + depth[None, :] * stride_ak
    )
    b_tile = (
        b
        + depth[:, None] * stride_bk
        + (columns if SPECIALIZE else columns % N).to(tl.int64)[None, :] * stride_bn
    )
    if FIRST_N < BLOCK_N:
        rest = tile_n * BLOCK_N + FIRST_N + tl.arange(0, BLOCK_N - FIRST_N)
        rest_accumulator = tl.zeros((BLOCK_M, BLOCK_N - FIRST_N), dtype=tl.float32)
        rest_tile = b + depth[:, None] * stride_bk + rest.to(tl.int64)[None, :] * stride_bn
    for start in tl.range(0, K, BLOCK_K, warp_specialize=SPECIALIZE):
        a_values = tl.load(a_tile, mask=in_a[:, None] & (depth[None, :] < K - start), other=0.0)
        b_values = tl.load(b_tile, mask=(depth[:, None] < K - start) & in_b[None, :], other=0.0)
        accumulator = tl.dot(a_values, b_values, accumulator)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
        if FIRST_N < BLOCK_N:
            rest_values = tl.load(
                rest_tile, mask=(depth[:, None] < K - start) & (rest[None, :] < N), other=0.0
            )
            rest_accumulator = tl.dot(a_values, rest_values, rest_accumulator)
            rest_tile += BLOCK_K * stride_bk
    if FIRST_N < BLOCK_N:
        store_part(c, accumulator, rows, columns, M, N, stride_cm, stride_cn)
        store_part(c, rest_accumulator, rows, rest, M, N, stride_cm, stride_cn)
    elif SPECIALIZE:
        # In two halves, so that the first is on its way when the second is brought into order.
        left, right = accumulator.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
        near = tile_n * BLOCK_N + tl.arange(0, BLOCK_N // 2)
        store_part(c, left, rows, near, M, N, stride_cm, stride_cn)
        store_part(c, right, rows, near + BLOCK_N // 2, M, N, stride_cm, stride_cn)
    else:
        store_part(c, accumulator, rows, columns, M, N, stride_cm, stride_cn)


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PERSISTENT: tl.constexpr = False,
    FIRST_N: tl.constexpr = 0,
    cluster_size: tl.constexpr = 1,
):
    """A is M×K, B is K×N, C is M×N, each with any strides (in elements); products are added up in fp32.

    There is a program for each tile, of BLOCK_M rows and BLOCK_N columns: where these are no power of two,
    FIRST_N of them are, and the rest.  GROUP_M of 0 has no groups, but a grid of rows and columns, the fewer
    of them along its first axis: without divisions a program begins sooner.  PERSISTENT programs, of which
    any number share the tiles, have a warp that copies the next tile's operands under the end of this one."""
    WIDTH: tl.constexpr = FIRST_N if FIRST_N else BLOCK_N
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M * cluster_size) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0) // cluster_size, tiles, tl.num_programs(0) // cluster_size):
            tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M * cluster_size, BLOCK_N, GROUP_M)
            if cluster_size > 1:
                tile_m = tile_m * cluster_size + tl.program_id(0) % cluster_size
            product_of_tile(
                tile_m,
                tile_n,
                a,
                b,
                c,
                M,
                N,
                K,
                stride_am,
                stride_ak,
                stride_bk,
                stride_bn,
                stride_cm,
                stride_cn,
                BLOCK_M,
                BLOCK_N,
                BLOCK_K,
                WIDTH,
                True,
            )
    else:
        if cluster_size > 1:
            tile_m, tile_n = tl.program_id(0), tl.program_id(1)
        elif GROUP_M:
            tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
        else:
            # Neighbours share the operand that has more of the tiles.
            is_tall = tl.cdiv(M, BLOCK_M) > tl.cdiv(N, BLOCK_N)
            tile_m = tl.where(is_tall, tl.program_id(1), tl.program_id(0))
            tile_n = tl.where(is_tall, tl.program_id(0), tl.program_id(1))
        product_of_tile(
            tile_m,
            tile_n,
            a,
            b,
            c,
            M,
            N,
            K,
            stride_am,
            stride_ak,
            stride_bk,
            stride_bn,
            stride_cm,
            stride_cn,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            WIDTH,
            WIDTH < BLOCK_N,
        )


@triton.jit
def matmul_persistent_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    B_COLUMN_MAJOR: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """The same by any number of programs, each of which goes from tile to tile: the copies of the next tile
    run under the end of the one before.  A and C are row-major, B is too or, as the transpose of an N×K
    matrix, column-major; strides are of rows."""
    left = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
    if B_COLUMN_MAJOR:
        right = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BLOCK_N, BLOCK_K])
    else:
        right = tl.make_tensor_descriptor(b, [K, N], [stride_b, 1], [BLOCK_K, BLOCK_N])
    out = tl.make_tensor_descriptor(c, [M, N], [stride_c, 1], [BLOCK_M, BLOCK_N // 2])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in tl.range(0, K, BLOCK_K, warp_specialize=True):
            if B_COLUMN_MAJOR:
                b_values = right.load([column, start]).T
            else:
                b_values = right.load([start, column])
            accumulator = tl.dot(left.load([row, start]), b_values, accumulator)
        # In two halves: what the stores need of shared memory is then little enough for four stages of
        # copies.
        first, second = accumulator.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
        out.store([row, column], first.to(c.dtype.element_ty))
        out.store([row, column + BLOCK_N // 2], second.to(c.dtype.element_ty))
