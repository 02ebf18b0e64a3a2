"""Scans: chunks of registers one after the other, then neighbouring segments merged bit by bit of the axis.

Where each thread has chunks of one element, and lanes are the first to be merged, each lane takes the sum of those
before it, at distances 1, 2, 4, …: three instructions a step, which leave the prefixes themselves.

Else of each chunk is known the total of its segment, and what comes before the chunk in it: `before`, which holds
only where `present` does.  Where the function has an identity element, this stands for nothing, and `present`
is always true. In reverse, too, what is scanned first is the function's left argument: it is a scan of the
reversed tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kbuild.compiler.analysis.scratch import Exchange, ScanPlan, ScanStep, plan_scan
from kbuild.compiler.ir.core import Block
from kbuild.compiler.ir.types import IntType, Type
from kbuild.compiler.lower.collective.partials import (
    Combine,
    Partial,
    collect,
    exchanged,
    shuffled,
    thread_bits,
)
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import constant
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.combine import only_op
from kbuild.compiler.ops.tensor import Scan
from kbuild.errors import InternalError


def _smallest(type_: Type) -> int:
    return -(1 << type_.bits - 1) if isinstance(type_, IntType) else 0


# The sum of anything and -0 is that thing, 0 included; `maxnum` of anything and NaN likewise.
_IDENTITIES: dict[type, Callable[[Type], float]] = {
    rows.AddI: lambda type_: 0,
    rows.AddF: lambda type_: -0.0,
    rows.MulI: lambda type_: 1,
    rows.MulF: lambda type_: 1.0,
    rows.AndI: lambda type_: -1,
    rows.OrI: lambda type_: 0,
    rows.XOrI: lambda type_: 0,
    rows.MaxSI: _smallest,
    rows.MinSI: lambda type_: ~_smallest(type_),
    rows.MaxUI: lambda type_: 0,
    rows.MinUI: lambda type_: -1,
    rows.MaxNumF: lambda type_: math.nan,
    rows.MinNumF: lambda type_: math.nan,
    rows.MaximumF: lambda type_: -math.inf,
    rows.MinimumF: lambda type_: math.inf,
}


@lower(Scan)
def lower_scan(emit: Emitter, op: Scan) -> Results:
    plan = plan_scan(op)
    if plan.bytes and op.scratch is None:
        raise InternalError(f"{op.op_name} has no scratch memory", op.loc)
    sources = [emit.registers(src) for src in op.srcs]
    elements = [tuple(registers) for registers in zip(*(source[:] for source in sources))]
    running = _Scan(Combine(emit, op.combine, op.srcs), plan, elements, op.reverse)
    shifts = _shifts(plan)
    if shifts:
        running.shift_lanes(shifts, len(shifts) == len(plan.steps))
    for step in plan.steps[len(shifts) :]:
        running.merge(step, step is plan.steps[-1], op.scratch or 0)
    prefixes = running.finish()
    return Results(
        [[prefixes[register][position] for register in plan.results] for position in range(len(sources))]
    )


def _shifts(plan: ScanPlan) -> list[int]:
    """The distances between lanes of the steps that shift instead of merging: those that double, from the first
    on. A single one costs less as a merge where others follow."""
    distances: list[int] = []
    for step in plan.steps if all(len(chunk) == 1 for chunk in plan.chunks) else ():
        if step.dim != "lane" or (distances and step.distance != 2 * distances[-1]):
            break
        distances.append(step.distance)
    return distances if len(distances) > 1 or len(plan.steps) == 1 else []


def _identity(block: Block, type_: Type) -> Partial | None:
    """The element that changes nothing when combined with another; None for functions of which it is not
    known."""
    op = only_op(block)
    make = _IDENTITIES.get(type(op)) if op is not None else None
    return (constant(make(type_), type_),) if make is not None else None


class _Scan:
    """A scan in progress."""

    def __init__(self, combine: Combine, plan: ScanPlan, elements: Sequence[Partial], reverse: bool) -> None:
        self.emit = combine.emit
        self.combine = combine
        self.reverse = reverse
        self.chunks = plan.chunks
        self.identity = _identity(combine.block, combine.types[0])
        self.prefixes = {
            register: prefix for chunk in plan.chunks for register, prefix in self._serial(elements, chunk)
        }
        self.totals = [self.prefixes[chunk[-1]] for chunk in plan.chunks]
        self.before: list[Partial | None] = [None] * len(plan.chunks)
        self.present = ["false"] * len(plan.chunks)

    def _serial(self, elements: Sequence[Partial], chunk: Sequence[int]) -> list[tuple[int, Partial]]:
        prefixes = [elements[chunk[0]]]
        for register in chunk[1:]:
            prefixes.append(self.combine(prefixes[-1], elements[register]))
        return list(zip(chunk, prefixes))

    def shift_lanes(self, distances: Sequence[int], last: bool) -> None:
        """Make totals, and prefixes, those over the lanes at all these distances; after the last step totals are
        not needed."""
        emit, combine, lanes = self.emit, self.combine, sum(distances)
        number, values = thread_bits(emit, lanes), self.totals
        for distance in distances:
            with emit.at_entry():
                reaches = (
                    emit.compare("ule", number, str(lanes - distance))
                    if self.reverse
                    else emit.compare("uge", number, str(distance))
                )
            mode, clamp = ("down", 31) if self.reverse else ("up", 0)
            received = shuffled(emit, values, combine.types, str(distance), mode, clamp)
            values = [
                combine.select(reaches, combine(other, value), value)
                for other, value in zip(received, values)
            ]
        self.prefixes = {chunk[0]: value for chunk, value in zip(self.chunks, values)}
        if not last:
            with emit.at_entry():
                others = thread_bits(emit, 31 & ~lanes)
                end = others if self.reverse else emit.or_(others, str(lanes))
            self.totals = shuffled(emit, values, combine.types, end, "idx")

    def merge(self, step: ScanStep, last: bool, scratch: int) -> None:
        """Take one step of the plan; after the last, totals are not needed."""
        if step.exchange is not None:
            self._merge_warps(step.exchange, last, scratch)
        elif step.dim == "lane":
            self._merge_lanes(step.distance, last)
        else:
            self._merge_registers(step.pairs)

    def _put_before(self, chunk: int, segment: Partial, condition: str) -> None:
        """Where the condition holds, an earlier segment now precedes what was before a chunk."""
        emit, combine, old = self.emit, self.combine, self.before[chunk]
        if self.identity is not None:
            segment = combine.select(condition, segment, self.identity)
            self.before[chunk] = segment if old is None else self.combine(segment, old)
            self.present[chunk] = "true"
        elif old is None:
            self.before[chunk], self.present[chunk] = segment, condition
        else:
            joined = combine.select(self.present[chunk], self.combine(segment, old), segment)
            self.before[chunk] = combine.select(condition, joined, old)
            known = "true" in (condition, self.present[chunk])
            self.present[chunk] = "true" if known else emit.or_(condition, self.present[chunk], "i1")

    def _merge_registers(self, pairs: Sequence[tuple[int, int]]) -> None:
        for earlier, later in pairs:
            self._put_before(later, self.totals[earlier], "true")
            self.totals[earlier] = self.totals[later] = self.combine(self.totals[earlier], self.totals[later])

    def _merge_lanes(self, distance: int, last: bool) -> None:
        emit, combine = self.emit, self.combine
        side = thread_bits(emit, distance)
        with emit.at_entry():
            later = emit.compare("eq" if self.reverse else "ne", side, "0")
        received = shuffled(emit, self.totals, combine.types, str(distance))
        for chunk, other in enumerate(received):
            own = self.totals[chunk]
            self._put_before(chunk, other, later)
            if not last:
                first, second = (own, other) if combine.commutes else self._ordered(later, own, other)
                self.totals[chunk] = self.combine(first, second)

    def _ordered(self, later: str, own: Partial, other: Partial) -> tuple[Partial, Partial]:
        return self.combine.select(later, other, own), self.combine.select(later, own, other)

    def _merge_warps(self, exchange: Exchange, last: bool, scratch: int) -> None:
        for members in exchanged(self.emit, exchange, self.totals, self.combine.types, scratch):
            self._merge_members(exchange, last, scratch, members)

    def _merge_members(self, exchange: Exchange, last: bool, scratch: int, members: Sequence[int]) -> None:
        emit = self.emit
        images = [0] * (5 + max(exchange.warp_bits) + 1)
        for slot_bit, warp_bit in enumerate(exchange.warp_bits):
            images[5 + warp_bit] = 1 << slot_bit
        with emit.at_entry():
            own_slot = linear(emit, emit.thread_id(), tuple(images))
        order = range(exchange.slots)[::-1] if self.reverse else range(exchange.slots)
        collected = collect(emit, exchange, self.combine.types, scratch, members)
        for chunk, slots in zip(members, collected):
            earlier = running = slots[order[0]]
            for slot in order[1:]:
                if slot != order[1]:
                    earlier = self.combine.select(emit.compare("eq", own_slot, str(slot)), running, earlier)
                if slot != order[-1] or not last:
                    running = self.combine(running, slots[slot])
            self._put_before(chunk, earlier, emit.compare("ne", own_slot, str(order[0])))
            self.totals[chunk] = running

    def finish(self) -> dict[int, Partial]:
        """The prefix of each register, with what is before its chunk put in front."""
        results: dict[int, Partial] = {}
        for chunk, before, present in zip(self.chunks, self.before, self.present):
            for register in chunk:
                prefix = self.prefixes[register]
                if before is not None:
                    prefix = self.combine.select(present, self.combine(before, prefix), prefix)
                results[register] = prefix
        return results
