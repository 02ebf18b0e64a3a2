"""Which lane offers which register to which: a change of layout within warps, by shuffles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.linear import Conversion, LinearLayout, all_sums
from kbuild.errors import InternalError


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


class _ConversionStep(NamedTuple):
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
    Where all readers of a lane want the same register anyway, they may fill the same one: none of its shuffles is
    saved, but all selects are.
    """
    own, reads, vector_bits = _shuffle_reads(source, destination, vector_limit)
    rounds = (each for start in _step_sums(own) for each in reads.rounds(start))
    return ShufflePlan(1 << vector_bits, tuple(rounds))


def shuffle_instructions(source: LinearLayout, destination: LinearLayout) -> int:
    """About how many instructions the rounds take, were each register a word of its own: every round chooses
    what to offer, shuffles, and puts the offer into each of the registers that some lane keeps it in."""
    own, reads, _ = _shuffle_reads(source, destination, 1)
    return reads.instructions << len(own)


def _shuffle_reads(
    source: LinearLayout, destination: LinearLayout, vector_limit: int
) -> tuple[list[_ConversionStep], _Reads, int]:
    """The steps between the destination registers, which lane reads which, and the bits of registers that travel
    together."""
    conversion = source.solve(destination)
    if not (conversion.keeps("warp") and conversion.keeps("block")):
        raise InternalError("this conversion moves elements between warps")
    steps = _replications(source)
    vector_bits = _passing_bits(conversion, steps, vector_limit)
    free = destination.free_bits("register")
    own = [
        _ConversionStep(lane, register, 1 << bit)
        for bit, (lane, register) in enumerate(
            zip(conversion.part("register", "lane"), conversion.part("register", "register"))
        )
        if bit >= vector_bits and not free >> bit & 1
    ]
    reads = _Reads(conversion, _choose_reads(conversion, [*own, *steps]))
    if any(reads.destination):
        plain = _Reads(conversion, _choose_reads(conversion, steps))
        if not any(plain.skip) and 2 * plain.instructions < reads.instructions:
            reads = plain
    return own, reads, vector_bits


def _replications(source: LinearLayout) -> list[_ConversionStep]:
    """The steps from one copy of an element to another in the same warp."""
    within = [*source.bases_of("register"), *source.bases_of("lane")]
    shift = source.bits("register")
    return [_ConversionStep(step >> shift, step & (1 << shift) - 1, 0) for step in f2.kernel(within)]


def _passing_bits(conversion: Conversion, steps: Sequence[_ConversionStep], limit: int) -> int:
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


def _choose_reads(conversion: Conversion, steps: Sequence[_ConversionStep]) -> list[_ConversionStep]:
    """For each lane bit, the lane read, the register read there, and the destination register filled.

    Any sum of `steps` may be added to what the conversion says of a lane bit.  First come bits for which that
    makes the lane read the lane itself; the others must reach lanes that are not read yet.
    """
    span = f2.Span(step.lane for step in steps)
    lanes, registers = conversion.part("lane", "lane"), conversion.part("lane", "register")
    reads: dict[int, _ConversionStep] = {}
    for bit, (lane, register) in enumerate(zip(lanes, registers)):
        combination = span.combination(lane ^ 1 << bit)
        if combination is not None:
            reads[bit] = _add_steps(_ConversionStep(lane, register, 0), steps, combination)
    read = f2.Span(step.lane for step in reads.values())
    for bit in range(len(lanes)):
        if bit in reads:
            continue
        candidates = [
            _add_steps(_ConversionStep(lanes[bit], registers[bit], 0), steps, choice)
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


def _add_steps(start: _ConversionStep, steps: Sequence[_ConversionStep], combination: int) -> _ConversionStep:
    return _ConversionStep(
        start.lane ^ f2.apply([step.lane for step in steps], combination),
        start.register ^ f2.apply([step.register for step in steps], combination),
        start.destination ^ f2.apply([step.destination for step in steps], combination),
    )


def _step_sums(steps: Sequence[_ConversionStep]) -> list[_ConversionStep]:
    return [
        _add_steps(_ConversionStep(0, 0, 0), steps, combination) for combination in range(1 << len(steps))
    ]


class _Reads:
    """Which lane reads which, the same in all rounds up to constants.

    A lane that is read by several lanes offers them one register each round.  Which of its readers' registers
    is due is `skip`: a linear function of the reading lane, made of the bits whose lanes were already read by
    lower bits.
    """

    def __init__(self, conversion: Conversion, reads: Sequence[_ConversionStep]) -> None:
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

    @property
    def instructions(self) -> int:
        """About how many instructions one start takes; see `shuffle_instructions`."""
        offers, destinations, dues = (
            1 << len(f2.independent(images)) for images in (self.offer, self.destination, self.skip)
        )
        return dues * (offers + destinations)

    def rounds(self, start: _ConversionStep) -> list[ShuffleRound]:
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
