"""Step 4: a thread computes a column of TM elements, and uses each element of B that it reads TM times.

From here on M and N have to be multiples of the tile, and K of BK.
"""

from tiles import multiply_tiles, tile_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def column_tiles(A, B, C, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, TM: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([TM, 1], [1, 32], [BM // TM, BN // 32], [1, 0])
    load_a: gl.constexpr = gl.BlockedLayout([1, 1], [32 // BK, BK], [gl.num_warps(), 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps() * 32 // BN, BN // 32], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    a_tile = gl.allocate_shared_memory(gl.float32, [BM, BK], shared)
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
