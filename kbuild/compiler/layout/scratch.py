"""A change of layout through shared memory, in a scratch layout made for the two layouts.

Elements that both sides hold together form the vectors of the accesses, and what the lanes of one access hold
goes to different banks, for the stores and for the loads alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.convert import classify
from kbuild.compiler.layout.linear import LinearLayout
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

_WARP_SCRATCH_BYTES = 4096
"""Memory of a conversion within warps; larger ones take several rounds, which cost a warp little."""

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
