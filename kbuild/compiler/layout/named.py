"""The layouts that have names: blocked tensors, tensor-core fragments, and swizzled shared memory.

Each function returns a plain `LinearLayout`; none of them is remembered afterwards.  Register tiles that are
larger than the tensor broadcast (zero bases); where the tensor is larger, the tile repeats in further
registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod

from kbuild.compiler.layout.linear import IN_DIMS, LinearLayout, axis_bits
from kbuild.errors import InternalError


class _TileBuilder:
    """A layout under construction: places input bits along axes, each axis growing from its least significant
    bit."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.bases: dict[str, list[int]] = {dim: [] for dim in IN_DIMS}
        self._reached = [1] * len(self.shape)

    def place(self, dim: str, axis: int, size: int) -> None:
        """Spend log2(size) bits of an input dimension on `axis`; those beyond the tensor become copies."""
        stride = prod(self.shape[axis + 1 :])
        for _ in range((size - 1).bit_length()):
            reached = self._reached[axis]
            self.bases[dim].append(reached * stride if reached < self.shape[axis] else 0)
            self._reached[axis] = 2 * reached

    def replicate(self, dim: str, size: int) -> None:
        """Spend log2(size) bits of an input dimension on copies."""
        self.bases[dim] += [0] * (size - 1).bit_length()

    def repeat(self, axes: Iterable[int]) -> LinearLayout:
        """The finished layout: further registers cover what is left of the tensor, axes in the given order."""
        for axis in axes:
            while self._reached[axis] < self.shape[axis]:
                self.place("register", axis, 2)
        return LinearLayout.make(self.shape, **self.bases)


def blocked(
    shape: Sequence[int],
    size_per_thread: Sequence[int],
    threads_per_warp: Sequence[int],
    warps_per_cta: Sequence[int],
    order: Sequence[int],
) -> LinearLayout:
    """Triton's blocked layout: each thread owns a small box, boxes fill a warp, warps the block; order[0] is
    fastest."""
    return _blocked(
        tuple(shape), tuple(size_per_thread), tuple(threads_per_warp), tuple(warps_per_cta), tuple(order)
    )


@lru_cache(maxsize=1024)
def _blocked(
    shape: tuple[int, ...],
    size_per_thread: tuple[int, ...],
    threads_per_warp: tuple[int, ...],
    warps_per_cta: tuple[int, ...],
    order: tuple[int, ...],
) -> LinearLayout:
    tile = _TileBuilder(shape)
    for dim, sizes in zip(IN_DIMS, (size_per_thread, threads_per_warp, warps_per_cta)):
        for axis in order:
            tile.place(dim, axis, sizes[axis])
    return tile.repeat(order)


def coalesced(
    shape: Sequence[int],
    order: Sequence[int],
    vector: int,
    num_warps: int,
    run: int = 1,
    whole_rows: bool = False,
) -> LinearLayout:
    """The blocked layout in which each thread owns `vector` neighbours along order[0], and threads then warps
    follow along order[0] before they go on to the next axis.

    With `run`, which is for tensors of one axis, a warp has so many vectors of its threads in a row before
    the next warp's, if the tensor has enough for all warps.  With `whole_rows` warps follow along the other
    axes first.
    """
    size_per_thread = [1] * len(shape)
    if order:
        size_per_thread[order[0]] = vector
    threads_per_warp, warps_per_cta = thread_grid(shape, size_per_thread, order, num_warps, whole_rows)
    if run == 1 or shape[0] < 32 * vector * num_warps * run:
        return blocked(shape, size_per_thread, threads_per_warp, warps_per_cta, order)
    tile = _TileBuilder(shape)
    for dim, size in (("register", vector), ("lane", 32), ("register", run), ("warp", num_warps)):
        tile.place(dim, 0, size)
    return tile.repeat(order)


def thread_grid(
    shape: Sequence[int],
    size_per_thread: Sequence[int],
    order: Sequence[int],
    num_warps: int,
    whole_rows: bool = False,
) -> tuple[list[int], list[int]]:
    """Threads per warp and warps along each axis when both fill the axes of a tensor in turn; the last takes
    the rest.  With `whole_rows` warps fill order[0] last."""
    boxes = [max(1, size // own) for size, own in zip(shape, size_per_thread)]
    threads_per_warp = _filled(boxes, order, 32)
    left = [max(1, count // lanes) for count, lanes in zip(boxes, threads_per_warp)]
    warps_per_cta = _filled(left, (*order[1:], *order[:1]) if whole_rows else order, num_warps)
    return threads_per_warp, warps_per_cta


def _filled(boxes: Sequence[int], order: Sequence[int], count: int) -> list[int]:
    """How many of `count` stand along each axis that has so many boxes; the last one takes the rest."""
    along = [1] * len(boxes)
    for axis in order:
        along[axis] = count if axis == order[-1] else min(boxes[axis], count)
        count //= along[axis]
    return along


def stored_by_warps(layout: LinearLayout, vector: int) -> LinearLayout | None:
    """The layout for a store of `vector` neighbours along the last axis by each thread, in which warps keep
    their elements: lanes go on along that axis as far as the warp's part reaches, then along the others.
    None where a warp has no such neighbours.
    """
    units = [1 << bit for bit in range(vector.bit_length() - 1)]
    bases = [*layout.bases_of("register"), *layout.bases_of("lane")]
    if not set(units) <= set(bases) or any(base & (base - 1) or not base for base in bases):
        return None
    left = sorted(set(bases) - set(units))
    lanes = layout.bits("lane")
    kept = {dim: values for dim, values in layout.bases if dim not in ("register", "lane")}
    return LinearLayout(
        layout.shape,
        tuple({"register": (*units, *left[lanes:]), "lane": tuple(left[:lanes]), **kept}.items()),
    )


def widened(layout: LinearLayout, vector: int) -> LinearLayout | None:
    """The layout with the same elements in each warp, and `vector` neighbours along the last axis in each
    thread: the lanes that had some of them take whole vectors further on instead.  None where a thread has
    too few to give in return.

    For the accumulator of a dot, whose threads have pairs, that exchanges two lane bits for two register
    bits.
    """
    registers, lanes = list(layout.bases_of("register")), list(layout.bases_of("lane"))
    units = [1 << bit for bit in range(vector.bit_length() - 1)]
    further = [base for base in registers if vector <= base < layout.shape[-1] and not base & (base - 1)]
    for number, base in enumerate(lanes):
        if base in units:
            if not further:
                return None
            lanes[number] = further.pop(0)
            registers[registers.index(lanes[number])] = base
    if not set(units) <= set(registers):
        return None
    registers = [*units, *(base for base in registers if base not in units)]
    return LinearLayout.make(layout.shape, register=registers, lane=lanes, warp=layout.bases_of("warp"))


def default_blocked(shape: Sequence[int], num_warps: int) -> LinearLayout:
    """The layout that every tensor starts with: one element per thread, the last axis fastest.

    A scalar is one register, with a copy in every thread.
    """
    if not shape:
        return LinearLayout.make((), lane=[0] * 5, warp=[0] * (num_warps - 1).bit_length())
    return coalesced(shape, range(len(shape) - 1, -1, -1), 1, num_warps)


def slice_of(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout that a reduction of `layout` along `axis` leaves: the axis is gone, its threads hold copies,
    and each thread holds each element once."""
    return layout.drop(axis, compress=True)


def fma_result(shape: Sequence[int], num_warps: int) -> LinearLayout:
    """The result of a dot by scalar fma: each thread has a tile as square as can be, for the most multiply-adds per
    operand, with twice as many columns as rows where it cannot be square.

    The tile is made of boxes of up to 4x4 elements, for vector loads of both operands.  Warps are spread over
    batches first; of a warp's lanes eight lie along N, then four along M, where there are so many boxes.
    """
    row, column = len(shape) - 2, len(shape) - 1
    left, bits = list(shape), (num_warps - 1).bit_length()
    batches: list[int] = []
    for axis in range(row):
        while left[axis] > 1 and len(batches) < bits:
            batches.append(axis)
            left[axis] //= 2
    spread = {row: 0, column: 0}
    for _ in range(5 + bits - len(batches)):
        axis = row if left[row] >= left[column] else column
        spread[axis] += 1
        left[axis] = max(1, left[axis] // 2)
    tile = _TileBuilder(shape)
    for axis in (column, row):
        tile.place("register", axis, min(4, left[axis]))
    for wanted in (column, column, column, row, row):
        axis = wanted if spread[wanted] else row + column - wanted
        spread[axis] -= 1
        tile.place("lane", axis, 2)
    for axis in (column, row):
        tile.place("warp", axis, 1 << spread[axis])
    for axis in batches:
        tile.place("warp", axis, 2)
    return tile.repeat(reversed(range(len(shape))))


@lru_cache(maxsize=1024)
def fma_operand(result: LinearLayout, index: int, k: int) -> LinearLayout:
    """The layout of A (index 0) or B (index 1) of a dot by scalar fma whose result has layout `result`: each
    thread holds all `k` elements of its rows or columns."""
    axis = result.rank - 1 - index
    shape = (*result.shape[:axis], k, *result.shape[axis + 1 :])
    return slice_of(result, axis).expand_dims(axis).broadcast(shape)


def mma_accumulator(
    shape: Sequence[int],
    warps: Sequence[int],
    instruction: tuple[int, int] = (16, 8),
    rows_first: bool = True,
) -> LinearLayout:
    """The C and D fragments of mma.sync and wgmma (PTX: row = g + 8*(i>>1), column = 2*t + (i&1)), tiled over
    warps.

    The last two axes are rows and columns, axes before them are batches.  `warps` counts warps along each
    axis of the shape (batches may be left out); along M they are numbered first, then along N (without
    `rows_first` the other way around), then batches.
    `instruction` holds the rows (16, or 8 for f64) and columns (8; the n of wgmma) that one instruction gives
    to one warp.  Register bits: two columns, row + 8, columns of the instruction, then repetitions along N, M
    and the batches.
    """
    row, column = len(shape) - 2, len(shape) - 1
    rows, columns = instruction
    tile = _TileBuilder(shape)
    tile.place("register", column, 2)
    tile.place("lane", column, 4)
    tile.place("lane", row, 8)
    tile.place("register", row, rows // 8)
    tile.place("register", column, columns // 8)
    for axis in _warp_order(len(shape), rows_first):
        tile.place("warp", axis, _warps_along(warps, len(shape), axis))
    return tile.repeat(reversed(range(len(shape))))


def wgmma_accumulator(shape: Sequence[int], warps: Sequence[int], n: int) -> LinearLayout:
    """The D fragment of wgmma.mma_async m64nNk… (PTX: row = 16*w + g + 8*((i>>1)&1), column = 8*(i>>2) + 2*t
    + (i&1)).

    `warps` counts warps along M (a multiple of 4: a warpgroup spans 64 rows) and N; each warpgroup's
    instruction covers `n` columns, a power of two.
    """
    if _warps_along(warps, len(shape), len(shape) - 2) % 4:
        raise InternalError(f"wgmma needs a multiple of 4 warps along M, not {list(warps)}")
    return mma_accumulator(shape, warps, (16, n))


def dot_operand(
    shape: Sequence[int],
    warps: Sequence[int],
    index: int,
    k_width: int,
    instruction: tuple[int, int] = (16, 8),
    rows_first: bool = True,
) -> LinearLayout:
    """The A (index 0, shape M x K) or B (index 1, shape K x N) fragment of mma.sync, and A of wgmma, tiled
    over warps.

    `warps`, `instruction` and `rows_first` are those of the accumulator; `k_width` counts the elements along K in one
    32-bit register: 4 for 8-bit, 2 for 16-bit, 1 for tf32 and f64.  A is replicated over the warps along N, B
    over those along M.
    """
    row, column = len(shape) - 2, len(shape) - 1
    outer, inner = (row, column) if index == 0 else (column, row)
    tile = _TileBuilder(shape)
    tile.place("register", inner, k_width)
    tile.place("lane", inner, 4)
    tile.place("lane", outer, 8)
    tile.place("register", outer, instruction[index] // 8)
    tile.place("register", inner, 2)
    for axis in _warp_order(len(shape), rows_first):
        count = _warps_along(warps, len(shape), axis)
        if axis == inner:
            tile.replicate("warp", count)
        else:
            tile.place("warp", axis, count)
    return tile.repeat((inner, outer, *reversed(range(row))))


def _warp_order(rank: int, rows_first: bool) -> list[int]:
    """The axes in the order in which tensor-core layouts number their warps: M, N, or N, M, then batches."""
    matrix = [rank - 2, rank - 1] if rows_first else [rank - 1, rank - 2]
    return [*matrix, *reversed(range(rank - 2))]


def _warps_along(warps: Sequence[int], rank: int, axis: int) -> int:
    position = axis - rank + len(warps)
    return warps[position] if position >= 0 else 1


def unswizzled(shape: Sequence[int], order: Sequence[int]) -> LinearLayout:
    """Shared memory without a swizzle: a dense array in which order[0] is contiguous."""
    return LinearLayout.make(shape, offset=[1 << bit for axis in order for bit in axis_bits(shape, axis)])


def swizzled(
    shape: Sequence[int], vector: int, per_phase: int, max_phase: int, order: Sequence[int]
) -> LinearLayout:
    """Triton's swizzled shared memory: along order[0], column c of row r is kept at c ^ phase(r) * vector.

    Rows run along order[1], and phase(r) = (r / per_phase) % max_phase: `per_phase` rows share a phase,
    because together they fill the banks once.  `vector` elements stay together.
    """
    dense = list(unswizzled(shape, order).bases_of("offset"))
    if len(order) < 2:
        return LinearLayout.make(shape, offset=dense)
    columns, rows = axis_bits(shape, order[0]), axis_bits(shape, order[1])
    for bit in range(len(rows)):
        phase = (1 << bit) // per_phase % max_phase
        dense[len(columns) + bit] ^= phase * vector % shape[order[0]] << columns.start
    return LinearLayout.make(shape, offset=dense)


def wgmma_shared(
    shape: Sequence[int], element_bits: int, swizzle_bytes: int, transposed: bool = False
) -> LinearLayout:
    """Shared memory as TMA writes it and wgmma reads it: swizzle mode 128, 64, 32 or 0 (none) bytes.

    The last axis is contiguous, or with `transposed` the one before it.  Panels as wide as the swizzle (16
    bytes without one) hold all rows, and follow one another; batches come last.  Within the tile, which is
    aligned to 1024 bytes, the hardware swaps 16-byte chunks by the byte address a: a ^= (a >> 7 & mask) << 4,
    mask = 7, 3, 1 or 0.
    """
    if swizzle_bytes not in (0, 32, 64, 128):
        raise InternalError(f"there is no {swizzle_bytes}-byte swizzle: 128, 64, 32 or 0 bytes")
    contiguous, other = (-2, -1) if transposed else (-1, -2)
    rank, byte = len(shape), element_bits // 8
    columns, rows = axis_bits(shape, contiguous % rank), axis_bits(shape, other % rank)
    width = ((swizzle_bytes or 16) // byte - 1).bit_length()
    if len(columns) < width:
        raise InternalError(
            f"{shape[contiguous]} elements of {element_bits} bits are narrower than {swizzle_bytes or 16} bytes"
        )
    batches = [bit for axis in reversed(range(rank - 2)) for bit in axis_bits(shape, axis)]
    plain = [1 << bit for bit in (*columns[:width], *rows, *columns[width:], *batches)]
    element = (byte - 1).bit_length()
    bases = list(plain)
    for position in range((swizzle_bytes // 16).bit_length() - 1 if swizzle_bytes else 0):
        if 7 + position - element < len(plain):
            bases[7 + position - element] ^= plain[4 + position - element]
    return LinearLayout.make(shape, offset=bases)


@lru_cache(maxsize=1024)
def in_pairs(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout of a matrix of which each eight elements along `axis` are in the order 0, 2, 4, 6, 1, 3, 5, 7: element
    2t + r where a layout in their own order has element t + 4r.

    The fragments of instructions for 32 bits have elements t and t + 4 of each eight along k in a thread, those for 16
    bits and accumulators 2t and 2t + 1.  A sum over k may take both operands in this order instead.
    """
    return layout.map_axis(axis, lambda place: place & ~7 | (place & 3) << 1 | (place & 4) >> 2)


@lru_cache(maxsize=1024)
def out_of_pairs(layout: LinearLayout, axis: int) -> LinearLayout:
    """The inverse of `in_pairs`."""
    return layout.map_axis(axis, lambda element: element & ~7 | (element & 6) >> 1 | (element & 1) << 2)


@lru_cache(maxsize=1024)
def wgmma_mode(layout: LinearLayout, element_bits: int) -> tuple[int, bool] | None:
    """The (swizzle bytes, transposed) for which a shared layout is `wgmma_shared`; None if wgmma cannot read
    it.

    The widest swizzle comes first, and the last axis is contiguous where both would be right.
    """
    if layout.rank < 2 or not layout.is_shared:
        return None
    for transposed in (False, True):
        contiguous_bytes = layout.shape[-2 if transposed else -1] * element_bits // 8
        for swizzle_bytes in (128, 64, 32, 0):
            if contiguous_bytes < (swizzle_bytes or 16):
                continue
            if wgmma_shared(layout.shape, element_bits, swizzle_bytes, transposed) == layout:
                return swizzle_bytes, transposed
    return None
