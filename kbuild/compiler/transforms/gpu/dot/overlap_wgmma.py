"""Lets dots of warpgroups run while the threads go on, and waits for them as late as the data allow.

Before:
    %r = scf.for … init=[%zero] body(… %acc) {        After:  %r = scf.for … init=[%zero] body(… %acc) {
      copies into buffer t + 2                                  copies into buffer t + 2
      %d = ttng.warp_group_dot %a, %b, %acc                     %d = ttng.warp_group_dot %a, %b, %acc {is_async = true}
      scf.yield %d                                              ttng.warp_group_dot_wait {pendings = 1}
    }                                                           scf.yield %d
    %s = arith.truncf %r                                      }
                                                              %1 = ttng.warp_group_dot_wait %r {pendings = 0}
                                                              %s = arith.truncf %1

The initial value of a dot is computed before the dots that are in flight when it is issued, where possible:
ptxas waits for them before it lets other instructions write its registers.

A dot must have ended before its result is read (another dot that accumulates in place does not read it), and
before its tiles are overwritten.  A result that is only passed to the next iteration stays in flight until
it is needed there, and no longer than that iteration; its tiles must lie outside the loop, in buffers of
which the loop knows the number.  One that is read in its own iteration is issued before the copies that the threads
make for later ones.

Where ptxas may overwrite operands in registers (`PtxasGuarantees.keeps_operands`), the dots that read some must have
ended before the next operands are computed: ptxas puts those into the very registers that the dot in flight
reads, however late the PTX copies them there.  So must they where the registers of a thread do not hold the sums and the
operands of two iterations: what is computed early would be put into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.compiler.analysis.dots.register_operands import operand_makers, register_operand
from kbuild.compiler.analysis.slots import BufferSlot, SlotNumbers
from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For, If, While, Yield
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import (
    TILE_VIEWS,
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    LocalAlloc,
    LocalDealloc,
    LocalStore,
    MemDescIndex,
)
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncTmaCopyGlobalToLocal,
    BarrierExpect,
    WarpGroupDot,
    WarpGroupDotWait,
)
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms.gpu.pipeline.loads import is_only_yielded
from kbuild.targets.target import Target

_MOST_WORDS = 240
"""Registers of a thread, of at most 255, for the sums and operands of dots; the others have addresses and counters."""


@gpu_pass
def overlap_wgmma(module: Module, target: Target) -> None:
    """Make all dots of warpgroups asynchronous, and insert the waits."""
    for func in module.functions.values():
        dots = [op for op in func.body.walk() if isinstance(op, WarpGroupDot)]
        if any(not dot.is_async for dot in dots):
            refilled = [dot for dot in dots if not target.ptxas.keeps_operands or _fills_registers(dot)]
            _Waits(refilled).block(func.body, [])


@dataclass
class _Place:
    """Shared memory that a dot reads."""

    allocation: Value
    slot: BufferSlot | None
    """The buffer, as the present iteration numbers them; None when unknown, or when there is one only."""

    def may_be(self, other: _Place) -> bool:
        if self.allocation is not other.allocation:
            return False
        a, b = self.slot, other.slot
        return a is None or b is None or a.may_equal(b)


@dataclass
class _PendingOp:
    """A dot that may not have ended."""

    dot: WarpGroupDot
    value: Value | None
    """Its result here; None when another dot accumulates onto it in place."""
    places: list[_Place]
    earlier: bool = False
    """Whether it was issued in the previous iteration."""


class _Waits:
    """A walk in program order with the dots in flight, oldest first."""

    def __init__(self, refilled: Sequence[WarpGroupDot]) -> None:
        self.slots = SlotNumbers()
        self.refilled = refilled
        """Dots in whose register operands the next ones may be put while they are still read."""
        self.makers = operand_makers(refilled)
        """Operations whose results may take the place of those."""
        self.passed: set[WarpGroupDot] = set()
        """Dots of loops whose results are only passed to the next iteration, or read in branches."""
        self.staying: set[WarpGroupDot] = set()
        """Those that may be in flight then."""

    def block(self, block: Block, flights: list[_PendingOp]) -> list[_PendingOp]:
        """Walk a block; return what is in flight at its end."""
        for op in block:
            if op.regions:
                flights = self.structured(op, flights)
                continue
            needed = [flight for flight in flights if self.needs(op, flight)]
            flights = self.wait(op, flights, needed)
            if isinstance(op, WarpGroupDot):
                _start_early(op, flights)
                op.is_async = True
                for flight in flights:
                    if flight.value is op.c:
                        flight.value = None
                flights = [*flights, _PendingOp(op, op.result, [self.place(tile) for tile in _tiles(op)])]
        return flights

    def structured(self, op: Op, flights: list[_PendingOp]) -> list[_PendingOp]:
        """Walk a loop or branch, before which all dots end that something inside needs, or that might be
        counted there."""
        inner = list(op.walk())
        if any(isinstance(each, WarpGroupDot) for each in inner):
            flights = self.wait(op, flights, flights)
        needed = [flight for flight in flights if any(self.needs(each, flight) for each in inner)]
        if (
            isinstance(op, If)
            and needed
            and all(flight.dot in self.staying and not flight.earlier for flight in needed)
        ):
            self.branch(op, flights)
            return flights
        flights = self.wait(op, flights, needed)
        if isinstance(op, For):
            return flights + self.loop(op)
        for region in op.regions:
            left = self.block(region, [])
            self.wait(region.terminator, left, left)
        return flights

    def branch(self, branch: If, flights: Sequence[_PendingOp]) -> None:
        """Wait in the branches that need it for all dots in flight, and pass their results on, so that they are in
        the same registers whether the branch has waited or not."""
        values = list(dict.fromkeys(flight.value for flight in flights if flight.value is not None))
        passed = [self.wait_inside(region, flights, values) for region in branch.regions]
        for region, ended in zip(branch.regions, passed):
            terminator = region.terminator
            assert isinstance(terminator, Yield)
            terminator.values = (*terminator.values, *ended)
        for value in values:
            result = Value(value.type, branch, len(branch.results))
            branch.results.append(result)
            for user in list(value.users):
                if not any(is_within(user.parent_block, region) for region in branch.regions):
                    user.replace_operand(value, result)
            for flight in flights:
                flight.value = result if flight.value is value else flight.value

    def wait_inside(
        self, region: Block, flights: Sequence[_PendingOp], values: Sequence[Value]
    ) -> Sequence[Value]:
        """Wait before the first operation of a branch that needs it; what has become of the results at its end."""
        needing = (
            op for op in region if any(self.needs(each, one) for each in (op, *op.walk()) for one in flights)
        )
        first = next(needing, None)
        if first is None:
            return values
        wait = Builder.before(first).add(WarpGroupDotWait(tuple(values), 0))
        for value, result in zip(values, wait.results):
            for user in list(value.users):
                if user is not wait and is_within(user.parent_block, region):
                    user.replace_operand(value, result)
        return wait.results

    def loop(self, loop: For) -> list[_PendingOp]:
        """Walk a loop; return what is in flight after it."""
        dots = [op for op in loop.body if isinstance(op, WarpGroupDot)]
        passed = {dot: loop.yielded.index(dot.result) for dot in dots if is_only_yielded(dot, loop)}
        staying = {dot: place for dot, place in passed.items() if self.may_stay(dot, loop)}
        for dot in dots:
            if dot not in staying:
                self.issue_before_copies(dot)
        entering = [
            _PendingOp(
                dot,
                loop.carried[place],
                [_turned(self.place(tile), loop) for tile in _tiles(dot)],
                True,
            )
            for dot, place in staying.items()
        ]
        self.passed |= passed.keys()
        self.staying |= staying.keys()
        left = self.block(loop.body, entering)
        ending = [flight for flight in left if flight.earlier or flight.dot not in staying]
        left = self.wait(loop.body.terminator, left, ending)
        return [
            _PendingOp(
                flight.dot,
                loop.results[staying[flight.dot]],
                [_Place(p.allocation, None) for p in flight.places],
            )
            for flight in left
        ]

    def issue_before_copies(self, dot: WarpGroupDot) -> None:
        """Move a dot that must end in its iteration before the copies in front of it, and what computes their addresses,
        where nothing that it needs is in between: tensor cores then work while the threads do these."""
        places, needed = [self.place(tile) for tile in _tiles(dot)], {operand.op for operand in dot.operands}
        moved: list[Op] = [dot]
        passed: list[Op] = []
        before = dot.prev
        while before is not None:
            if before in needed and isinstance(before, TILE_VIEWS):
                moved.append(before)
                needed |= {operand.op for operand in before.operands}
            elif before in needed or not self.may_follow(before, places):
                break
            else:
                passed.append(before)
            before = before.prev
        if any(isinstance(op, AsyncCopyGlobalToLocal) for op in passed):
            for op in reversed(moved):
                op.move_before(passed[-1])

    def may_follow(self, op: Op, places: Sequence[_Place]) -> bool:
        """Whether an operation may come after a dot that reads some memory: copies elsewhere, and what has no effect
        and is no loop or other dot."""
        inside = [*op.walk(), op]
        if any(isinstance(each, For | While | WarpGroupDot) for each in inside):
            return False
        written = (self.place(tile) for each in inside for tile in _written(each))
        return not any(place.may_be(read) for place in written for read in places) and not any(
            each.has(Trait.WRITES) and not isinstance(each, AsyncCopyGlobalToLocal | AsyncCommitGroup)
            for each in inside
        )

    def may_stay(self, dot: WarpGroupDot, loop: For) -> bool:
        """Whether a dot may be in flight when its iteration ends."""
        homes = (self.place(tile).allocation.block for tile in _tiles(dot))
        return is_only_yielded(dot, loop) and not any(is_within(home, loop.body) for home in homes)

    def needs(self, op: Op, flight: _PendingOp) -> bool:
        """Whether a dot must have ended before an operation.  Operands in registers are in the same ones each
        time."""
        if op is flight.dot and len(_tiles(flight.dot)) < 2:
            return True
        if op in self.makers and flight.dot in self.refilled and _may_recompute_operand(op, flight.dot):
            return True
        value = flight.value
        if value is not None and value in op.operands:
            goes_on = isinstance(op, WarpGroupDot) and value is op.c and sum(value.users.values()) == 1
            only_yielded = (
                op is op.parent_block.last
                and flight.dot.parent is op.parent
                and flight.dot in self.passed
                and not flight.earlier
            )
            if not (goes_on or only_yielded):
                return True
        return any(self.place(written).may_be(place) for written in _written(op) for place in flight.places)

    def wait(self, op: Op, flights: list[_PendingOp], needed: Sequence[_PendingOp]) -> list[_PendingOp]:
        """Wait before `op` for some dots, and so for all older ones; return what is still in flight then."""
        if not needed:
            return flights
        count = max(number for number, flight in enumerate(flights) if flight in needed) + 1
        ended, values = flights[:count], []
        for flight in ended:
            if flight.value is not None and flight.value not in values:
                values.append(flight.value)
        wait = Builder.before(op).add(WarpGroupDotWait(tuple(values), len(flights) - count))
        for value, result in zip(values, wait.results):
            value.replace_by(result)
            wait.replace_operand(result, value)
        return flights[count:]

    def place(self, tile: Value) -> _Place:
        """The allocation behind a descriptor, and the buffer."""
        slot = None
        while isinstance(tile.op, TILE_VIEWS):
            if isinstance(tile.op, MemDescIndex):
                slot = self.slots.of(tile.op.index)
            tile = tile.op.src
        return _Place(tile, slot)


def _start_early(dot: WarpGroupDot, flights: Sequence[_PendingOp]) -> None:
    """Move the operations that compute a dot's initial value before the dots of its block that are in flight,
    if nothing is in the way."""
    first = next(
        (flight.dot for flight in flights if flight.dot.parent is dot.parent and not flight.earlier), None
    )
    if first is None or (isinstance(dot.c.op, Constant) and not dot.c.op.value):
        return
    between: list[Op] = []  # The operations after the first dot in flight on which the value depends.
    wanted, is_written = {dot.c}, False
    op = dot.prev
    while op is not None and op is not first:
        if not wanted.isdisjoint(op.results):
            between.append(op)
            wanted.update(op.operands)
        op = op.prev
    inside = first.next
    while inside is not None and inside is not dot:
        can_move = inside.has(Trait.PURE) or (
            isinstance(inside, Load) and not (is_written or inside.volatile)
        )
        if inside in between and (inside.regions or not can_move):
            return
        is_written |= inside.has(Trait.WRITES) and not isinstance(inside, WarpGroupDot)
        inside = inside.next
    if first.result in wanted:
        return
    for op in reversed(between):
        op.move_before(first)


def _tiles(dot: WarpGroupDot) -> list[Value]:
    return [operand for operand in (dot.a, dot.b) if isinstance(operand.type, MemDescType)]


def _fills_registers(dot: WarpGroupDot) -> bool:
    """Whether a thread does not have the registers for a dot's sums and two of its operands."""
    operand = register_operand(dot)
    return operand is not None and words([dot.result, operand, operand]) > _MOST_WORDS


def _may_recompute_operand(maker: Op, dot: WarpGroupDot) -> bool:
    """Whether an operation that computes operands may follow a dot that reads one in registers: not inside a
    loop that does not change it."""
    operand, loop = register_operand(dot), dot.parent_op
    if operand is None:
        return False
    return not (
        isinstance(loop, For)
        and operand.block is not loop.body
        and any(op is maker for op in loop.body.walk())
    )


def _turned(place: _Place, loop: For) -> _Place:
    """A place of the previous iteration, as this iteration numbers its buffers."""
    return place if place.slot is None else _Place(place.allocation, place.slot.around(loop))


def _written(op: Op) -> Sequence[Value]:
    """The shared memory that an operation writes or releases."""
    if isinstance(op, AsyncCopyGlobalToLocal | AsyncTmaCopyGlobalToLocal | LocalStore):
        return [op.dst]
    if isinstance(op, BarrierExpect):
        # The threads meet before it, and not again before the copies that it counts.
        copies = (user for user in op.barrier.users if isinstance(user, AsyncTmaCopyGlobalToLocal))
        return [copy.dst for copy in copies if copy.parent is op.parent]
    if isinstance(op, LocalDealloc):
        return [op.src]
    if isinstance(op, ArriveBarrier):
        return op.tiles
    return [op.result] if isinstance(op, LocalAlloc) and op.src is not None else []
