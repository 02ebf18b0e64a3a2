"""How operations that move data between threads do it, and the shared memory that this takes.

Pure functions of an operation: `allocate` asks for the bytes, the lowering emits code from the same plan.  An
operation writes its scratch memory, has a barrier of its own, and reads it; nothing in there outlives the
operation.  Data that moves only within warps divides the memory among them, and no warp waits for another.
Conversions, reductions and scans with a bound, `max_scratch`, do so in rounds, with barriers between them.

Reductions and scans see the bits of the axis through the layout: each is a bit of the register, lane or warp
number, so combining along it means combining registers, shuffling lanes, or an `Exchange` between warps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from kbuild.compiler.analysis.gather import plan_gather
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import TensorType, Type, bit_width
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.convert import classify
from kbuild.compiler.layout.linear import axis_bits
from kbuild.compiler.layout.scratch import SharedPlan, shared_plan
from kbuild.compiler.layout.shared import access_wavefronts
from kbuild.compiler.ops.gpu import ConvertLayout, WarpPartitions
from kbuild.compiler.ops.nvidia import MakeTensorMap
from kbuild.compiler.ops.tensor import Atomic, Gather, Histogram, Reduce, Scan
from kbuild.errors import InternalError

REGION_ALIGNMENT = 16
"""Bytes; the regions of several values start at multiples of it, so that vector accesses are aligned."""
CAPTURE_BYTES = 8
"""Bytes for each value that the parts of a `ttg.warp_specialize` get by shared memory."""
VECTOR_BYTES = 16
"""Bytes of the widest access to shared memory."""
TENSOR_MAP_BYTES = 128
"""Bytes of a tensor map, which is put together in shared memory."""


class Exchange(NamedTuple):
    """Partial values of all warps along an axis, published so that every thread can read those of its
    elements.

    Partial p of warp w is kept for element `elements[p] ^ lane part ^ warp part`, slot s, where s collects
    `warp_bits` of w; its value number k lies at byte `offsets[k] + place * size of k`, where the place is
    `element * element_stride + s * slot_stride`.  Either the slots of an element are neighbours in the order of
    the axis, and a thread reads them as one vector; or the elements of a slot are (`is_by_slot`), and a thread
    reads those of its own that are neighbours.
    """

    warp_bits: tuple[int, ...]
    """Positions, in the warp number, of the bits that make the slot, lowest first."""
    writers: tuple[int, ...]
    """The partials of a thread that are worth writing: the others are equal to one of these."""
    elements: tuple[int, ...]
    """For each partial of a thread, its element in lane 0 of warp 0."""
    lane_elements: tuple[int, ...]
    """What each bit of the lane number adds (XOR) to the element."""
    warp_elements: tuple[int, ...]
    """What each bit of the warp number adds (XOR) to the element."""
    idle_lanes: int
    """A lane writes only if these bits of its number are 0: the others hold copies."""
    idle_warps: int
    offsets: tuple[int, ...]
    """Start of each value's region in bytes, relative to the operation's scratch."""
    rounds: tuple[tuple[int, ...], ...]
    """The partials of a thread that are exchanged at a time; the memory of an element is another's in the next
    round."""
    bytes: int
    size: int
    """Elements of a round."""
    is_by_slot: bool = False

    @property
    def slots(self) -> int:
        return 1 << len(self.warp_bits)

    @property
    def element_stride(self) -> int:
        return 1 if self.is_by_slot else self.slots

    @property
    def slot_stride(self) -> int:
        return self.size if self.is_by_slot else 1

    def runs(self, members: Sequence[int], most: int) -> list[tuple[int, ...]]:
        """Partials with elements of their own, cut into vectors of up to `most` neighbouring elements: a power of two,
        of which all threads have the first at a multiple of their number."""
        first = {self.elements[member]: member for member in reversed(members)}
        fixed = most
        for part in (*self.lane_elements, *self.warp_elements):
            fixed = min(fixed, part & -part or most)
        width = 1
        while 2 * width <= fixed and all(element ^ width in first for element in first):
            width *= 2
        ordered = [first[element] for element in sorted(first)]
        return [tuple(ordered[at : at + width]) for at in range(0, len(ordered), width)]


class LaneStep(NamedTuple):
    """Lanes combine what they have with that of the lane at a distance (XOR)."""

    distance: int
    pairs: tuple[tuple[int, int], ...] = ()
    """Partials that the two lanes divide: of each pair, the lower lane goes on with the first, the upper one with
    the second, under the number of the first.  None: both go on with all."""


class ReducePlan(NamedTuple):
    """Combine registers, then lanes, then warps; every holder of a copy of the result gets it."""

    groups: tuple[tuple[int, ...], ...]
    """The partials of a thread: for each, the registers to combine, in the order of the axis, without copies."""
    steps: tuple[LaneStep, ...]
    """Lanes over which to combine next, from the highest bit of the axis down."""
    kept: tuple[int, ...]
    """The partials that are left then, and numbered anew."""
    exchange: Exchange | None
    """Combine the slots of each partial's element; None when the axis does not cross warps."""
    results: tuple[int, ...]
    """For each register of the result, the partial that it holds."""

    @property
    def bytes(self) -> int:
        return self.exchange.bytes if self.exchange is not None else 0


class ScanStep(NamedTuple):
    """One or more bits of the axis: neighbouring segments of equal length become one.

    Each chunk knows the total of its segment and what comes before it (`before`, nothing at first).  In the
    later segment of a pair, `before = total of the earlier, then before`; the total becomes that of both.
    """

    dim: str
    """`register`, `lane` or `warp`: the number whose bit distinguishes the segments."""
    pairs: tuple[tuple[int, int], ...] = ()
    """register: chunks of the earlier and the later segment."""
    distance: int = 0
    """lane: distance (XOR) to the other segment; the later one has this bit set (clear when scanning in
    reverse)."""
    exchange: Exchange | None = None
    """warp: the totals of all segments; the slots are in the order of the axis, whatever the direction."""


class ScanPlan(NamedTuple):
    """Scan each chunk of registers serially, merge segments bit by bit, then put `before` in front of every
    register."""

    chunks: tuple[tuple[int, ...], ...]
    """Registers that follow each other along the axis, in the order of the scan, without copies."""
    steps: tuple[ScanStep, ...]
    results: tuple[int, ...]
    """For each register of the result, the register (of those in `chunks`) that it is equal to."""
    bytes: int


Plan = TypeVar("Plan", ReducePlan, ScanPlan)


def scratch_bytes(op: Op, num_warps: int, max_bytes: int | None = None) -> int:
    """Bytes of shared memory that the lowering of an operation needs for itself; 0 for most.  With `max_bytes` those
    that it would need if that were its `max_scratch`, which are more if it cannot be divided so far."""
    if isinstance(op, ConvertLayout):
        source, destination = _layout(op.src), _layout(op.result)
        if source == destination or classify(source, destination) not in ("warp", "shared"):
            return 0
        return plan_conversion(op, max_bytes).bytes
    if isinstance(op, Reduce):
        return plan_reduce(op, max_bytes).bytes
    if isinstance(op, Scan):
        return plan_scan(op, max_bytes).bytes
    if isinstance(op, Gather):
        return 0 if plan_gather(op) is not None else _layout(op.src).numel * storage_bytes(op.src.type)
    if isinstance(op, Histogram):
        return _layout(op.result).numel * storage_bytes(op.type)
    if isinstance(op, Atomic):
        return _atomic_bytes(op, num_warps)
    if isinstance(op, WarpPartitions):
        return CAPTURE_BYTES * len(op.captures)
    return TENSOR_MAP_BYTES if isinstance(op, MakeTensorMap) else 0


def division(op: Op) -> Hashable:
    """The key of how an operation divides its scratch memory among warps, each of which uses only its own
    part; None where they share it."""
    if isinstance(op, MakeTensorMap):
        return MakeTensorMap.op_name  # One warp uses all of it.
    if not isinstance(op, ConvertLayout):
        return None
    source, destination = _layout(op.src), _layout(op.result)
    if classify(source, destination) != "warp":
        return None
    return source, destination, bit_width(op.type), op.max_scratch


def storage_bytes(type_: Type) -> int:
    """Bytes of one element in memory; truth values take one."""
    return max(8, bit_width(type_)) // 8


def plan_conversion(op: ConvertLayout, max_bytes: int | None = None) -> SharedPlan:
    """How a tensor changes its layout through memory; `max_bytes` in place of `max_scratch`, here as below."""
    most = op.max_scratch if max_bytes is None else max_bytes
    return shared_plan(_layout(op.src), _layout(op.result), max(8, bit_width(op.type)), most)


def plan_reduce(op: Reduce, max_bytes: int | None = None) -> ReducePlan:
    """How a reduction is done.  Raises `InternalError` for a layout in which some hardware bit moves along
    two axes."""
    most = op.max_scratch if max_bytes is None else max_bytes
    return _within(most, lambda divisions: _reduce_divided(op, divisions))


def _reduce_divided(op: Reduce, divisions: int) -> ReducePlan:
    layout, result = _layout(op.srcs[0]), op.results[0].type
    field = _check(op, layout, op.axis)
    kept = layout.drop(op.axis)
    groups: dict[int, list[int]] = {}
    flats, reduced = layout.registers(), kept.registers()
    for register in layout.unique_registers():
        groups.setdefault(reduced[register], []).append(register)
    partials = tuple(groups)
    lanes = _moving(layout, "lane", field)
    scatter = op.scatter or (0,) * layout.bits("lane")
    number = {element: index for index, element in enumerate(partials)}
    steps = []
    for bit in reversed(lanes):
        apart = scatter[bit]
        pairs = [(index, number[element ^ apart]) for element, index in number.items() if not element & apart]
        steps.append(LaneStep(1 << bit, tuple(pairs) if apart else ()))
        number = {element: index for element, index in number.items() if not element & apart}
    kept = kept.scatter(scatter)
    same = [bit for bit in lanes if not scatter[bit]]
    warps = _moving(layout, "warp", field)
    exchange = _exchange(layout, field, warps, same, tuple(number), kept, op.srcs, 0, divisions)
    return ReducePlan(
        groups=tuple(tuple(sorted(groups[element], key=flats.__getitem__)) for element in partials),
        steps=tuple(steps),
        kept=tuple(number.values()),
        exchange=exchange,
        results=_reduced_registers(result, tuple(number)),
    )


def _arranged(exchange: Exchange, bits: Sequence[int]) -> Exchange:
    """The exchange by slots, where a warp then reads its elements, of so many bits, in fewer wavefronts.  Where all lanes
    have the same elements, one vector of slots serves them all."""
    by_slot = exchange._replace(is_by_slot=True)
    return min(exchange, by_slot, key=lambda one: sum(_reading(one, max(8, width)) for width in bits))


def _reading(exchange: Exchange, bits: int) -> int:
    """Wavefronts in which a warp reads all slots of its elements of the first round."""
    most, lanes = max(1, 8 * VECTOR_BYTES // bits), exchange.lane_elements
    members = exchange.rounds[0]
    if exchange.is_by_slot:
        runs = exchange.runs(members, most)
        return len(runs) * exchange.slots * access_wavefronts(lanes, bits, len(runs[0]))
    vector = min(exchange.slots, most)
    lanes = tuple(element * exchange.slots for element in lanes)
    own = len({exchange.elements[member] for member in members})
    return own * (exchange.slots // vector) * access_wavefronts(lanes, bits, vector)


def plan_scan(op: Scan, max_bytes: int | None = None) -> ScanPlan:
    """How a scan is done: bits of the axis from the lowest up.  Raises `InternalError` as `plan_reduce` does."""
    most = op.max_scratch if max_bytes is None else max_bytes
    return _within(most, lambda divisions: _scan_divided(op, divisions))


def _scan_divided(op: Scan, divisions: int) -> ScanPlan:
    layout = _layout(op.srcs[0])
    field = _check(op, layout, op.axis)
    owners = _owners(layout, field)
    serial = 0
    while serial < len(owners) and owners[serial][0] == "register":
        serial += 1
    chunks = _chunks(layout, field[:serial], op.reverse)
    steps: list[ScanStep] = []
    size, position = 0, serial
    while position < len(owners):
        dim, bit = owners[position]
        merged = field[: position + 1]
        if dim == "register":
            steps.append(ScanStep(dim, pairs=_register_pairs(layout, chunks, 1 << bit, op.reverse)))
        elif dim == "lane":
            steps.append(ScanStep(dim, distance=1 << bit))
        else:
            warp_bits = [bit]
            while position + 1 < len(owners) and owners[position + 1][0] == "warp":
                position += 1
                warp_bits.append(owners[position][1])
            merged = field[: position + 1]
            exchange = _scan_exchange(layout, merged, warp_bits, chunks, op.srcs, size, divisions)
            size = exchange.bytes
            steps.append(ScanStep(dim, exchange=exchange))
        position += 1
    return ScanPlan(chunks, tuple(steps), layout.representatives(), size)


def _within(most: int | None, make: Callable[[int], Plan]) -> Plan:
    """The plan with fewest divisions of its memory that takes no more than `most` bytes, or as few as it can."""
    divisions, plan = 0, make(0)
    while most is not None and plan.bytes > most:
        divisions += 1
        smaller = make(divisions)
        if smaller.bytes == plan.bytes:
            break
        plan = smaller
    return plan


def _layout(value: Value) -> LinearLayout:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.layout is None:
        raise InternalError(f"{value} has no layout", value.op.loc if value.op is not None else None)
    return type_.layout


def _atomic_bytes(op: Atomic, num_warps: int) -> int:
    """One thread does the atomic of each element; if others hold the old value too, they get it through
    memory."""
    if not op.result.users:
        return 0
    if not isinstance(op.result.type, TensorType):
        return storage_bytes(op.result.type)
    layout = _layout(op.result)
    replicated = layout.free_bits("lane") or (num_warps > 1 and layout.free_bits("warp"))
    return layout.numel * storage_bytes(op.result.type) if replicated else 0


def _mask(field: Sequence[int]) -> int:
    return sum(1 << bit for bit in field)


def _check(op: Op, layout: LinearLayout, axis: int) -> range:
    """The positions of the axis's bits in a flat coordinate; each must belong to one hardware bit of its own."""
    seen = 0
    for _, bases in layout.bases:
        for basis in bases:
            if basis & (basis - 1) or basis & seen:
                raise InternalError(
                    f"{op.op_name}: a bit of the layout moves along several axes or bits: {layout.bases}",
                    op.loc,
                )
            seen |= basis
    return axis_bits(layout.shape, axis)


def _moving(layout: LinearLayout, dim: str, field: Sequence[int]) -> list[int]:
    """The bits of an input dimension that move along the axis, in the order of the axis."""
    mask = _mask(field)
    bits = [bit for bit, basis in enumerate(layout.bases_of(dim)) if basis & mask]
    return sorted(bits, key=lambda bit: layout.bases_of(dim)[bit])


def _owners(layout: LinearLayout, field: Sequence[int]) -> list[tuple[str, int]]:
    """For each bit of the axis, lowest first, the dimension and bit that moves along it."""
    by_basis = {basis: (dim, bit) for dim, bases in layout.bases for bit, basis in enumerate(bases) if basis}
    return [by_basis[1 << position] for position in field]


def _reduced_registers(result: Type, partials: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(result, TensorType) or result.layout is None:
        return (0,)
    number = {element: partial for partial, element in enumerate(partials)}
    return tuple(number[flat] for flat in result.layout.registers())


def _chunks(layout: LinearLayout, serial: Sequence[int], reverse: bool) -> tuple[tuple[int, ...], ...]:
    mask, flats = _mask(serial), layout.registers()
    chunks: dict[int, list[int]] = {}
    for register in layout.unique_registers():
        chunks.setdefault(flats[register] & ~mask, []).append(register)
    return tuple(tuple(sorted(chunk, key=flats.__getitem__, reverse=reverse)) for chunk in chunks.values())


def _register_pairs(
    layout: LinearLayout, chunks: tuple[tuple[int, ...], ...], bit: int, reverse: bool
) -> tuple[tuple[int, int], ...]:
    """The chunks that differ in one bit of the register number, the earlier one in scan order first."""
    number = {chunk[0]: index for index, chunk in enumerate(chunks)}
    pairs = [(index, number[first | bit]) for first, index in number.items() if not first & bit]
    return tuple((high, low) if reverse else (low, high) for low, high in pairs)


def _scan_exchange(
    layout: LinearLayout,
    merged: Sequence[int],
    warp_bits: Sequence[int],
    chunks: tuple[tuple[int, ...], ...],
    values: Sequence[Value],
    start: int,
    divisions: int,
) -> Exchange:
    """The exchange after which the bits `merged` of the axis are done: one element per segment that is left."""
    mask = _mask(merged)
    numbered = _compressed(layout, mask)
    elements = tuple(numbered.flat(register=chunk[0]) for chunk in chunks)
    exchange = _exchange(
        layout,
        merged,
        warp_bits,
        _moving(layout, "lane", merged),
        elements,
        numbered,
        values,
        start,
        divisions,
    )
    assert exchange is not None
    return exchange


def _compressed(layout: LinearLayout, removed: int) -> LinearLayout:
    """The layout onto what is left of the flat coordinates, as one dimension, when some of their bits are
    removed."""
    number = _renumbered(layout.numel, removed)
    return LinearLayout(
        (layout.numel >> removed.bit_count(),),
        tuple((dim, tuple(number(basis) for basis in bases)) for dim, bases in layout.bases),
    )


def _renumbered(numel: int, removed: int) -> Callable[[int], int]:
    """What is left of a flat coordinate when some of its bits are removed."""
    left = [bit for bit in range(numel.bit_length() - 1) if not removed >> bit & 1]
    return lambda flat: sum((flat >> bit & 1) << position for position, bit in enumerate(left))


def _exchange(
    layout: LinearLayout,
    merged: Sequence[int],
    warp_bits: Sequence[int],
    lanes: Sequence[int],
    elements: tuple[int, ...],
    numbered: LinearLayout,
    values: Sequence[Value],
    start: int,
    divisions: int,
) -> Exchange | None:
    """Partials of `elements` exchanged among the warps that differ in `warp_bits`; None if there are no such
    bits.

    `numbered` maps places to elements; `lanes` are bits over which the partials have become equal already.
    Of the bits of an element that choose a register, `divisions` count the rounds.
    """
    if not warp_bits:
        return None
    chosen = sum(sorted(set(numbered.bases_of("register")))[::-1][:divisions])
    rounds: dict[int, list[int]] = {}
    for index, element in enumerate(elements):
        rounds.setdefault(element & chosen, []).append(index)
    writers = tuple(index for index, element in enumerate(elements) if element not in elements[:index])
    number = _renumbered(numbered.numel, chosen)
    elements, numbered = tuple(map(number, elements)), _compressed(numbered, chosen)
    earlier = [bit for bit in _moving(layout, "warp", merged) if bit not in warp_bits]
    offsets = []
    for value in values:
        start = -(-start // REGION_ALIGNMENT) * REGION_ALIGNMENT
        offsets.append(start)
        start += (numbered.numel << len(warp_bits)) * storage_bytes(value.type)
    exchange = Exchange(
        warp_bits=tuple(warp_bits),
        writers=writers,
        elements=elements,
        lane_elements=numbered.bases_of("lane"),
        warp_elements=numbered.bases_of("warp"),
        idle_lanes=layout.free_bits("lane") | _mask(lanes),
        idle_warps=layout.free_bits("warp") | _mask(earlier),
        offsets=tuple(offsets),
        rounds=tuple(map(tuple, rounds.values())),
        bytes=start,
        size=numbered.numel,
    )
    return _arranged(exchange, [bit_width(value.type) for value in values])
