"""Attention, backward: from the gradient of `out` those of q, k and v, without storing the matrix of scores.

With p = exp(Q·Kᵀ · scale - lse), which the forward pass's log-sum-exp gives back block by block:

    dV = pᵀ·dO
    dp = dO·Vᵀ
    ds = p · (dp - delta),  where delta = sum of O · dO over each row
    dQ = ds·K · scale
    dK = dsᵀ·Q · scale

After Dao et al., "FlashAttention-2", 2023.  Three launches, in this order:

    flash_attention_backward_prepare   delta and lse, in powers of two; zeros for the sums of dQ
    flash_attention_backward           dK and dV of a block of keys by each program, which adds to the sums of dQ
    flash_attention_backward_finish    dQ, scaled and in its own type

One pass computes each score once, and so has five dots for a block where passes of their own for dK, dV and
for dQ have seven.  The price is that programs add to dQ in any order: its last digits may differ from run to
run, while dK and dV do not.

Rows of lse, delta and of the sums of dQ are those of one head after another, for each of which their number is
rounded up to a multiple of ROWS, and to ROWS at least.
"""

import triton
import triton.language as tl

ROWS = tl.constexpr(128)


@triton.jit
def flash_attention_backward_prepare_kernel(
    out,
    dout,
    lse,
    log2_sum,
    delta,
    dq_sum,
    stride_oz,
    stride_oh,
    stride_on,
    stride_doz,
    stride_doh,
    stride_don,
    n_heads,
    n_ctx_q,
    HEAD_DIM: tl.constexpr,
):
    """out, dout: (Z, H, N_CTX_Q, HEAD_DIM); lse: (Z·H, N_CTX_Q) fp32, natural, as the forward pass wrote it.

    Each program makes ROWS rows: `log2_sum`, the lse to base 2, or infinity behind the last row, whose p is zero
    then; `delta`; and zeros in `dq_sum`."""
    tiles = tl.cdiv(n_ctx_q, ROWS)
    head = tl.program_id(0) // tiles
    rows = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    depth = tl.arange(0, HEAD_DIM)
    batch, head_of_batch = (head // n_heads).to(tl.int64), (head % n_heads).to(tl.int64)
    inside = rows[:, None] < n_ctx_q
    out += batch * stride_oz + head_of_batch * stride_oh
    dout += batch * stride_doz + head_of_batch * stride_doh
    values = tl.load(out + rows[:, None] * stride_on + depth[None, :], mask=inside, other=0.0)
    gradients = tl.load(dout + rows[:, None] * stride_don + depth[None, :], mask=inside, other=0.0)
    sums = tl.sum(values.to(tl.float32) * gradients.to(tl.float32), axis=1)
    natural = tl.load(lse + head.to(tl.int64) * n_ctx_q + rows, mask=rows < n_ctx_q, other=float("inf"))
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tl.store(log2_sum + place, natural * 1.4426950408889634)
    tl.store(delta + place, sums)
    zeros = tl.zeros([ROWS, HEAD_DIM], dtype=tl.float32)
    tl.store(dq_sum + place[:, None] * HEAD_DIM + depth[None, :], zeros)


@triton.jit
def tile_of(number, tiles, heads, HEADS_TOGETHER: tl.constexpr):
    """The tile and the head of a number: the first tiles of HEADS_TOGETHER heads, then their second ones.  Under
    a causal mask the first keys are seen by the most queries, and short programs at the end even out."""
    if HEADS_TOGETHER == 1:
        return number % tiles, number // tiles
    else:
        section = number // (tiles * HEADS_TOGETHER)
        together = tl.maximum(tl.minimum(HEADS_TOGETHER, heads - section * HEADS_TOGETHER), 1)
        inner = number % (tiles * HEADS_TOGETHER)
        return inner // together, section * HEADS_TOGETHER + inner % together


@triton.jit
def flash_attention_backward_kernel(
    q,
    k,
    v,
    dout,
    dk,
    dv,
    log2_sum,
    delta,
    dq_sum,
    sm_scale,
    stride_qz,
    stride_qh,
    stride_qn,
    stride_kz,
    stride_kh,
    stride_kn,
    stride_vz,
    stride_vh,
    stride_vn,
    stride_doz,
    stride_doh,
    stride_don,
    stride_dkz,
    stride_dkh,
    stride_dkn,
    stride_dvz,
    stride_dvh,
    stride_dvn,
    n_heads,
    n_kv_heads,
    n_ctx_q,
    n_ctx_k,
    n_batch,
    HEAD_DIM: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEADS_TOGETHER: tl.constexpr = 1,
    SPECIALIZE: tl.constexpr = True,
):
    """q, dout: (Z, H, N_CTX_Q, HEAD_DIM); k, v, dk, dv: (Z, H_KV, N_CTX_K, HEAD_DIM), where H / H_KV heads of q
    share one of k and v; `log2_sum`, `delta` and `dq_sum` are what `flash_attention_backward_prepare` wrote.

    A program makes dk and dv of BLOCK_N keys of one head.  Scores are transposed, keys by queries: then p and ds
    are the left operands of both sums' dots as the threads hold them, and only dQ's dot reads ds from shared
    memory.  It comes before dK's, under which its result goes to memory."""
    tile, kv = tile_of(tl.program_id(0), tl.cdiv(n_ctx_k, BLOCK_N), n_batch * n_kv_heads, HEADS_TOGETHER)
    batch = kv // n_kv_heads
    kv_head = kv % n_kv_heads
    group = tl.maximum(n_heads // n_kv_heads, 1)
    padded = tl.maximum(tl.cdiv(n_ctx_q, ROWS) * ROWS, ROWS)
    first = tile * BLOCK_N
    positions = first + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD_DIM)
    present = positions[:, None] < n_ctx_k
    key_base = k + batch.to(tl.int64) * stride_kz + kv_head.to(tl.int64) * stride_kh
    value_base = v + batch.to(tl.int64) * stride_vz + kv_head.to(tl.int64) * stride_vh
    # What lies behind the last row of a head is of its own: rows of `dq_sum` need no end.
    dq_rows = tl.make_tensor_descriptor(dq_sum, [1073741824, HEAD_DIM], [HEAD_DIM, 1], [BLOCK_M, HEAD_DIM])
    dk_total = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    dv_total = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.4426950408889634
    # The first row that sees each key: under a causal mask the last row sees the last key, and keys behind it are
    # seen by none; without one, all rows see all keys that there are.
    shift = n_ctx_k - n_ctx_q
    if IS_CAUSAL:
        first_row = positions - shift
        start = tl.maximum(first - shift, 0) // BLOCK_M * BLOCK_M
        masked_until = first - shift + BLOCK_N - 1
    else:
        first_row = tl.where(positions < n_ctx_k, 0, n_ctx_q)
        start = 0
        masked_until = tl.where(first + BLOCK_N > n_ctx_k, n_ctx_q, 0)
    for head in range(kv_head * group, kv_head * group + group):
        query_base = q + batch.to(tl.int64) * stride_qz + head.to(tl.int64) * stride_qh
        dout_base = dout + batch.to(tl.int64) * stride_doz + head.to(tl.int64) * stride_doh
        row_of_head = (batch * tl.maximum(n_heads, 0) + head) * padded
        # A block's sums are loaded an iteration early, so that its loads by TMA are all that a dot reads.
        following = row_of_head + start + tl.arange(0, BLOCK_M)
        row_log2_sum = tl.load(log2_sum + following)
        row_delta = tl.load(delta + following)
        # Each time anew, by TMA as the queries.
        keys = tl.load(key_base + positions[:, None] * stride_kn + depth[None, :], mask=present, other=0.0)
        values = tl.load(
            value_base + positions[:, None] * stride_vn + depth[None, :], mask=present, other=0.0
        )
        for block in tl.range(start, n_ctx_q, BLOCK_M, warp_specialize=SPECIALIZE):
            rows = block + tl.arange(0, BLOCK_M)
            inside = rows[:, None] < n_ctx_q
            queries = tl.load(query_base + rows[:, None] * stride_qn + depth[None, :], mask=inside, other=0.0)
            gradients = tl.load(
                dout_base + rows[:, None] * stride_don + depth[None, :], mask=inside, other=0.0
            )
            scores = tl.dot(keys, queries.T)
            p = tl.exp2(scores * qk_scale - row_log2_sum[None, :])
            if block < masked_until:
                p = tl.where(rows[None, :] >= first_row[:, None], p, 0.0)
            dp = tl.dot(values, gradients.T, -tl.broadcast_to(row_delta[None, :], (BLOCK_N, BLOCK_M)))
            dv_total = tl.dot(p.to(gradients.dtype), gradients, dv_total)
            ds = (p * dp).to(queries.dtype)
            dq = tl.dot(ds.T, keys)
            dk_total = tl.dot(ds, queries, dk_total)
            dq_rows.atomic_add([row_of_head + block, 0], dq)
            next_block = tl.multiple_of(tl.minimum(block + BLOCK_M, padded - BLOCK_M), BLOCK_M)
            following = row_of_head + next_block + tl.arange(0, BLOCK_M)
            row_log2_sum = tl.load(log2_sum + following)
            row_delta = tl.load(delta + following)
    dk += batch.to(tl.int64) * stride_dkz + kv_head.to(tl.int64) * stride_dkh
    dv += batch.to(tl.int64) * stride_dvz + kv_head.to(tl.int64) * stride_dvh
    place = positions[:, None] * stride_dvn + depth[None, :]
    tl.store(dv + place, dv_total.to(dv.dtype.element_ty), mask=present)
    place = positions[:, None] * stride_dkn + depth[None, :]
    tl.store(dk + place, (dk_total * sm_scale).to(dk.dtype.element_ty), mask=present)


@triton.jit
def flash_attention_backward_finish_kernel(
    dq_sum,
    dq,
    sm_scale,
    stride_dqz,
    stride_dqh,
    stride_dqn,
    n_heads,
    n_ctx_q,
    HEAD_DIM: tl.constexpr,
):
    """dq: (Z, H, N_CTX_Q, HEAD_DIM), of which each program makes ROWS rows from the sums in `dq_sum`."""
    tiles = tl.cdiv(n_ctx_q, ROWS)
    head = tl.program_id(0) // tiles
    rows = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    depth = tl.arange(0, HEAD_DIM)
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    sums = tl.load(dq_sum + place[:, None] * HEAD_DIM + depth[None, :])
    dq += (head // n_heads).to(tl.int64) * stride_dqz + (head % n_heads).to(tl.int64) * stride_dqh
    tl.store(
        dq + rows[:, None] * stride_dqn + depth[None, :],
        (sums * sm_scale).to(dq.dtype.element_ty),
        mask=rows[:, None] < n_ctx_q,
    )
