"""A race checker that shares nothing with the analysis: it runs the control flow and compares all pairs of
accesses.

Loops run with concrete bounds, buffer numbers are numbers, and each event is a range of bytes.  Two accesses
to the same bytes, one of which writes, must have a barrier between the completion of the first and the
second; an asynchronous copy completes at the first wait that covers its group, and so does the reading of an
asynchronous dot.  What a dot reads was fenced by its writer before that barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For, If, While
from kbuild.compiler.ops.elementwise import AddI, CmpI, Constant, MulI, Select, SubI
from kbuild.compiler.ops.gpu import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Barrier

COMPARE = {
    "slt": int.__lt__,
    "sgt": int.__gt__,
    "eq": int.__eq__,
    "ne": int.__ne__,
    "sge": int.__ge__,
    "ult": int.__lt__,
}


@dataclass
class Event:
    """An access; `done` is when it is complete for the thread that made it, None while on its way."""

    time: int
    start: int
    end: int
    writes: bool
    op: Op
    done: int | None


class Trace:
    """The accesses and barriers of one run of a function."""

    def __init__(self, func: Func, arguments: dict[str, int]) -> None:
        self.num_warps = func.attrs["num_warps"]
        self.values: dict[Value, Any] = {a: arguments.get(a.name) for a in func.arguments}
        self.events: list[Event] = []
        self.barriers: list[int] = []
        self.time = 0
        self.groups: list[list[Event]] = []
        self.open: list[Event] = []
        self.dots: list[list[Event]] = []
        self.fences: list[int] = []
        self.block(func.body)

    def block(self, block: Block) -> list[Any]:
        for op in block:
            self.time += 1
            if isinstance(op, For):
                self.loop(op)
            elif isinstance(op, While):
                self.while_(op)
            elif isinstance(op, If):
                results = self.block(op.then_body if self.values[op.condition] else op.else_body)
                self.values.update(zip(op.results, results))
            else:
                self.op(op)
        return [self.values.get(operand) for operand in block.terminator.operands]

    def loop(self, loop: For) -> None:
        carried = [self.values.get(value) for value in loop.init]
        lower, upper, step = (self.values[value] for value in (loop.lower, loop.upper, loop.step))
        for index in range(lower, upper, step):
            self.values.update(zip(loop.body.arguments, [index, *carried]))
            carried = self.block(loop.body)
        self.values.update(zip(loop.results, carried))

    def while_(self, loop: While) -> None:
        carried = [self.values.get(value) for value in loop.init]
        while True:
            self.values.update(zip(loop.before.arguments, carried))
            more, *carried = self.block(loop.before)
            if not more:
                break
            self.values.update(zip(loop.after.arguments, carried))
            carried = self.block(loop.after)
        self.values.update(zip(loop.results, carried))

    def op(self, op: Op) -> None:
        values: list[Any] = [self.values.get(operand) for operand in op.operands]
        match op:
            case Constant():
                self.values[op.result] = op.value
            case AddI() | SubI() | MulI() if None not in values:
                self.values[op.result] = {AddI: int.__add__, SubI: int.__sub__, MulI: int.__mul__}[type(op)](
                    *values
                )
            case CmpI() if None not in values:
                self.values[op.result] = COMPARE[op.predicate](*values)
            case Select():
                condition, yes, no = values
                if condition is not None:
                    self.values[op.result] = yes if condition else no
            case LocalAlloc():
                assert isinstance(op.result.type, MemDescType) and op.offset is not None
                self.values[op.result] = (op.offset, op.offset + op.size_bytes)
                if op.src is not None:
                    self.access(op, self.values[op.result], True)
            case MemDescIndex():
                start, type_ = values[0][0], op.src.type
                assert isinstance(type_, MemDescType) and type_.buffers is not None
                assert 0 <= values[1] < type_.buffers
                start += values[1] * (type_.tile_bytes if op.pitch is None else op.pitch)
                self.values[op.result] = (start, start + type_.tile_bytes)
            case MemDescSubslice() | MemDescTrans():
                self.values[op.result] = values[0]
            case LocalLoad():
                self.access(op, values[0], False)
            case LocalStore():
                self.access(op, self.values[op.dst], True)
            case AsyncCopyGlobalToLocal():
                self.open.append(self.access(op, self.values[op.dst], True, None))
            case AsyncCommitGroup():
                self.groups.append(self.open)
                self.open = []
            case AsyncWait():
                finished = self.groups[: len(self.groups) - op.num]
                for event in (event for group in finished for event in group if event.done is None):
                    event.done = self.time
            case WarpGroupDot():
                done = None if op.is_async else -1
                tiles = [value for value in values[:2] if value is not None]
                self.dots.append([self.access(op, tile, False, done) for tile in tiles])
            case WarpGroupDotWait():
                for event in (e for dot in self.dots[: len(self.dots) - op.pendings] for e in dot):
                    event.done = self.time if event.done is None else event.done
            case FenceAsyncShared():
                self.fences.append(self.time)
            case Barrier():
                self.barriers.append(self.time)
            case _ if (scratch := op.attributes.get("scratch")) is not None:
                place = scratch, scratch + scratch_bytes(op, self.num_warps)
                self.access(op, place, True)
                self.time += 1
                self.barriers.append(self.time)
                self.time += 1
                self.access(op, place, False)

    def access(self, op: Op, place: tuple[int, int], writes: bool, done: int | None = -1) -> Event:
        self.events.append(Event(self.time, *place, writes, op, self.time if done == -1 else done))
        return self.events[-1]

    def is_ordered(self, done: int, second: Event) -> bool:
        """Whether there is a barrier in between, and for dots a fence before it."""
        if isinstance(second.op, WarpGroupDot):
            done = min((fence for fence in self.fences if fence > done), default=self.time)
        return any(done < barrier < second.time for barrier in self.barriers)

    def races(self) -> list[str]:
        """All pairs that race, in words."""
        found = []
        for number, second in enumerate(self.events):
            for first in self.events[:number]:
                overlap = (
                    first.start < second.end and second.start < first.end and (first.writes or second.writes)
                )
                if not overlap:
                    continue
                if first.done is None or first.done > second.time:
                    found.append(
                        f"{first.op} at {first.time} is not waited for before {second.op} at {second.time}"
                    )
                elif not self.is_ordered(first.done, second):
                    found.append(
                        f"no barrier between {first.op} at {first.done} and {second.op} at {second.time}"
                    )
        return found


def races(func: Func, **arguments: int) -> list[str]:
    """The races of one run, with integer arguments given by name."""
    return Trace(func, arguments).races()
