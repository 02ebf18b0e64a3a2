"""Warpgroup dots that may be one instruction: they share A, and the tiles of B lie side by side.

    %x = ttng.warp_group_dot %a, %b[%slot], …     wgmma.m64n128: A·B        one wgmma.m64n160: A·(B|C), whose
    %y = ttng.warp_group_dot %a, %c[%slot], …     wgmma.m64n32:  A·C        accumulator is that of %x, then that of %y

Each instruction reads all of A from shared memory, however few columns of D it makes, so one wide instruction
reads less than several narrow ones, and it may have any multiple of eight columns where tiles have powers of two.
Where reading takes much less time than multiplying anyway, as for 128 and 64 columns, dots stay apart: two
warpgroups take turns more often then (one instruction of 192 columns is 2 % slower on an H100, one of 160 is 8 %
faster).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ir.types import MemDescType, TensorType, bit_width
from kbuild.compiler.layout import wgmma_mode
from kbuild.compiler.ops.gpu import VIEWS, LocalAlloc, LocalDealloc, MemDescIndex, MemDescTrans
from kbuild.compiler.ops.nvidia import InvalBarrier, WarpGroupDot
from kbuild.targets.wgmma import GROUP_ROWS, STEP_BYTES

MAX_COLUMNS = 256
"""Columns of D that one instruction makes at most."""
_BUSY = Fraction(7, 8)
"""The part of the time of the products that reading may take."""
_BYTES_PER_CLOCK, _COLUMNS_PER_CLOCK = 128, 2
"""Of a multiprocessor of sm_90."""


def side_by_side(first: WarpGroupDot) -> tuple[WarpGroupDot, ...]:
    """The dots, from `first` on, that may be one instruction as far as their operands' types go: whether the tiles
    of B are neighbours depends on where `allocate` places them."""
    run = [first]
    columns = _columns(first) if isinstance(first.a.type, MemDescType) else None
    while columns is not None:
        following = _next_dot(run[-1])
        more = _columns(following) if following is not None and _may_join(first, following) else None
        if following is None or more is None or columns + more > MAX_COLUMNS:
            break
        if any(_buffers(dot) is _buffers(following) or following.c is dot.result for dot in run):
            break
        run.append(following)
        columns += more
    return tuple(run) if columns is not None and _are_bound_by_reading(len(run), columns) else (first,)


def _are_bound_by_reading(dots: int, columns: int) -> bool:
    """Whether shared memory is as busy as the tensor cores if each of some dots reads A: for a step along k a
    warpgroup reads 32 bytes of each row of A and each column of B, 128 in a clock, in which the tensor cores
    multiply that much of two columns."""
    reading = Fraction(STEP_BYTES * (dots * GROUP_ROWS + columns), _BYTES_PER_CLOCK)
    return reading > _BUSY * Fraction(columns, _COLUMNS_PER_CLOCK)


def neighbours_wanted(func: Func) -> Iterator[tuple[LocalAlloc, ...]]:
    """The allocations of a function whose buffers should lie side by side, the buffers of equal numbers next to each
    other, in this order; each allocation is in one group at most."""
    grouped = set[LocalAlloc]()
    seen = set[WarpGroupDot]()
    for op in func.body.walk():
        if not isinstance(op, WarpGroupDot) or op in seen:
            continue
        run = side_by_side(op)
        seen.update(run)
        group = tuple(buffers for dot in run if (buffers := _buffers(dot)) is not None)
        if len(run) > 1 and grouped.isdisjoint(group):
            grouped.update(group)
            yield group


def are_neighbours(first: WarpGroupDot, second: WarpGroupDot) -> bool:
    """Whether the second dot's B begins where the first one's ends, in each of their buffers."""
    one, other = _buffers(first), _buffers(second)
    if one is None or other is None or one.offset is None or other.offset is None:
        return False
    return (
        one.pitch is not None
        and one.pitch == other.pitch
        and one.offset + _tile(one).tile_bytes == other.offset
    )


def _next_dot(dot: WarpGroupDot) -> WarpGroupDot | None:
    following = dot.next
    while isinstance(following, VIEWS):
        following = following.next
    return following if isinstance(following, WarpGroupDot) else None


def _may_join(first: WarpGroupDot, other: WarpGroupDot) -> bool:
    alike = (
        first.a is other.a
        and first.use_acc is other.use_acc
        and (first.input_precision, first.max_num_imprecise_acc)
        == (other.input_precision, other.max_num_imprecise_acc)
        and _kind(first) == _kind(other)
    )
    mine, others = _index_of(first.b), _index_of(other.b)
    return alike and mine is not None and others is not None and mine.index is others.index


def _kind(dot: WarpGroupDot) -> tuple[object, ...]:
    """What dots of one instruction have in common: the types, how B is swizzled, and the number of buffers."""
    assert isinstance(dot.b.type, MemDescType) and isinstance(dot.c.type, TensorType)
    buffers = _buffers(dot)
    return (
        dot.atom.rpartition("k")[2],
        dot.c.type.shape[0],
        dot.b.type.shape[0],
        wgmma_mode(dot.b.type.layout, bit_width(dot.b.type)),
        None if buffers is None else _tile(buffers).buffers,
    )


def _columns(dot: WarpGroupDot) -> int | None:
    """Columns of D, where one instruction of each warpgroup makes all of them and B's tile is whole columns, one after
    another; else None."""
    if not dot.is_async or dot.swapped or not isinstance(dot.b.type, MemDescType):
        return None
    type_ = dot.c.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    columns, layout = type_.shape[1], type_.layout
    mode = wgmma_mode(dot.b.type.layout, bit_width(dot.b.type))
    if mode is None or not mode[0] or any(layout.bases_along("warp", 1)) or _buffers(dot) is None:
        return None
    swizzle_bytes, along_k = mode
    is_whole = not along_k or dot.b.type.shape[0] * bit_width(dot.b.type) // 8 == swizzle_bytes
    return columns if is_whole and f"n{columns}k" in dot.atom else None


def _buffers(dot: WarpGroupDot) -> LocalAlloc | None:
    """The allocation of B's buffers, if nothing but numbers of buffers is derived from it."""
    index = _index_of(dot.b)
    allocation = index.src.op if index is not None else None
    if not isinstance(allocation, LocalAlloc) or allocation.src is not None:
        return None
    known = all(
        isinstance(user, MemDescIndex | LocalDealloc | InvalBarrier) for user in allocation.result.users
    )
    return allocation if known else None


def _index_of(value: Value) -> MemDescIndex | None:
    op = value.op
    while isinstance(op, MemDescTrans):
        op = op.src.op
    return op if isinstance(op, MemDescIndex) else None


def _tile(allocation: LocalAlloc) -> MemDescType:
    type_ = allocation.result.type
    assert isinstance(type_, MemDescType)
    return type_
