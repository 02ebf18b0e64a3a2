"""Step 9: cp.async copies from global to shared memory, several tiles ahead and past the registers, and tiles are larger.

A's tile is no longer transposed, so that a thread reads four k of each of its rows at a time; its swizzle keeps the rows
that a warp reads together in different banks.
"""

from tiles import multiply_tiles_by_four, tile_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@gluon.jit
def copy_tiles(a, b, a_tile, b_tile, more):
    """Starts copying both tiles, unless there are none left, and closes a group, which may be empty."""
    async_copy.async_copy_global_to_shared(a_tile, a, mask=more)
    async_copy.async_copy_global_to_shared(b_tile, b, mask=more)
    async_copy.commit_group()


@gluon.jit
def async_copies(
    A, B, C, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [2, gl.num_warps() // 2], [1, 0])
    load_a: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [gl.num_warps(), 1], [1, 0])
    load_b: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps(), 1], [1, 0])
    shared_a: gl.constexpr = gl.SwizzledSharedLayout(4, 32 // BK, BK // 4, order=[1, 0])
    shared_b: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    a_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, BM, BK], shared_a)
    b_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, BK, BN], shared_b)
    row, column = gl.program_id(1) * BM, gl.program_id(0) * BN
    a = tile_of(A, row, 0, K, BM, BK, load_a)
    b = tile_of(B, 0, column, N, BK, BN, load_b)
    for stage in gl.static_range(STAGES - 1):
        copy_tiles(a, b, a_tiles.index(stage), b_tiles.index(stage), stage * BK < K)
        a += BK
        b += BK * N
    total = gl.zeros([BM, BN], gl.float32, layout)
    stage = 0
    for k in range(0, K, BK):
        async_copy.wait_group(STAGES - 2)
        gl.thread_barrier()  # All copies of this tile have come, and all threads have left the one overwritten next.
        before = gl.where(stage == 0, STAGES - 1, stage - 1)
        copy_tiles(a, b, a_tiles.index(before), b_tiles.index(before), k + (STAGES - 1) * BK < K)
        a += BK
        b += BK * N
        total = multiply_tiles_by_four(a_tiles.index(stage), b_tiles.index(stage), total, layout)
        stage = gl.where(stage == STAGES - 1, 0, stage + 1)
    async_copy.wait_group(0)  # The last groups have nothing but zeros for tiles that are not there.
    gl.store(tile_of(C, row, column, N, BM, BN, layout), total)
