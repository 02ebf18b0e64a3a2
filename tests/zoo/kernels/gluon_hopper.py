"""Kernels in Gluon that issue TMA, mbarriers and wgmma themselves."""

from kbuild.language import gluon
from kbuild.language.gluon import language as gl
from kbuild.language.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def ring_of(tiles: gl.constexpr, arrivals: gl.constexpr):
    """Barriers, one for each tile of a ring."""
    barriers = mbarrier.allocate_mbarrier(batch=tiles)
    for number in gl.static_range(tiles):
        mbarrier.init(barriers.index(number), count=arrivals)
    return barriers


@gluon.jit
def load_tiles(step, a_map, b_map, row, column, a_tiles, b_tiles, full, pred=True):
    """Starts to copy the tiles of one step along K into their places in the ring."""
    tiles: gl.constexpr = a_tiles.shape[0]
    slot = step % tiles
    depth = step * a_map.block_shape[1]
    mbarrier.expect(full.index(slot), a_map.block_type.nbytes + b_map.block_type.nbytes, pred)
    tma.async_copy_global_to_shared(a_map, [row, depth], full.index(slot), a_tiles.index(slot), pred)
    tma.async_copy_global_to_shared(b_map, [depth, column], full.index(slot), b_tiles.index(slot), pred)


@gluon.jit
def store_tile(acc, c_map, row, column):
    """Writes the result by way of shared memory."""
    c_tile = gl.allocate_shared_memory(c_map.dtype, c_map.block_shape, c_map.layout)
    c_tile.store(acc.to(c_map.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_map, [row, column], c_tile)
    tma.store_wait(0)


@gluon.jit
def maps_of(a, b, c, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr):
    """The descriptors of three matrices."""
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], gl.float16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_N], gl.float16)
    c_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_N], gl.float32)
    a_map = tma.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K], a_layout)
    b_map = tma.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK_K, BLOCK_N], b_layout)
    c_map = tma.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, BLOCK_N], c_layout)
    return a_map, b_map, c_map


@gluon.jit
def pipelined_matmul(
    a, b, c, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, TILES: gl.constexpr
):
    """c = a·b: one dot in flight, and copies of the steps after it."""
    a_map, b_map, c_map = maps_of(a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_M, BLOCK_K], a_map.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_K, BLOCK_N], b_map.layout)
    full = ring_of(TILES, 1)
    steps = gl.cdiv(K, BLOCK_K)
    for step in gl.static_range(TILES - 1):
        load_tiles(step, a_map, b_map, row, column, a_tiles, b_tiles, full, step < steps)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    acc = warpgroup_mma_init(gl.full([BLOCK_M, BLOCK_N], float("nan"), gl.float32, layout))
    for step in range(steps):
        slot = step % TILES
        mbarrier.wait(full.index(slot), step // TILES & 1)
        acc = warpgroup_mma(a_tiles.index(slot), b_tiles.index(slot), acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_init(warpgroup_mma_wait(1, (acc,)))
        ahead = step + TILES - 1
        load_tiles(ahead, a_map, b_map, row, column, a_tiles, b_tiles, full, ahead < steps)
    total = warpgroup_mma_wait(0, (acc,))
    for number in gl.static_range(TILES):
        mbarrier.invalidate(full.index(number))
    store_tile(total, c_map, row, column)


@gluon.jit
def load_partition(a_map, b_map, row, column, a_tiles, b_tiles, full, empty, steps):
    """Fills the ring as tiles become free."""
    tiles: gl.constexpr = a_tiles.shape[0]
    for step in range(steps):
        mbarrier.wait(empty.index(step % tiles), step // tiles & 1 ^ 1)
        load_tiles(step, a_map, b_map, row, column, a_tiles, b_tiles, full)


@gluon.jit
def multiply_partition(acc, a_tiles, b_tiles, full, empty, steps):
    """Multiplies what the ring holds, and sets it free."""
    tiles: gl.constexpr = a_tiles.shape[0]
    for step in range(steps):
        slot = step % tiles
        mbarrier.wait(full.index(slot), step // tiles & 1)
        acc = warpgroup_mma(a_tiles.index(slot), b_tiles.index(slot), acc)
        mbarrier.arrive(empty.index(slot), count=1)
    return acc


@gluon.jit
def specialised_matmul(
    a, b, c, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, TILES: gl.constexpr
):
    """c = a·b: a warp of its own copies, the others multiply."""
    a_map, b_map, c_map = maps_of(a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    a_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_M, BLOCK_K], a_map.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [TILES, BLOCK_K, BLOCK_N], b_map.layout)
    full, empty = ring_of(TILES, 1), ring_of(TILES, 1)
    steps = gl.cdiv(K, BLOCK_K)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    zero = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    acc = gl.warp_specialize(
        [
            (multiply_partition, (zero, a_tiles, b_tiles, full, empty, steps)),
            (load_partition, (a_map, b_map, row, column, a_tiles, b_tiles, full, empty, steps)),
        ],
        [1],
        [24],
    )
    store_tile(acc, c_map, row, column)


@gluon.jit
def scale_partition(x_tile, y_tile, ready, done, factor, layout: gl.constexpr):
    """Tensors in a partition: as many warps as its layouts are for."""
    mbarrier.wait(ready, 0)
    total = gl.sum(x_tile.load(layout), axis=1)
    spread = gl.expand_dims(total, 1) + gl.zeros(x_tile.shape, gl.float32, layout)
    y_tile.store(spread * factor)
    mbarrier.arrive(done, count=1)


@gluon.jit
def copy_partition(x, x_tile, ready, layout: gl.constexpr):
    """The default's part: a tensor goes to the others in shared memory."""
    rows = gl.arange(0, x_tile.shape[0], gl.SliceLayout(1, layout))
    columns = gl.arange(0, x_tile.shape[1], gl.SliceLayout(0, layout))
    offsets = rows[:, None] * x_tile.shape[1] + columns[None, :]
    x_tile.store(gl.load(x + offsets))
    mbarrier.arrive(ready, count=1)
    return offsets


@gluon.jit
def partitions_with_tensors(x, y, factors, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """y = factor · the sum of each row of x, spread over the row: the sums are another partition's."""
    tile_layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    x_tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLUMNS], tile_layout)
    y_tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLUMNS], tile_layout)
    ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    own: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    theirs: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, 2], [1, 0])
    factor = gl.load(factors + gl.program_id(0))
    offsets = gl.warp_specialize(
        [
            (copy_partition, (x, x_tile, ready, own)),
            (scale_partition, (x_tile, y_tile, ready, done, factor, theirs)),
        ],
        [2],
        [96],
    )
    mbarrier.wait(done, 0)
    gl.store(y + offsets, y_tile.load(own))


@gluon.jit
def send_partition(x, tile, ready, done, phase, layout: gl.constexpr):
    """The default's part of a round: hands a block over and takes it back."""
    tile.store(gl.load(x + gl.arange(0, tile.shape[0], layout)))
    mbarrier.arrive(ready, count=1)
    mbarrier.wait(done, phase)
    return tile.load(layout)


@gluon.jit
def multiply_tile(tile, ready, done, factor, phase, layout: gl.constexpr):
    mbarrier.wait(ready, phase)
    tile.store(tile.load(layout) * factor)
    mbarrier.arrive(done, count=1)


@gluon.jit
def partitions_in_loops(x, factors, y, rounds, programs, BLOCK: gl.constexpr):
    """y = the sum of the blocks of x, each by its factor, and the first one again where there are enough."""
    if gl.program_id(0) >= programs:
        return
    own: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    theirs: gl.constexpr = gl.BlockedLayout([1], [32], [2], [0])
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    total = gl.zeros([BLOCK], gl.float32, own)
    for i in range(rounds):
        factor = gl.load(factors + i)
        send = (send_partition, (x + i * BLOCK, tile, ready, done, i & 1, own))
        total += gl.warp_specialize(
            [send, (multiply_tile, (tile, ready, done, factor, i & 1, theirs))], [2], [64]
        )
    if rounds > 2:
        factor = gl.load(factors)
        send = (send_partition, (x, tile, ready, done, rounds & 1, own))
        multiply = (multiply_tile, (tile, ready, done, factor, rounds & 1, theirs))
        total += gl.warp_specialize([send, multiply], [2], [32])
    gl.store(y + gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, own), total)
