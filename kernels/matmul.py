"""C = A·B on tensor cores.

C is cut into tiles of BLOCK_M rows and BLOCK_N columns.  A tile needs as many rows of A and columns of B,
which are read along K in steps of BLOCK_K:

    for each tile of C:                          # a program of its own, or one of many for a persistent program
        accumulator = 0
        for start in range(0, K, BLOCK_K):       # the compiler makes a software pipeline of this loop
            accumulator += tile of A · tile of B
        store the accumulator

There are three ways.  Read `matmul_persistent_kernel` first: it loads and stores tiles by tensor descriptors
and is the shortest one.  `matmul_kernel` takes plain pointers and any strides; where hints show that the tiles
are boxes of aligned rows, the compiler loads them by TMA all the same.  `matmul_split_kernel` is for fewer
tiles than multiprocessors, or few in a last round: several programs share a tile along K, and
`matmul_parts_kernel` adds what each of them has.
"""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M: tl.constexpr):
    """Row and column of a tile by its number.

    Programs with numbers next to each other run at the same time and share the L2 cache.  Numbered row by
    row, they would read one row of A and all of B; numbered down GROUP_M rows before they go on to the next
    column, they cover a block of C that is nearly square, which needs less of both."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = tile // per_group * GROUP_M
    group_m = min(tiles_m - first_m, GROUP_M)  # The last group may have fewer rows.
    within = tile % per_group
    return first_m + within % group_m, within // group_m


@triton.jit
def whole_tile(tile, size, BLOCK: tl.constexpr):
    """Where a tile that has a program of its own begins along one axis.  The last one begins earlier where it would reach
    beyond the end, for it is faster to read as much as the programs beside it do: docs/performance.md.  Two programs
    then make some rows, and write the same bytes there."""
    return tl.maximum(tl.minimum(tile * BLOCK, size - BLOCK), 0)


@triton.jit
def store_part(matrix, values, rows, columns, M, N):
    """Stores a tile of C, as far as it is inside."""
    c, stride_cm, stride_cn = matrix
    pointers = c + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(pointers, values.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.constexpr_function
def powers_of_two(columns):
    """Those that add up to a number of columns, the largest first, as (first column, columns)."""
    bits = [1 << bit for bit in reversed(range(columns.bit_length())) if columns >> bit & 1]
    return [(sum(bits[:number]), bit) for number, bit in enumerate(bits)]


@triton.jit
def activated(x, activation):
    """x, or relu, gelu (by the hyperbolic tangent) or silu of it, by the numbers 0 to 3."""
    if activation >= 2:
        # x · (1 + tanh u) / 2, which is x / (1 + e^-2u), and x / (1 + e^-x): 2^ of x · (a + b · x²).
        is_gelu = activation == 2
        a = tl.where(is_gelu, -2.302208198144325, -1.4426950408889634)
        b = tl.where(is_gelu, -0.1029432396950264, 0.0)
        exponent = x * (a + b * tl.minimum(x * x, 1e30))  # So that no 0 · ∞ is in it.
        root = tl.rsqrt(
            1.0 + tl.exp2(exponent)
        )  # A division has instructions for divisors that this never is.
        x = x * root * root
    else:
        x = tl.maximum(x, tl.where(activation == 1, 0.0, float("-inf")), propagate_nan=tl.PropagateNan.ALL)
    return x


@triton.jit
def first_sums(rows, columns, shape, bias, ACROSS: tl.constexpr):
    """What the sums of a tile begin with: zeros, or where `bias` has a pointer and whether there is memory, that layer's
    bias: loaded here it has come once the first operands have.  ACROSS says that columns of the layer are rows here."""
    sums = tl.zeros((rows.shape[0], columns.shape[0]), dtype=tl.float32)
    if len(bias) > 0:
        pointer, is_there = bias
        features = rows if ACROSS else columns
        is_inside = features < (shape[0] if ACROSS else shape[1])
        offsets = tl.load(pointer + features, mask=is_inside & is_there, other=0.0).to(tl.float32)
        sums += offsets[:, None] if ACROSS else offsets[None, :]
    return sums


@triton.jit
def sums_of_tile(
    corner,
    left,
    right,
    shape,
    first,
    last,
    bias,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """The sums of the tile of C whose first row and column are `corner`, in fp32, over `first` to `last` along K, where
    the pointers of A and B begin: a tuple of blocks.  A matrix is a pointer with its two strides.

    Blocks have powers of two of rows and columns.  A tile is as many of them side by side as BLOCK_N takes, which
    share their rows, and so the loads of A: the compiler makes one instruction of their dots where that is faster.

    SPECIALIZE asks for warp specialization: a warp of its own, the producer, issues the loads, and runs ahead
    of the warps that multiply, into the next tile as well."""
    first_row, first_column = corner
    a, stride_am, stride_ak = left
    b, stride_bk, stride_bn = right
    M, N, K = shape
    PARTS: tl.constexpr = powers_of_two(BLOCK_N)
    rows = first_row + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_K)
    # A tile may reach beyond A and B, that of a program of its own where it is larger than they are.  What it
    # computes there is not stored, so such a program wraps around and reads other rows and columns: cheaper than
    # a mask.  A program of several tiles has to mask: it stores between its reads, for all the compiler knows to
    # the memory that it reads.
    in_a = rows < M if SPECIALIZE else tl.full((BLOCK_M,), True, tl.int1)
    rows_of_a = rows if SPECIALIZE else rows % M
    a_tile = a + rows_of_a.to(tl.int64)[:, None] * stride_am + depth[None, :] * stride_ak
    sums, b_tiles, in_b = (), (), ()
    for part in tl.static_range(len(PARTS)):
        columns = first_column + PARTS[part][0] + tl.arange(0, PARTS[part][1])
        columns_of_b = columns if SPECIALIZE else columns % N
        b_tiles += (b + depth[:, None] * stride_bk + columns_of_b.to(tl.int64)[None, :] * stride_bn,)
        in_b += (columns < N if SPECIALIZE else tl.full((PARTS[part][1],), True, tl.int1),)
        # Sums are kept in fp32, whatever the operands are.
        sums += (first_sums(rows, columns, shape, bias, ACROSS),)
    for start in tl.range(first, last, BLOCK_K, warp_specialize=SPECIALIZE):
        # The last step may have fewer than BLOCK_K: zeros add nothing.
        a_values = tl.load(a_tile, mask=in_a[:, None] & (depth[None, :] < K - start), other=0.0)
        added, b_after = (), ()
        for part in tl.static_range(len(PARTS)):
            in_block = (depth[:, None] < K - start) & in_b[part][None, :]
            b_values = tl.load(b_tiles[part], mask=in_block, other=0.0)
            added += (tl.dot(a_values, b_values, sums[part]),)
            b_after += (b_tiles[part] + BLOCK_K * stride_bk,)
        sums, b_tiles = added, b_after
        a_tile += BLOCK_K * stride_ak
    return sums


@triton.jit
def bias_of(layer, is_wanted):
    """The bias of a layer, with whether there is memory and it is wanted; nothing for a product, whose layer is ()."""
    if len(layer) == 0:
        return ()
    return layer[0], is_wanted & (layer[0].to(tl.int64) != 0)


@triton.jit
def finished(sums, layer):
    """What becomes of sums: a layer, the pointer of its bias and the number of its activation, makes more of them."""
    if len(layer) == 0:
        return sums
    return activated(sums, layer[1])


@triton.jit
def matmul_of_tile(
    corner,
    left,
    right,
    out,
    shape,
    layer,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Makes one tile of C: `sums_of_tile` over all of K, and what a layer makes of it, stored."""
    first_row, first_column = corner
    M, N, K = shape
    PARTS: tl.constexpr = powers_of_two(BLOCK_N)
    bias = bias_of(layer, True)
    sums = sums_of_tile(corner, left, right, shape, 0, K, bias, BLOCK_M, BLOCK_N, BLOCK_K, SPECIALIZE, ACROSS)
    rows = first_row + tl.arange(0, BLOCK_M)
    if SPECIALIZE and len(PARTS) == 1:
        # In two halves, so that the first is being written while the second is rearranged.
        first, second = finished(sums[0], layer).reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
        near = first_column + tl.arange(0, BLOCK_N // 2)
        store_part(out, first, rows, near, M, N)
        store_part(out, second, rows, near + BLOCK_N // 2, M, N)
    else:
        for part in tl.static_range(len(PARTS)):
            columns = first_column + PARTS[part][0] + tl.arange(0, PARTS[part][1])
            store_part(out, finished(sums[part], layer), rows, columns, M, N)


@triton.jit
def matmul_by_tiles(
    left,
    right,
    out,
    shape,
    layer,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PERSISTENT: tl.constexpr,
    ACROSS: tl.constexpr,
    cluster_size: tl.constexpr,
):
    """Makes the tiles of C that are this program's: one, or if PERSISTENT, as many as there are for each program."""
    M, N, _ = shape
    if PERSISTENT:
        # A cluster takes several tiles at once, so programs and rows of tiles are counted in clusters.
        tiles = tl.cdiv(M, BLOCK_M * cluster_size) * tl.cdiv(N, BLOCK_N)
        for number in tl.range(tl.program_id(0) // cluster_size, tiles, tl.num_programs(0) // cluster_size):
            tile_m, tile_n = grouped_tile(number, M, N, BLOCK_M * cluster_size, BLOCK_N, GROUP_M)
            if cluster_size > 1:
                tile_m = tile_m * cluster_size + tl.program_id(0) % cluster_size
            corner = (tile_m * BLOCK_M, tile_n * BLOCK_N)
            matmul_of_tile(corner, left, right, out, shape, layer, BLOCK_M, BLOCK_N, BLOCK_K, True, ACROSS)
    else:
        if cluster_size > 1:
            tile_m, tile_n = tl.program_id(0), tl.program_id(1)
        elif GROUP_M:
            tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
        else:
            # The grid has the fewer of rows and columns first, so that neighbours share the operand that has
            # more of the tiles.  Without the divisions of groups a program begins sooner.
            is_tall = tl.cdiv(M, BLOCK_M) > tl.cdiv(N, BLOCK_N)
            tile_m = tl.where(is_tall, tl.program_id(1), tl.program_id(0))
            tile_n = tl.where(is_tall, tl.program_id(0), tl.program_id(1))
        corner = (whole_tile(tile_m, M, BLOCK_M), whole_tile(tile_n, N, BLOCK_N))
        IS_ONE_BLOCK: tl.constexpr = len(powers_of_two(BLOCK_N)) == 1
        SPECIALIZE: tl.constexpr = not IS_ONE_BLOCK
        matmul_of_tile(corner, left, right, out, shape, layer, BLOCK_M, BLOCK_N, BLOCK_K, SPECIALIZE, ACROSS)


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
    cluster_size: tl.constexpr = 1,
):
    """A is M×K, B is K×N, C is M×N, each with any strides (in elements); sums are in fp32.

    A tile has BLOCK_M rows, a power of two, and BLOCK_N columns, any multiple of 8 up to 256.  There is a program
    for each tile, or, if PERSISTENT, any number of programs that share the tiles.
    GROUP_M is the number of rows in a group of `grouped_tile`; 0 for a grid of rows and columns.  The
    programs of a cluster have tiles below each other, so that they share B's."""
    left, right, out = (a, stride_am, stride_ak), (b, stride_bk, stride_bn), (c, stride_cm, stride_cn)
    shape = (M, N, K)
    matmul_by_tiles(
        left, right, out, shape, (), BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, PERSISTENT, False, cluster_size
    )


@triton.jit
def matmul_by_parts(
    left,
    right,
    out,
    partial,
    shape,
    whole,
    parts,
    layer,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Makes the tile or the part that is this program's, as `matmul_split_kernel` says."""
    tl.extra.cuda.gdc_launch_dependents()
    M, N, K = shape
    program = tl.program_id(0)
    is_whole = program < whole
    share = tl.maximum(program - whole, 0)
    tile = tl.where(is_whole, program, tl.maximum(whole, 0) + share // parts)
    part = share % parts
    # Parts differ by one step at most.  A quotient of products is never negative for all the compiler knows of
    # the arguments, which TMA requires of an index.
    steps = tl.cdiv(K, BLOCK_K)
    first = tl.where(is_whole, 0, part * steps // parts * BLOCK_K)
    last = tl.where(is_whole, K, tl.minimum(K, (part + 1) * steps // parts * BLOCK_K))
    tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    a, stride_am, stride_ak = left
    b, stride_bk, stride_bn = right
    left = (a + first.to(tl.int64) * stride_ak, stride_am, stride_ak)
    right = (b + first.to(tl.int64) * stride_bk, stride_bk, stride_bn)
    corner = (tile_m * BLOCK_M, tile_n * BLOCK_N)
    bias = bias_of(layer, is_whole)
    sums = sums_of_tile(
        corner, left, right, shape, first, last, bias, BLOCK_M, BLOCK_N, BLOCK_K, False, ACROSS
    )
    PARTS: tl.constexpr = powers_of_two(BLOCK_N)
    place = partial + share.to(tl.int64) * (BLOCK_M * BLOCK_N)
    inner_rows = tl.arange(0, BLOCK_M)
    rows = tile_m * BLOCK_M + inner_rows
    for number in tl.static_range(len(PARTS)):
        inner_columns = PARTS[number][0] + tl.arange(0, PARTS[number][1])
        columns = tile_n * BLOCK_N + inner_columns
        if is_whole:
            store_part(out, finished(sums[number], layer), rows, columns, M, N)
        else:
            if ACROSS:
                places = place + inner_rows[:, None] + inner_columns[None, :] * BLOCK_M
            else:
                places = place + inner_rows[:, None] * BLOCK_N + inner_columns[None, :]
            tl.store(places, sums[number], mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def matmul_split_kernel(
    a,
    b,
    c,
    partial,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    whole,
    parts,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr = False,
):
    """The first `whole` programs make a tile of C each; each other tile has as many programs as it has `parts`, which
    write their sums over a part of K to `partial`, for `matmul_parts_kernel` to add.

    `partial` has room for BLOCK_M·BLOCK_N fp32 for each part of each of these tiles.

    With ACROSS the caller's product is the transpose, Bᵀ·Aᵀ: c and `partial` have its rows, of M elements, and
    `stride_cm` is from one of these to the next.  So 200 rows are tiles of 208, with columns of Aᵀ, not of 256."""
    left, right = (a, stride_am, stride_ak), (b, stride_bk, stride_bn)
    out = (c, 1, stride_cm) if ACROSS else (c, stride_cm, 1)
    shape = (M, N, K)
    matmul_by_parts(
        left, right, out, partial, shape, whole, parts, (), BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, ACROSS
    )


@triton.jit
def sum_of_parts(
    partial,
    out,
    shape,
    tiles,
    layer,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Adds the parts of a piece of a tile, and stores it; `tiles` has the number of the first that is in parts, of how many,
    and the size of a tile."""
    M, N = shape
    whole, parts, block_m, block_n = tiles
    across = block_n // COLUMNS
    pieces = block_m // ROWS * across
    number = tl.program_id(0) // pieces
    piece = tl.program_id(0) % pieces
    if ACROSS:
        tile_n, tile_m = grouped_tile(whole + number, N, M, block_n, block_m, GROUP_M)
    else:
        tile_m, tile_n = grouped_tile(whole + number, M, N, block_m, block_n, GROUP_M)
    inner_rows = piece // across * ROWS + tl.arange(0, ROWS)
    inner_columns = piece % across * COLUMNS + tl.arange(0, COLUMNS)
    rows, columns = tile_m * block_m + inner_rows, tile_n * block_n + inner_columns
    is_inside = (rows[:, None] < M) & (columns[None, :] < N)
    size = block_m * block_n
    places = (
        partial + number.to(tl.int64) * parts * size + inner_rows[:, None] * block_n + inner_columns[None, :]
    )
    tl.extra.cuda.gdc_wait()
    total = first_sums(rows, columns, shape, bias_of(layer, True), False)
    for start in range(0, parts, AT_ONCE):
        for part in tl.static_range(AT_ONCE):
            total += tl.load(places + part * size, mask=is_inside & (start + part < parts), other=0.0)
        places += AT_ONCE * size
    store_part(out, finished(total, layer), rows, columns, M, N)


@triton.jit
def matmul_parts_kernel(
    partial,
    c,
    M,
    N,
    stride_cm,
    whole,
    parts,
    block_m,
    block_n,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr = False,
):
    """Adds the parts of the tiles from number `whole` on, in the order of their numbers, so that the result is the same
    each time; tiles have `block_m` rows and `block_n` columns, and a program adds ROWS·COLUMNS of them.  With ACROSS they
    are numbered as those of the transpose.

    It may begin while those that write the parts still run (`launch_pdl`), for it waits for them."""
    sum_of_parts(
        partial,
        (c, stride_cm, 1),
        (M, N),
        (whole, parts, block_m, block_n),
        (),
        ROWS,
        COLUMNS,
        AT_ONCE,
        GROUP_M,
        ACROSS,
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
    """The same with tensor descriptors, by any number of programs, each of which goes from tile to tile.

    A and C are row-major, B is too or, as the transpose of an N×K matrix, column-major; strides are of rows.

    A descriptor gives TMA the shape of a whole matrix, so that a load needs only the corner of its block, and
    neither pointers nor masks: what is outside reads as zero and is not written."""
    left = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
    if B_COLUMN_MAJOR:
        right = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BLOCK_N, BLOCK_K])
    else:
        right = tl.make_tensor_descriptor(b, [K, N], [stride_b, 1], [BLOCK_K, BLOCK_N])
    out = tl.make_tensor_descriptor(c, [M, N], [stride_c, 1], [BLOCK_M, BLOCK_N // 2])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # A program takes every num_programs-th tile.  Its producer does not wait for the end of a tile: the loads
    # of the next one run while the last dots and the stores of this one do.
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
        # In two halves, which need half the shared memory on their way out: enough is left for four stages.
        first, second = accumulator.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
        out.store([row, column], first.to(c.dtype.element_ty))
        out.store([row, column + BLOCK_N // 2], second.to(c.dtype.element_ty))
