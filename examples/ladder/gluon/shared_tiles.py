"""Step 3: a program keeps tiles of A and B in shared memory, from which each thread reads its row and its column."""

from tiles import multiply_tiles, tile_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def shared_tiles(A, B, C, M, N, K, T: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    a_tile = gl.allocate_shared_memory(gl.float32, [T, T], shared)
    b_tile = gl.allocate_shared_memory(gl.float32, [T, T], shared)
    row, column = gl.program_id(1) * T, gl.program_id(0) * T
    y = gl.expand_dims(gl.arange(0, T, gl.SliceLayout(1, layout)), 1)
    x = gl.expand_dims(gl.arange(0, T, gl.SliceLayout(0, layout)), 0)
    a = tile_of(A, row, 0, K, T, T, layout)
    b = tile_of(B, 0, column, N, T, T, layout)
    total = gl.zeros([T, T], gl.float32, layout)
    for k in range(0, K, T):
        a_tile.store(gl.load(a, mask=(row + y < M) & (k + x < K), other=0.0))
        b_tile.store(gl.load(b, mask=(k + y < K) & (column + x < N), other=0.0))
        a += T
        b += T * N
        total = multiply_tiles(a_tile, b_tile, total, layout)
    gl.store(tile_of(C, row, column, N, T, T, layout), total, mask=(row + y < M) & (column + x < N))
