"""The functions of `triton.language` that are made of others, written in the language itself.

The frontend reads this file as it reads a user's, one function at a time; nothing imports it.
"""

import kbuild
import kbuild.language as tl


@kbuild.jit
def cdiv(x, div):
    """x / div, rounded up, of positive integers."""
    return (x + (div - 1)) // div


@kbuild.jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return 1 / (1 + tl.exp(-x))


@kbuild.jit
def softmax(x, dim=None, keep_dims=False, ieee_rounding=False):
    """e^x divided by its sum along `dim` (the first if None), without overflow."""
    axis: tl.constexpr = 0 if dim is None else dim
    powers = tl.exp(x - max(x, axis, keep_dims=keep_dims))
    return tl.fdiv(powers, sum(powers, axis, keep_dims=keep_dims), ieee_rounding)


@kbuild.jit
def zeros(shape, dtype):
    """A tensor of `shape` filled with zero."""
    return tl.full(shape, 0, dtype)


@kbuild.jit
def zeros_like(input):
    """A tensor of zeros of the shape and type of another."""
    return tl.full(input.shape, 0, input.dtype)


@kbuild.jit
def ravel(x, can_reorder=False):
    """All elements in one dimension."""
    return tl.reshape(x, [x.numel], can_reorder=can_reorder)


@kbuild.jit
def interleave(a, b):
    """The elements of two tensors in turn along the last dimension."""
    pairs = tl.join(a, b)
    if len(pairs.shape) == 1:
        return pairs
    else:
        return tl.reshape(pairs, pairs.shape[:-2] + (2 * pairs.shape[-2],))


@kbuild.jit
def swizzle2d(i, j, size_i, size_j, size_g):
    """The place in a size_i × size_j grid, walked down columns within groups of `size_g` rows, of the program
    that is at (i, j) in row-major order."""
    place = i * size_j + j
    per_group = size_g * size_j
    first_row = place // per_group * size_g
    rows = tl.minimum(size_i - first_row, size_g)
    within = place % per_group
    return first_row + within % rows, within // rows


# Reductions


@kbuild.jit
def _add(a, b):
    return a + b


@kbuild.jit
def _multiply(a, b):
    return a * b


@kbuild.jit
def _xor(a, b):
    return a ^ b


@kbuild.jit
def _or(a, b):
    return a | b


@kbuild.jit
def _greater(a, b):
    return tl.maximum(a, b)


@kbuild.jit
def _lesser(a, b):
    return tl.minimum(a, b)


@kbuild.jit
def _greater_left(a, i, b, k):
    first = (a > b) | ((a == b) & (i < k))
    return tl.where(first, a, b), tl.where(first, i, k)


@kbuild.jit
def _greater_any(a, i, b, k):
    return tl.where(a > b, a, b), tl.where(a > b, i, k)


@kbuild.jit
def _lesser_left(a, i, b, k):
    first = (a < b) | ((a == b) & (i < k))
    return tl.where(first, a, b), tl.where(first, i, k)


@kbuild.jit
def _lesser_any(a, i, b, k):
    return tl.where(a < b, a, b), tl.where(a < b, i, k)


@kbuild.jit
def _widened(x):
    """Numbers below 32 bits in 32 bits, as maximum and minimum are taken."""
    if x.dtype.primitive_bitwidth < 32:
        return x.to(tl.float32 if x.dtype.is_floating() else tl.int32)
    else:
        return x


@kbuild.jit
def _summable(x, dtype: tl.constexpr):
    """`x` in the type of its sum: `dtype`, or without one, integers below 32 bits in 32 of the same sign."""
    if dtype is not None:
        return x.to(dtype)
    elif x.dtype.is_int() and x.dtype.primitive_bitwidth < 32:
        return x.to(tl.int32 if x.dtype.is_int_signed() else tl.uint32)
    else:
        return x


@kbuild.jit
def sum(input, axis=None, keep_dims=False, dtype: tl.constexpr = None):
    """The sum along `axis`, or of all elements; integers below 32 bits sum in 32 bits unless `dtype` says
    otherwise.

    Floats below 32 bits are added in float32 and the sum is rounded once, so that it does not depend on the
    order."""
    x = _summable(input, dtype)
    if x.dtype.is_floating():
        return tl.reduce(_widened(x), axis, _add, keep_dims).to(x.dtype)
    else:
        return tl.reduce(x, axis, _add, keep_dims)


@kbuild.jit
def max(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    """The maximum along `axis`, or of all elements; with `return_indices`, and where it is: the lowest index
    of several equal ones, or any of them without `return_indices_tie_break_left`."""
    if return_indices:
        values = tl._promote_bfloat16_to_float32(input)
        if return_indices_tie_break_left:
            return tl._reduce_with_indices(values, axis, _greater_left, keep_dims)
        else:
            return tl._reduce_with_indices(values, axis, _greater_any, keep_dims)
    else:
        return tl.reduce(_widened(input), axis, _greater, keep_dims)


@kbuild.jit
def min(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    """The minimum along `axis`, or of all elements; with `return_indices`, and where it is, as `max`."""
    if return_indices:
        values = tl._promote_bfloat16_to_float32(input)
        if return_indices_tie_break_left:
            return tl._reduce_with_indices(values, axis, _lesser_left, keep_dims)
        else:
            return tl._reduce_with_indices(values, axis, _lesser_any, keep_dims)
    else:
        return tl.reduce(_widened(input), axis, _lesser, keep_dims)


@kbuild.jit
def argmax(input, axis, tie_break_left=True, keep_dims=False):
    """Where the maximum along `axis` is, as int32."""
    _, index = max(input, axis, True, tie_break_left, keep_dims)
    return index


@kbuild.jit
def argmin(input, axis, tie_break_left=True, keep_dims=False):
    """Where the minimum along `axis` is, as int32."""
    _, index = min(input, axis, True, tie_break_left, keep_dims)
    return index


@kbuild.jit
def xor_sum(input, axis=None, keep_dims=False):
    """The exclusive or along `axis`, or of all elements."""
    tl.static_assert(input.dtype.is_int(), "xor_sum is for integers")
    return tl.reduce(input, axis, _xor, keep_dims)


@kbuild.jit
def reduce_or(input, axis, keep_dims=False):
    """The bitwise or along `axis`."""
    tl.static_assert(input.dtype.is_int(), "reduce_or is for integers")
    return tl.reduce(input, axis, _or, keep_dims)


# Scans


@kbuild.jit
def cumsum(input, axis=0, reverse=False, dtype: tl.constexpr = None):
    """The sums of all elements up to each along `axis`, from it on with `reverse`; bf16 in fp32, integers
    below 32 bits in 32 bits unless `dtype` says otherwise."""
    return tl.associative_scan(_summable(tl._promote_bfloat16_to_float32(input), dtype), axis, _add, reverse)


@kbuild.jit
def cumprod(input, axis=0, reverse=False):
    """The products of all elements up to each along `axis`, from it on with `reverse`; bf16 in fp32."""
    return tl.associative_scan(tl._promote_bfloat16_to_float32(input), axis, _multiply, reverse)


# Sorting: bitonic networks over the flat elements, whose distances are powers of two


@kbuild.constexpr_function
def _log2(n):
    return n.bit_length() - 1


@kbuild.jit
def _partner(x, distance: tl.constexpr):
    """As [blocks, 2, distance], each element's partner at `distance` places: two values exclusive-ored with
    their exclusive or are exchanged."""
    bits = x.to(tl.get_int_dtype(x.dtype.primitive_bitwidth, True), bitcast=True)
    bits = tl.reshape(bits, [x.numel // (2 * distance), 2, distance])
    return (bits ^ xor_sum(bits, 1, True)).to(x.dtype, bitcast=True)


@kbuild.jit
def _merged(x, stage: tl.constexpr, descending: tl.constexpr):
    """Bitonic runs of 2^stage flat elements sorted: descending or not, or in turn with `descending` None."""
    for step in tl.static_range(stage):
        distance: tl.constexpr = 1 << (stage - 1 - step)
        blocks: tl.constexpr = x.numel // (2 * distance)
        other = _partner(x, distance)
        own = tl.reshape(x, [blocks, 2, distance])
        upper = tl.arange(0, 2)[None, :, None]
        if descending is None:
            falls = ((tl.arange(0, blocks) >> step) & 1)[:, None, None]
        else:
            falls = tl.full([1, 1, 1], 1 if descending else 0, tl.int32)
        x = tl.ravel(tl.where((own > other) != ((falls ^ upper) != 0), other, own))
    return x


@kbuild.jit
def _sorted(x, run: tl.constexpr, last: tl.constexpr, descending: tl.constexpr):
    """Flat elements sorted in runs of 2^run; the runs alternate unless this is the last step."""
    for stage in tl.static_range(1, run):
        x = _merged(x, stage, None)
    if run > 0:
        x = _merged(x, run, descending if last else None)
    return x


@kbuild.jit
def sort(x, dim: tl.constexpr = None, descending: tl.constexpr = False):
    """The elements along the last dimension in order."""
    tl.static_assert(
        dim is None or dim == len(x.shape) - 1 or dim == -1, "tl.sort sorts only along the last dimension"
    )
    return tl.reshape(_sorted(tl.ravel(x), _log2(x.shape[-1]), True, descending), x.shape)


@kbuild.jit
def topk(x, k: tl.constexpr, dim: tl.constexpr = None):
    """The k greatest elements along the last dimension, descending; k is a power of two."""
    tl.static_assert(
        dim is None or dim == len(x.shape) - 1 or dim == -1, "tl.topk selects only along the last dimension"
    )
    size: tl.constexpr = _log2(x.shape[-1])
    run: tl.constexpr = _log2(k)
    best = _sorted(tl.ravel(x), run, size == run, True)
    for round in tl.static_range(run, size):
        # Of a rising and a falling run, the greater ones at each place are the greater half of both, and
        # bitonic.
        best = tl.ravel(max(tl.reshape(best, [best.numel // (2 * k), 2, k]), 1).to(x.dtype))
        if run > 0:
            best = _merged(best, run, True if round == size - 1 else None)
    return tl.reshape(best, x.shape[:-1] + (k,))


@kbuild.jit
def bitonic_merge(x, dim: tl.constexpr = None, descending: tl.constexpr = False):
    """The elements along the last dimension, which first rise and then fall, in order."""
    tl.static_assert(
        dim is None or dim == len(x.shape) - 1 or dim == -1,
        "tl.bitonic_merge is only for the last dimension",
    )
    return tl.reshape(_merged(tl.ravel(x), _log2(x.shape[-1]), descending), x.shape)


@kbuild.jit
def flip(x, dim: tl.constexpr = None):
    """The elements along a dimension (the last if None) in reverse order."""
    axis: tl.constexpr = len(x.shape) - 1 if dim is None else dim % len(x.shape)
    inner: tl.constexpr = x.numel // _leading(x.shape, axis)
    flat = tl.ravel(x)
    for bit in tl.static_range(_log2(x.shape[axis])):
        flat = tl.ravel(_partner(flat, inner << bit))
    return tl.reshape(flat, x.shape)


@kbuild.constexpr_function
def _leading(shape, axis):
    """The number of elements in the dimensions up to and with `axis`."""
    numel = 1
    for size in shape[: axis + 1]:
        numel *= size
    return numel
