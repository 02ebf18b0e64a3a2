"""Step 2: neighbouring threads take neighbouring columns; the layout is all that changes."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def coalesced(A, B, C, M, N, K, BM: gl.constexpr, BN: gl.constexpr):
    # The lanes of a warp stand side by side: [1, 32].
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps() * 32 // BN, BN // 32], [1, 0])
    row = gl.program_id(1) * BM + gl.arange(0, BM, gl.SliceLayout(1, layout))
    column = gl.program_id(0) * BN + gl.arange(0, BN, gl.SliceLayout(0, layout))
    in_a, in_b = row < M, column < N
    a_row = A + row.to(gl.int64) * K
    b_row = B + column
    total = gl.zeros([BM, BN], gl.float32, layout)
    for k in range(K):
        a = gl.load(a_row + k, mask=in_a, other=0.0)
        b = gl.load(b_row, mask=in_b, other=0.0)
        b_row += N
        total += gl.expand_dims(a, 1) * gl.expand_dims(b, 0)
    c = C + gl.expand_dims(row.to(gl.int64) * N, 1) + gl.expand_dims(column, 0)
    gl.store(c, total, mask=gl.expand_dims(in_a, 1) & gl.expand_dims(in_b, 0))
