"""Dots by scalar fma of operands in shared memory: loops over k, so that the code stays small for any length
of the sums.

A thread's elements of the result are taken in tiles for whose sums and operands it has the registers:

    for each tile:                                                              written out
        for k in range(0, K, step):                                             a loop
            load the tile's rows of a and columns of b, from k to k + step
            add step products to each sum                                       written out

A slice of an operand begins where the offset of (row 0, k) is XORed to the offsets of the first slice: shared
layouts are linear, and k has no bits in common with what lies within a slice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import MemDescType, bit_width, element_of
from kbuild.compiler.layout import LinearLayout, fma_operand, shared_access
from kbuild.compiler.lower.core.control import counted_loop
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import llvm_type, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.memory.shared_memory import (
    ThreadOffset,
    descriptor,
    load_vector,
    offset_of,
    thread_offset,
)
from kbuild.compiler.lower.mma.dot import Coordinates, multiply_add, places, serpentine
from kbuild.compiler.ops.gpu import LocalDot

_ROUND = 512
"""Multiply-adds of a round: enough to hide the latency of its loads."""
_VECTOR_BYTES = 16
"""A slice has at least so many bytes along k, for the widest loads."""


@lower(LocalDot)
def lower_local_dot(emit: Emitter, op: LocalDot) -> Sequence[str]:
    result, type_ = layout(op.c.type), element_of(op.c.type)
    held = places(result)
    groups = tiles(serpentine(held), _most_sums(emit, bit_width(type_)))
    assert isinstance(op.a.type, MemDescType)
    depth, kind = op.a.type.shape[-1], llvm_type(type_)
    step = min(depth, max(_VECTOR_BYTES * 8 // bit_width(type_), _ROUND // len(groups[0])))
    a, b = (_SlicedOperand(emit, value, result, index, step) for index, value in enumerate((op.a, op.b)))
    sums = list(emit.registers(op.c))

    def accumulate(tile: list[Coordinates], k: str, totals: Sequence[str]) -> list[str]:
        rows = a.load(k, {(*at[:-1], i) for at in tile for i in range(step)})
        columns = b.load(k, {(*at[:-2], i, at[-1]) for at in tile for i in range(step)})
        totals = list(totals)
        for i in range(step):
            for index, (*batch, row, column) in enumerate(tile):
                x, y = rows[(*batch, row, i)], columns[(*batch, i, column)]
                totals[index] = multiply_add(emit, x, y, totals[index], type_)
        return totals

    for tile in groups:
        first = [sums[held[at]] for at in tile]
        totals = counted_loop(
            emit, depth, step, first, kind, lambda k, carried, tile=tile: accumulate(tile, k, carried)
        )
        for at, total in zip(tile, totals):
            sums[held[at]] = total
    return [sums[first] for first in result.representatives()]


def _most_sums(emit: Emitter, bits: int) -> int:
    """How many sums a thread keeps at a time: half of its registers go to them, the others to operands and
    addresses."""
    threads = 32 * (emit.num_warps + emit.extra_warps)
    registers = min(emit.target.limits.registers + 1, emit.target.limits.register_file // threads)
    return max(1, registers // 2 * 32 // bits)


def tiles(elements: Sequence[Coordinates], most: int) -> list[list[Coordinates]]:
    """Elements of a result cut into tiles of at most `most`, as square as can be so that they need few rows
    and columns."""
    axes = [
        sorted(values)
        for values in ({at[:-2] for at in elements}, {at[-2] for at in elements}, {at[-1] for at in elements})
    ]
    batches, rows, columns = map(len, axes)
    while batches * rows * columns > most:
        if batches > 1:
            batches = (batches + 1) // 2
        elif rows >= columns:
            rows = (rows + 1) // 2
        else:
            columns = (columns + 1) // 2
    number = [
        {value: index // size for index, value in enumerate(axis)}
        for axis, size in zip(axes, (batches, rows, columns))
    ]
    found: dict[tuple[int, ...], list[Coordinates]] = {}
    for at in elements:
        tile = tuple(numbers[part] for numbers, part in zip(number, (at[:-2], at[-2], at[-1])))
        found.setdefault(tile, []).append(at)
    return list(found.values())


class _SlicedOperand:
    """A (index 0) or B (index 1) in shared memory, read in slices along k."""

    def __init__(self, emit: Emitter, value: Value, result: LinearLayout, index: int, step: int) -> None:
        tile = value.type
        assert isinstance(tile, MemDescType)
        self.emit, self.type = emit, tile.element
        registers = fma_operand(result, index, step)
        self.bytes = memory_bits(tile.element) // 8
        self.access = shared_access(registers, tile.layout, 8 * self.bytes)
        self.where = places(registers)
        pointer, self.start = descriptor(emit, value)
        self.place = thread_offset(emit, pointer, self.access.lane, self.access.warp, self.bytes)
        axis = len(tile.shape) - 1 - index
        bits = range(tile.shape[axis].bit_length() - 1)
        unit = [tuple(1 << bit if other == axis else 0 for other in range(len(tile.shape))) for bit in bits]
        self.images = [offset_of(tile.layout, at) * self.bytes if at[axis] >= step else 0 for at in unit]
        """What each bit of k adds to offsets (XOR), in bytes."""

    def load(self, k: str, wanted: Collection[Coordinates]) -> dict[Coordinates, str]:
        """Elements of the slice that begins at `k`, a register or 0, by their coordinates in the first slice."""
        registers = {self.where[at] for at in wanted}
        place, found = self._slice(k), dict[int, str]()
        for group, offset in zip(self.access.groups, self.access.offsets):
            if not registers.isdisjoint(group):
                address = place.address(self.emit, (offset ^ self.start) * self.bytes)
                found.update(zip(group, load_vector(self.emit, address, len(group), self.type)))
        return {at: found[self.where[at]] for at in wanted}

    def _slice(self, k: str) -> ThreadOffset:
        reach = self.place.reach
        for image in self.images:
            reach |= image
        return ThreadOffset(
            self.place.pointer, self.emit.xor(self.place.base, linear(self.emit, k, self.images)), reach
        )
