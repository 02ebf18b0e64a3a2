"""Blocks of tensors that are combined with memory, and rows that are picked by their numbers."""

import triton
import triton.language as tl


@triton.jit
def combine(target, offsets, value, KIND: tl.constexpr):
    if KIND == "add":
        target.atomic_add(offsets, value)
    elif KIND == "min":
        target.atomic_min(offsets, value)
    elif KIND == "max":
        target.atomic_max(offsets, value)
    elif KIND == "and":
        target.atomic_and(offsets, value)
    elif KIND == "or":
        target.atomic_or(offsets, value)
    else:
        target.atomic_xor(offsets, value)


@triton.jit
def fold_rows(x, out, rows, columns, pitch, KIND: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """The tiles of a matrix, one below the other, folded into a block of one tile's height, by all programs at once."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [pitch, 1], [TILE_M, TILE_N])
    target = tl.make_tensor_descriptor(out, [TILE_M, columns], [pitch, 1], [TILE_M, TILE_N])
    for row in range(tl.program_id(0) * TILE_M, rows, TILE_M * tl.num_programs(0)):
        for column in range(0, columns, TILE_N):
            combine(target, [0, column], source.load([row, column]), KIND)


@triton.jit
def move_rows(x, out, source_rows, target_rows, rows, columns, left, N: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of one matrix to rows of another, as far as both have them."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [1, WIDTH])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [1, WIDTH])
    numbers = tl.arange(0, N)
    picked = source.gather(tl.load(source_rows + numbers), left)
    target.scatter(picked + 1, tl.load(target_rows + numbers), left)
