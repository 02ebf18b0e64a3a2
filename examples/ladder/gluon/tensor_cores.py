"""Beyond the ladder: the same loop with 16-bit elements and tensor cores (`wgmma`), which read both tiles from shared memory.

The accumulator's layout is what the instruction writes: each warp has 16 rows of 8 columns, again and again.  Products of one
tile are still under way while the next one is waited for, so that one tile more than in step 10 is in use.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def copy_tiles(A, B, row, column, k, a_tile, b_tile, ready):
    mbarrier.expect(ready, A.block_type.nbytes + B.block_type.nbytes)
    tma.async_copy_global_to_shared(A, [row, k], ready, a_tile)
    tma.async_copy_global_to_shared(B, [k, column], ready, b_tile)


@gluon.jit
def tensor_cores(
    A, B, C, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    a_tiles = gl.allocate_shared_memory(A.dtype, [STAGES, BM, BK], A.layout)
    b_tiles = gl.allocate_shared_memory(B.dtype, [STAGES, BK, BN], B.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
    row, column = gl.program_id(1) * BM, gl.program_id(0) * BN
    for stage in gl.static_range(STAGES - 2):
        if stage * BK < K:
            copy_tiles(
                A, B, row, column, stage * BK, a_tiles.index(stage), b_tiles.index(stage), ready.index(stage)
            )
    total = warpgroup_mma_init(gl.zeros([BM, BN], gl.float32, layout))
    stage = 0
    phase = 0
    for k in range(0, K, BK):
        mbarrier.wait(ready.index(stage), phase)
        a_tile, b_tile = a_tiles.index(stage), b_tiles.index(stage)
        total = warpgroup_mma(a_tile, b_tile, total, is_async=True)
        total = warpgroup_mma_wait(1, deps=[total])  # The products of the tile before are done ...
        gl.thread_barrier()  # ... in all warp groups: the one that was read before it may be overwritten.
        next_k = k + (STAGES - 2) * BK
        if next_k < K:
            free = gl.where(stage < 2, stage + STAGES - 2, stage - 2)
            copy_tiles(A, B, row, column, next_k, a_tiles.index(free), b_tiles.index(free), ready.index(free))
        last = stage == STAGES - 1
        stage = gl.where(last, 0, stage + 1)
        phase = gl.where(last, phase ^ 1, phase)
    total = warpgroup_mma_wait(0, deps=[total])
    rows = row + gl.expand_dims(gl.arange(0, BM, gl.SliceLayout(1, layout)), 1)
    columns = column + gl.expand_dims(gl.arange(0, BN, gl.SliceLayout(0, layout)), 0)
    pointers = C + rows.to(gl.int64) * N + columns
    gl.store(pointers, total.to(C.dtype.element_ty), mask=(rows < M) & (columns < N))
