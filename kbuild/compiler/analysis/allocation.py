"""The places of allocations and scratch areas in shared memory: those alive at the same time lie apart, and so
do those of different parts of a `ttg.warp_specialize`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kbuild.compiler.analysis.liveness import Interval, Liveness
from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.ir.core import Block, Func, Op
from kbuild.compiler.ir.nesting import ancestors, warps_of
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.gpu import LocalAlloc, WarpPartition, WarpPartitions

ALIGNMENT = 128
"""Bytes: one row of all banks."""
SWIZZLE_ALIGNMENT = 1024
"""Bytes: the period of the widest swizzle, eight rows of 128 bytes, which hardware computes from the address."""


APART = 1024
"""Bytes: areas of no more than so many each have memory of their own, because reusing it costs a barrier, unless all
together take more for it than this, and than they would otherwise."""


class Demand(NamedTuple):
    """Shared memory that one operation needs."""

    op: Op
    bytes: int
    alignment: int
    life: Interval
    part: tuple[Op, Block] | None = None
    """The `ttg.warp_specialize` around it, and which of its parts it is for."""
    bound: int | None = None
    """The most bytes that the operation may take, so that it uses them in rounds."""

    def meets(self, other: Demand) -> bool:
        """Whether both may be in use at the same time."""
        if self.part is not None and other.part is not None and self.part[0] is other.part[0]:
            at_once = self.part[1] is not other.part[1]
            return at_once or self.life.overlaps(other.life)
        return self.life.overlaps(other.life)


def demands(func: Func, liveness: Liveness | None = None) -> list[Demand]:
    """The demands of all operations of a function, in the order of the text; `liveness` is the function's, where it
    is known."""
    liveness = liveness or Liveness(func)
    found: list[Demand] = []
    for op, number in liveness.start.items():
        if isinstance(op, LocalAlloc):
            type_ = op.result.type
            assert isinstance(type_, MemDescType)
            life = liveness.intervals[op]
            found.append(Demand(op, type_.size_bytes, alignment_of(type_), life, _part_of(op)))
        elif "scratch" in op.attribute_fields:
            size = scratch_bytes(op, warps_of(op))
            # All parts read what they capture, each when it gets to it.
            last = liveness.end[op] if isinstance(op, WarpPartitions) else number
            if size:
                found.append(Demand(op, size, ALIGNMENT, Interval(number, last), _part_of(op)))
    return found


def _part_of(op: Op) -> tuple[Op, Block] | None:
    """The part of a `ttg.warp_specialize` that an operation belongs to."""
    inner: Op = op
    for around in ancestors(op):
        if isinstance(around, WarpPartition) and around.parent_op is not None:
            return around.parent_op, around.body
        if isinstance(around, WarpPartitions):
            return around, inner.parent_block
        inner = around
    return None


def alignment_of(type_: MemDescType) -> int:
    """Bytes to a multiple of which a descriptor's memory must start."""
    swizzled = any(basis & (basis - 1) for basis in type_.layout.bases_of("offset"))
    return max(ALIGNMENT, min(type_.tile_bytes, SWIZZLE_ALIGNMENT)) if swizzled else ALIGNMENT


def joined(wanted: Sequence[Demand], group: Sequence[Op]) -> list[Demand]:
    """The demands with those of a group of allocations as one, of the first of them."""
    members = [demand for demand in wanted if demand.op in group]
    life = Interval(min(each.life.start for each in members), max(each.life.end for each in members))
    whole = Demand(
        group[0],
        sum(each.bytes for each in members),
        max(each.alignment for each in members),
        life,
        members[0].part,
    )
    return [*(demand for demand in wanted if demand.op not in group), whole]


def place(wanted: Sequence[Demand]) -> tuple[dict[Op, int], int]:
    """The offset of each demand and the total, in bytes.

    The largest go first, each to the lowest place where it meets none that is alive at the same time, and the small
    ones no other small one, where that takes no memory that matters.
    """
    shared, apart = _placed(wanted, 0), _placed(wanted, APART)
    return apart if apart[1] <= max(APART, shared[1]) else shared


def _placed(wanted: Sequence[Demand], small: int) -> tuple[dict[Op, int], int]:
    """The offset of each demand and the total, where none of up to `small` bytes lies where another of them does."""
    placed: list[tuple[int, Demand]] = []
    for demand in sorted(wanted, key=lambda demand: (-demand.bytes, demand.life.start)):
        offset = 0
        met = (
            (at, other)
            for at, other in placed
            if max(demand.bytes, other.bytes) <= small or other.meets(demand)
        )
        for taken, other in sorted(met, key=lambda entry: entry[0]):
            if offset + demand.bytes <= taken:
                break
            end = taken + other.bytes
            offset = max(offset, -(-end // demand.alignment) * demand.alignment)
        placed.append((offset, demand))
    total = max((at + demand.bytes for at, demand in placed), default=0)
    return {demand.op: offset for offset, demand in placed}, total


def place_within(wanted: Sequence[Demand], limit: int) -> tuple[list[Demand], dict[Op, int], int]:
    """The demands, their offsets and the total as `place` has them; where that is more than `limit` bytes, scratch
    memory is divided, for data to move in rounds, if that helps.

    The largest of the areas on which something lies that ends beyond the limit is halved, again and again, until
    all ends below it.
    """
    offsets, total = place(wanted)
    if total <= limit or least_bytes(wanted) > limit:
        return list(wanted), offsets, total
    divided, whole = list(wanted), set[Op]()
    while total > limit:
        parts = [demand for demand in _beneath(divided, offsets, limit) if _is_divisible(demand)]
        largest = max(
            (demand for demand in parts if demand.op not in whole),
            key=lambda demand: demand.bytes,
            default=None,
        )
        if largest is None:
            break
        bound = largest.bytes // 2
        size = scratch_bytes(largest.op, warps_of(largest.op), bound)
        if size < largest.bytes:
            divided[divided.index(largest)] = largest._replace(bytes=size, bound=bound)
            offsets, total = place(divided)
        else:
            whole.add(largest.op)
    return divided, offsets, total


def least_bytes(wanted: Sequence[Demand]) -> int:
    """What the demands take together where all data that can do so moves in rounds."""
    return place([d._replace(bytes=ALIGNMENT) if _is_divisible(d) else d for d in wanted])[1]


def fits_at_once(func: Func, limit: int) -> bool:
    """Whether all demands of a function together take no more than so many bytes."""
    return sum(demand.bytes for demand in demands(func)) <= limit


def fits_until(func: Func, tiles: Collection[Op | None], op: Op, limit: int) -> bool:
    """Whether the demands of a function take no more than so many bytes, in rounds where that helps, if some
    allocations are in use until an operation."""
    liveness = Liveness(func)
    end = liveness.start[op]
    wanted = [
        demand._replace(life=demand.life.until(end)) if demand.op in tiles else demand
        for demand in demands(func, liveness)
    ]
    return least_bytes(wanted) <= limit


def _is_divisible(demand: Demand) -> bool:
    """Whether an operation can do with less scratch memory.  Areas begin at multiples of the alignment, so that less
    than that saves nothing."""
    return "max_scratch" in demand.op.attribute_fields and demand.bytes > ALIGNMENT


def _beneath(wanted: Sequence[Demand], offsets: Mapping[Op, int], limit: int) -> list[Demand]:
    """The demands that end beyond the limit, and those below them, whose sizes decide where they lie."""
    found = [demand for demand in wanted if offsets[demand.op] + demand.bytes > limit]
    for above in found:  # grows while it is gone through
        found += [
            demand
            for demand in wanted
            if demand.meets(above) and offsets[demand.op] < offsets[above.op] and demand not in found
        ]
    return found
