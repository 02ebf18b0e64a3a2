"""Where the threads of a program must wait for each other, so that shared memory is read in program
order.

A walk over the structured control flow keeps what has been read and written since the last barrier.  An
access that conflicts with it needs a barrier before; so barriers come as late as possible, and one serves
many conflicts.  Loops are walked until what comes around the back edge adds nothing new; only then do the
decisions count.

Asynchronous copies are in flight until a wait that covers their group (each thread waits for its own copies),
and from then on are writes that other threads see after a barrier.  Asynchronous dots read until a wait
that covers them. They see what threads wrote once each has passed a fence and then a barrier: `fenced` says
which barriers need one.

TMA copies are in flight until the wait for the mbarrier that counts them, which names their tiles; every
thread waits there, so that no barrier has to follow.  They overwrite what threads wrote or read only after a
fence and a barrier.

Accesses to different buffers of one allocation do not conflict; `slots` says what is known of their numbers.
Single elements of global memory that are loaded and stored need barriers too: see `replicated`.  And atomics
of one scalar are how programs wait for each other: one thread does them, so that all have to meet between an
atomic that releases and what they accessed before it, and between one that acquires and what they access
after it.  Atomics of tensors come after stores to the same array, and before later accesses of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbuild.compiler.analysis.barriers.order import accesses_global_memory, around_updates
from kbuild.compiler.analysis.barriers.state import SharedBytes, State, may_conflict, surely_same
from kbuild.compiler.analysis.liveness import views
from kbuild.compiler.analysis.replicated import replicated_ranges
from kbuild.compiler.analysis.scratch import division, scratch_bytes
from kbuild.compiler.analysis.slots import BufferSlot, SlotNumbers
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.nesting import warps_of
from kbuild.compiler.ir.types import MemDescType, TensorType
from kbuild.compiler.ops.control import Call, For, If, While
from kbuild.compiler.ops.gpu import (
    VIEWS,
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalDot,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    WarpPartitions,
    WarpReturn,
    WarpYield,
)
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncCopyMbarrierArrive,
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    BarrierExpect,
    FenceAsyncShared,
    InitBarrier,
    InvalBarrier,
    TmaStoreWait,
    WaitBarrier,
    WarpGroupDot,
    WarpGroupDotWait,
    WarpSpecialize,
)
from kbuild.compiler.ops.tensor import Atomic, Barrier, Store
from kbuild.errors import InternalError

_MARKED = (
    Barrier,
    AsyncWait,
    AsyncCommitGroup,
    WarpGroupDotWait,
    ArriveBarrier,
    FenceAsyncShared,
    TmaStoreWait,
    WarpPartitions,
)
"""Operations that the walk stops at though they touch no memory that has to be noted."""
_MEETINGS = (Barrier, WarpPartitions, WarpReturn, WarpYield)
"""Operations at which threads meet, whatever comes before."""
_USES = (ArriveBarrier, AsyncTmaCopyGlobalToLocal, BarrierExpect, WaitBarrier)
"""Operations that use barriers in shared memory."""
MAX_AGE = 32
"""Groups older than this are not distinguished; waits count far fewer."""
EVERYTHING = 1 << 62


class BarrierAnalysis:
    """`needed` is the set of operations that need a barrier right before them; `fenced` those that need a
    fence there, before that barrier or the one that they are or have inside; `shown` where barriers are made
    that a later fence shows in time."""

    def __init__(self, func: Func) -> None:
        self.needed: set[Op] = set()
        self.sure: set[Op] = set()
        """Those that keep their barriers, whether one walk around a loop finds that they need them or not."""
        self.fences: dict[Op, set[Op]] = {}
        """For each dot or TMA copy, the barriers that come between the accesses by threads and its own."""
        self.slots = SlotNumbers()
        self.reads: dict[Op, list[SharedBytes]] = {}
        self.writes: dict[Op, list[SharedBytes]] = {}
        self.landing: dict[Op, list[SharedBytes]] = {}
        """The tiles whose copies an operation has waited for."""
        self.scratch: dict[Op, SharedBytes] = {}
        self.relevant: set[Op] = set()
        self.ordered: set[Op] = set()
        """Accesses of global memory, where there are atomics that order them."""
        self.updates = around_updates(func)
        """Atomics of tensors and accesses of the same arrays, with the bases of these."""
        self.first_uses: dict[Op, set[Op]] = {}
        """Uses of barriers that no fence may have made visible before."""
        self.replicated = replicated_ranges(func)
        self._collect(func)
        self._block(func.body, State())
        # The walk around loops has seen barriers that it then found not to be needed.
        between = {barrier for barriers in self.fences.values() for barrier in barriers}
        self.fenced = between - {
            op for op in between - self.needed - self.scratch.keys() if not isinstance(op, _MEETINGS)
        }
        self.shown = {made for made, uses in self.first_uses.items() if uses <= self.fenced}

    # What each operation touches

    def _collect(self, func: Func) -> None:
        if any(_synchronizes(op) for op in func.body.walk()):
            self.ordered = {op for op in func.body.walk() if accesses_global_memory(op)}
        for op in func.body.walk():
            if isinstance(op, LocalAlloc):
                self._collect_allocation(op)
            elif op.attributes.get("scratch") is not None:
                start = op.attributes["scratch"]
                self.scratch[op] = SharedBytes(
                    start, start + scratch_bytes(op, warps_of(op)), op, None, division(op)
                )
            elif isinstance(op, Call):
                self.reads[op] = self.writes[op] = [SharedBytes(0, EVERYTHING, op, None)]
            elif op in self.replicated:
                (self.writes if isinstance(op, Store) else self.reads)[op] = [
                    SharedBytes(*self.replicated[op], op, None)
                ]
            elif not isinstance(op, _MARKED) and op not in self.ordered and op not in self.updates:
                continue
            self._mark(op)

    def _collect_allocation(self, allocation: LocalAlloc) -> None:
        type_ = allocation.result.type
        assert isinstance(type_, MemDescType)
        if allocation.offset is None:
            raise InternalError("barriers come after allocation", allocation.loc)
        start, end = allocation.offset, allocation.offset + allocation.size_bytes
        repeats = (allocation.pitch, type_.tile_bytes) if allocation.pitch is not None else None
        by_warp = any(
            isinstance(user, AsyncTmaCopyLocalToGlobal) and user.warp_bits for user in allocation.result.users
        )
        divided = allocation if by_warp else None
        if allocation.src is not None:
            self.writes.setdefault(allocation, []).append(
                SharedBytes(start, end, allocation, None, None, repeats)
            )
        for view in views(allocation):
            access = SharedBytes(
                start,
                end,
                allocation,
                self._slot(view) if type_.buffers is not None else None,
                divided,
                repeats,
            )
            for user in view.users:
                touched = self._touched(user, view)
                if touched is not None:
                    touched.setdefault(user, []).append(access)
                    self._mark(user)

    def _touched(self, user: Op, view: Value) -> dict[Op, list[SharedBytes]] | None:
        """The dictionary for what a use of shared memory touches; None for uses that touch nothing."""
        if isinstance(user, LocalDot | LocalLoad | WarpGroupDot | AsyncTmaCopyLocalToGlobal | TmaStoreWait):
            return self.reads
        if isinstance(user, LocalStore | AsyncCopyGlobalToLocal | InitBarrier | BarrierExpect):
            return self.writes
        if isinstance(user, AsyncTmaCopyGlobalToLocal):
            return self.writes if view is user.dst else self.reads
        if isinstance(user, WaitBarrier | InvalBarrier) and view in user.tiles:
            return self.landing
        if isinstance(user, InvalBarrier):
            return self.writes
        return self.reads if isinstance(user, WaitBarrier | AsyncCopyMbarrierArrive) else None

    def _slot(self, view: Value) -> BufferSlot | None:
        op = view.op
        while isinstance(op, VIEWS) and not isinstance(op, MemDescIndex):
            op = op.src.op
        return self.slots.of(op.index) if isinstance(op, MemDescIndex) else None

    def _mark(self, op: Op) -> None:
        """Remember that an operation, and the control flow around it, is worth walking."""
        inner: Op | None = op
        while inner is not None and inner not in self.relevant:
            self.relevant.add(inner)
            inner = inner.parent_op

    # The walk

    def _block(self, block: Block, state: State) -> State:
        for op in block:
            if op not in self.relevant:
                continue
            if isinstance(op, For | While):
                state = self._loop(op, state)
            elif isinstance(op, If):
                other = self._block(op.else_body, state.copy())
                state = self._block(op.then_body, state)
                state.add(other)
            elif isinstance(op, WarpSpecialize):
                self._use(op, state)
                # The producer's accesses are ordered with the others by barriers in shared memory.
                state = self._block(op.default, state)
            elif isinstance(op, WarpPartitions):
                state = self._parts(op, state)
            else:
                self._visit(op, state)
        return state

    def _parts(self, op: WarpPartitions, state: State) -> State:
        """All threads meet, run different parts whose accesses are ordered by barriers in shared memory, and
        meet again.  What asynchronous operations may touch later has to be fenced in the part that touched it."""
        self.needed.discard(op)
        if op in self.scratch:
            self._check(op, [], [self.scratch[op]], state)
        self._meet(op, state)
        started = State(unfenced=dict(state.unfenced), loaded=dict(state.loaded))
        state = self._block(op.default, state)
        self._meet(op.default.terminator, state)
        for worker in op.workers:
            end = self._block(worker.body, started.copy())
            self._meet(worker.body.terminator, end)
            state.add(State(unfenced=end.unfenced, loaded=end.loaded))
        return state

    def _loop(self, loop: For | While, state: State) -> State:
        """Walk a loop; with a barrier before it if that saves one inside, or leaves it to a branch.

        A loop that waits for another program's flag has to have none inside: its threads may see the flag change at
        different times, and then run the loop more or less often than each other.
        """
        self.needed.discard(loop)
        after = self._iterate(loop, state)
        if not state.reads and not state.writes:
            return after
        inside = self._barriers_of(loop)
        for sure in [set[Op](), *({op} for op in self._meetings_behind_waits(loop))]:
            self.sure |= sure
            synchronized = state.copy()
            self._meet(loop, synchronized)
            after_barrier = self._iterate(loop, synchronized)
            if self._barriers_of(loop) < inside:
                self.needed.add(loop)
                return after_barrier
            self.sure -= sure
        return self._iterate(loop, state)

    def _meetings_behind_waits(self, loop: For | While) -> list[Op]:
        """The barriers of a loop that waits for its copies behind its dots: what has landed is seen behind any of them that
        every iteration meets, and not only if the first iteration needs it."""
        if isinstance(loop, While):
            return []
        kinds = [type(op) for op in loop.body if isinstance(op, AsyncWait | WarpGroupDot)]
        is_behind = WarpGroupDot in kinds and AsyncWait in kinds[kinds.index(WarpGroupDot) :]
        return [op for op in loop.body if op in self.needed and not op.regions] if is_behind else []

    def _barriers_of(self, loop: For | While) -> tuple[int, int]:
        """How many barriers every iteration meets, and all of them."""
        return sum(op.parent_op is loop for op in self.needed), len(self.needed)

    def _iterate(self, loop: For | While, state: State) -> State:
        if isinstance(loop, While):
            return self._iterate_while(loop, state.copy())
        header = _entering(loop, state)
        while True:
            end = self._block(loop.body, header.copy())
            if not header.add(_around(loop, end)):
                return _leaving(loop, header)

    def _iterate_while(self, loop: While, header: State) -> State:
        while True:
            tested = self._block(loop.before, header.copy())
            if not header.add(self._block(loop.after, tested.copy())):
                return tested

    def _meet(self, barrier: Op, state: State) -> None:
        """The threads meet at an operation, or right before it."""
        self._use(barrier, state)
        state.clear(barrier)

    def _use(self, op: Op, state: State) -> None:
        """Barriers that were made may be used."""
        for made in state.unshown:
            self.first_uses[made].add(op)
        state.unshown.clear()

    def _order(self, op: Op, state: State) -> None:
        """An access of global memory: after what was acquired, and after what it releases."""
        if state.has_acquired or (state.has_accessed and _releases(op)):
            self.needed.add(op)
            self._meet(op, state)
        state.has_accessed = True
        state.has_acquired |= _acquires(op)

    def _update(self, op: Op, base: Value | None, state: State) -> None:
        """An access of an array that atomics of tensors update."""
        before = state.updated
        if isinstance(op, Atomic):
            before = state.stored if op.sem != "acquire" else set[Value | None]()
        if before and (base is None or None in before or base in before):
            self.needed.add(op)
            self._meet(op, state)
        if isinstance(op, Store):
            state.stored.add(base)
        elif isinstance(op, Atomic) and op.sem != "release":
            state.updated.add(base)

    def _visit(self, op: Op, state: State) -> None:
        self.needed.discard(op)
        if isinstance(op, _USES):
            self._use(op, state)
        if op in self.ordered:
            self._order(op, state)
        if op in self.updates:
            self._update(op, self.updates[op], state)
        if isinstance(op, Barrier):
            self._meet(op, state)
        elif isinstance(op, AsyncCommitGroup):
            state.flight = {access: min(age + 1, MAX_AGE) for access, age in state.flight.items()}
        elif isinstance(op, AsyncWait):
            self._land_copies(state, op.num)
        elif isinstance(op, WarpGroupDotWait):
            self._end_dots(state, op.pendings)
        elif op in self.scratch:
            self._check(op, [], [self.scratch[op]], state)
            if self.scratch[op].division is None:
                self._meet(op, state)
            else:
                state.write([self.scratch[op]])
            state.load([self.scratch[op]])
        elif op in self.replicated:
            self._visit_replicated(op, state)
        else:
            reads, writes = self.reads.get(op, []), self.writes.get(op, [])
            if isinstance(op, TmaStoreWait):
                state.outgoing -= set(reads)
            self._check(op, reads, writes, state)
            if isinstance(op, AsyncTmaCopyLocalToGlobal):
                state.outgoing.update(reads)
                self._fence(op, reads, (state.unfenced,))
            elif isinstance(op, WarpGroupDot):
                self._issue(op, reads, state)
            elif isinstance(op, LocalDot | LocalLoad):
                state.load(reads)
            else:
                state.reads.update(reads)
            if isinstance(op, AsyncTmaCopyGlobalToLocal):
                self._fence(op, writes, (state.unfenced, state.loaded))
            if isinstance(op, AsyncCopyGlobalToLocal | AsyncTmaCopyGlobalToLocal):
                state.flight.update(dict.fromkeys(writes, -1))
            elif not isinstance(
                op, BarrierExpect
            ):  # the thread that writes the barrier then is the one that copies
                state.write(writes)
            if op in self.landing:
                _land(state, self.landing[op], all_buffers=isinstance(op, InvalBarrier))
        if isinstance(op, InitBarrier):
            # After its checks: a fence and a barrier right before it do not cover it.  Its own fence shows
            # those before it, too: the same thread makes them.
            self.first_uses.setdefault(op, set())
            state.unshown.clear()
            state.unshown.add(op)

    def _visit_replicated(self, op: Op, state: State) -> None:
        """Several warps load, one thread stores: only a load and a store conflict."""
        reads, writes = self.reads.get(op, []), self.writes.get(op, [])
        if any(any_conflict(access, state.writes) for access in reads) or any(
            any_conflict(access, state.reads) for access in writes
        ):
            self.needed.add(op)
            self._meet(op, state)
        state.reads.update(reads)
        state.writes.update(writes)

    def _fence(
        self, op: Op, touched: list[SharedBytes], before: Iterable[Mapping[SharedBytes, frozenset[Op]]]
    ) -> None:
        """An operation that runs asynchronously starts to touch what threads may have touched `before`."""
        self.fences[op] = set()
        for access, places in (item for known in before for item in known.items()):
            if any_conflict(access, touched):
                self.fences[op] |= places

    def _issue(self, op: WarpGroupDot, reads: list[SharedBytes], state: State) -> None:
        """A dot starts to read."""
        state.dots = {access: min(age + 1, MAX_AGE) for access, age in state.dots.items()}
        state.dots.update(dict.fromkeys(reads, 0))
        if not op.is_async:
            self._end_dots(state, 0)
        self._fence(op, reads, (state.unfenced,))

    def _land_copies(self, state: State, pendings: int) -> None:
        """All groups of copies but the last `pendings` have landed, each thread's own."""
        landed = {access for access, age in state.flight.items() if age >= pendings}
        state.write(landed)
        state.flight = {access: age for access, age in state.flight.items() if access not in landed}

    def _end_dots(self, state: State, pendings: int) -> None:
        """All dots but the last `pendings` have ended: what they read counts as read by the threads."""
        ended = {access for access, age in state.dots.items() if age >= pendings}
        state.reads |= ended
        state.dots = {access: age for access, age in state.dots.items() if access not in ended}

    def _check(self, op: Op, reads: list[SharedBytes], writes: list[SharedBytes], state: State) -> None:
        """Ask for a barrier if an access conflicts.  Raises `InternalError` where no barrier helps: a copy is
        on its way into the same bytes, or a dot reads them, and it was never waited for."""
        self._refuse(op, reads, writes, state)
        conflict = any(any_conflict(access, state.writes) for access in reads)
        conflict = conflict or any(any_conflict(access, state.reads | state.writes) for access in writes)
        if conflict or op in self.sure:
            self.needed.add(op)
            self._meet(op, state)

    def _refuse(self, op: Op, reads: list[SharedBytes], writes: list[SharedBytes], state: State) -> None:
        """Raise `InternalError` where no barrier helps."""
        for access in (*reads, *writes):
            for copy in state.flight:
                if surely_same(access, copy) or (
                    access.owner is not copy.owner and may_conflict(access, copy)
                ):
                    raise InternalError(
                        "shared memory is used while an asynchronous copy into it is unfinished", op.loc
                    )
        if any(any_conflict(access, state.dots.keys() | state.outgoing) for access in writes):
            raise InternalError("shared memory is written while a dot or TMA reads it", op.loc)


def _synchronizes(op: Op) -> bool:
    """Whether an operation is an atomic of one scalar that orders other accesses."""
    return isinstance(op, Atomic) and not isinstance(op.ptr.type, TensorType) and op.sem != "relaxed"


def _releases(op: Op) -> bool:
    return isinstance(op, Atomic) and _synchronizes(op) and op.sem != "acquire"


def _acquires(op: Op) -> bool:
    """Whether an operation acquires and its result is unused: threads meet for a used result anyway."""
    return isinstance(op, Atomic) and _synchronizes(op) and op.sem != "release" and not op.result.users


def _land(state: State, tiles: Iterable[SharedBytes], all_buffers: bool) -> None:
    """TMA copies have landed: those into one buffer of each tile, or into all."""
    for tile in tiles:
        for copy in list(state.flight):
            if surely_same(tile, copy) or (all_buffers and tile.owner is copy.owner):
                del state.flight[copy]


def any_conflict(access: SharedBytes, others: Iterable[SharedBytes]) -> bool:
    return any(may_conflict(access, other) for other in others)


def _entering(loop: For, state: State) -> State:
    """Before the first iteration, buffer c is the value of a counter that starts at c."""

    def enter(access: SharedBytes) -> SharedBytes:
        slot = access.slot
        if slot is None or slot.loop is not None:
            return access
        type_ = access.owner.results[0].type
        assert isinstance(type_, MemDescType) and type_.buffers is not None
        return access._replace(slot=BufferSlot(slot.offset, loop, type_.buffers))

    return state.map(enter)


def _around(loop: For, state: State) -> State:
    """The end of an iteration, as the start of the next one sees it."""

    return state.map(lambda a: a._replace(slot=a.slot.around(loop)) if a.slot is not None else a)


def _leaving(loop: For, state: State) -> State:
    """After the loop, how often it ran is not known."""
    return state.map(lambda a: a._replace(slot=None) if a.slot is not None and a.slot.loop is loop else a)
