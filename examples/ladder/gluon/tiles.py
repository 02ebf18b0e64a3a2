"""What the steps from 3 on share: tiles of matrices, and the products of two tiles that are in shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def tile_of(base, row, column, row_length, ROWS: gl.constexpr, COLUMNS: gl.constexpr, layout: gl.constexpr):
    """Pointers to the tile of a row-major matrix whose first element is at (row, column)."""
    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    return base + gl.expand_dims(rows.to(gl.int64) * row_length, 1) + gl.expand_dims(columns, 0)


@gluon.jit
def multiply_tiles(a_tile, b_tile, total, layout: gl.constexpr):
    """total + A · B, of A [BM, BK] and B [BK, BN] in shared memory: a column of A by a row of B at a time."""
    BK: gl.constexpr = a_tile.shape[1]
    for k in gl.static_range(BK):
        a = a_tile.slice(k, 1, dim=1).load(layout)
        b = b_tile.slice(k, 1, dim=0).load(layout)
        total += a * b
    return total


@gluon.jit
def multiply_tiles_by_four(a_tile, b_tile, total, layout: gl.constexpr):
    """The same, four columns of A by four rows of B at a time: four k of a row of A lie side by side."""
    BK: gl.constexpr = a_tile.shape[1]
    for k in gl.static_range(0, BK, 4):
        a = a_tile.slice(k, 4, dim=1).load(gl.DotOperandLayout(0, layout, 0))
        b = b_tile.slice(k, 4, dim=0).load(gl.DotOperandLayout(1, layout, 0))
        total = gl.dot_fma(a, b, total)
    return total
