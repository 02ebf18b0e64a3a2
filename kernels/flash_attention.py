"""Attention, forward: softmax(Q·Kᵀ · scale)·V in one pass over K and V, without storing the score matrix.

After Dao et al., "FlashAttention-2", 2023: a running maximum and sum per row rescale the accumulated output.
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    q, k_base, v_base, accumulator, row_max, row_sum, rows, start, end, n_ctx, stride_n, qk_scale,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Goes over the key blocks from `start` to `end`; only MASKED ones look at the diagonal and at the end of the sequence."""
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD_DIM)
    for block in range(start, end, BLOCK_N):
        positions = block + columns
        k_tile = k_base + positions[None, :] * stride_n + depth[:, None]
        v_tile = v_base + positions[:, None] * stride_n + depth[None, :]
        if MASKED:
            k = tl.load(k_tile, mask=positions[None, :] < n_ctx, other=0.0)
            scores = tl.dot(q, k) * qk_scale
            visible = positions[None, :] < n_ctx
            if IS_CAUSAL:
                visible = visible & (rows[:, None] >= positions[None, :])
            scores = tl.where(visible, scores, -1.0e6)
            new_max = tl.maximum(row_max, tl.max(scores, axis=1))
            weights = tl.exp2(scores - new_max[:, None])
            v = tl.load(v_tile, mask=positions[:, None] < n_ctx, other=0.0)
        else:
            k = tl.load(k_tile)
            scores = tl.dot(q, k)
            new_max = tl.maximum(row_max, tl.max(scores, axis=1) * qk_scale)
            weights = tl.exp2(scores * qk_scale - new_max[:, None])
            v = tl.load(v_tile)
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, axis=1)
        accumulator = accumulator * correction[:, None]
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator)
        row_max = new_max
    return accumulator, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    q, k, v, out, lse, sm_scale, stride_z, stride_h, stride_n, n_heads, n_ctx,
    HEAD_DIM: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """q, k, v, out: (Z, H, N_CTX, HEAD_DIM) with the same strides, HEAD_DIM contiguous; lse: (Z·H, N_CTX) fp32, the
    natural logarithm of each row's sum of exponentials.  Program (i, z·H + h) makes rows i·BLOCK_M and on of head h."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    base = (head // n_heads).to(tl.int64) * stride_z + (head % n_heads).to(tl.int64) * stride_h
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, HEAD_DIM)
    within = rows[:, None] * stride_n + depth[None, :]
    inside = rows[:, None] < n_ctx
    queries = tl.load(q + base + within, mask=inside, other=0.0)
    row_max = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    accumulator = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    # exp(x) = exp2(x · log2 e), with the factor folded into the scale.
    qk_scale = sm_scale * 1.4426950408889634
    if IS_CAUSAL:
        unmasked_end = tile * BLOCK_M // BLOCK_N * BLOCK_N
        end = tl.minimum(n_ctx, (tile + 1) * BLOCK_M)
    else:
        unmasked_end = n_ctx // BLOCK_N * BLOCK_N
        end = n_ctx
    accumulator, row_max, row_sum = attend(
        queries, k + base, v + base, accumulator, row_max, row_sum, rows, 0, unmasked_end, n_ctx, stride_n, qk_scale,
        HEAD_DIM, BLOCK_N, IS_CAUSAL, False,
    )  # fmt: skip
    accumulator, row_max, row_sum = attend(
        queries, k + base, v + base, accumulator, row_max, row_sum, rows, unmasked_end, end, n_ctx, stride_n, qk_scale,
        HEAD_DIM, BLOCK_N, IS_CAUSAL, True,
    )  # fmt: skip
    result = accumulator / row_sum[:, None]
    natural_log_2 = 0.6931471805599453
    tl.store(lse + head.to(tl.int64) * n_ctx + rows, (row_max + tl.log2(row_sum)) * natural_log_2, mask=rows < n_ctx)
    tl.store(out + base + within, result.to(out.dtype.element_ty), mask=inside)
