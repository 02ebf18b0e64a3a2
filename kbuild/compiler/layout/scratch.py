"""A change of layout through shared memory, in a scratch layout made for the two layouts.

Elements that both sides hold together form the vectors of the accesses, and what the lanes of one access hold
goes to different banks, for the stores and for the loads alike.

Where the tensor is larger than the memory that it may take, it passes in rounds.  Bits of the coordinates say
which elements a round moves, bits that choose registers on both sides, if there are enough: then each thread
stores and loads its share in every round.  Other bits depend on the thread on one side or both, which then has its
turn with a register in the round that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.convert import classify
from kbuild.compiler.layout.linear import LinearLayout, all_sums
from kbuild.compiler.layout.shared import (
    BANK_ROW_BYTES,
    MAX_VECTOR_BITS,
    LdmatrixPlan,
    SharedAccess,
    bank_conflicts,
    ldmatrix_fits,
    shared_access,
)
from kbuild.compiler.layout.shuffles import Affine
from kbuild.errors import InternalError

_WARP_SCRATCH_BYTES = 4096
"""Memory of a conversion within warps; larger ones take several rounds, which cost a warp little."""

Accesses = TypeVar("Accesses", SharedAccess, LdmatrixPlan)


class Turn(NamedTuple):
    """What some of the threads do in a round."""

    number: int
    """They are the threads for which `SharedPlan.storing`, or `loading`, is this."""
    access: SharedAccess


class SharedRound(NamedTuple):
    """One trip through the scratch memory: all stores, a barrier, all loads (and a barrier before the next
    trip)."""

    stores: tuple[Turn, ...]
    """A single one where all threads do the same."""
    loads: tuple[Turn, ...]
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
    storing: Affine
    """Which of the turns of a round are a thread's, when it stores; 0 for all threads where each round has one."""
    loading: Affine
    rounds: tuple[SharedRound, ...]


@lru_cache(maxsize=1024)
def shared_plan(
    source: LinearLayout, destination: LinearLayout, element_bits: int, max_bytes: int | None = None
) -> SharedPlan:
    """The cheapest plan found for the "shared" and "warp" kinds, the latter with the memory that a warp
    should have at most, if the two layouts have registers in common to divide the tensor by.

    With `max_bytes` the tensor is moved in as many rounds as it takes; the caller checks `bytes` for whether so
    many are possible, which they are but for layouts that mix up the coordinates of warps.
    """
    if source.bases_of("block") != destination.bases_of("block"):
        raise InternalError("this conversion moves elements between the blocks of a cluster")
    within_warps = classify(source, destination) == "warp"
    together = f2.intersection(source.bases_of("register"), destination.bases_of("register"))
    size = source.numel * element_bits // 8 >> source.bits("block")
    needed = _divisions(size, max_bytes) if max_bytes is not None else 0
    wanted = _divisions(size, _WARP_SCRATCH_BYTES * source.size("warp")) if within_warps else 0
    rounds = _round_vectors(source, destination, together, max(needed, wanted))
    if len(rounds) < needed:
        rounds += _turn_vectors(source, destination, rounds, within_warps)[: needed - len(rounds)]
    vectors = [vector for vector in together if vector not in f2.Span(rounds)]
    limit = (MAX_VECTOR_BITS // element_bits).bit_length() - 1
    candidates = []
    for more in ([], source.bases_of("register"), destination.bases_of("register")):
        chosen = _with_pivots(
            [*vectors, *f2.independent(f2.reduced_basis(more), [*together, *rounds])], rounds
        )[:limit]
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


def _divisions(size: int, limit: int) -> int:
    """How often a size has to be halved."""
    return (-(-size // limit) - 1).bit_length()


def _round_vectors(
    source: LinearLayout, destination: LinearLayout, together: Sequence[int], needed: int
) -> list[int]:
    """Coordinates that select the round: held by registers on both sides, and touched by nothing else."""
    touched = 0
    for layout in (source, destination):
        bases = [basis for dim, part in layout.bases if dim != "register" for basis in part]
        for basis in [*bases, *(basis for basis in layout.bases_of("register") if basis & (basis - 1))]:
            touched |= basis
    usable = [vector for vector in together if not vector & (vector - 1) and not vector & touched]
    return usable[len(usable) - min(needed, len(usable)) :]


def _turn_vectors(
    source: LinearLayout, destination: LinearLayout, rounds: Sequence[int], within_warps: bool
) -> list[int]:
    """Further coordinates that can select the round, those first for which fewest threads have turns of their
    own.  Each warp that has memory of its own divides what it holds itself."""

    def turns(vector: int) -> tuple[int, int]:
        """The sides on which threads differ, and those on which lanes do, which cannot skip what others do."""
        found = [
            {dim for dim in ("lane", "warp") if any(basis & vector for basis in layout.bases_of(dim))}
            for layout in (source, destination)
        ]
        return sum(map(bool, found)), sum("lane" in dims for dims in found)

    blocks, own = source.bases_of("block"), f2.Span([*source.bases_of("register"), *source.bases_of("lane")])
    units = [1 << bit for bit in reversed(range((source.numel - 1).bit_length()))]
    free = (unit for unit in units if unit not in rounds and not any(basis & unit for basis in blocks))
    return sorted((unit for unit in free if not within_warps or unit in own), key=turns)


def _with_pivots(vectors: Sequence[int], rounds: Sequence[int]) -> list[int]:
    """The vectors that can be distinguished by one bit each, which no other vector and no round vector has."""
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
    """The coordinates that lanes served together touch: their own and those of their vectors or words."""
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
    widest = min(MAX_VECTOR_BITS, size * element_bits)
    stores, loads = (shared_access(side, layout, element_bits, widest) for side in (source, destination))
    fitting = (
        ldmatrix_fits(source, layout, element_bits, size)
        if stores.vector * element_bits < MAX_VECTOR_BITS
        else None
    )
    storing, loading = (_turns(side, size, round_bits) for side in (stores, loads))
    matrices = fitting if fitting is not None and not fitting.conflicts and max(fitting.lane) < size else None
    if any((*storing.lane, *storing.warp)):
        matrices = None
    rounds = tuple(
        SharedRound(
            _in_turns(stores, storing, number, size, round_bits),
            _in_turns(loads, loading, number, size, round_bits),
            _in_round(matrices, number, size, round_bits) if matrices is not None else None,
        )
        for number in range(1 << round_bits)
    )
    bytes_ = size * element_bits // 8
    return SharedPlan(layout, element_bits, stores.vector, loads.vector, bytes_, storing, loading, rounds)


def _turns(access: SharedAccess, size: int, round_bits: int) -> Affine:
    """The thread's part of the number of the round in which it makes an access; the offset has the other."""
    lane, warp = (
        tuple(image // size % (1 << round_bits) for image in part) for part in (access.lane, access.warp)
    )
    return Affine(0, lane, warp)


def _in_turns(
    access: SharedAccess, threads: Affine, number: int, size: int, round_bits: int
) -> tuple[Turn, ...]:
    """The accesses of one round, for each of the parts that threads have of its number."""
    parts = sorted(set(all_sums([image for image in (*threads.lane, *threads.warp) if image])))
    turns = (Turn(part, _in_round(access, number ^ part, size, round_bits)) for part in parts)
    return tuple(turn for turn in turns if turn.access.groups)


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
        (source, plan.store_vector, _count(turn for each in plan.rounds for turn in each.stores)),
        (destination, plan.load_vector, _count(turn for each in plan.rounds for turn in each.loads)),
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


def _count(turns: Iterable[Turn]) -> int:
    return sum(len(turn.access.groups) for turn in turns)
