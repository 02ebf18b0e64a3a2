"""Step 8: the next tiles are on their way to registers while the present ones are multiplied; two buffers take them in turn."""

from tiles import multiply_tiles, tile_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def double_buffered(A, B, C, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4, 4], [4, 8], [gl.num_warps() // 2, 2], [1, 0])
    load_a: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [gl.num_warps(), 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    a_tiles = gl.allocate_shared_memory(gl.float32, [2, BK, BM], shared)
    b_tiles = gl.allocate_shared_memory(gl.float32, [2, BK, BN], shared)
    row, column = gl.program_id(1) * BM, gl.program_id(0) * BN
    a = tile_of(A, row, 0, K, BM, BK, load_a)
    b = tile_of(B, 0, column, N, BK, BN, load_b)
    a_tiles.index(0).permute([1, 0]).store(gl.load(a))
    b_tiles.index(0).store(gl.load(b))
    total = gl.zeros([BM, BN], gl.float32, layout)
    buffer = 0
    for _ in range(BK, K, BK):
        a += BK
        b += BK * N
        a_next = gl.load(a)
        b_next = gl.load(b)
        total = multiply_tiles(a_tiles.index(buffer).permute([1, 0]), b_tiles.index(buffer), total, layout)
        buffer ^= 1
        a_tiles.index(buffer).permute([1, 0]).store(a_next)
        b_tiles.index(buffer).store(b_next)
    total = multiply_tiles(a_tiles.index(buffer).permute([1, 0]), b_tiles.index(buffer), total, layout)
    gl.store(tile_of(C, row, column, N, BM, BN, layout), total)
