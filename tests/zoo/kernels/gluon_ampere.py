"""Kernels in Gluon that issue `cp.async` and `mma.sync` themselves."""

from kbuild.language import gluon
from kbuild.language.gluon import language as gl
from kbuild.language.gluon.language.nvidia.ampere import async_copy, mbarrier, mma_v2


@gluon.jit
def load_step(step, a, b, K, N, row, column, a_tiles, b_tiles, layout: gl.constexpr):
    """Starts to copy the tiles of one step along K: a group, which is empty beyond the end."""
    rows = row + gl.arange(0, a_tiles.shape[1], gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, b_tiles.shape[2], gl.SliceLayout(0, layout))
    a_depth = step * a_tiles.shape[2] + gl.arange(0, a_tiles.shape[2], gl.SliceLayout(0, layout))
    b_depth = step * b_tiles.shape[1] + gl.arange(0, b_tiles.shape[1], gl.SliceLayout(1, layout))
    slot = step % a_tiles.shape[0]
    a_offsets = rows[:, None] * K + a_depth[None, :]
    b_offsets = b_depth[:, None] * N + columns[None, :]
    async_copy.async_copy_global_to_shared(a_tiles.index(slot), a + a_offsets, a_depth[None, :] < K)
    async_copy.async_copy_global_to_shared(b_tiles.index(slot), b + b_offsets, b_depth[:, None] < K)
    async_copy.commit_group()


@gluon.jit
def async_matmul(
    a, b, c, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, TILES: gl.constexpr
):
    """c = a·b with copies of the steps ahead; M and N are multiples of the blocks."""
    loading: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    tile_layout: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [gl.num_warps(), 1], [16, 8])
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_M, BLOCK_K], tile_layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_K, BLOCK_N], tile_layout)
    for step in gl.static_range(TILES - 1):
        load_step(step, a, b, K, N, row, column, a_tiles, b_tiles, loading)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, mma)
    for step in range(gl.cdiv(K, BLOCK_K)):
        load_step(step + TILES - 1, a, b, K, N, row, column, a_tiles, b_tiles, loading)
        async_copy.wait_group(TILES - 1)
        left = a_tiles.index(step % TILES).load(gl.DotOperandLayout(0, mma, 2))
        right = b_tiles.index(step % TILES).load(gl.DotOperandLayout(1, mma, 2))
        acc = mma_v2(left, right, acc)
    async_copy.wait_group(0)
    rows = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, mma))
    columns = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, mma))
    gl.store(c + rows[:, None] * N + columns[None, :], acc)


@gluon.jit
def copy_by_barrier(x, y, BLOCK: gl.constexpr, COUNTS: gl.constexpr, BLOCKS: gl.constexpr):
    """y = x, some blocks: each phase of a barrier completes when all threads' copies have landed."""
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    other: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    landed = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    threads: gl.constexpr = 32 * gl.num_warps()
    mbarrier.init(landed, count=threads if COUNTS else 1)
    for block in range(BLOCKS):
        offsets = block * BLOCK + gl.arange(0, BLOCK, layout)
        async_copy.async_copy_global_to_shared(tile, x + offsets)
        async_copy.mbarrier_arrive(landed, increment_count=not COUNTS)
        if not COUNTS:
            mbarrier.arrive(landed)
        mbarrier.wait(landed, block & 1)
        gl.store(y + block * BLOCK + gl.arange(0, BLOCK, other), tile.load(other))
    mbarrier.invalidate(landed)
