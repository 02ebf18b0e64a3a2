"""Barriers in functions whose author issues copies and dots, and waits for them himself (`explicit_layouts`).

Between accesses of threads the rules are those of `placement`.  But a copy by TMA is ordered with what reads its
tile by the wait for its barrier, and never by one of all threads; fences between what threads touch and what
asynchronous operations do with the same allocation are the author's, who knows of it; and nothing is refused,
because what is in flight depends on counters that are not followed.  So at each wait, whatever it covers, all
copies and dots so far may have ended.

The author does not know which allocations, and which scratch memory, have the same place: where an asynchronous
operation follows accesses of another one by threads, a fence is put in.

One thread arrives at a barrier for all: where they have touched memory since they met, they meet before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbuild.compiler.analysis.barriers.placement import BarrierAnalysis, any_conflict
from kbuild.compiler.analysis.barriers.state import SharedBytes, State
from kbuild.compiler.ir.core import Func, Op
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncTmaCopyGlobalToLocal,
    FenceAsyncShared,
    TmaStoreWait,
)
from kbuild.compiler.ops.tensor import Barrier


def barrier_analysis(func: Func) -> BarrierAnalysis:
    """The analysis for a function, by who places its waits."""
    return ExplicitBarrierAnalysis(func) if func.attrs.get("explicit_layouts") else BarrierAnalysis(func)


class ExplicitBarrierAnalysis(BarrierAnalysis):
    """`BarrierAnalysis` for functions whose author places waits and fences."""

    def _collect(self, func: Func) -> None:
        if any(isinstance(op, ArriveBarrier) for op in func.body.walk()):
            self.ordered = {op for op in func.body.walk() if _accesses_global_memory(op)}
        super()._collect(func)

    def _visit(self, op: Op, state: State) -> None:
        if isinstance(op, ArriveBarrier) and (state.reads or state.writes or state.has_accessed):
            super()._visit(op, state)
            self.needed.add(op)
            self._meet(op, state)
        elif isinstance(op, AsyncTmaCopyGlobalToLocal):
            self._start_tma_copy(op, state)
        elif isinstance(op, TmaStoreWait):
            state.reads |= state.outgoing
            if not op.pendings:
                state.outgoing.clear()
        else:
            super()._visit(op, state)
        if isinstance(op, FenceAsyncShared):
            state.unfenced.clear()
            state.loaded.clear()

    def _start_tma_copy(self, op: AsyncTmaCopyGlobalToLocal, state: State) -> None:
        """A copy by TMA starts to write: the thread that starts it is the one that uses the barrier before."""
        self.needed.discard(op)
        self._use(op, state)
        reads, writes = self.reads.get(op, []), self.writes.get(op, [])
        self._check(op, reads, writes, state)
        self._fence(op, writes, (state.unfenced, state.loaded))

    def _land_copies(self, state: State, pendings: int) -> None:
        state.write(state.flight)
        if not pendings:
            state.flight.clear()

    def _end_dots(self, state: State, pendings: int) -> None:
        state.reads |= state.dots.keys()
        if not pendings:
            state.dots.clear()

    def _refuse(self, op: Op, reads: list[SharedBytes], writes: list[SharedBytes], state: State) -> None:
        """What is in flight is the author's matter."""

    def _fence(
        self, op: Op, touched: list[SharedBytes], before: Iterable[Mapping[SharedBytes, frozenset[Op]]]
    ) -> None:
        self.fences[op] = set()
        for access, places in (item for known in before for item in known.items()):
            others = [one for one in touched if one.owner is not access.owner]
            if any_conflict(access, others):
                self.fences[op] |= places


def _accesses_global_memory(op: Op) -> bool:
    """Whether threads access global memory by an operation."""
    accesses = op.has(Trait.READS) or op.has(Trait.WRITES)
    return accesses and op.op_name.startswith("tt.") and not isinstance(op, Barrier) and not op.regions
