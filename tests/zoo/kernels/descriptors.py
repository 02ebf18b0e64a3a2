"""Blocks of tensors that are combined with memory, and rows that are picked by their numbers."""

import triton
import triton.language as tl


@triton.jit
def combine(target, offsets, value, KIND: tl.constexpr):
    if KIND == "add":
        target.atomic_add(offsets, value)
    elif KIND == "min":
        target.atomic_min(offsets, value)
    elif KIND == "max":
        target.atomic_max(offsets, value)
    elif KIND == "and":
        target.atomic_and(offsets, value)
    elif KIND == "or":
        target.atomic_or(offsets, value)
    else:
        target.atomic_xor(offsets, value)


@triton.jit
def fold_rows(x, out, rows, columns, pitch, KIND: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """The tiles of a matrix, one below the other, folded into a block of one tile's height, by all programs
    at once."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE_M, TILE_N])
    target = tl.make_tensor_descriptor(out, [TILE_M, columns], [pitch, 1], [TILE_M, TILE_N])
    for row in range(tl.program_id(0) * TILE_M, rows, TILE_M * tl.num_programs(0)):
        for column in range(0, columns, TILE_N):
            combine(target, [0, column], source.load([row, column]), KIND)


@triton.jit
def move_rows(x, out, source_rows, target_rows, rows, columns, left, N: tl.constexpr, WIDTH: tl.constexpr):
    """Copies rows of one matrix to rows of another that both have."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [1, WIDTH])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [1, WIDTH])
    numbers = tl.arange(0, N)
    picked = source.gather(tl.load(source_rows + numbers), left)
    target.scatter(picked + 1, tl.load(target_rows + numbers), left)


@triton.jit
def copy_vector(x, out, n, TILE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n], [1], [TILE])
    target = tl.make_tensor_descriptor(out, [n], [1], [TILE])
    for start in range(tl.program_id(0) * TILE, n, TILE * tl.num_programs(0)):
        target.store([start], source.load([start]) * 2)


@triton.jit
def copy_matrix(x, out, rows, columns, pitch, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """A tile for each program."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE_M, TILE_N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [TILE_M, TILE_N])
    offsets = [tl.program_id(0) * TILE_M, tl.program_id(1) * TILE_N]
    target.store(offsets, source.load(offsets))


@triton.jit
def copy_3d(
    x,
    out,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    a: tl.constexpr,
    b: tl.constexpr,
    c: tl.constexpr,
):
    source = tl.make_tensor_descriptor(x, [A, B, C], [B * C, C, 1], [a, b, c])
    target = tl.make_tensor_descriptor(out, [A, B, C], [B * C, C, 1], [a, b, c])
    for i in range(0, A, a):
        for j in range(0, B, b):
            for k in range(0, C, c):
                target.store([i, j, k], source.load([i, j, k]))


@triton.jit
def copy_5d(
    x,
    out,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    TILE: tl.constexpr,
):
    source = tl.make_tensor_descriptor(
        x, [A, B, C, D, E], [B * C * D * E, C * D * E, D * E, E, 1], [1, 2, 2, 4, TILE]
    )
    target = tl.make_tensor_descriptor(
        out, [A, B, C, D, E], [B * C * D * E, C * D * E, D * E, E, 1], [1, 2, 2, 4, TILE]
    )
    for i in range(A):
        for j in range(0, B, 2):
            for k in range(0, C, 2):
                for m in range(0, D, 4):
                    target.store([i, j, k, m, 0], source.load([i, j, k, m, 0]))


@triton.jit
def write_again(x, out, sums, rows, columns, pitch, TILE: tl.constexpr):
    """Tiles that lie over each other, where the last one counts; tiles side by side; and sums that many tiles
    add to."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE, TILE])
    target = tl.make_tensor_descriptor(out, [rows, columns], [pitch, 1], [TILE, TILE])
    total = tl.make_tensor_descriptor(sums, [TILE, columns], [pitch, 1], [TILE, TILE])
    for row in range(0, rows, TILE):
        for column in range(0, columns, 2 * TILE):
            left, right = source.load([row, column]), source.load([row, column + TILE])
            tl.debug_barrier()
            target.store([row + 1, column], left - 1)
            tl.debug_barrier()
            if row < 2 * TILE:
                target.store([row, column], left)
                total.atomic_add([0, column], left)
            target.store([row, column + TILE], right)
            total.atomic_add([0, column + TILE], right)
    tl.debug_barrier()
    target.store([0, 0], tl.zeros((TILE, TILE), out.dtype.element_ty))


@triton.jit
def dot_grouped(
    a, b, c, starts, sizes, groups, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    """Dots of pairs of matrices of different sizes, which lie at `starts` of `a`, `b` and `c`; for each pair `sizes`
    has M, N and K, and the pitches of the three."""
    tile, end = tl.program_id(0), 0
    for group in range(groups):
        M, N, K = tl.load(sizes + 6 * group), tl.load(sizes + 6 * group + 1), tl.load(sizes + 6 * group + 2)
        across = tl.cdiv(N, TILE_N)
        begin, end = end, end + tl.cdiv(M, TILE_M) * across
        if tile < end:
            x = a + tl.load(starts + 3 * group)
            y = b + tl.load(starts + 3 * group + 1)
            z = c + tl.load(starts + 3 * group + 2)
            pitch = tl.load(sizes + 6 * group + 5)
            left = tl.make_tensor_descriptor(x, [M, K], [tl.load(sizes + 6 * group + 3), 1], [TILE_M, TILE_K])
            right = tl.make_tensor_descriptor(
                y, [N, K], [tl.load(sizes + 6 * group + 4), 1], [TILE_N, TILE_K]
            )
            while tile < end:
                row, column = (tile - begin) // across * TILE_M, (tile - begin) % across * TILE_N
                acc = tl.zeros((TILE_M, TILE_N), tl.float32)
                for k in range(0, K, TILE_K):
                    acc += tl.dot(left.load([row, k]), right.load([column, k]).T)
                i, j = row + tl.arange(0, TILE_M), column + tl.arange(0, TILE_N)
                inside = (i < M)[:, None] & (j < N)[None, :]
                tl.store(z + i[:, None] * pitch + j[None, :], acc.to(tl.float16), mask=inside)
                tile += tl.num_programs(0)


@triton.jit
def add_grouped(x, out, starts, sizes, groups, TILE: tl.constexpr):
    """Adds one to matrices of different sizes, which lie at `starts` of `x` and are put there in `out`; `sizes` has
    their rows, columns and pitches."""
    for group in range(groups):
        rows, columns = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1)
        pitch, start = tl.load(sizes + 3 * group + 2), tl.load(starts + group)
        source = tl.make_tensor_descriptor(x + start, [rows, columns], [pitch, 1], [TILE, TILE])
        for row in range(tl.program_id(0) * TILE, rows, tl.num_programs(0) * TILE):
            for column in range(0, columns, TILE):
                i, j = row + tl.arange(0, TILE), column + tl.arange(0, TILE)
                inside = (i < rows)[:, None] & (j < columns)[None, :]
                tile = source.load([row, column]) + 1
                tl.store(out + start + i[:, None] * pitch + j[None, :], tile, mask=inside)


@triton.jit
def double_batches(x, out, sums, batches, rows, columns, TILE: tl.constexpr):
    """Twice of each matrix of an array of them, and the sum of all."""
    total = tl.make_tensor_descriptor(sums, [rows, columns], [columns, 1], [TILE, TILE])
    for batch in range(tl.program_id(0), batches, tl.num_programs(0)):
        start = batch * rows * columns
        source = tl.make_tensor_descriptor(x + start, [rows, columns], [columns, 1], [TILE, TILE])
        target = tl.make_tensor_descriptor(out + start, [rows, columns], [columns, 1], [TILE, TILE])
        for row in range(0, rows, TILE):
            for column in range(0, columns, TILE):
                tile = source.load([row, column])
                target.store([row, column], tile * 2)
                total.atomic_add([row, column], tile)


@triton.jit
def dot_batches(a, b, c, starts, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """One tile of one of several dots, which lie where a table says."""
    batch, row, column = tl.program_id(2), tl.program_id(0) * TILE_M, tl.program_id(1) * TILE_N
    left = tl.make_tensor_descriptor(a + tl.load(starts + batch), [M, K], [K, 1], [TILE_M, TILE_K])
    right = tl.make_tensor_descriptor(b + tl.load(starts + batch), [N, K], [K, 1], [TILE_N, TILE_K])
    acc = tl.zeros((TILE_M, TILE_N), tl.float32)
    for k in range(0, K, TILE_K):
        acc += tl.dot(left.load([row, k]), right.load([column, k]).T)
    i, j = row + tl.arange(0, TILE_M), column + tl.arange(0, TILE_N)
    tl.store(c + batch * M * N + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


@triton.jit
def dot_of_tables(inputs, outputs, rows, K, TILE: tl.constexpr, INTO: tl.constexpr):
    """Dots of arrays whose addresses are in a table, to one whose address is in the same one, or another."""
    x = tl.load(inputs).to(tl.pointer_type(tl.float16))
    y = tl.load(inputs + 1).to(tl.pointer_type(tl.float16))
    out = tl.load((inputs if INTO == "inputs" else outputs) + 2).to(tl.pointer_type(tl.float32))
    left = tl.make_tensor_descriptor(x, [rows, K], [K, 1], [TILE, TILE])
    right = tl.make_tensor_descriptor(y, [TILE, K], [K, 1], [TILE, TILE])
    i = tl.arange(0, TILE)
    for row in range(0, rows, TILE):
        acc = tl.zeros((TILE, TILE), tl.float32)
        for k in range(0, K, TILE):
            acc += tl.dot(left.load([row, k]), right.load([0, k]).T)
        tl.store(out + (row + i)[:, None] * TILE + i[None, :], acc)
