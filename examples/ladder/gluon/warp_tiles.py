"""Step 7: the 32 lanes of a warp stand in 4 rows of 8, with 4 x 4 elements each, so that they read from different banks.

The layout covers 64 x 64 elements; larger tiles repeat it, and a thread has a square of each repetition.
"""

from tiles import multiply_tiles, tile_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def warp_tiles(A, B, C, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4, 4], [4, 8], [gl.num_warps() // 2, 2], [1, 0])
    load_a: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [gl.num_warps(), 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    a_tile = gl.allocate_shared_memory(gl.float32, [BK, BM], shared).permute([1, 0])
    b_tile = gl.allocate_shared_memory(gl.float32, [BK, BN], shared)
    row, column = gl.program_id(1) * BM, gl.program_id(0) * BN
    a = tile_of(A, row, 0, K, BM, BK, load_a)
    b = tile_of(B, 0, column, N, BK, BN, load_b)
    total = gl.zeros([BM, BN], gl.float32, layout)
    for _ in range(0, K, BK):
        a_tile.store(gl.load(a))
        b_tile.store(gl.load(b))
        a += BK
        b += BK * N
        total = multiply_tiles(a_tile, b_tile, total, layout)
    gl.store(tile_of(C, row, column, N, BM, BN, layout), total)
