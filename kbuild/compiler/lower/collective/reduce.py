"""Reductions: registers combined within the thread, then lanes by shuffles, then warps through shared memory.

A function that does not visibly commute must not be applied in another order by each holder of a copy.  Over
lanes it is combined into the lowest lane, whose result the others then read; slots of warps are combined so, too,
or in one order by all.

Lanes that combine several partials may divide them (`Reduce.scatter`): in each step a lane keeps half of them, and
gives away the other half.  32 partials take 31 exchanges so, and 160 where every lane gets all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kbuild.compiler.analysis.scratch import (
    VECTOR_BYTES,
    Exchange,
    LaneStep,
    ReducePlan,
    plan_reduce,
    storage_bytes,
)
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import Type
from kbuild.compiler.lower.collective.partials import (
    Combine,
    Partial,
    by_first_warps,
    collect,
    collect_by_lane,
    exchanged,
    shuffled,
    thread_bits,
)
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.ops.combine import function_cost, warp_instruction
from kbuild.compiler.ops.tensor import Load, Reduce
from kbuild.errors import InternalError

CHAINS = 4
"""Independent sums that a thread keeps: enough to hide the latency of an addition.  Chains longer than those of a
balanced tree allow a multiplication to be contracted with the addition that uses it."""
ALL_LANES = 31
_TRIP = 4
"""What a shuffle costs, or a read of shared memory: a multiprocessor begins one a cycle, and four additions."""
_SCHEDULERS = 4
"""What begins an instruction in each cycle, for a quarter of the warps."""
_EXCHANGE = 100
"""Cycles from a write to shared memory over a barrier to what reads it."""


@lower(Reduce)
def lower_reduce(emit: Emitter, op: Reduce) -> Results:
    plan = plan_reduce(op)
    combine = Combine(emit, op.combine, op.srcs)
    partials = _over_lanes(combine, plan, _in_thread(combine, plan.groups, op.srcs))
    if plan.exchange is not None:
        if op.scratch is None:
            raise InternalError(f"{op.op_name} has no scratch memory", op.loc)
        for members in exchanged(emit, plan.exchange, partials, combine.types, op.scratch):
            found = _over_warps(combine, plan.exchange, op.scratch, members)
            for member, partial in zip(members, found):
                partials[member] = partial
    return Results(
        [[partials[index][position] for index in plan.results] for position in range(len(op.srcs))]
    )


def _in_thread(
    combine: Combine, groups: Sequence[Sequence[int]], values: Sequence[Value]
) -> Callable[[int], Partial]:
    """The elements of a thread combined, those of the group of registers that a number says.

    What is loaded is combined for all groups at once, in the order of the registers: a vector is then loaded when its
    first element is wanted, and done with soon after.
    """
    sources = [combine.emit.registers(value) for value in values]
    count = max(1, CHAINS // len(groups))
    if _are_loaded(values):
        return _chains(combine, groups, sources, count, together=True).__getitem__
    return lambda number: _chains(combine, [groups[number]], sources, count, together=False)[0]


def _chains(
    combine: Combine,
    groups: Sequence[Sequence[int]],
    sources: Sequence[Sequence[str]],
    count: int,
    together: bool,
) -> list[Partial]:
    """The elements of each group combined: a chain for each of `count` equal parts, then the parts as a tree; with
    `together` all chains grow at once."""
    chains = [_cut(group, count) for group in groups]
    steps = [
        (max(chain[: place + 1]) if together else 0, number, part, register)
        for number, parts in enumerate(chains)
        for part, chain in enumerate(parts)
        for place, register in enumerate(chain)
    ]
    totals: list[dict[int, Partial]] = [{} for _ in groups]
    for _, number, part, register in sorted(steps, key=lambda step: step[0]):
        element = tuple(source[register] for source in sources)
        total = totals[number].get(part)
        totals[number][part] = element if total is None else combine(total, element)
    return [combine.tree([found[part] for part in range(len(parts))]) for found, parts in zip(totals, chains)]


def _are_loaded(values: Iterable[Value]) -> bool:
    """Whether values are computed, element by element, from some that are loaded."""
    seen, work = set[Value](), list(values)
    while work:
        value = work.pop()
        if isinstance(value.op, Load):
            return True
        if value not in seen and value.op is not None and value.op.has(Trait.ELEMENTWISE):
            work += value.op.operands
        seen.add(value)
    return False


def _cut(group: Sequence[int], count: int) -> list[Sequence[int]]:
    """A sequence in up to `count` equal parts."""
    length = -(-len(group) // count)
    return [group[start : start + length] for start in range(0, len(group), length)]


def _over_lanes(combine: Combine, plan: ReducePlan, partial: Callable[[int], Partial]) -> list[Partial]:
    emit, lanes = combine.emit, sum(step.distance for step in plan.steps)
    if any(step.pairs for step in plan.steps):
        return [_divided(combine, plan.steps, partial, number) for number in plan.kept]
    partials = [partial(number) for number in range(len(plan.groups))]
    write = _redux(emit, combine) if lanes == ALL_LANES else None
    if write is not None:
        return [(write(partial[0]),) for partial in partials]
    # From the highest bit down is as good as from the lowest up, unless the order matters.
    for step in plan.steps if combine.commutes else reversed(plan.steps):
        partials = _combined(combine, step, partials)
    if lanes and not combine.commutes and plan.exchange is None:
        # Of each segment of lanes that differ in the reduced bits, the lane in which these are 0.
        partials = shuffled(emit, partials, combine.types, "0", "idx", (ALL_LANES & ~lanes) << 8 | ALL_LANES)
    return partials


def _combined(combine: Combine, step: LaneStep, partials: Sequence[Partial]) -> list[Partial]:
    """All partials of two lanes combined, by each of them."""
    received = shuffled(combine.emit, partials, combine.types, str(step.distance))
    return [combine(own, other) for own, other in zip(partials, received)]


def _divided(
    combine: Combine, steps: Sequence[LaneStep], partial: Callable[[int], Partial], number: int
) -> Partial:
    """A partial after some steps, which the lanes divide: of two that meet in a step, each lane keeps one and gives
    the other away.  What comes of a pair is done before the next is begun, so that few are kept at a time."""
    if not steps:
        return partial(number)
    *before, step = steps
    low = _divided(combine, before, partial, number)
    if not step.pairs:
        return _combined(combine, step, [low])[0]
    high = _divided(combine, before, partial, dict(step.pairs)[number])
    upper = combine.emit.compare("ne", thread_bits(combine.emit, step.distance), "0")
    given = combine.select(upper, low, high)
    (received,) = shuffled(combine.emit, [given], combine.types, str(step.distance))
    return combine(combine.select(upper, high, low), received)


def _over_warps(combine: Combine, exchange: Exchange, scratch: int, members: Sequence[int]) -> list[Partial]:
    """For some partials the slots of the element combined: by each thread, by each warp, a slot for each lane, or by
    one warp for all."""
    emit = combine.emit
    if not _goes_by_lane(combine, exchange):
        return [combine.tree(slots) for slots in collect(emit, exchange, combine.types, scratch, members)]

    def find() -> list[Partial]:
        return _over_slots(
            combine, exchange, collect_by_lane(emit, exchange, combine.types, scratch, members)
        )

    if _goes_by_one_warp(combine, exchange, members):
        return by_first_warps(emit, exchange, combine.types, scratch, members, find)
    partials = find()
    if not combine.commutes:  # Only the first lane has combined them in order.
        partials = shuffled(emit, partials, combine.types, "0", "idx")
    return partials


def _over_slots(combine: Combine, exchange: Exchange, partials: list[Partial]) -> list[Partial]:
    """The slots of some elements, of which each lane has one of each, combined."""
    emit = combine.emit
    found = warp_instruction(combine.block, combine.types[0])
    write = _redux(emit, combine) if found is not None and not found.widen else None
    if write is not None:  # Lanes that hold copies of slots do not change an extreme.
        return [(write(partial[0]),) for partial in partials]
    for bit in range(len(exchange.warp_bits)):
        partials = _combined(combine, LaneStep(1 << bit), partials)
    return partials


def _goes_by_lane(combine: Combine, exchange: Exchange) -> bool:
    """Whether it costs less that each lane reads one slot, and lanes combine them by shuffles, than that each thread reads
    and combines them all.  The lanes have to hold the same elements."""
    if exchange.is_by_slot or any(exchange.lane_elements):
        return False
    function = function_cost(combine.block)
    reads = sum(-(-exchange.slots * storage_bytes(type_) // VECTOR_BYTES) for type_ in combine.types)
    alone = _TRIP * reads + (exchange.slots - 1) * function
    trip = _TRIP * len(combine.types)
    together = trip + len(exchange.warp_bits) * (trip + function) + (0 if combine.commutes else trip)
    return together < alone


def _goes_by_one_warp(combine: Combine, exchange: Exchange, members: Sequence[int]) -> bool:
    """Whether what lanes do with slots keeps the multiprocessor busier, if all warps do it, than one more exchange keeps
    them waiting."""
    elements = len({exchange.elements[member] for member in members})
    shared = exchange.idle_warps.bit_count() + len(exchange.warp_bits)
    spared = combine.emit.num_warps - (combine.emit.num_warps >> shared)
    step = len(combine.types) + function_cost(combine.block)
    return spared * elements * len(exchange.warp_bits) * step > _SCHEDULERS * _EXCHANGE


def _redux(emit: Emitter, combine: Combine) -> Callable[[str], str] | None:
    """Writes the reduction of a register over the warp by one instruction, where there is one."""
    found, type_ = warp_instruction(combine.block, combine.types[0]), combine.types[0]
    if found is None:
        return None
    if found.widen:
        return lambda register: _redux_integer(emit, register, type_, *found)
    return lambda register: _redux_float(emit, register, found.name)


def _redux_integer(emit: Emitter, register: str, type_: Type, name: str, widen: str) -> str:
    kind = llvm_type(type_)
    wide = register if kind == "i32" else emit.instruction(f"{widen} {kind} {register} to i32")
    result = emit.call(f"llvm.nvvm.redux.sync.{name}", "i32", [("i32", wide), ("i32", "-1")], effect=True)
    return result if kind == "i32" else emit.instruction(f"trunc i32 {result} to {kind}")


def _redux_float(emit: Emitter, register: str, name: str) -> str:
    """An extreme of numbers, or NaN where there are none: NaN becomes the number that loses to all."""
    last = str(-(1 << 31) if name == "max" else (1 << 31) - 1)
    ordered = _turn_negative(emit, emit.instruction(f"bitcast float {register} to i32"))
    ordered = emit.select(emit.instruction(f"fcmp uno float {register}, {register}"), last, ordered, "i32")
    result = emit.call(f"llvm.nvvm.redux.sync.{name}", "i32", [("i32", ordered), ("i32", "-1")], effect=True)
    return emit.instruction(f"bitcast i32 {_turn_negative(emit, result)} to float")


def _turn_negative(emit: Emitter, word: str) -> str:
    """The bits of an f32 as an integer of the same order, and back: all bits of negative numbers but the sign
    are inverted."""
    sign = emit.instruction(f"ashr i32 {word}, 31")
    return emit.xor(word, emit.and_(sign, str((1 << 31) - 1)))
