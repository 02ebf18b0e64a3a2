"""Partial values of reductions and scans: combined, shuffled between lanes, exchanged between warps.

A partial is a tuple of registers, one for each tensor that is reduced.  The function that combines two of
them is associative; whether it also commutes is found out by comparing what it computes with its arguments
swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kbuild.compiler.analysis.scratch import VECTOR_BYTES, Exchange, storage_bytes
from kbuild.compiler.ir.commutes import commutes
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import Type, element_of
from kbuild.compiler.lower.collective.convert_layout import shuffle
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import lower_combine
from kbuild.compiler.lower.core.words import from_word, per_word, to_word, word_type
from kbuild.compiler.lower.memory.shared_memory import load_vector, store_vector, thread_offset

Partial = tuple[str, ...]
Finder = Callable[[], list[Partial]]


class Combine:
    """The function of a reduction or scan, applied to partials.  `left` is what comes first along the axis."""

    def __init__(self, emit: Emitter, block: Block, values: Sequence[Value]) -> None:
        self.emit = emit
        self.block = block
        self.types = [element_of(value.type) for value in values]
        self.commutes = commutes(block)

    def __call__(self, left: Partial, right: Partial) -> Partial:
        results = lower_combine(self.emit, self.block, [[register] for register in (*left, *right)])
        return tuple(registers[0] for registers in results)

    def tree(self, partials: Sequence[Partial]) -> Partial:
        """Neighbours combined until one is left."""
        while len(partials) > 1:
            pairs = [self(*partials[at : at + 2]) for at in range(0, len(partials) - 1, 2)]
            partials = pairs + list(partials[2 * len(pairs) :])
        return partials[0]

    def select(self, condition: str, left: Partial, right: Partial) -> Partial:
        """`left` where an i1 register holds, else `right`."""
        return tuple(
            self.emit.select(condition, a, b, llvm_type(t)) for a, b, t in zip(left, right, self.types)
        )


# -- lanes ---------------------------------------------------------------------------------------------------------


def shuffled(
    emit: Emitter,
    partials: Sequence[Partial],
    types: Sequence[Type],
    lane: str,
    mode: str = "bfly",
    clamp: int = 31,
) -> list[Partial]:
    """The partials of another lane: that at a distance (`bfly`, or `up` and `down`), or one of the segment that
    `clamp` makes (`idx`).

    Several narrow registers travel in one word, equal ones once.
    """
    columns: list[list[str]] = []
    for position, type_ in enumerate(types):
        registers = list(dict.fromkeys(partial[position] for partial in partials))
        received: dict[str, str] = {}
        step = per_word(type_)
        for start in range(0, len(registers), step):
            group = registers[start : start + step]
            word = shuffle(emit, to_word(emit, group, type_), lane, word_type(type_), mode, str(clamp))
            received.update(zip(group, from_word(emit, word, type_, len(group))))
        columns.append([received[partial[position]] for partial in partials])
    return list(zip(*columns))


def thread_bits(emit: Emitter, lanes: int, warps: int = 0) -> str:
    """The bits of the thread's number (i32) that are in a mask of lane bits or in one of warp bits."""
    with emit.at_entry():
        return emit.and_(emit.thread_id(), str(lanes | warps << 5))


# -- warps ---------------------------------------------------------------------------------------------------------


def exchanged(
    emit: Emitter, exchange: Exchange, partials: Sequence[Partial], types: Sequence[Type], scratch: int
) -> Iterator[Sequence[int]]:
    """Publish the partials of this thread in rounds, and meet; what comes for each is to read those of the round,
    whose numbers are given."""
    for number, members in enumerate(exchange.rounds):
        if number:
            emit.barrier()
        _publish(emit, exchange, partials, types, scratch, members)
        emit.barrier()
        yield members


def _publish(
    emit: Emitter,
    exchange: Exchange,
    partials: Sequence[Partial],
    types: Sequence[Type],
    scratch: int,
    members: Sequence[int],
) -> None:
    """Write partials of this thread to its warp's slots: one lane per element does."""
    images = [element * exchange.element_stride for element in exchange.warp_elements]
    for slot_bit, warp_bit in enumerate(exchange.warp_bits):
        images[warp_bit] |= exchange.slot_stride << slot_bit
    with emit.when(_is_first(emit, exchange.idle_lanes, exchange.idle_warps)):
        _write_slots(emit, exchange, dict(enumerate(partials)), types, scratch, members, images)


def by_first_warps(
    emit: Emitter,
    exchange: Exchange,
    types: Sequence[Type],
    scratch: int,
    members: Sequence[int],
    find: Finder,
) -> list[Partial]:
    """Partials that `find` makes of the slots, by lanes that all have the same elements: one warp of those that share
    an element does it, and passes on what its first lane has found."""
    others = exchange.idle_warps | sum(1 << bit for bit in exchange.warp_bits)
    warps = [element * exchange.element_stride for element in exchange.warp_elements]
    with emit.when(_is_first(emit, 0, others)):
        found = dict(zip(members, find()))
        emit.warp_barrier()  # The other lanes have read the first slot.
        with emit.when(_is_first(emit, 31, 0)):
            _write_slots(emit, exchange, found, types, scratch, members, warps)
    emit.barrier()
    lanes = [0] * len(exchange.lane_elements)
    return [slots[0] for slots in _read_slots(emit, exchange, types, scratch, members, lanes, 1)]


def _is_first(emit: Emitter, lanes: int, warps: int) -> str:
    """Whether these bits of the thread's lane and warp are 0: an i1 register."""
    if not lanes and not warps:
        return "true"
    bits = thread_bits(emit, lanes, warps)
    with emit.at_entry():
        return emit.compare("eq", bits, "0")


def _write_slots(
    emit: Emitter,
    exchange: Exchange,
    partials: Mapping[int, Partial],
    types: Sequence[Type],
    scratch: int,
    members: Sequence[int],
    warps: Sequence[int],
) -> None:
    """Write partials, by their numbers, to slots of their elements: what each bit of the warp adds (XOR) to the slot's
    number is given."""
    lanes = [element * exchange.element_stride for element in exchange.lane_elements]
    writers = sorted({*exchange.writers} & {*members})
    for position, type_ in enumerate(types):
        size = storage_bytes(type_)
        place = thread_offset(
            emit, emit.shared_pointer(scratch + exchange.offsets[position]), lanes, warps, size
        )
        for run in exchange.runs(writers, VECTOR_BYTES // size if exchange.is_by_slot else 1):
            address = place.address(emit, exchange.elements[run[0]] * exchange.element_stride * size)
            store_vector(emit, address, [partials[writer][position] for writer in run], type_)


def collect(
    emit: Emitter, exchange: Exchange, types: Sequence[Type], scratch: int, members: Sequence[int]
) -> list[list[Partial]]:
    """For each of some partials of this thread, what all slots of its element hold, in the order of the axis."""
    if exchange.is_by_slot:
        return _collect_runs(emit, exchange, types, scratch, members)
    lanes = [element * exchange.slots for element in exchange.lane_elements]
    return _read_slots(emit, exchange, types, scratch, members, lanes, exchange.slots)


def _collect_runs(
    emit: Emitter, exchange: Exchange, types: Sequence[Type], scratch: int, members: Sequence[int]
) -> list[list[Partial]]:
    """The same where the elements of a slot are neighbours: vectors of elements, slot by slot."""
    columns: list[dict[int, list[str]]] = []
    for type_, offset in zip(types, exchange.offsets):
        size = storage_bytes(type_)
        place = thread_offset(
            emit,
            emit.shared_pointer(scratch + offset),
            exchange.lane_elements,
            exchange.warp_elements,
            size,
        )
        columns.append({})
        for run in exchange.runs(members, VECTOR_BYTES // size):
            own = [exchange.elements[member] for member in run]
            for slot in range(exchange.slots):
                at = (own[0] + slot * exchange.slot_stride) * size
                found = load_vector(emit, place.address(emit, at), len(run), type_)
                for element, register in zip(own, found):
                    columns[-1].setdefault(element, []).append(register)
    return [list(zip(*(column[exchange.elements[member]] for column in columns))) for member in members]


def collect_by_lane(
    emit: Emitter, exchange: Exchange, types: Sequence[Type], scratch: int, members: Sequence[int]
) -> list[Partial]:
    """For each of some partials of this thread, what slot (lane modulo slots) of its element holds; all lanes have
    the same elements."""
    lanes = [1 << bit if 1 << bit < exchange.slots else 0 for bit in range(len(exchange.lane_elements))]
    return [partials[0] for partials in _read_slots(emit, exchange, types, scratch, members, lanes, 1)]


def _read_slots(
    emit: Emitter,
    exchange: Exchange,
    types: Sequence[Type],
    scratch: int,
    members: Sequence[int],
    lanes: Sequence[int],
    count: int,
) -> list[list[Partial]]:
    """For each of some partials of this thread, `count` neighbouring slots of its element, from the one that
    `lanes` point at: what each bit of the lane adds (XOR) to the slot's number."""
    slots, elements = exchange.slots, [exchange.elements[member] for member in members]
    warps = [element * slots for element in exchange.warp_elements]
    columns: list[dict[int, list[str]]] = []
    for type_, offset in zip(types, exchange.offsets):
        size = storage_bytes(type_)
        width = min(count, VECTOR_BYTES // size)
        place = thread_offset(emit, emit.shared_pointer(scratch + offset), lanes, warps, size)
        columns.append({})
        for element in dict.fromkeys(elements):
            found = columns[-1][element] = []
            for slot in range(0, count, width):
                found += load_vector(emit, place.address(emit, (element * slots + slot) * size), width, type_)
    return [list(zip(*(column[element] for column in columns))) for element in elements]
