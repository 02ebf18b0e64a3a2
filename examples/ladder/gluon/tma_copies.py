"""Step 10: the copy engine of sm_90 (TMA) fetches whole tiles, which a barrier in shared memory counts in.

No thread computes addresses, and what lies beyond a matrix comes as zeros, so that all sizes are served; rows have to begin
at multiples of 16 bytes.
"""

from tiles import multiply_tiles_by_four
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def copy_tiles(A, B, row, column, k, a_tile, b_tile, ready):
    mbarrier.expect(ready, A.block_type.nbytes + B.block_type.nbytes)
    tma.async_copy_global_to_shared(A, [row, k], ready, a_tile)
    tma.async_copy_global_to_shared(B, [k, column], ready, b_tile)


@gluon.jit
def tma_copies(
    A, B, C, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [2, gl.num_warps() // 2], [1, 0])
    a_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, BM, BK], A.layout)
    b_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, BK, BN], B.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
    row, column = gl.program_id(1) * BM, gl.program_id(0) * BN
    for stage in gl.static_range(STAGES - 1):
        if stage * BK < K:
            copy_tiles(
                A, B, row, column, stage * BK, a_tiles.index(stage), b_tiles.index(stage), ready.index(stage)
            )
    total = gl.zeros([BM, BN], gl.float32, layout)
    stage = 0
    phase = 0
    for k in range(0, K, BK):
        mbarrier.wait(ready.index(stage), phase)
        gl.thread_barrier()  # All threads have left the tile that is overwritten next.
        next_k = k + (STAGES - 1) * BK
        if next_k < K:
            before = gl.where(stage == 0, STAGES - 1, stage - 1)
            copy_tiles(
                A, B, row, column, next_k, a_tiles.index(before), b_tiles.index(before), ready.index(before)
            )
        total = multiply_tiles_by_four(a_tiles.index(stage), b_tiles.index(stage), total, layout)
        last = stage == STAGES - 1
        stage = gl.where(last, 0, stage + 1)
        phase = gl.where(last, phase ^ 1, phase)
    rows = row + gl.expand_dims(gl.arange(0, BM, gl.SliceLayout(1, layout)), 1)
    columns = column + gl.expand_dims(gl.arange(0, BN, gl.SliceLayout(0, layout)), 0)
    gl.store(C + rows.to(gl.int64) * N + columns, total, mask=(rows < M) & (columns < N))
