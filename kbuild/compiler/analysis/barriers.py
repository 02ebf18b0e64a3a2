"""Where the threads of a program must wait for each other, so that shared memory is read as the program's order says.

A walk over the structured control flow keeps what has been read and written since the last barrier.  An access that
conflicts with it needs a barrier before; so barriers come as late as possible, and one serves many conflicts.  Loops
are walked until what comes around the back edge adds nothing new; only then do the decisions count.

Asynchronous copies are in flight until a wait that covers their group (each thread waits for its own copies), and from
then on are writes that other threads see after a barrier.  Asynchronous products read until a wait that covers them.
They see what threads wrote once each has passed a fence and then a barrier: `fenced` says which barriers need one.

Copies by the copy engine are in flight until the wait for the mbarrier that counts them, which names their tiles; every thread
waits there, so that no barrier has to follow.  They write over what threads wrote or read only after a fence and a barrier.

Accesses to different buffers of one allocation do not conflict; `slots` says what is known of their numbers.  Single elements of
global memory that are loaded and stored want barriers too: see `replicated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbuild.compiler.analysis.liveness import views
from kbuild.compiler.analysis.replicated import replicated_ranges
from kbuild.compiler.analysis.scratch import division, scratch_bytes
from kbuild.compiler.analysis.slots import Slot, SlotNumbers
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import Call, For, If, While
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
from kbuild.compiler.ops.nvidia import (
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    TmaStoreWait,
    WaitBarrier,
    WarpGroupDot,
    WarpGroupDotWait,
    WarpSpecialize,
)
from kbuild.compiler.ops.tensor import Barrier, Store
from kbuild.errors import InternalError

MAX_AGE = 32
"""Groups older than this are not told apart; waits count far fewer."""
EVERYTHING = 1 << 62


class Access(NamedTuple):
    """Bytes of shared memory that an operation touches."""

    start: int
    end: int
    owner: Op
    """The allocation, or the operation whose scratch it is."""
    slot: Slot | None
    """The buffer; None when unknown, or when there is one only."""
    division: object = None
    """What says how these bytes are divided among warps, each of which touches its own alone; None where they are not."""


def may_conflict(first: Access, second: Access) -> bool:
    """Whether two accesses may touch the same bytes."""
    if first.start >= second.end or second.start >= first.end:
        return False
    if first.division is not None and (first.start, first.division) == (second.start, second.division):
        return False
    a, b = first.slot, second.slot
    if first.owner is not second.owner or a is None or b is None:
        return True
    return a.may_equal(b)


def _surely_same(first: Access, second: Access) -> bool:
    return first.owner is second.owner and first.slot is not None and first.slot == second.slot


@dataclass
class State:
    """What other threads may not have seen yet, at one point of the program."""

    reads: set[Access] = field(default_factory=set)
    writes: set[Access] = field(default_factory=set)
    flight: dict[Access, int] = field(default_factory=dict)
    """Asynchronous copies not waited for: how many groups were committed after theirs; -1 while it is open."""
    products: dict[Access, int] = field(default_factory=dict)
    """What asynchronous products read that were not waited for: how many were issued after them."""
    unfenced: dict[Access, frozenset[Op]] = field(default_factory=dict)
    """All writes that asynchronous products may read, with the operations at which the first barrier after them is."""
    loaded: dict[Access, frozenset[Op]] = field(default_factory=dict)
    """The same for what threads have read and copies by the copy engine may write over."""
    outgoing: set[Access] = field(default_factory=set)
    """What the copy engine reads, and nothing has waited for."""

    def copy(self) -> State:
        return State(
            set(self.reads), set(self.writes), dict(self.flight), dict(self.products), dict(self.unfenced), dict(self.loaded),
            set(self.outgoing),
        )  # fmt: skip

    def clear(self, barrier: Op) -> None:
        """A barrier: what was done before it is seen by all; copies and products stay in flight."""
        for access in self.writes:
            self.unfenced[access] = self.unfenced.get(access, frozenset()) | {barrier}
        for access in self.reads & self.loaded.keys():
            self.loaded[access] |= {barrier}
        self.reads.clear()
        self.writes.clear()

    def write(self, accesses: Iterable[Access]) -> None:
        """Writes that have happened."""
        for access in accesses:
            self.writes.add(access)
            self.unfenced[access] = frozenset()

    def load(self, accesses: Iterable[Access]) -> None:
        """Reads by threads."""
        for access in accesses:
            self.reads.add(access)
            self.loaded[access] = frozenset()

    def add(self, other: State) -> bool:
        """Join with the state of another way to the same point; true when that changed anything."""
        before = self._size()
        self.reads |= other.reads
        self.writes |= other.writes
        self.outgoing |= other.outgoing
        for mine, others in ((self.flight, other.flight), (self.products, other.products)):
            for access, age in others.items():
                mine[access] = min(age, mine.get(access, age))
        for known, others in ((self.unfenced, other.unfenced), (self.loaded, other.loaded)):
            for access, places in others.items():
                known[access] = places | known.get(access, frozenset())
        return before != self._size()

    def _size(self) -> tuple[int, ...]:
        counted = (self.reads, self.writes, self.flight, self.products, self.unfenced, self.loaded, self.outgoing)
        places = (sum(map(len, known.values())) for known in (self.unfenced, self.loaded))
        return (*map(len, counted), sum(self.flight.values()), sum(self.products.values()), *places)

    def map(self, change: Callable[[Access], Access]) -> State:
        """The state with every access replaced."""
        aged: list[dict[Access, int]] = []
        for ages in (self.flight, self.products):
            aged.append({})
            for access, age in ages.items():
                aged[-1][change(access)] = min(age, aged[-1].get(change(access), age))
        fences: list[dict[Access, frozenset[Op]]] = []
        for known in (self.unfenced, self.loaded):
            fences.append({})
            for access, places in known.items():
                fences[-1][change(access)] = places | fences[-1].get(change(access), frozenset())
        sets = [set(map(change, accesses)) for accesses in (self.reads, self.writes, self.outgoing)]
        return State(sets[0], sets[1], aged[0], aged[1], fences[0], fences[1], sets[2])


class BarrierAnalysis:
    """`needed` is the set of operations that want a barrier right before them; `fenced` those that want a fence there, before
    that barrier or the one that they are or have inside."""

    def __init__(self, func: Func) -> None:
        self.needed: set[Op] = set()
        self.fences: dict[Op, set[Op]] = {}
        """For each product or copy by the copy engine, the barriers that come between what it touches and the writing of it."""
        self.slots = SlotNumbers()
        self.reads: dict[Op, list[Access]] = {}
        self.writes: dict[Op, list[Access]] = {}
        self.landing: dict[Op, list[Access]] = {}
        """The tiles whose copies an operation has waited for."""
        self.scratch: dict[Op, Access] = {}
        self.relevant: set[Op] = set()
        self.replicated = replicated_ranges(func)
        self._collect(func)
        self._block(func.body, State())
        # The walk around loops has seen barriers that it then found not to be needed.
        between = {barrier for barriers in self.fences.values() for barrier in barriers}
        self.fenced = between - {op for op in between - self.needed - self.scratch.keys() if not isinstance(op, Barrier)}

    # What each operation touches

    def _collect(self, func: Func) -> None:
        num_warps = func.attrs["num_warps"]
        for op in func.body.walk():
            if isinstance(op, LocalAlloc):
                self._collect_allocation(op)
            elif op.attributes.get("scratch") is not None:
                start = op.attributes["scratch"]
                self.scratch[op] = Access(start, start + scratch_bytes(op, num_warps), op, None, division(op))
            elif isinstance(op, Call):
                self.reads[op] = self.writes[op] = [Access(0, EVERYTHING, op, None)]
            elif op in self.replicated:
                (self.writes if isinstance(op, Store) else self.reads)[op] = [Access(*self.replicated[op], op, None)]
            elif not isinstance(op, Barrier | AsyncWait | AsyncCommitGroup | WarpGroupDotWait):
                continue
            self._mark(op)

    def _collect_allocation(self, allocation: LocalAlloc) -> None:
        type_ = allocation.result.type
        assert isinstance(type_, MemDescType)
        if allocation.offset is None:
            raise InternalError("barriers come after allocation", allocation.loc)
        start, end = allocation.offset, allocation.offset + type_.size_bytes
        by_warp = any(isinstance(user, AsyncTmaCopyLocalToGlobal) and user.warp_bits for user in allocation.result.users)
        divided = allocation if by_warp else None
        if allocation.src is not None:
            self.writes.setdefault(allocation, []).append(Access(start, end, allocation, None))
        for view in views(allocation):
            access = Access(start, end, allocation, self._slot(view) if type_.buffers is not None else None, divided)
            for user in view.users:
                touched = self._touched(user, view)
                if touched is not None:
                    touched.setdefault(user, []).append(access)
                    self._mark(user)

    def _touched(self, user: Op, view: Value) -> dict[Op, list[Access]] | None:
        """Where to note what a use of shared memory touches; None for uses that touch nothing."""
        if isinstance(user, LocalLoad | WarpGroupDot | AsyncTmaCopyLocalToGlobal | TmaStoreWait):
            return self.reads
        if isinstance(user, LocalStore | AsyncCopyGlobalToLocal | InitBarrier | BarrierExpect):
            return self.writes
        if isinstance(user, AsyncTmaCopyGlobalToLocal):
            return self.writes if view is user.dst else self.reads
        if isinstance(user, WaitBarrier | InvalBarrier) and view in user.tiles:
            return self.landing
        if isinstance(user, InvalBarrier):
            return self.writes
        return self.reads if isinstance(user, WaitBarrier) else None

    def _slot(self, view: Value) -> Slot | None:
        op = view.op
        while isinstance(op, MemDescSubslice | MemDescTrans):
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
            if isinstance(op, For):
                state = self._for(op, state)
            elif isinstance(op, While):
                state = self._while(op, state)
            elif isinstance(op, If):
                other = self._block(op.else_body, state.copy())
                state = self._block(op.then_body, state)
                state.add(other)
            elif isinstance(op, WarpSpecialize):
                # The producer's accesses are ordered with the others by barriers in shared memory.
                state = self._block(op.default, state)
            else:
                self._visit(op, state)
        return state

    def _for(self, loop: For, state: State) -> State:
        """Walk a loop; with a barrier before it if that saves one inside, or leaves it to a branch."""
        self.needed.discard(loop)
        after = self._iterate(loop, state)
        if state.reads or state.writes:
            inside = self._barriers_of(loop)
            synchronized = state.copy()
            synchronized.clear(loop)
            after_barrier = self._iterate(loop, synchronized)
            if self._barriers_of(loop) < inside:
                self.needed.add(loop)
                return after_barrier
            after = self._iterate(loop, state)
        return after

    def _barriers_of(self, loop: For) -> tuple[int, int]:
        """How many barriers every iteration meets, and all of them."""
        return sum(op.parent is loop.body for op in self.needed), len(self.needed)

    def _iterate(self, loop: For, state: State) -> State:
        header = _entering(loop, state)
        while True:
            end = self._block(loop.body, header.copy())
            if not header.add(_around(loop, end)):
                return _leaving(loop, header)

    def _while(self, loop: While, state: State) -> State:
        header = state
        while True:
            tested = self._block(loop.before, header.copy())
            if not header.add(self._block(loop.after, tested.copy())):
                return tested

    def _visit(self, op: Op, state: State) -> None:
        self.needed.discard(op)
        if isinstance(op, Barrier):
            state.clear(op)
        elif isinstance(op, AsyncCommitGroup):
            state.flight = {access: min(age + 1, MAX_AGE) for access, age in state.flight.items()}
        elif isinstance(op, AsyncWait):
            landed = {access for access, age in state.flight.items() if age >= op.num}
            state.write(landed)
            state.flight = {access: age for access, age in state.flight.items() if access not in landed}
        elif isinstance(op, WarpGroupDotWait):
            _end_products(state, op.pendings)
        elif op in self.scratch:
            self._check(op, [], [self.scratch[op]], state)
            if self.scratch[op].division is None:
                state.clear(op)
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
            elif isinstance(op, LocalLoad):
                state.load(reads)
            else:
                state.reads.update(reads)
            if isinstance(op, AsyncTmaCopyGlobalToLocal):
                self._fence(op, writes, (state.unfenced, state.loaded))
            if isinstance(op, AsyncCopyGlobalToLocal | AsyncTmaCopyGlobalToLocal):
                state.flight.update(dict.fromkeys(writes, -1))
            elif not isinstance(op, BarrierExpect):  # the thread that writes the barrier then is the one that copies
                state.write(writes)
            if op in self.landing:
                _land(state, self.landing[op], all_buffers=isinstance(op, InvalBarrier))

    def _visit_replicated(self, op: Op, state: State) -> None:
        """Several warps load, one thread stores: only a load and a store conflict."""
        reads, writes = self.reads.get(op, []), self.writes.get(op, [])
        if any(_any_conflict(access, state.writes) for access in reads) or any(
            _any_conflict(access, state.reads) for access in writes
        ):
            self.needed.add(op)
            state.clear(op)
        state.reads.update(reads)
        state.writes.update(writes)

    def _fence(self, op: Op, touched: list[Access], before: Iterable[Mapping[Access, frozenset[Op]]]) -> None:
        """An operation that runs asynchronously starts to touch what threads may have touched `before`."""
        self.fences[op] = set()
        for access, places in (item for known in before for item in known.items()):
            if _any_conflict(access, touched):
                self.fences[op] |= places

    def _issue(self, op: WarpGroupDot, reads: list[Access], state: State) -> None:
        """A product starts to read."""
        state.products = {access: min(age + 1, MAX_AGE) for access, age in state.products.items()}
        state.products.update(dict.fromkeys(reads, 0))
        if not op.is_async:
            _end_products(state, 0)
        self._fence(op, reads, (state.unfenced,))

    def _check(self, op: Op, reads: list[Access], writes: list[Access], state: State) -> None:
        """Ask for a barrier if an access conflicts.  Raises `InternalError` where no barrier helps: a copy is on its way
        into the same bytes, or a product reads them, and nothing has waited for it."""
        for access in (*reads, *writes):
            for copy in state.flight:
                if _surely_same(access, copy) or (access.owner is not copy.owner and may_conflict(access, copy)):
                    raise InternalError("shared memory is used while an asynchronous copy into it is unfinished", op.loc)
        if any(_any_conflict(access, state.products.keys() | state.outgoing) for access in writes):
            raise InternalError("shared memory is written while a product or the copy engine reads it", op.loc)
        conflict = any(_any_conflict(access, state.writes) for access in reads)
        conflict = conflict or any(_any_conflict(access, state.reads | state.writes) for access in writes)
        if conflict:
            self.needed.add(op)
            state.clear(op)


def _end_products(state: State, pendings: int) -> None:
    """All but the last so many products have ended: what they read is read as by the threads themselves."""
    ended = {access for access, age in state.products.items() if age >= pendings}
    state.reads |= ended
    state.products = {access: age for access, age in state.products.items() if access not in ended}


def _land(state: State, tiles: Iterable[Access], all_buffers: bool) -> None:
    """Copies by the copy engine have landed: those into one buffer of each tile, or into all."""
    for tile in tiles:
        for copy in list(state.flight):
            if _surely_same(tile, copy) or (all_buffers and tile.owner is copy.owner):
                del state.flight[copy]


def _any_conflict(access: Access, others: Iterable[Access]) -> bool:
    return any(may_conflict(access, other) for other in others)


def _entering(loop: For, state: State) -> State:
    """Before the first iteration, buffer c is the value of a counter that starts at c."""

    def enter(access: Access) -> Access:
        slot = access.slot
        if slot is None or slot.loop is not None:
            return access
        type_ = access.owner.results[0].type
        assert isinstance(type_, MemDescType) and type_.buffers is not None
        return access._replace(slot=Slot(slot.offset, loop, type_.buffers))

    return state.map(enter)


def _around(loop: For, state: State) -> State:
    """The end of an iteration, as the start of the next one sees it."""

    def turn(access: Access) -> Access:
        slot = access.slot
        if slot is None or slot.loop is not loop:
            return access
        return access._replace(slot=slot._replace(offset=(slot.offset - 1) % slot.modulus))

    return state.map(turn)


def _leaving(loop: For, state: State) -> State:
    """After the loop, how often it ran is not known."""
    return state.map(lambda a: a._replace(slot=None) if a.slot is not None and a.slot.loop is loop else a)
