"""C = A·B with tensor cores, programs ordered in groups so that neighbours share tiles in the L2 cache."""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """The tile of this program: down GROUP_M row tiles first, then on to the next column tile."""
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = program // per_group * GROUP_M
    group_m = min(tiles_m - first_m, GROUP_M)
    within = program % per_group
    return first_m + within % group_m, within // group_m


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A is M×K, B is K×N, C is M×N, each with any strides (in elements); products are added up in fp32."""
    tile_m, tile_n = grouped_tile(M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    # Rows and columns past the edge wrap around: their products are not stored, and the loads need no mask.
    a_tile = a + (rows % M).to(tl.int64)[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b + depth[:, None] * stride_bk + (columns % N).to(tl.int64)[None, :] * stride_bn
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a_values = tl.load(a_tile, mask=depth[None, :] < K - start, other=0.0)
        b_values = tl.load(b_tile, mask=depth[:, None] < K - start, other=0.0)
        accumulator = tl.dot(a_values, b_values, accumulator)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    c_tile = c + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_tile, accumulator.to(c.dtype.element_ty), mask=inside)
