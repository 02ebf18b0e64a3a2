"""Attention, forward: softmax(Q·Kᵀ · scale)·V in one pass over K and V, without storing the matrix of scores.

A softmax needs the largest score of a row and the sum of its exponentials before it can weigh anything.  This
one does not wait for them: when a larger score comes along, it rescales what it has added up so far ("online
softmax").  For each block of rows of Q:

    row_max, row_sum, accumulator = -inf, 0, 0
    for each block of keys and values:
        scores = Q·Kᵀ · scale
        new_max = max(row_max, largest of the scores)
        p = exp(scores - new_max)
        row_sum = row_sum · exp(row_max - new_max) + sum of p
        accumulator = accumulator · exp(row_max - new_max) + p·V
        row_max = new_max
    out = accumulator / row_sum

After Dao et al., "FlashAttention-2", 2023.  `attend` is that loop, `attention_of_rows` what goes around it,
and the kernel deals the blocks of rows out to programs.
"""

import triton
import triton.language as tl


@triton.jit
def hide(scores, sign, last_keys, positions, n_ctx_k, IS_CAUSAL: tl.constexpr):
    """The scores, negated where the scale is negative, and minus infinity where a row may not look."""
    visible = positions[None, :] < n_ctx_k
    if IS_CAUSAL:
        visible = visible & (last_keys[:, None] >= positions[None, :])
    return tl.where(visible, scores * sign, -float("inf"))


@triton.jit
def attend(
    state,
    queries,
    k,
    v,
    last_keys,
    blocks,
    n_ctx_k,
    stride_kn,
    stride_vn,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    SLACK: tl.constexpr,
    MASKED: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """The loop over blocks of keys.

    state: accumulator, maximum and sum of each row; returned as it is after the loop.
    last_keys: the last position that each row may see under a causal mask.
    blocks: the first position, the end, and the position from which on scores have to be masked.
    scale: the positive factor of the scores, and its sign.

    If MASKED, every block is masked, or with SPECIALIZE those from the third position on.  SPECIALIZE asks
    for warp specialization: a producer warp issues the loads and runs ahead of the warps that compute.

    With a SLACK the maximum of a row is followed only when it has grown by more than that, in powers of two
    ("FlashAttention-4", 2026)."""
    accumulator, row_max, row_sum = state
    start, end, masked_from = blocks
    qk_scale, sign = scale
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD_DIM)
    for block in tl.range(start, end, BLOCK_N, warp_specialize=SPECIALIZE):
        positions = block + columns
        key_pointers = k + positions[None, :] * stride_kn + depth[:, None]
        value_pointers = v + positions[:, None] * stride_vn + depth[None, :]
        if MASKED:
            present = positions < n_ctx_k
            keys = tl.load(key_pointers, mask=present[None, :], other=0.0)
            values = tl.load(value_pointers, mask=present[:, None], other=0.0)
        else:
            keys = tl.load(key_pointers)
            values = tl.load(value_pointers)
        scores = tl.dot(queries, keys)
        if MASKED:
            if SPECIALIZE:
                if block >= masked_from:
                    scores = hide(scores, sign, last_keys, positions, n_ctx_k, IS_CAUSAL)
            else:
                scores = hide(scores, sign, last_keys, positions, n_ctx_k, IS_CAUSAL)
        # The maximum is taken before the scores are scaled: one multiplication for a row.
        new_max = tl.max(scores, axis=1) * qk_scale
        raised = new_max > row_max + SLACK
        new_max = tl.where(raised, new_max, row_max) if SLACK > 0 else tl.maximum(row_max, new_max)
        p = tl.exp2(scores * qk_scale - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        if SLACK > 0:
            correction = tl.where(raised, correction, 1.0)
        row_max = new_max
        row_sum = row_sum * correction + tl.sum(p, axis=1)
        accumulator = accumulator * correction[:, None]
        accumulator = tl.dot(p.to(values.dtype), values, accumulator)
    return accumulator, row_max, row_sum


@triton.jit
def attention_of_rows(
    q,
    k,
    v,
    out,
    lse,
    sm_scale,
    strides,
    n_heads,
    n_kv_heads,
    n_ctx_q,
    n_ctx_k,
    tile,
    head,
    HEAD_DIM: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SLACK: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    """Makes rows tile·BLOCK_M and on of one head; `head` counts through all batches."""
    of_q, of_k, of_v, of_out = strides
    stride_qz, stride_qh, stride_qn = of_q
    stride_kz, stride_kh, stride_kn = of_k
    stride_vz, stride_vh, stride_vn = of_v
    stride_oz, stride_oh, stride_on = of_out
    batch, head_of_batch = (head // n_heads).to(tl.int64), head % n_heads
    kv_head = (head_of_batch // (n_heads // n_kv_heads)).to(tl.int64)
    q += batch * stride_qz + head_of_batch.to(tl.int64) * stride_qh
    k += batch * stride_kz + kv_head * stride_kh
    v += batch * stride_vz + kv_head * stride_vh
    out += batch * stride_oz + head_of_batch.to(tl.int64) * stride_oh
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, HEAD_DIM)
    inside = rows[:, None] < n_ctx_q
    queries = tl.load(q + rows[:, None] * stride_qn + depth[None, :], mask=inside, other=0.0)
    # Below all scores, but finite: rows that may see no key have no NaN then, but sums of zero.
    row_max = tl.full([BLOCK_M], -3.4028234663852886e38, dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    accumulator = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    # exp(x) = exp2(x · log2 e), with the factor folded into the scale: exp2 is one instruction.
    qk_scale = tl.maximum(tl.abs(sm_scale) * 1.4426950408889634, 1e-30)
    sign = tl.where(sm_scale < 0, -1.0, 1.0)
    # Keys that need a mask are at the end: those on the diagonal, or beyond the end of the sequence.
    # The last row sees the last key.
    shift = n_ctx_k - n_ctx_q
    last_keys = rows + shift
    if IS_CAUSAL:
        unmasked_end = tl.maximum(tile * BLOCK_M + shift, 0) // BLOCK_N * BLOCK_N
        end = tl.minimum(n_ctx_k, (tile + 1) * BLOCK_M + shift)
    else:
        unmasked_end = n_ctx_k // BLOCK_N * BLOCK_N
        end = n_ctx_k
    # The largest score is taken for the largest multiple of it, and minus infinity for hidden, so the scale
    # must be above zero: if it is not, all blocks go the way of those with masks, where scores take the sign.
    unmasked_end = tl.where(sm_scale < 0, 0, unmasked_end)
    state = (accumulator, row_max, row_sum)
    scale = (qk_scale, sign)
    # With a producer there is one loop, since a second one would begin with empty buffers.  Without, blocks
    # that need no mask have a loop of their own, which has less to do.
    start = 0
    if not SPECIALIZE:
        blocks = (0, unmasked_end, end)
        state = attend(
            state, queries, k, v, last_keys, blocks, n_ctx_k, stride_kn, stride_vn, scale,
            HEAD_DIM, BLOCK_N, IS_CAUSAL, SLACK, False, False,
        )  # fmt: skip
        start = unmasked_end
    blocks = (start, end, unmasked_end)
    accumulator, row_max, row_sum = attend(
        state, queries, k, v, last_keys, blocks, n_ctx_k, stride_kn, stride_vn, scale,
        HEAD_DIM, BLOCK_N, IS_CAUSAL, SLACK, True, SPECIALIZE,
    )  # fmt: skip
    result = accumulator * tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)[:, None]
    # The backward pass wants the logarithm of the sum of exponentials, to base e.
    natural_log_2 = 0.6931471805599453
    tl.store(
        lse + head.to(tl.int64) * n_ctx_q + rows,
        (row_max + tl.log2(row_sum)) * natural_log_2,
        mask=rows < n_ctx_q,
    )
    tl.store(out + rows[:, None] * stride_on + depth[None, :], result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def head_after_head(number, tiles):
    """The tile and the head of a number, of each head the last tile first."""
    tile = tiles - 1 - number % tiles
    head = number // tiles
    return tl.maximum(tile, 0), head


@triton.jit
def longest_first(rank, first, end, tiles):
    """The tile and the head at a rank of a section: the tiles from `first` to `end` of those of all heads, one head
    after another.  The last tiles of all its heads come first, then the last but one: under a causal mask the
    last have the most to do."""
    # A section may begin and end within a head.  Tiles before both places in their heads, and those behind both,
    # are there for as many heads as lie from one to the other; those between for one more, or less.
    begun_heads, ended_heads = first // tiles, end // tiles
    begun, ended = first - begun_heads * tiles, end - ended_heads * tiles
    heads = ended_heads - begun_heads
    low, high = tl.minimum(begun, ended), tl.maximum(begun, ended)
    heads_between = tl.where(ended > begun, heads + 1, heads - 1)
    from_low = rank - low * heads
    from_high = from_low - (high - low) * heads_between
    is_before, is_between = from_low < 0, (from_low >= 0) & (from_high < 0)
    start = tl.where(is_before, 0, tl.where(is_between, low, high))
    rank = tl.where(is_before, rank, tl.where(is_between, from_low, from_high))
    repeats = tl.maximum(tl.where(is_between, heads_between, heads), 1)
    beyond_start = rank // repeats
    position = start + beyond_start
    head = begun_heads + tl.where(position < begun, 1, 0) + rank - beyond_start * repeats
    # They are never negative, but that is not easy to see.
    return tl.maximum(tiles - 1 - position, 0), tl.maximum(head, 0)


@triton.jit
def rounds_together(tiles, group):
    """How many rounds of all programs are a section, a power of two; `group` heads of q share one of k and v.

    With one round for each head of a group, the keys and values of a section stay in the L2 cache.  Those of long
    sequences need not: programs that read the same ones do so at about the same time, eight or more of them here, and
    a longer section is more even."""
    rounds = 1
    for doubled in tl.static_range(7):
        rounds = tl.where(tl.maximum(group * tiles // 8, group) > 1 << doubled, 2 << doubled, rounds)
    return rounds


@triton.jit
def dealt(turn, programs, count, tiles, rounds):
    """The tile and the head for a turn of this program, of `count` tiles of all heads.

    Tiles are dealt out to and fro, so that a program which gets one of the first in a round gets one of the last in
    the next: after two rounds, of one section or of two, all have had as much to do.  The last section has what is
    left, one and a half rounds or more.  Where the last round is not full, the longest of it go to programs that got
    the shortest of the round before."""
    pairs = tl.maximum(rounds, 2)
    last = tl.maximum((2 * count - 3 * programs) // (2 * programs * pairs) * pairs, 0)
    is_last = turn >= last
    first_turn = tl.where(is_last, last, turn & -rounds)
    start, first = turn * programs, first_turn * programs
    end = tl.where(is_last, count, first + rounds * programs)
    forwards = tl.program_id(0)
    backwards = tl.minimum(programs, count - start) - 1 - forwards
    within = tl.where(((count // programs - turn) & 1) == 0, forwards, backwards)
    return longest_first(start - first + within, first, end, tiles)


@triton.jit
def in_turn(count, tiles, TOGETHER: tl.constexpr, LAST: tl.constexpr):
    """The tile and the head of this program, of as many programs as tiles: sections of TOGETHER tiles, the last of
    which has at least LAST.  A multiprocessor takes the next program when one ends, so it is at the end alone that the
    short tiles of many heads have to come last."""
    number = tl.program_id(0)
    last = tl.maximum((count - LAST) // TOGETHER, 0)
    section = tl.minimum(number // TOGETHER, last)
    first = section * TOGETHER
    end = tl.where(section == last, count, first + TOGETHER)
    return longest_first(number - first, first, end, tiles)


@triton.jit
def flash_attention_kernel(
    q,
    k,
    v,
    out,
    lse,
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
    stride_oz,
    stride_oh,
    stride_on,
    n_heads,
    n_kv_heads,
    n_ctx_q,
    n_ctx_k,
    n_batch,
    HEAD_DIM: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PERSISTENT: tl.constexpr = False,
    TOGETHER: tl.constexpr = 0,
    LAST: tl.constexpr = 0,
    SLACK: tl.constexpr = 0.0,
):
    """q, out: (Z, H, N_CTX_Q, HEAD_DIM), k, v: (Z, H_KV, N_CTX_K, HEAD_DIM), HEAD_DIM contiguous; lse:
    (Z·H, N_CTX_Q) fp32, the natural logarithm of each row's sum of exponentials.

    H / H_KV heads of q, one after another, share one of k and v.  Under a causal mask row i sees keys up to
    i + N_CTX_K - N_CTX_Q; rows that see none have zeros in out, and minus infinity in lse.

    There is a program for each tile of BLOCK_M rows, head after head or in sections of TOGETHER tiles, the last of
    which has at least LAST.  PERSISTENT programs, of which any number share the tiles, have a warp that copies
    for the next tile under the end of this one.

    With a SLACK, up to 8 or so, sums are rescaled more seldom; but the largest p of a row may then be
    any number up to 2^SLACK instead of one, which fp16 has exactly, and errors grow by 2 to 5 %."""
    of_q, of_k = (stride_qz, stride_qh, stride_qn), (stride_kz, stride_kh, stride_kn)
    of_v, of_out = (stride_vz, stride_vh, stride_vn), (stride_oz, stride_oh, stride_on)
    strides = (of_q, of_k, of_v, of_out)
    tiles = tl.cdiv(n_ctx_q, BLOCK_M)
    count = tiles * (n_heads * n_batch)
    if PERSISTENT:
        # Without a mask all tiles have as much to do.
        start, end, step = tl.program_id(0), count, tl.num_programs(0)
        if IS_CAUSAL:
            rounds = rounds_together(tiles, n_heads // n_kv_heads)
            start, end, step = 0, tl.cdiv(count - tl.program_id(0), tl.num_programs(0)), 1
        for place in tl.range(start, end, step):
            if IS_CAUSAL:
                tile, head = dealt(place, tl.num_programs(0), count, tiles, rounds)
            else:
                tile, head = head_after_head(place, tiles)
            attention_of_rows(
                q, k, v, out, lse, sm_scale, strides, n_heads, n_kv_heads, n_ctx_q, n_ctx_k, tile, head,
                HEAD_DIM, IS_CAUSAL, BLOCK_M, BLOCK_N, SLACK, True,
            )  # fmt: skip
    else:
        if TOGETHER > 0:
            tile, head = in_turn(count, tiles, TOGETHER, LAST)
        else:
            tile, head = head_after_head(tl.program_id(0), tiles)
        attention_of_rows(
            q, k, v, out, lse, sm_scale, strides, n_heads, n_kv_heads, n_ctx_q, n_ctx_k, tile, head,
            HEAD_DIM, IS_CAUSAL, BLOCK_M, BLOCK_N, SLACK, False,
        )  # fmt: skip
