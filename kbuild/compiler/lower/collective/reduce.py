"""Reductions: registers combined within the thread, then lanes by shuffles, then warps through shared memory.

A function that does not visibly commute must not be applied in another order by each holder of a copy.  Over
lanes it is combined into the lowest lane, whose result the others then read; slots of warps are combined so, too,
or in one order by all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kbuild.compiler.analysis.scratch import Exchange, ReducePlan, plan_reduce, storage_bytes
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import F32, IntType, Type
from kbuild.compiler.lower.collective.partials import (
    VECTOR_BYTES,
    Combine,
    Partial,
    collect,
    collect_by_lane,
    exchanged,
    only_op,
    shuffled,
)
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.tensor import Load, Reduce
from kbuild.errors import InternalError

CHAINS = 4
"""Independent sums that a thread keeps: enough to hide the latency of an addition.  Chains longer than those of a
balanced tree allow a multiplication to be contracted with the addition that uses it."""
ALL_LANES = 31
_TRIP = 4
"""What a shuffle costs, or a read of shared memory: a multiprocessor begins one a cycle, and four additions."""
_LONG = 8
"""What a division costs, or a function."""

_REDUX: dict[type, tuple[str, str]] = {
    rows.AddI: ("add", "zext"),
    rows.AndI: ("and", "zext"),
    rows.OrI: ("or", "zext"),
    rows.XOrI: ("xor", "zext"),
    rows.MaxSI: ("max", "sext"),
    rows.MinSI: ("min", "sext"),
    rows.MaxUI: ("umax", "zext"),
    rows.MinUI: ("umin", "zext"),
}
"""Operations that `redux.sync` does over a warp: its name, and how narrower integers are widened to 32 bits
for it."""
_REDUX_FLOATS: dict[type, str] = {rows.MaxNumF: "max", rows.MinNumF: "min"}
"""The same for f32, whose bits are ordered as integers except for negative numbers, which are reversed."""


@lower(Reduce)
def lower_reduce(emit: Emitter, op: Reduce) -> Results:
    plan = plan_reduce(op)
    combine = Combine(emit, op.combine, op.srcs)
    sources = [emit.registers(src) for src in op.srcs]
    partials = _in_thread(combine, plan.groups, sources, _are_loaded(op.srcs))
    partials = _over_lanes(combine, plan, partials)
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
    combine: Combine, groups: Sequence[Sequence[int]], sources: Sequence[Sequence[str]], together: bool
) -> list[Partial]:
    """The elements of a thread combined, those of each group of registers: a chain for each of several equal parts,
    then the parts as a tree.

    With `together` the chains of all groups grow at once, in the order of the registers: a vector is then loaded
    when its first element is wanted, and done with soon after.
    """
    count = max(1, CHAINS // len(groups))
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


def _over_lanes(combine: Combine, plan: ReducePlan, partials: list[Partial]) -> list[Partial]:
    emit, lanes = combine.emit, sum(plan.shuffles)
    write = _redux(emit, combine) if lanes == ALL_LANES else None
    if write is not None:
        return [(write(partial[0]),) for partial in partials]
    # From the highest bit down is as good as from the lowest up, unless the order matters.
    for distance in plan.shuffles if combine.commutes else reversed(plan.shuffles):
        received = shuffled(emit, partials, combine.types, str(distance))
        partials = [combine(own, other) for own, other in zip(partials, received)]
    if lanes and not combine.commutes and plan.exchange is None:
        # Of each segment of lanes that differ in the reduced bits, the lane in which these are 0.
        partials = shuffled(emit, partials, combine.types, "0", "idx", (ALL_LANES & ~lanes) << 8 | ALL_LANES)
    return partials


def _over_warps(combine: Combine, exchange: Exchange, scratch: int, members: Sequence[int]) -> list[Partial]:
    """For some partials the slots of the element combined: by each thread, or by a warp together, a slot for each
    lane."""
    emit = combine.emit
    if not _goes_by_lane(combine, exchange):
        return [combine.tree(slots) for slots in collect(emit, exchange, combine.types, scratch, members)]
    partials = collect_by_lane(emit, exchange, combine.types, scratch, members)
    write = _redux(emit, combine) if type(only_op(combine.block)) in _REDUX_FLOATS else None
    if write is not None:  # Lanes that hold copies of slots do not change an extreme.
        return [(write(partial[0]),) for partial in partials]
    for bit in range(len(exchange.warp_bits)):
        received = shuffled(emit, partials, combine.types, str(1 << bit))
        partials = [combine(own, other) for own, other in zip(partials, received)]
    if not combine.commutes:  # Only the first lane has combined them in order.
        partials = shuffled(emit, partials, combine.types, "0", "idx")
    return partials


def _goes_by_lane(combine: Combine, exchange: Exchange) -> bool:
    """Whether it costs less that each lane reads one slot, and lanes combine them by shuffles, than that each thread reads
    and combines them all.  The lanes have to hold the same elements."""
    if any(exchange.lane_elements):
        return False
    function = sum(map(_cost, combine.block.walk()))
    reads = sum(-(-exchange.slots * storage_bytes(type_) // VECTOR_BYTES) for type_ in combine.types)
    alone = _TRIP * reads + (exchange.slots - 1) * function
    trip = _TRIP * len(combine.types)
    together = trip + len(exchange.warp_bits) * (trip + function) + (0 if combine.commutes else trip)
    return together < alone


def _cost(op: Op) -> int:
    """What an operation on a partial costs, in additions."""
    if isinstance(op, rows.Constant) or not op.results:
        return 0
    return 1 if getattr(op, "llvm", "") or isinstance(op, rows.CmpI | rows.CmpF) else _LONG


def _redux(emit: Emitter, combine: Combine) -> Callable[[str], str] | None:
    """Writes the reduction of a register over the warp by one instruction, where there is one."""
    op, type_ = only_op(combine.block), combine.types[0]
    if op is None:
        return None
    if type(op) in _REDUX and isinstance(type_, IntType) and type_.bits <= 32:
        return lambda register: _redux_integer(emit, register, type_, *_REDUX[type(op)])
    if type(op) in _REDUX_FLOATS and type_ == F32:
        return lambda register: _redux_float(emit, register, _REDUX_FLOATS[type(op)])
    return None


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
