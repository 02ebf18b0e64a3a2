"""The functions of `torch._inductor.runtime.triton_helpers`, which kernels that torch.compile wrote call, written in
the language from what they are for.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.
"""

import kbuild
import kbuild.language as tl


@kbuild.jit
def promote_to_tensor(x):
    """A scalar as a vector of one element; a tensor as it is."""
    return x + tl.zeros((1,), tl.int1)


@kbuild.jit
def is_floating(x):
    """Whether numbers are floating-point ones."""
    return promote_to_tensor(x).dtype.is_floating()


@kbuild.jit
def if_mask(mask, val):
    """`val` where there is a mask, else None: what a load without a mask may have for `other`."""
    if mask is None:
        return None
    else:
        return val


@kbuild.constexpr_function
def constexpr_next_power_of_2(n):
    """The least power of two that is not less than n."""
    return 1 << max(n - 1, 0).bit_length()


@kbuild.jit
def device_assert_then(cond, msg, r):
    """`r`, after an assertion."""
    tl.device_assert(cond, msg)
    return r


# Arithmetic as Python and torch have it


@kbuild.jit
def div_floor_integer(a, b):
    """The quotient of integers, rounded down."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@kbuild.jit
def remainder_integer(a, b):
    """What division rounded down leaves of a: of the sign of b."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@kbuild.jit
def pow_integer(base, exponent):
    """An integer to the power of one that is not negative, exactly as far as the result has bits."""
    unsigned: tl.constexpr = tl.get_int_dtype(exponent.dtype.primitive_bitwidth, False)
    rest = exponent.to(unsigned)
    result = tl.full(base.shape, 1, base.dtype)
    for _ in tl.static_range(unsigned.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * base, result)
        rest = rest >> 1
        base = base * base
    return result


@kbuild.jit
def frexp(x):
    """Mantissa and exponent, x = m · 2^e with |m| from 1/2 up to 1; zero, infinity and NaN as they are."""
    is_plain = (x == x) & (tl.abs(x) != float("inf")) & (x != 0)
    plain = tl.where(is_plain, x, 1.0)
    exponent = tl.extra.libdevice.ilogb(plain) + 1
    mantissa = tl.where(is_plain, tl.extra.libdevice.ldexp(plain, -exponent), x)
    return mantissa, tl.where(is_plain, exponent, 0)


@kbuild.jit
def exp(x, use_fast_math: tl.constexpr = False):
    """e to the power x, fast or precisely."""
    if use_fast_math:
        return tl.exp(x)
    else:
        return tl.extra.libdevice.exp(x)


@kbuild.jit
def fp8e4m3fn_to_float32(x):
    """The numbers whose bits are those of fp8e4nv, as fp32."""
    return x.to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float32)


# Minima and maxima, in which NaN counts


@kbuild.jit
def minimum(a, b):
    """The lesser number; NaN where one is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@kbuild.jit
def maximum(a, b):
    """The greater number; NaN where one is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@kbuild.jit
def min2(a, dim):
    """The minimum along a dimension; NaN if an element is."""
    return tl.reduce(a, dim, minimum)


@kbuild.jit
def max2(a, dim):
    """The maximum along a dimension; NaN if an element is."""
    return tl.reduce(a, dim, maximum)


@kbuild.jit
def _precedes(better, equal, a_value, a_index, b_value, b_index):
    """Whether a is chosen: as the better one, as NaN, or of equal ones as the first."""
    if a_value.dtype.is_floating():
        a_is_nan, b_is_nan = a_value != a_value, b_value != b_value
        better = better | (a_is_nan & (b_value == b_value))
        equal = equal | (a_is_nan & b_is_nan)
    return better | (equal & (a_index < b_index))


@kbuild.jit
def minimum_with_index(a_value, a_index, b_value, b_index):
    """The lesser of two, and its index: the lower one of equal ones; NaN is less than all."""
    first = _precedes(a_value < b_value, a_value == b_value, a_value, a_index, b_value, b_index)
    return tl.where(first, a_value, b_value), tl.where(first, a_index, b_index)


@kbuild.jit
def maximum_with_index(a_value, a_index, b_value, b_index):
    """The greater of two, and its index: the lower one of equal ones; NaN is greater than all."""
    first = _precedes(a_value > b_value, a_value == b_value, a_value, a_index, b_value, b_index)
    return tl.where(first, a_value, b_value), tl.where(first, a_index, b_index)


@kbuild.jit
def min_with_index(value, index, dim):
    """The minimum along a dimension, and where it is."""
    return tl.reduce((value, index), dim, minimum_with_index)


@kbuild.jit
def max_with_index(value, index, dim):
    """The maximum along a dimension, and where it is."""
    return tl.reduce((value, index), dim, maximum_with_index)


# Reductions


@kbuild.jit
def _product(a, b):
    return a * b


@kbuild.jit
def prod(input, axis):
    """The product along a dimension."""
    return tl.reduce(input, axis, _product)


@kbuild.jit
def _either(a, b):
    return a | b


@kbuild.jit
def any(a, dim):
    """The bitwise or along a dimension: whether one holds."""
    return tl.reduce(a, dim, _either)


@kbuild.jit
def select_one(x, mask, dim, keep_dims=False):
    """The only element along a dimension whose mask holds, bit for bit."""
    unsigned: tl.constexpr = tl.get_int_dtype(x.dtype.primitive_bitwidth, False)
    chosen = tl.sum(x.to(unsigned, bitcast=True) * mask, dim, keep_dims=keep_dims)
    return chosen.to(unsigned).to(x.dtype, bitcast=True)


@kbuild.jit
def welford_reduce(value, mean, m2, weight, first_iteration):
    """Mean, sum of squared differences from it, and number of elements, with a further one."""
    if first_iteration:
        new_mean, new_m2, new_weight = value, tl.zeros_like(m2), tl.full(weight.shape, 1, weight.dtype)
    else:
        difference = value - mean
        new_weight = weight + 1
        new_mean = mean + difference / new_weight
        new_m2 = m2 + difference * (value - new_mean)
    return new_mean, new_m2, new_weight


@kbuild.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    """Mean, sum of squared differences from it, and number of elements of two groups together."""
    # Equal means differ by nothing even where both are infinite.
    difference = tl.where(mean_1 == mean_2, 0.0, mean_2 - mean_1)
    weight = weight_1 + weight_2
    share = tl.where(weight == 0.0, 0.0, weight_2 / weight)
    mean = mean_1 + difference * share
    return mean, m2_1 + m2_2 + difference * difference * weight_1 * share, weight


@kbuild.jit
def welford(mean, m2, weight, dim):
    """Mean, sum of squared differences from it, and number of elements of all groups along a dimension."""
    return tl.reduce((mean, m2, weight), dim, welford_combine)


@kbuild.jit
def online_softmax_reduce(lhs_max, lhs_sum, dim, use_fast_math: tl.constexpr = False):
    """The maximum along a dimension, and the sum of the powers of e with it subtracted, of maxima and sums."""
    maximum_ = max2(lhs_max, dim)
    kept = tl.expand_dims(maximum_, dim)
    difference = tl.where(kept == float("-inf"), 0, lhs_max - kept)
    return maximum_, tl.sum(lhs_sum * exp(difference, use_fast_math), dim)


@kbuild.jit
def online_softmax_combine(lhs_max, lhs_sum, rhs_max, use_fast_math: tl.constexpr = False):
    """Maximum and sum with further elements, each of which is its own maximum."""
    return online_softmax_combine_with_sum(lhs_max, lhs_sum, rhs_max, 1.0, use_fast_math)


@kbuild.jit
def online_softmax_combine_with_sum(lhs_max, lhs_sum, rhs_max, rhs_sum, use_fast_math: tl.constexpr = False):
    """Maximum and sum of two groups together."""
    maximum_ = maximum(lhs_max, rhs_max)
    is_empty = maximum_ == float("-inf")
    lhs_scale = tl.where(is_empty, 1.0, exp(lhs_max - maximum_, use_fast_math))
    rhs_scale = tl.where(is_empty, 1.0, exp(rhs_max - maximum_, use_fast_math))
    return maximum_, lhs_sum * lhs_scale + rhs_sum * rhs_scale


# Sorting and searching


@kbuild.jit
def _merged_with_index(x, idxs, rnumel, stage: tl.constexpr, falling: tl.constexpr, descending: tl.constexpr):
    """Bitonic runs of 2^stage flat pairs sorted: the last ones in turn with `falling` None."""
    for step in tl.static_range(stage):
        distance: tl.constexpr = 1 << (stage - 1 - step)
        blocks: tl.constexpr = x.numel // (2 * distance)
        other, other_index = tl._partner(x, distance), tl._partner(idxs, distance)
        own = tl.reshape(x, [blocks, 2, distance])
        own_index = tl.reshape(idxs, [blocks, 2, distance])
        upper = tl.arange(0, 2)[None, :, None]
        if falling is None:
            turned = ((tl.arange(0, blocks) >> step) & 1)[:, None, None]
        else:
            turned = tl.full([1, 1, 1], 0, tl.int32)
        later = own < other if descending else own > other
        same = own == other
        if x.dtype.is_floating():
            own_is_nan, other_is_nan = own != own, other != other
            later = later | (other_is_nan & (own == own) if descending else own_is_nan & (other == other))
            same = same | (own_is_nan & other_is_nan)
        later = later | (same & (own_index > other_index))
        if rnumel is not None:
            own_counts, other_counts = own_index < rnumel, other_index < rnumel
            both = own_counts == other_counts
            later = tl.where(both, later, other_counts)
        exchanged = later != ((turned ^ upper) != 0)
        x = tl.ravel(tl.where(exchanged, other, own))
        idxs = tl.ravel(tl.where(exchanged, other_index, own_index))
    return x, idxs


@kbuild.jit
def sort_with_index(
    x,
    idxs,
    rnumel,
    dim: tl.constexpr = None,
    stable: tl.constexpr = False,
    descending: tl.constexpr = False,
):
    """The elements along the last dimension in order, NaN as the greatest, and their indices; equal ones in the
    order of their indices, and those whose index is `rnumel` or more at the end."""
    tl.static_assert(
        dim is None or dim == len(x.shape) - 1 or dim == -1, "only the last dimension can be sorted along"
    )
    x, idxs = tl.broadcast(x, idxs)
    flat, places = tl.ravel(x), tl.ravel(idxs)
    size: tl.constexpr = tl._log2(x.shape[-1])
    for stage in tl.static_range(1, size + 1):
        falling: tl.constexpr = None if stage < size else False
        flat, places = _merged_with_index(flat, places, rnumel, stage, falling, descending)
    return tl.reshape(flat, x.shape), tl.reshape(places, x.shape)


@kbuild.jit
def bucketize_binary_search(
    values,
    boundaries_ptr,
    BOUNDARIES_SIZE,
    BOUNDARIES_UNDERLYING_NUMEL,
    BOUNDARIES_STRIDE,
    boundary_indices,
    indexing_dtype,
    right,
    sorter_ptr=None,
    SORTER_STRIDE=None,
    sorter_indices=None,
):
    """The number of boundaries below each value, or not above it with `right`; those of NaN are all.  A value's
    BOUNDARIES_SIZE boundaries begin at `boundary_indices` of a tensor of BOUNDARIES_UNDERLYING_NUMEL elements, and
    are in order, or in that of the sorter."""
    low = tl.zeros(values.shape, indexing_dtype)
    high = tl.full(values.shape, BOUNDARIES_SIZE, indexing_dtype)
    unknown = BOUNDARIES_SIZE + 1
    while unknown > 1:
        middle = (high + low) // 2
        place = middle * BOUNDARIES_STRIDE + boundary_indices
        mask = (place < BOUNDARIES_UNDERLYING_NUMEL) & (middle < BOUNDARIES_SIZE)
        chosen = middle
        if sorter_ptr is not None and SORTER_STRIDE is not None:
            sorted_at = sorter_ptr + sorter_indices + SORTER_STRIDE * middle
            chosen = tl.load(sorted_at, mask=mask, other=0).to(indexing_dtype)
        bound = tl.load(boundaries_ptr + boundary_indices + BOUNDARIES_STRIDE * chosen, mask=mask, other=0)
        above = values >= bound if right else values > bound
        if values.dtype.is_floating():
            above = above | (values != values)
        low = tl.where(above & mask, middle + 1, low)
        high = tl.where(above, high, middle)
        unknown = (unknown + 1) // 2
    return low


# Random numbers


@kbuild.jit
def randint64(seed, offset, low, high):
    """Random int64 numbers from `low` up to, not including, `high`."""
    r0, r1, _, _ = tl.randint4x(seed, offset)
    bits = r0.to(tl.uint32).to(tl.uint64) | (r1.to(tl.uint32).to(tl.uint64) << 32)
    return (bits % (high - low).to(tl.uint64)).to(tl.int64) + low


# Programs that wait for each other


@kbuild.jit
def x_grid_barrier(sem):
    """All programs of the grid with the same places along its other axes wait for each other.  `sem` points to an
    unsigned number of 32 bits, at first 0: its upper bit changes when the last one comes."""
    tl.debug_barrier()
    one = tl.full([], 1, tl.uint32)
    first = 0x80000000 - (tl.num_programs(0).to(tl.uint32) - one)
    before = tl.atomic_add(sem, tl.where(tl.program_id(0) == 0, first, one), sem="release")
    now = before
    while ((before ^ now) & 0x80000000) == 0:
        now = tl.atomic_add(sem, 0, sem="acquire")
    tl.debug_barrier()
