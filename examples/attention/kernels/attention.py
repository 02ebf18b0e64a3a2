"""Attention, softmax(q · kᵀ · scale) · v, without storing the matrix of scores.

After Dao, "FlashAttention-2", 2023."""

import triton
import triton.language as tl
from online_softmax import attend, quotient


@triton.jit
def attention_kernel(
    q, k, v, out, q_strides, k_strides, v_strides, out_strides, scale, group, n_queries, n_keys, causal,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (i, h, z) makes the i-th BLOCK_M rows from the end of head h of batch z; strides are those of batch,
    head and position.

    `group` heads of q, one after another, share one of k and v.  With `causal` query i sees keys up to
    i + n_keys - n_queries, so that the last query sees the last key."""
    # Under a causal mask the last rows have the most to do: they begin first.
    tile, head, batch = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    q += batch * q_strides[0] + head * q_strides[1]
    k += batch * k_strides[0] + head // group * k_strides[1]
    v += batch * v_strides[0] + head // group * v_strides[1]
    out += batch * out_strides[0] + head * out_strides[1]
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, HEAD_DIM)
    inside = rows[:, None] < n_queries
    queries = tl.load(q + rows[:, None] * q_strides[2] + depth[None, :], mask=inside, other=0.0)
    # The mask is a number for each row, so that one variant does for attention with and without it.
    shift = n_keys - n_queries if causal else n_keys
    end = tl.minimum(n_keys, (tile + 1) * BLOCK_M + shift)
    _, row_sum, total = attend(
        queries, k, v, k_strides[2], v_strides[2], 0, end, rows + shift, scale, HEAD_DIM, BLOCK_N
    )
    result = quotient(total, row_sum).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * out_strides[2] + depth[None, :], result, mask=inside)
