"""The loop that both operators share: attention of a tile of queries to a range of keys, a block at a time."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def attend(
    queries, k, v, stride_k, stride_v, start, end, last, scale, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Row r of `queries` attends to keys `start` … `last[r]`, of which there are none from `end` on.

    Returns for each row the largest score, the sum of p = 2^(score - largest), and that of p · v.  A softmax needs
    the largest score before it can weigh anything; this one does not wait for it, but rescales both sums when a
    larger score comes along ("online softmax").  Scores are to base 2, since exp2 is one instruction of the GPU."""
    depth = tl.arange(0, HEAD_DIM)
    # Not minus infinity, so that the differences of a row that has seen no key yet are numbers.
    row_max = tl.full([queries.shape[0]], LOWEST, dtype=tl.float32)
    row_sum = tl.zeros([queries.shape[0]], dtype=tl.float32)
    total = tl.zeros([queries.shape[0], HEAD_DIM], dtype=tl.float32)
    for block in range(start, end, BLOCK_N):
        positions = block + tl.arange(0, BLOCK_N)
        present = positions < end
        keys = tl.load(k + positions[None, :] * stride_k + depth[:, None], mask=present[None, :], other=0.0)
        values = tl.load(v + positions[:, None] * stride_v + depth[None, :], mask=present[:, None], other=0.0)
        visible = present[None, :] & (positions[None, :] <= last[:, None])
        scores = tl.where(visible, tl.dot(queries, keys) * (scale * LOG2_E), -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(p, axis=1)
        total = tl.dot(p.to(values.dtype), values, total * correction[:, None])
        row_max = new_max
    return row_max, row_sum, total


@triton.jit
def quotient(total, row_sum):
    """total / row_sum for each row, and zeros for those that have seen no key."""
    return total * tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)[:, None]
