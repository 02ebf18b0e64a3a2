"""A linear layer, activation(x·wᵀ + bias), by the tiles of `matmul.py`: what it adds to a product is done while a tile's sums
are still in registers, or where parts of them are added."""

import triton
import triton.language as tl
from matmul import matmul_by_parts, matmul_by_tiles, sum_of_parts


@triton.jit
def linear_kernel(
    a,
    b,
    bias,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    activation,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PERSISTENT: tl.constexpr = False,
    ACROSS: tl.constexpr = False,
    cluster_size: tl.constexpr = 1,
):
    """C = activation(A·B + bias), without anything in between going through memory.  Bias, unless its pointer is null, has
    an element for each column of C, or with ACROSS, where A is the layer's weight and C its result's transpose, for
    each row.  `activated` has the numbers of activations; all else is as for `matmul_kernel`."""
    left, right, out = (a, stride_am, stride_ak), (b, stride_bk, stride_bn), (c, stride_cm, stride_cn)
    shape, layer = (M, N, K), (bias, activation)
    matmul_by_tiles(
        left, right, out, shape, layer, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, PERSISTENT, ACROSS, cluster_size
    )


@triton.jit
def linear_split_kernel(
    a,
    b,
    bias,
    c,
    partial,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    whole,
    parts,
    activation,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr = False,
):
    """Divides tiles as `matmul_split_kernel` does, and finishes those that are not divided."""
    left, right = (a, stride_am, stride_ak), (b, stride_bk, stride_bn)
    out = (c, 1, stride_cm) if ACROSS else (c, stride_cm, 1)
    shape, layer = (M, N, K), (bias, activation)
    matmul_by_parts(
        left, right, out, partial, shape, whole, parts, layer, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, ACROSS
    )


@triton.jit
def linear_parts_kernel(
    partial,
    bias,
    c,
    M,
    N,
    stride_cm,
    whole,
    parts,
    block_m,
    block_n,
    activation,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACROSS: tl.constexpr = False,
):
    """Adds parts as `matmul_parts_kernel` does; bias and activation come after the sums."""
    sum_of_parts(
        partial,
        (c, stride_cm, 1),
        (M, N),
        (whole, parts, block_m, block_n),
        (bias, activation),
        ROWS,
        COLUMNS,
        AT_ONCE,
        GROUP_M,
        ACROSS,
    )
