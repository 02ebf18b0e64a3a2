"""Rows that begin anywhere, taken in whole vectors of 16 bytes: what lies before the first and after the last of
these are the row's edges."""

import triton
import triton.language as tl

EDGES = tl.constexpr(16)
"""No fewer than the elements of both edges: one less than a vector's, at most 7, in each."""


@triton.jit
def elements_of_vector(x):
    """How many elements of what `x` points to 16 bytes hold."""
    return 128 // x.dtype.element_ty.primitive_bitwidth


@triton.jit
def elements_before_vectors(x):
    """How many elements lie between `x` and the first address that 16 divides."""
    COUNT: tl.constexpr = elements_of_vector(x)
    return (-(x.to(tl.int64) * COUNT // 16) & (COUNT - 1)).to(tl.int32)


@triton.jit
def edges_and_body(x, n_cols):
    """Of the `n_cols` elements at `x`: the places of those in its edges [EDGES], which of these there are, where the
    vectors between them begin, and how many elements these hold."""
    COUNT: tl.constexpr = elements_of_vector(x)
    head = tl.minimum(elements_before_vectors(x), n_cols)
    body = (n_cols - head) // COUNT * COUNT
    lanes = tl.arange(0, EDGES)
    half: tl.constexpr = EDGES // 2
    is_before = lanes < half
    places = tl.where(is_before, lanes, lanes - half + head + body)
    return places, places < tl.where(is_before, head, n_cols), head, body
