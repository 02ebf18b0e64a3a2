"""How threads reach shared memory: addresses, vectors, bank conflicts, ldmatrix, and the swizzle that suits
them.

Shared memory maps offsets to coordinates; its inverse after a register layout maps (register, lane, warp) to
offsets. That map is linear too, so an address is the XOR of one constant per set bit:

    offset = constant(register) ^ XOR of lane[i] over the set bits i of the lane ^ the same of the warp

All offsets count elements.  The banks are 32 words of 4 bytes; an access of 8 (16) bytes per lane is served
half a (a quarter) warp at a time, and each such phase takes as many wavefronts as its busiest bank has
different words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, product
from typing import NamedTuple

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.linear import LinearLayout, all_sums
from kbuild.compiler.layout.named import swizzled
from kbuild.compiler.layout.padded import Gaps, gaps_of, moved_up, together

BANK_ROW_BYTES = 128
"""Bytes that one wavefront serves: 32 banks of 4 bytes."""
MAX_VECTOR_BITS = 128
"""The widest access of one lane."""


def offset_map(register_layout: LinearLayout, shared_layout: LinearLayout) -> dict[str, tuple[int, ...]]:
    """For each bit of register, lane, warp and block, the element offset that it adds (XOR).

    The registers may hold a part of the shared tensor, of its rank: the one that starts at the origin.
    """
    if register_layout.shape != shared_layout.shape:
        register_layout = register_layout.embed(shared_layout.shape)
    conversion = shared_layout.solve(register_layout)
    return {dim: conversion.part(dim, "offset") for dim, _ in register_layout.bases}


class SharedAccess(NamedTuple):
    """The vector loads or stores that move a distributed tensor from or to shared memory.

    Registers that appear in no group are copies; see `LinearLayout.representatives`.
    """

    vector: int
    """Elements per access."""
    groups: tuple[tuple[int, ...], ...]
    """For each access, the registers of its elements, in the order of their offsets."""
    offsets: tuple[int, ...]
    """For each access, the constant part of its offset: XOR it with the parts of the lane, warp and block."""
    lane: tuple[int, ...]
    """The offset that each lane bit adds (XOR)."""
    warp: tuple[int, ...]
    """The offset that each warp bit adds (XOR)."""
    block: tuple[int, ...]
    """The offset that each block bit adds (XOR)."""
    gaps: Gaps = ()
    """Those of the shared layout, which move up what the offsets come to."""


@lru_cache(maxsize=1024)
def shared_access(
    register_layout: LinearLayout,
    shared_layout: LinearLayout,
    element_bits: int,
    max_bits: int = MAX_VECTOR_BITS,
) -> SharedAccess:
    """The widest vector accesses, up to `max_bits` bits each, between a register layout and a shared layout.

    A vector is any set of registers with consecutive offsets, provided that it starts at a multiple of its
    size in every thread.
    """
    images = offset_map(register_layout, shared_layout)
    gaps = gaps_of(shared_layout)
    vector, _ = _widest(images, element_bits, max_bits, gaps)
    holders: dict[int, int] = {}
    for register, offset in enumerate(all_sums(images["register"])):
        holders.setdefault(offset, register)
    starts = [offset for offset in holders if not offset & (vector - 1)]
    return SharedAccess(
        vector,
        tuple(tuple(holders[start | element] for element in range(vector)) for start in starts),
        tuple(starts),
        images["lane"],
        images["warp"],
        images["block"],
        gaps,
    )


def _widest(
    images: dict[str, tuple[int, ...]], element_bits: int, max_bits: int, gaps: Gaps
) -> tuple[int, int]:
    """The elements of each of the widest accesses, and how many accesses there are."""
    max_bits = min(max_bits, together(gaps) * element_bits)
    registers = f2.Span(images["register"])
    elsewhere = _union(image for dim, part in images.items() if dim != "register" for image in part)
    vector = 1
    while 2 * vector * element_bits <= max_bits and vector in registers and not elsewhere & vector:
        vector *= 2
    return vector, (1 << registers.dimension) // vector


def bank_conflicts(
    shared_layout: LinearLayout, register_layout: LinearLayout, element_bits: int, vector: int
) -> int:
    """Wavefronts that one access of a warp takes beyond the fewest possible, when each lane moves `vector`
    elements.

    0 means free of conflicts.  All accesses of a tensor are alike, because they differ by the XOR of a
    constant.
    """
    return _extra_wavefronts(offset_map(register_layout, shared_layout)["lane"], element_bits, vector)


@lru_cache(maxsize=4096)
def _extra_wavefronts(lane: tuple[int, ...], element_bits: int, vector: int, gaps: Gaps = ()) -> int:
    words_per_lane = max(1, vector * element_bits // 32)
    offsets = [moved_up(offset, gaps) for offset in all_sums(lane)]
    phase = max(1, 32 // words_per_lane)
    extra = 0
    for start in range(0, len(offsets), phase):
        words: dict[int, set[int]] = {}
        for offset in offsets[start : start + phase]:
            first = (offset & -vector) * element_bits // 32
            for word in range(first, first + words_per_lane):
                words.setdefault(word % 32, set()).add(word)
        extra += max(len(different) for different in words.values()) - 1
    return extra


def conflicts_per_wavefront(
    register_layout: LinearLayout, shared_layout: LinearLayout, element_bits: int
) -> int:
    """Wavefronts beyond the one that each 4 bytes of a lane need, when the tensor moves in its widest accesses."""
    access = shared_access(register_layout, shared_layout, element_bits)
    ideal = max(1, access.vector * element_bits // 32)
    return _extra_wavefronts(access.lane, element_bits, access.vector, access.gaps) // ideal


def wavefronts(
    register_layout: LinearLayout, shared_layout: LinearLayout, element_bits: int, max_bits: int = 128
) -> int:
    """Wavefronts that one warp needs to move the whole tensor with plain vector accesses: the time they take."""
    images, gaps = offset_map(register_layout, shared_layout), gaps_of(shared_layout)
    vector, accesses = _widest(images, element_bits, max_bits, gaps)
    ideal = max(1, vector * element_bits // 32)
    return accesses * (ideal + _extra_wavefronts(images["lane"], element_bits, vector, gaps))


def access_wavefronts(lane: tuple[int, ...], element_bits: int, vector: int) -> int:
    """Wavefronts of one access of a warp, whose lanes move `vector` elements each: from the places that the bits of a
    lane's number add (XOR), in elements."""
    return max(1, vector * element_bits // 32) + _extra_wavefronts(lane, element_bits, vector)


class LdmatrixPlan(NamedTuple):
    """The ldmatrix (or, with the same data rule, stmatrix) instructions that move a fragment.

    ldmatrix gives lane l = 4*g + t, in 32-bit register j, the elements 2*t and 2*t + 1 (of 16 bits) of row g
    of matrix j; with `transposed`, rows 2*t and 2*t + 1 of column g.  Row r of matrix j begins at the address
    of lane 8*j + r.
    """

    x: int
    """Matrices per instruction: 1, 2 or 4."""
    transposed: bool
    """Whether the instruction carries .trans."""
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    """For each instruction and each of its matrices, the registers of the elements packed into one 32-bit
    value."""
    offsets: tuple[int, ...]
    """For each instruction, the constant part of the row's offset: XOR it with the parts of lane, warp and
    block."""
    lane: tuple[int, ...]
    """The offset that each lane bit adds (XOR) to the address which the lane supplies; not where its data
    lie."""
    warp: tuple[int, ...]
    """The offset that each warp bit adds (XOR)."""
    block: tuple[int, ...]
    """The offset that each block bit adds (XOR)."""
    conflicts: int
    """Wavefronts of one instruction beyond the ideal of one per matrix."""
    gaps: Gaps = ()
    """Those of the shared layout, which move up what the offsets come to."""


@lru_cache(maxsize=1024)
def ldmatrix_fits(
    register_layout: LinearLayout, shared_layout: LinearLayout, element_bits: int, part: int | None = None
) -> LdmatrixPlan | None:
    """The ldmatrix instructions that read `register_layout` from `shared_layout`; None when they cannot.  No
    instruction reads from more than one `part` of so many elements, as far as that can be.

    Elements of 8 and 32 bits travel as halves or pairs of the instruction's 16-bit ones, so only along
    contiguous rows; 16-bit elements may also be transposed.
    """
    images = offset_map(register_layout, shared_layout)
    gaps = gaps_of(shared_layout)
    if element_bits not in (8, 16, 32) or len(images["lane"]) != 5 or together(gaps) * element_bits < 128:
        return None
    part = part or shared_layout.numel
    plans = (_plan_ldmatrix(images, element_bits, turned, part, gaps) for turned in (False, True))
    return next((plan for plan in plans if plan is not None), None)


def _plan_ldmatrix(
    images: dict[str, tuple[int, ...]], element_bits: int, transposed: bool, part: int, gaps: Gaps
) -> LdmatrixPlan | None:
    register, lane = images["register"], images["lane"]
    packed = 32 // element_bits
    if transposed:
        # The two elements of a 32-bit value come from neighbouring rows, wherever rows lie; lanes walk along
        # a row.
        if element_bits != 16 or not register or lane[2:] != (1, 2, 4):
            return None
        pack, rows = [0], (register[0], *lane[:2])
    else:
        wanted = [1 << bit for bit in range(packed.bit_length() - 1)]
        if lane[:2] != (packed, 2 * packed) or any(offset not in register for offset in wanted):
            return None
        pack, rows = [register.index(offset) for offset in wanted], lane[2:]
    # The row that a bit selects must begin at a multiple of 16 bytes, so nothing else may move inside a row.
    others = [bit for bit in range(len(register)) if bit not in pack]
    if _union([*rows, *(register[bit] for bit in others), *images["warp"], *images["block"]]) & (
        4 * packed - 1
    ):
        return None
    span = f2.Span()
    others = sorted((bit for bit in others if span.add(register[bit])), key=lambda bit: register[bit] >= part)
    matrices, repeats = others[:2], others[2:]
    address = (*rows, *(register[bit] for bit in matrices))
    starts = list(all_sums([1 << bit for bit in repeats]))
    return LdmatrixPlan(
        x=1 << len(matrices),
        transposed=transposed,
        groups=tuple(
            tuple(
                tuple(start | matrix | element for element in all_sums([1 << bit for bit in pack]))
                for matrix in all_sums([1 << bit for bit in matrices])
            )
            for start in starts
        ),
        offsets=tuple(f2.apply(register, start) for start in starts),
        lane=address + (0,) * (5 - len(address)),
        warp=images["warp"],
        block=images["block"],
        conflicts=_extra_wavefronts(address, element_bits, 4 * packed, gaps),
        gaps=gaps,
    )


def store_plan(
    register_layout: LinearLayout, shared_layout: LinearLayout, element_bits: int, has_stmatrix: bool
) -> SharedAccess | LdmatrixPlan:
    """How a tensor is stored to shared memory: by stmatrix where that moves more at a time than the threads alone,
    without bank conflicts."""
    access = shared_access(register_layout, shared_layout, element_bits)
    if has_stmatrix and access.vector * element_bits < MAX_VECTOR_BITS:
        matrices = ldmatrix_fits(register_layout, shared_layout, element_bits)
        if matrices is not None and not matrices.conflicts:
            return matrices
    return access


def load_plan(
    register_layout: LinearLayout, shared_layout: LinearLayout, element_bits: int, has_ldmatrix: bool
) -> SharedAccess | LdmatrixPlan:
    """How a tensor is loaded from shared memory.  A plain vector load of 16 bytes per lane is as good as ldmatrix, and
    free of its rules on which lane reads what."""
    access = shared_access(register_layout, shared_layout, element_bits)
    if has_ldmatrix and access.vector * element_bits < MAX_VECTOR_BITS:
        return ldmatrix_fits(register_layout, shared_layout, element_bits) or access
    return access


class Swizzle(NamedTuple):
    """The parameters of `swizzled`."""

    vector: int
    per_phase: int
    max_phase: int


def best_swizzle(
    shape: Sequence[int],
    order: Sequence[int],
    element_bits: int,
    readers: Sequence[LinearLayout] = (),
    writers: Sequence[LinearLayout] = (),
) -> Swizzle:
    """The swizzle of a tensor in shared memory that `readers` load and `writers` store with the fewest
    wavefronts.

    Starts from the one that serves ldmatrix, 16-byte chunks permuted over eight rows (which stays the answer
    when nothing else is cheaper); 16-byte chunks keep asynchronous copies at full width.  Readers use
    ldmatrix where it fits.
    """
    return _best_swizzle(tuple(shape), tuple(order), element_bits, tuple(readers), tuple(writers))


@lru_cache(maxsize=256)
def _best_swizzle(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    element_bits: int,
    readers: tuple[LinearLayout, ...],
    writers: tuple[LinearLayout, ...],
) -> Swizzle:
    costs: dict[LinearLayout, int] = {}  # Many swizzles of small tensors are the same layout.

    def cost(swizzle: Swizzle, most: int | None = None) -> int:
        """The wavefronts of a swizzle; some of them where they are more than `most`, which only falls."""
        layout = swizzled(shape, *swizzle, order)
        if layout not in costs:
            costs[layout] = 0
            for partial in chain(
                (read_cost(reader, layout, element_bits) for reader in readers),
                (wavefronts(writer, layout, element_bits) for writer in writers),
            ):
                costs[layout] += partial
                if most is not None and costs[layout] > most:
                    break
        return costs[layout]

    ideal = sum(len(layout.unique_registers()) * element_bits // 32 for layout in readers + writers)
    best = matrix_swizzle(shape, order, element_bits)
    cheapest = cost(best)
    plain = Swizzle(best.vector, 1, 1)
    by_matrices = any(
        ldmatrix_fits(reader, swizzled(shape, *best, order), element_bits) for reader in readers
    )
    if readers and not by_matrices and (found := cost(plain, cheapest)) <= cheapest:
        best, cheapest = plain, found
    vectors = [
        size for size in (1, 2, 4, 8, 16) if 32 <= size * element_bits <= 512 and size <= shape[order[0]]
    ]
    for vector, per_phase, phase_bits in product(reversed(vectors), (1, 2, 4, 8), range(6)):
        if cheapest <= ideal:
            break
        if vector << phase_bits <= shape[order[0]]:
            candidate = Swizzle(vector, per_phase, 1 << phase_bits)
            if (found := cost(candidate, cheapest)) < cheapest:
                best, cheapest = candidate, found
    return best


def matrix_swizzle(shape: Sequence[int], order: Sequence[int], element_bits: int) -> Swizzle:
    """The swizzle that lets eight 16-byte rows of an 8x8 matrix come from different banks."""
    columns = shape[order[0]]
    vector = min(MAX_VECTOR_BITS // element_bits, columns)
    per_phase = max(1, BANK_ROW_BYTES * 8 // (columns * element_bits))
    return Swizzle(vector, per_phase, max(1, min(8 // per_phase, columns // vector)))


def read_cost(reader: LinearLayout, shared_layout: LinearLayout, element_bits: int) -> int:
    plan = ldmatrix_fits(reader, shared_layout, element_bits)
    if plan is None:
        return wavefronts(reader, shared_layout, element_bits)
    return len(plan.groups) * (plan.x + plan.conflicts)


def _union(masks: Iterable[int]) -> int:
    result = 0
    for mask in masks:
        result |= mask
    return result


def total_bytes(layout: LinearLayout, element_bits: int) -> int:
    """Bytes of shared memory that a tensor occupies, from its first to its last element."""
    return (moved_up(layout.numel - 1, gaps_of(layout)) + 1) * element_bits // 8
