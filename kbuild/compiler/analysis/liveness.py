"""Which shared memory descriptors name which allocation, and from where to where each allocation is alive.

Operations are numbered in the order of the text; a region's operations come between its operation and the
next one.  An allocation lives from its definition to the last use of any view of it.  A use inside a loop
that does not hold the definition may be repeated, so it counts as a use at the end of that loop; and the parts
of a `ttg.warp_specialize` run at once, so a use in one of them counts as one at the end of them all.  An
asynchronous copy still writes after it was issued, and an asynchronous dot still reads: they count as
uses up to the wait that covers them.  In a function whose author places the waits (`explicit_layouts`), what TMA copies
to memory counts as used up to the wait for it, and where it copies to as long as the barrier is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kbuild.compiler.analysis.carried import passed_on
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.gpu import (
    VIEWS,
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    WarpPartitions,
)
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    TmaStoreWait,
    WarpGroupDot,
    WarpGroupDotWait,
)


class Interval(NamedTuple):
    """The numbers of the first and the last operation, both included."""

    start: int
    end: int

    def overlaps(self, other: Interval) -> bool:
        return self.start <= other.end and other.start <= self.end

    def until(self, end: int) -> Interval:
        """The same, but not over before a number."""
        return self._replace(end=max(self.end, end))


class Liveness:
    """The numbering of a function's operations, and the life of its allocations."""

    def __init__(self, func: Func) -> None:
        self.start: dict[Op, int] = {}
        self.end: dict[Op, int] = {}
        """Number of the last operation inside, for operations with regions."""
        self.is_explicit: bool = func.attrs.get("explicit_layouts", False)
        self._number(func.body)
        self.last = len(self.start)
        allocations = [op for op in self.start if isinstance(op, LocalAlloc)]
        self.intervals = {allocation: self._life(allocation) for allocation in allocations}

    def _number(self, block: Block) -> None:
        for op in block:
            self.start[op] = len(self.start)
            for region in op.regions:
                self._number(region)
            self.end[op] = len(self.start) - 1

    def _life(self, allocation: LocalAlloc) -> Interval:
        first = last = self.start[allocation]
        home = allocation.parent_block
        for view in views(allocation):
            if isinstance(view.owner, Block) and view.owner.parent is not None:
                first = min(first, self.start[view.owner.parent])
                last = max(last, self.end[view.owner.parent])
            for user in view.users:
                last = max(last, self._use(user, home))
                if isinstance(user, AsyncCopyGlobalToLocal):
                    last = max(last, self._landed(user))
                elif isinstance(user, WarpGroupDot) and user.is_async:
                    last = max(last, self._ended(user))
                elif isinstance(user, AsyncTmaCopyLocalToGlobal) and self.is_explicit:
                    last = max(last, self._read(user))
                elif isinstance(user, AsyncTmaCopyGlobalToLocal) and view is user.dst and self.is_explicit:
                    last = max(last, self._filled(user, home))
        return Interval(first, last)

    def _use(self, user: Op, home: Block) -> int:
        """The number up to which a use keeps alive what is defined in a block."""
        last = self.start[user]
        block = user.parent
        while block is not None and block is not home and block.parent is not None:
            if isinstance(block.parent, For | While | WarpPartitions):
                last = max(last, self.end[block.parent])
            block = block.parent.parent
        return last

    def _landed(self, copy: AsyncCopyGlobalToLocal) -> int:
        """The number of the wait after which a copy has certainly landed."""
        return self._wait_after(
            copy, AsyncCommitGroup, lambda op: op.num + 1 if isinstance(op, AsyncWait) else None
        )

    def _ended(self, dot: WarpGroupDot) -> int:
        """The number of the wait after which a dot has certainly ended."""
        return self._wait_after(
            dot, WarpGroupDot, lambda op: op.pendings if isinstance(op, WarpGroupDotWait) else None
        )

    def _read(self, copy: AsyncTmaCopyLocalToGlobal) -> int:
        """The number of the wait after which TMA has certainly read what it copies."""
        return self._wait_after(
            copy, AsyncTmaCopyLocalToGlobal, lambda op: op.pendings if isinstance(op, TmaStoreWait) else None
        )

    def _filled(self, copy: AsyncTmaCopyGlobalToLocal, home: Block) -> int:
        """The number up to which TMA may still fill a tile: that of the last use of the barrier."""
        barriers = root_of(copy.barrier)
        if barriers is None:
            return self.last
        return max(self._use(user, home) for view in views(barriers) for user in view.users)

    def _wait_after(self, op: Op, counted: type[Op], younger: Callable[[Op], int | None]) -> int:
        """The number of the first wait after an operation that has seen enough `counted` ones in between.

        `younger` says of a wait how many those are, and None of what is not a wait.
        """
        seen = 0
        for following in _surely_after(op):
            if isinstance(following, counted):
                seen += 1
            elif (needed := younger(following)) is not None and seen >= needed:
                return self.start[following]
        return self.last


def _surely_after(op: Op) -> Iterator[Op]:
    """The operations that run after another one whichever way control flow takes, in order."""
    current: Op | None = op
    while current is not None and not isinstance(current, Func):
        following = current.next
        if following is not None:
            yield following
        current = following or current.parent_op


def root_of(view: Value) -> LocalAlloc | None:
    """The allocation of which a value is a view; None where control flow passes it on."""
    op = view.op
    while isinstance(op, VIEWS):
        op = op.src.op
    return op if isinstance(op, LocalAlloc) else None


def views(allocation: LocalAlloc) -> list[Value]:
    """The descriptor of an allocation and every value that may name it or a part of it."""
    found = [allocation.result]
    seen = set(found)
    for value in found:
        for user in list(value.users):
            for view in _derived(user, value):
                if isinstance(view.type, MemDescType) and view not in seen:
                    seen.add(view)
                    found.append(view)
    return found


def _derived(user: Op, value: Value) -> list[Value]:
    """The values through which a user passes a descriptor on."""
    return [user.result] if isinstance(user, VIEWS) else passed_on(value, user)
