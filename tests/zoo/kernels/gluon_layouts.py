"""Kernels of Gluon about layouts: written, found out, converted, and through shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
COLUMNS: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])


@gluon.jit
def offsets(N: gl.constexpr, layout: gl.constexpr, row_stride, column_stride):
    rows = gl.arange(0, N, gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, gl.SliceLayout(0, layout))
    return rows[:, None] * row_stride + columns[None, :] * column_stride


@gluon.jit
def transpose(x, y, N: gl.constexpr):
    tile = gl.load(x + offsets(N, ROWS, N, 1))
    gl.store(y + offsets(N, COLUMNS, 1, N), gl.convert_layout(tile, COLUMNS))


@gluon.jit
def transpose_coalesced(x, y, N: gl.constexpr):
    rows, columns = gl.arange(0, N)[:, None], gl.arange(0, N)[None, :]
    tile = gl.load(gl.set_auto_layout(x + rows * N + columns, gl.CoalescedLayout()))
    rows, columns = gl.arange(0, N)[:, None], gl.arange(0, N)[None, :]
    out = gl.set_auto_layout(y + rows + columns * N, gl.CoalescedLayout())
    gl.store(out, gl.convert_layout(tile, gl.CoalescedLayout()))


@gluon.jit
def beside_tiles(
    x, line, y, sums, running, total, N: gl.constexpr, COUNT: gl.constexpr, SIZE: gl.constexpr,
    layout: gl.constexpr, other: gl.constexpr
):  # fmt: skip
    """Data moves between threads while tiles take nearly all shared memory."""
    flat: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    place = gl.arange(0, SIZE, flat)
    tiles = gl.allocate_shared_memory(gl.float32, [COUNT, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for i in range(COUNT):
        tiles.index(i).store(gl.load(line + place) + i)
    tile = gl.load(x + offsets(N, layout, N, 1))
    gl.store(y + offsets(N, other, N, 1), gl.convert_layout(tile, other))
    gl.store(sums + gl.arange(0, N, gl.SliceLayout(0, layout)), gl.sum(tile, axis=0))
    gl.store(running + offsets(N, layout, N, 1), gl.associative_scan(tile, 0, _add))
    kept = gl.zeros([SIZE], gl.float32, flat)
    for i in range(COUNT):
        kept += tiles.index(i).load(flat)
    gl.store(total + place, kept)


@gluon.jit
def row_facts(x, sums, places, running, N: gl.constexpr, above):
    tile = gl.load(x + offsets(N, ROWS, N, 1))
    rows = gl.arange(0, N)
    total = gl.zeros([N], gl.float32)
    if above > 0:
        total = total + gl.sum(tile, axis=1)
    for i in range(above):
        total = total + gl.where(rows == i, 1.0, 0.0)
    gl.store(sums + rows, total)
    _, index = gl.max(tile, axis=1, return_indices=True)
    gl.store(places + gl.arange(0, N, index.type.layout), index)
    gl.store(running + offsets(N, ROWS, N, 1), gl.associative_scan(tile, 1, _add))


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def swap_pairs(x, y, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    flat = gl.load(x + gl.arange(0, N * N, layout))
    first, second = gl.split(flat.reshape([N * N // 2, 2]))
    gl.static_assert(isinstance(first.type.layout, gl.SliceLayout))
    swapped = gl.join(second, first).reshape([N, N])
    turned = gl.permute(gl.convert_layout(swapped, ROWS), [1, 0])
    gl.static_assert(turned.type.layout == gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1]))
    gl.store(y + offsets(N, COLUMNS, 1, N), turned)


@gluon.jit
def views(x, y, N: gl.constexpr, COUNT: gl.constexpr, layout: gl.constexpr):
    tiles = gl.allocate_shared_memory(x.dtype.element_ty, [COUNT, N, N], layout)
    for i in range(COUNT):
        tiles.index(i).store(gl.load(x + i * N * N + offsets(N, ROWS, N, 1)))
    half = tiles.index(COUNT - 1).slice(N // 2, N // 2, dim=1)
    rows = gl.arange(0, N // 2, gl.SliceLayout(1, COLUMNS))
    columns = gl.arange(0, N, gl.SliceLayout(0, COLUMNS))
    turned = half.permute((1, 0)).load(COLUMNS)
    gl.store(y + rows[:, None] * N + columns[None, :], turned)


@gluon.jit
def reinterpreted(x, y, N: gl.constexpr):
    words = gl.allocate_shared_memory(gl.int32, [N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    words.store(gl.load(x + gl.arange(0, N, line)))
    halves = words._reinterpret(gl.int16, [2 * N], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    square = halves.reshape((2, N)).load(gl.BlockedLayout([1, 2], [1, 32], [1, 4], [1, 0]))
    places = gl.arange(0, 2, gl.SliceLayout(1, square.type.layout))[:, None] * N
    places = places + gl.arange(0, N, gl.SliceLayout(0, square.type.layout))[None, :]
    gl.store(y + places, square)


@gluon.jit
def matmul_fma(a, b, c, N: gl.constexpr):
    left = gl.convert_layout(gl.load(a + offsets(N, ROWS, N, 1)), gl.DotOperandLayout(0, ROWS, 0))
    right = gl.convert_layout(gl.load(b + offsets(N, ROWS, N, 1)), gl.DotOperandLayout(1, ROWS, 0))
    total = gl.dot_fma(left, right, gl.zeros([N, N], gl.float32, ROWS))
    gl.store(c + offsets(N, ROWS, N, 1), total)


@gluon.aggregate
class Ring:
    """Tiles that are written one after the other."""

    tiles: gl.shared_memory_descriptor
    next: gl.tensor
    COUNT: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, tiles, next, COUNT):
        self.tiles = tiles
        self.next = next
        self.COUNT = gl.constexpr(COUNT)

    @gluon.jit
    def make(N: gl.constexpr, COUNT: gl.constexpr):
        shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        return Ring(gl.allocate_shared_memory(gl.int32, [COUNT, N], shared), gl.to_tensor(0), COUNT)

    @gluon.jit
    def put(self, value):
        self.tiles.index(self.next % self.COUNT).store(value)
        return Ring(self.tiles, self.next + 1, self.COUNT)

    @gluon.jit
    def oldest(self, layout: gl.constexpr):
        return self.tiles.index(self.next % self.COUNT).load(layout)


@gluon.jit
def delayed(x, y, steps, N: gl.constexpr, COUNT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    place = gl.arange(0, N, layout)
    ring = Ring.make(N, COUNT)
    for _ in gl.static_range(COUNT):
        ring = ring.put(gl.zeros([N], gl.int32, layout))
    for i in range(steps):
        gl.store(y + i * N + place, ring.oldest(layout))
        ring = ring.put(gl.load(x + i * N + place))


@gluon.jit
def counts(x, y, total, N: gl.constexpr, BINS: gl.constexpr):
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    values = gl.load(x + gl.arange(0, N, line))
    found = gl.histogram(values, BINS, mask=values >= 0, layout=line)
    back = gl.gather(found, gl.arange(0, BINS, line) ^ 1, axis=0)
    gl.store(y + gl.arange(0, BINS, line), back)
    gl.atomic_add(total + gl.arange(0, BINS, line) * 0, found)
