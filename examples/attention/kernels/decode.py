"""Attention of one query for each sequence to a long cache of keys and values.

A program for each head would leave most of a GPU idle, so the keys are split: every program attends to a part of
them, and a second launch joins the parts ("flash-decoding").  The heads of q that share a head of k and v are the
rows of one tile, so that the cache is read once for all of them."""

import triton
import triton.language as tl
from online_softmax import LOWEST, attend, quotient


@triton.jit
def decode_kernel(
    q, k, v, lengths, partial, lse, q_strides, k_strides, v_strides, scale, n_heads, group, n_keys, has_lengths,
    HEAD_DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (s, t, z) attends to split s of the keys of sequence z, for BLOCK_H heads or fewer: tile t of the
    tiles of all groups.

    Writes for each head and split its part of the result, `partial`: (Z, H, splits, HEAD_DIM), and the logarithm to
    base 2 of its sum of exponentials, `lse`: (Z, H, splits), minus infinity where the split has no keys."""
    tl.extra.cuda.gdc_launch_dependents()
    split, n_splits, batch = tl.program_id(0), tl.num_programs(0), tl.program_id(2)
    tiles = tl.cdiv(group, BLOCK_H)
    kv_head = tl.program_id(1) // tiles
    of_group = tl.program_id(1) % tiles * BLOCK_H + tl.arange(0, BLOCK_H)
    inside = of_group < group
    heads = kv_head * group + of_group
    depth = tl.arange(0, HEAD_DIM)
    q += batch * q_strides[0]
    queries = tl.load(q + heads[:, None] * q_strides[1] + depth[None, :], mask=inside[:, None], other=0.0)
    k += batch * k_strides[0] + kv_head * k_strides[1]
    v += batch * v_strides[0] + kv_head * v_strides[1]
    # Nobody has checked the lengths, which are on the GPU: those beyond the cache end with it.
    length = tl.minimum(tl.load(lengths + batch, mask=has_lengths != 0, other=n_keys), n_keys)
    share = tl.cdiv(length, n_splits * BLOCK_N) * BLOCK_N
    start = split * share
    end = tl.minimum(start + share, length)
    last = tl.full([BLOCK_H], n_keys, dtype=tl.int32)
    row_max, row_sum, total = attend(
        queries, k, v, k_strides[2], v_strides[2], start, end, last, scale, HEAD_DIM, BLOCK_N
    )
    place = (batch.to(tl.int64) * n_heads + heads) * n_splits + split
    tl.store(lse + place, row_max + tl.log2(row_sum), mask=inside)
    tl.store(
        partial + place[:, None] * HEAD_DIM + depth[None, :], quotient(total, row_sum), mask=inside[:, None]
    )


@triton.jit
def decode_join_kernel(partial, lse, out, n_splits, HEAD_DIM: tl.constexpr, BLOCK_S: tl.constexpr):
    """Program r makes row r of out, (Z · H, HEAD_DIM): the mean of its parts, weighted by 2^lse."""
    row = tl.program_id(0).to(tl.int64)
    depth = tl.arange(0, HEAD_DIM)
    top = tl.full([1], LOWEST, dtype=tl.float32)
    weight_sum = tl.zeros([1], dtype=tl.float32)
    total = tl.zeros([HEAD_DIM], dtype=tl.float32)
    # This launch may begin while the one before it still runs, and waits for its results here (`launch_pdl`).
    tl.extra.cuda.gdc_wait()
    for start in range(0, n_splits, BLOCK_S):
        splits = start + tl.arange(0, BLOCK_S)
        inside = splits < n_splits
        place = row * n_splits + splits
        part_lse = tl.load(lse + place, mask=inside, other=-float("inf"))
        parts = tl.load(partial + place[:, None] * HEAD_DIM + depth[None, :], mask=inside[:, None], other=0.0)
        new_top = tl.maximum(top, tl.max(part_lse, axis=0))
        weights = tl.exp2(part_lse - new_top)
        correction = tl.exp2(top - new_top)
        weight_sum = weight_sum * correction + tl.sum(weights, axis=0)
        total = total * correction + tl.sum(weights[:, None] * parts, axis=0)
        top = new_top
    result = tl.where(weight_sum == 0.0, 0.0, total / weight_sum)
    tl.store(out + row * HEAD_DIM + depth, result.to(out.dtype.element_ty))
