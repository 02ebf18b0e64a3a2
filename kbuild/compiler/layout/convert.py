"""What it takes to change a tensor from one register layout to another.

`source.solve(destination)` says where each destination place finds its element.  When that is the same
thread, values are renamed; when it is the same warp, lanes exchange them by shuffles; otherwise, or where
that takes too many shuffles, they pass through shared memory, in a scratch layout made for the two: elements
that both sides hold together form the vectors of the accesses, and what the lanes of one access hold goes to
different banks, for the stores and for the loads alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.linear import Conversion, LinearLayout, all_sums
from kbuild.compiler.layout.shared import (
    BANK_ROW_BYTES,
    MAX_VECTOR_BITS,
    LdmatrixPlan,
    SharedAccess,
    bank_conflicts,
    ldmatrix_fits,
    shared_access,
)
from kbuild.errors import InternalError

Kind = Literal["same", "registers", "shuffle", "warp", "shared"]
_MOST_SHUFFLED_BITS = 2
"""Bits that may change between register and lane numbers by shuffles, for many registers: each doubles the
selects."""
_MANY_REGISTERS = 32
_MOST_SHUFFLE_INSTRUCTIONS = 1024
"""Shuffles and selects of one conversion, whatever its bits: memory takes a fraction of more."""
_WARP_SCRATCH_BYTES = 4096
"""Of a conversion within warps; more is done in several rounds, which cost a warp little."""


@lru_cache(maxsize=4096)
def classify(source: LinearLayout, destination: LinearLayout) -> Kind:
    """The cheapest kind of conversion: nothing, renamed registers, exchange within warps by shuffles or
    ("warp") through memory of each warp's own, or memory that all share."""
    if source == destination:
        return "same"
    conversion = source.solve(destination)
    if not (conversion.keeps("warp") and conversion.keeps("block")):
        return "shared"
    chosen_by_thread = any(any(conversion.part(dim, "register")) for dim in ("lane", "warp", "block"))
    if conversion.keeps("lane") and not chosen_by_thread:
        return "registers"
    changing = sum(map(bool, conversion.part("lane", "register")))
    many = changing > _MOST_SHUFFLED_BITS and source.size("register") >= _MANY_REGISTERS
    many = many or _shuffle_instructions(source, destination) > _MOST_SHUFFLE_INSTRUCTIONS
    return "warp" if many and warps_are_apart(source) else "shuffle"


def warps_are_apart(layout: LinearLayout) -> bool:
    """Whether no two warps hold the same element."""
    warps = layout.bases_of("warp")
    return len(f2.independent(warps, [*layout.bases_of("register"), *layout.bases_of("lane")])) == len(warps)


def register_moves(source: LinearLayout, destination: LinearLayout) -> list[int]:
    """For each destination register, the source register of the same thread with its element ("same",
    "registers")."""
    if classify(source, destination) not in ("same", "registers"):
        raise InternalError("this conversion moves elements between threads")
    return list(all_sums(source.solve(destination).part("register", "register")))


# -- within a warp -------------------------------------------------------------------------------------------------


class Affine(NamedTuple):
    """A number that is a constant XOR one image for each set bit of the lane, warp and block."""

    constant: int
    lane: tuple[int, ...]
    warp: tuple[int, ...] = ()
    block: tuple[int, ...] = ()

    def __call__(self, lane: int, warp: int = 0, block: int = 0) -> int:
        """The value for one thread."""
        return (
            self.constant
            ^ f2.apply(self.lane, lane)
            ^ f2.apply(self.warp, warp)
            ^ f2.apply(self.block, block)
        )


class ShuffleRound(NamedTuple):
    """One exchange: every lane offers a register, and reads the offer of some lane into a destination
    register."""

    offer: Affine
    """The source register that a lane offers, as a function of the offering lane."""
    lane: Affine
    """The lane whose offer a lane reads."""
    destination: Affine
    """The destination register that the lane fills with it, as a function of the reading lane."""
    skip: Affine | None
    """Lanes for which this is not 0 ignore the offer; None when all take it."""
    local: bool
    """Whether every taking lane reads its own offer, so that no instruction is needed."""


class ShufflePlan(NamedTuple):
    """Exchanges within warps that carry out a conversion.

    Registers travel in aligned groups of `vector`; the rounds name the first register of a group.
    Destination registers that no round fills are copies; see `LinearLayout.representatives`.
    """

    vector: int
    rounds: tuple[ShuffleRound, ...]

    @property
    def shuffles(self) -> int:
        """Number of exchanges that really need a shuffle (times the 32-bit words of a group)."""
        return sum(not each.local for each in self.rounds)


class _Step(NamedTuple):
    """A change of the destination register (or none) and what it changes of the source lane and register."""

    lane: int
    register: int
    destination: int


@lru_cache(maxsize=1024)
def shuffle_plan(source: LinearLayout, destination: LinearLayout, vector_limit: int = 1) -> ShufflePlan:
    """The rounds of the "shuffle" kind; up to `vector_limit` neighbouring registers travel as one value if
    they can.

    In one round the lanes may fill *different* destination registers.  They are chosen so that each lane is
    read by one lane only (it can offer one register at a time), and so that lanes read themselves as often as
    possible: a bit that moves from the register to the lane number then costs half a round per register.
    """
    own, reads, vector_bits = _shuffle_reads(source, destination, vector_limit)
    rounds = (each for start in _step_sums(own) for each in reads.rounds(start))
    return ShufflePlan(1 << vector_bits, tuple(rounds))


def _shuffle_instructions(source: LinearLayout, destination: LinearLayout) -> int:
    """About how many instructions the rounds take, were each register a word of its own: every round chooses
    what to offer, shuffles, and puts the offer into each of the registers that some lane keeps it in."""
    own, reads, _ = _shuffle_reads(source, destination, 1)
    rounds = 1 << len(own) + len(f2.independent(reads.skip))
    return rounds * ((1 << len(f2.independent(reads.offer))) + (1 << len(f2.independent(reads.destination))))


def _shuffle_reads(
    source: LinearLayout, destination: LinearLayout, vector_limit: int
) -> tuple[list[_Step], _Reads, int]:
    """The steps between the destination registers, who reads whom, and the bits of registers that travel
    together."""
    conversion = source.solve(destination)
    if not (conversion.keeps("warp") and conversion.keeps("block")):
        raise InternalError("this conversion moves elements between warps")
    steps = _replications(source)
    vector_bits = _passing_bits(conversion, steps, vector_limit)
    free = destination.free_bits("register")
    own = [
        _Step(lane, register, 1 << bit)
        for bit, (lane, register) in enumerate(
            zip(conversion.part("register", "lane"), conversion.part("register", "register"))
        )
        if bit >= vector_bits and not free >> bit & 1
    ]
    return own, _Reads(conversion, _choose_reads(conversion, [*own, *steps])), vector_bits


def _replications(source: LinearLayout) -> list[_Step]:
    """The steps from one copy of an element to another in the same warp."""
    within = [*source.bases_of("register"), *source.bases_of("lane")]
    shift = source.bits("register")
    return [_Step(step >> shift, step & (1 << shift) - 1, 0) for step in f2.kernel(within)]


def _passing_bits(conversion: Conversion, steps: Sequence[_Step], limit: int) -> int:
    """How many low register bits are the same in source and destination and independent of everything else."""
    registers, lanes = conversion.part("register", "register"), conversion.part("register", "lane")
    touched = [image for dim in ("lane", "warp", "block") for image in conversion.part(dim, "register")]
    touched += [step.register for step in steps]
    bits = 0
    while 2 << bits <= limit and bits < len(registers):
        others = [*touched, *registers[:bits], *registers[bits + 1 :]]
        if registers[bits] != 1 << bits or lanes[bits] or any(image >> bits & 1 for image in others):
            break
        bits += 1
    return bits


def _choose_reads(conversion: Conversion, steps: Sequence[_Step]) -> list[_Step]:
    """For each lane bit, the lane read, the register read there, and the destination register filled.

    Any sum of `steps` may be added to what the conversion says of a lane bit.  First come bits for which that
    makes the lane read the lane itself; the others must reach lanes that are not read yet.
    """
    span = f2.Span(step.lane for step in steps)
    lanes, registers = conversion.part("lane", "lane"), conversion.part("lane", "register")
    reads: dict[int, _Step] = {}
    for bit, (lane, register) in enumerate(zip(lanes, registers)):
        combination = span.combination(lane ^ 1 << bit)
        if combination is not None:
            reads[bit] = _add_steps(_Step(lane, register, 0), steps, combination)
    read = f2.Span(step.lane for step in reads.values())
    for bit in range(len(lanes)):
        if bit in reads:
            continue
        candidates = [
            _add_steps(_Step(lanes[bit], registers[bit], 0), steps, choice)
            for choice in _none_or_one(len(steps))
        ]
        reads[bit] = next(
            (candidate for candidate in candidates if candidate.lane not in read), candidates[0]
        )
        read.add(reads[bit].lane)
    return [reads[bit] for bit in range(len(lanes))]


def _none_or_one(count: int) -> Iterable[int]:
    yield 0
    for bit in range(count):
        yield 1 << bit


def _add_steps(start: _Step, steps: Sequence[_Step], combination: int) -> _Step:
    return _Step(
        start.lane ^ f2.apply([step.lane for step in steps], combination),
        start.register ^ f2.apply([step.register for step in steps], combination),
        start.destination ^ f2.apply([step.destination for step in steps], combination),
    )


def _step_sums(steps: Sequence[_Step]) -> list[_Step]:
    return [_add_steps(_Step(0, 0, 0), steps, combination) for combination in range(1 << len(steps))]


class _Reads:
    """Who reads whom, the same in all rounds up to constants.

    A lane that is read by several lanes offers them one register each round.  Which of its readers' registers
    is due is `skip`: a linear function of the reading lane, made of the bits whose lanes were already read by
    lower bits.
    """

    def __init__(self, conversion: Conversion, reads: Sequence[_Step]) -> None:
        self.lane = tuple(read.lane for read in reads)
        self.destination = tuple(read.destination for read in reads)
        self.others = {
            dim: (conversion.part(dim, "lane"), conversion.part(dim, "register")) for dim in ("warp", "block")
        }
        registers = [read.register for read in reads]
        span = f2.Span()
        skip = []
        for lane, register in zip(self.lane, registers):
            again = span.combination(lane)
            skip.append(0 if again is None else register ^ f2.apply(registers, again))
            span.add(lane)
        self.skip = tuple(skip)
        # The register that lane s offers, as a linear function of s: the one that the lanes reading s want.
        for bit in range(len(reads)):
            span.add(1 << bit)
        self.offer = tuple(f2.apply(registers, span.combination(1 << bit) or 0) for bit in range(len(reads)))

    def rounds(self, start: _Step) -> list[ShuffleRound]:
        """The rounds in which lane 0 fills register `start.destination`: one, unless some lane has several to
        offer."""
        lane = Affine(start.lane, self.lane, *(lanes for lanes, _ in self.others.values()))
        destination = Affine(start.destination, self.destination)
        rounds = []
        for due in all_sums(f2.independent(self.skip)):
            offer = Affine(
                self._offered(start.lane, start.register) ^ due,
                self.offer,
                *(tuple(map(self._offered, lanes, registers)) for lanes, registers in self.others.values()),
            )
            skip = Affine(due, self.skip) if any(self.skip) else None
            rounds.append(ShuffleRound(offer, lane, destination, skip, self._is_local(lane, due)))
        return rounds

    def _offered(self, lane: int, register: int) -> int:
        return register ^ f2.apply(self.offer, lane)

    def _is_local(self, lane: Affine, due: int) -> bool:
        """Whether the lanes that take part when `due` is due all read themselves."""
        if any(lane.warp) or any(lane.block):
            return False
        targets = all_sums(lane.lane)
        wanted = all_sums(self.skip)
        return all(
            target ^ lane.constant == reader
            for reader, (target, want) in enumerate(zip(targets, wanted))
            if want == due
        )


# -- through shared memory -----------------------------------------------------------------------------------------


Accesses = TypeVar("Accesses", SharedAccess, LdmatrixPlan)


class SharedRound(NamedTuple):
    """One trip through the scratch memory: all stores, a barrier, all loads (and a barrier before the next
    trip)."""

    stores: SharedAccess
    loads: SharedAccess
    matrices: LdmatrixPlan | None
    """The same stores by stmatrix, if it can make them without bank conflicts."""


class SharedPlan(NamedTuple):
    """How a tensor changes its layout by way of shared memory.

    Source registers that appear in no store are copies of others; destination registers that appear in no
    load are to be copied from their representative (`LinearLayout.representatives`).
    """

    layout: LinearLayout
    """Which element each scratch offset holds; the top bits count the rounds (then blocks), which reuse the
    memory."""
    element_bits: int
    store_vector: int
    """Elements per store."""
    load_vector: int
    """Elements per load."""
    bytes: int
    """Size of the scratch memory."""
    rounds: tuple[SharedRound, ...]


@lru_cache(maxsize=1024)
def shared_plan(
    source: LinearLayout, destination: LinearLayout, element_bits: int, max_bytes: int | None = None
) -> SharedPlan:
    """The cheapest plan found for the "shared" and "warp" kinds, the latter with the memory that a warp
    should have at most.

    With `max_bytes` the tensor is moved in several rounds, if the two layouts have registers in common to
    divide it by; the caller checks `bytes` for whether that was enough.
    """
    if source.bases_of("block") != destination.bases_of("block"):
        raise InternalError("this conversion moves elements between the blocks of a cluster")
    within_warps = classify(source, destination) == "warp"
    if max_bytes is None and within_warps:
        max_bytes = _WARP_SCRATCH_BYTES * source.size("warp")
    together = f2.intersection(source.bases_of("register"), destination.bases_of("register"))
    rounds = _round_vectors(source, destination, together, element_bits, max_bytes)
    vectors = [vector for vector in together if vector not in f2.Span(rounds)]
    limit = (MAX_VECTOR_BITS // element_bits).bit_length() - 1
    candidates = []
    for more in ([], source.bases_of("register"), destination.bases_of("register")):
        chosen = _with_pivots([*vectors, *f2.independent(f2.reduced_basis(more), together)], rounds)[:limit]
        candidates.append(_scratch(source, destination, element_bits, chosen, rounds))
    if within_warps:
        widest = _with_pivots(
            [vector for vector in destination.bases_of("register") if vector not in rounds], rounds
        )[:limit]
        candidates.append(_scratch(source, destination, element_bits, widest, rounds))
    plans = [
        _plan_rounds(source, destination, element_bits, layout, len(rounds))
        for layout in dict.fromkeys(candidates)
    ]
    return min(plans, key=lambda plan: _plan_cost(source, destination, plan, within_warps))


def _round_vectors(
    source: LinearLayout,
    destination: LinearLayout,
    together: Sequence[int],
    element_bits: int,
    max_bytes: int | None,
) -> list[int]:
    """Coordinates that select the round: held by registers on both sides, and touched by nothing else."""
    needed, size = 0, source.numel * element_bits // 8 >> source.bits("block")
    while max_bytes is not None and size >> needed > max_bytes:
        needed += 1
    touched = 0
    for layout in (source, destination):
        bases = [basis for dim, part in layout.bases if dim != "register" for basis in part]
        for basis in [*bases, *(basis for basis in layout.bases_of("register") if basis & (basis - 1))]:
            touched |= basis
    usable = [vector for vector in together if not vector & (vector - 1) and not vector & touched]
    return usable[len(usable) - min(needed, len(usable)) :]


def _with_pivots(vectors: Sequence[int], rounds: Sequence[int]) -> list[int]:
    """Those of the vectors that can be told apart by one bit each, which no other vector and no round vector
    has."""
    chosen: list[int] = []
    for vector in vectors:
        if _pivots([*chosen, vector, *rounds]) is not None:
            chosen.append(vector)
    return chosen


def _pivots(vectors: Sequence[int]) -> list[int] | None:
    """For each vector one bit that only it has; None if some vector has no such bit."""
    result = []
    for vector in vectors:
        alone = vector
        for other in vectors:
            if other != vector:
                alone &= ~other
        if not alone:
            return None
        result.append(alone & -alone)
    return result


def _scratch(
    source: LinearLayout,
    destination: LinearLayout,
    element_bits: int,
    vectors: Sequence[int],
    rounds: Sequence[int],
) -> LinearLayout:
    """The scratch layout whose lowest offset bits are `vectors` and whose highest select the round, then the
    block.

    What remains of the tensor is a space H.  It is divided into bank bits and row bits so that the lanes of
    one phase of an access differ in no row bit alone: the rows are a complement, in H, of both sides' lanes
    at once.
    """
    blocks = f2.independent(source.bases_of("block"), [*vectors, *rounds])
    pivots = _pivots([*vectors, *rounds]) or []
    units = [1 << bit for bit in range((source.numel - 1).bit_length())]
    space = f2.independent([unit for unit in units if unit not in pivots], blocks)
    bank_bits = (BANK_ROW_BYTES * 8 // element_bits).bit_length() - 1 - len(vectors)
    storing, loading = (
        f2.intersection(space, _phase(layout, element_bits, vectors)) for layout in (source, destination)
    )
    row_count = max(0, len(space) - bank_bits)
    rows = f2.common_complement(space, storing, loading)[:row_count]
    rows += f2.independent([*loading, *storing, *space], rows)[: row_count - len(rows)]
    banks = f2.independent([*storing, *loading, *space], rows)
    return LinearLayout.make(source.shape, offset=[*vectors, *banks, *rows, *rounds, *blocks])


def _phase(layout: LinearLayout, element_bits: int, vectors: Sequence[int]) -> list[int]:
    """What the lanes that are served together touch: their own coordinates and those of their vectors or
    words."""
    registers = f2.Span(layout.bases_of("register"))
    width = 0
    while width < len(vectors) and vectors[width] in registers:
        width += 1
    word = max(0, (32 // element_bits).bit_length() - 1)
    extra_words = (
        max(0, width - word) if element_bits <= 32 else width + (element_bits // 32).bit_length() - 1
    )
    return [*vectors[: max(width, word)], *layout.bases_of("lane")[: 5 - extra_words]]


def _plan_rounds(
    source: LinearLayout, destination: LinearLayout, element_bits: int, layout: LinearLayout, round_bits: int
) -> SharedPlan:
    size = source.numel >> (source.bits("block") + round_bits)
    stores, loads = (shared_access(side, layout, element_bits) for side in (source, destination))
    fitting = (
        ldmatrix_fits(source, layout, element_bits, size)
        if stores.vector * element_bits < MAX_VECTOR_BITS
        else None
    )
    matrices = fitting if fitting is not None and not fitting.conflicts and max(fitting.lane) < size else None
    rounds = tuple(
        SharedRound(
            _in_round(stores, number, size, round_bits),
            _in_round(loads, number, size, round_bits),
            _in_round(matrices, number, size, round_bits) if matrices is not None else None,
        )
        for number in range(1 << round_bits)
    )
    return SharedPlan(layout, element_bits, stores.vector, loads.vector, size * element_bits // 8, rounds)


def _in_round(access: Accesses, number: int, size: int, round_bits: int) -> Accesses:
    """The accesses of one round, with offsets inside the scratch memory."""
    kept = [
        index for index, offset in enumerate(access.offsets) if offset // size % (1 << round_bits) == number
    ]
    return access._replace(
        groups=tuple(access.groups[index] for index in kept),
        offsets=tuple(access.offsets[index] % size for index in kept),
        lane=tuple(image % size for image in access.lane),
        warp=tuple(image % size for image in access.warp),
        block=tuple(image % size for image in access.block),
    )


def _plan_cost(source: LinearLayout, destination: LinearLayout, plan: SharedPlan, by_matrices: bool) -> int:
    """Twice the wavefronts plus the instructions of one warp; `by_matrices`: with stmatrix where it can make
    the stores."""
    cost = 0
    for layout, vector, accesses in (
        (source, plan.store_vector, sum(len(each.stores.groups) for each in plan.rounds)),
        (destination, plan.load_vector, sum(len(each.loads.groups) for each in plan.rounds)),
    ):
        matrices = [
            each.matrices
            for each in plan.rounds
            if by_matrices and layout is source and each.matrices is not None
        ]
        if matrices:
            cost += sum(len(each.groups) * (1 + 2 * each.x) for each in matrices)
            continue
        ideal = max(1, vector * plan.element_bits // 32)
        cost += accesses * (1 + 2 * (ideal + bank_conflicts(plan.layout, layout, plan.element_bits, vector)))
    return cost
