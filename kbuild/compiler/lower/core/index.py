"""Which element a register of this thread holds: coordinates computed from the thread's number, bit by bit.

A layout maps bits of (register, lane, warp) to coordinates by XOR.  The thread's part is computed once, in
the entry block, with one mask and shift per run of bits; where register bits touch other coordinate bits than
thread bits do, the register's part is a constant to add, which addresses take as an immediate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.errors import InternalError


def coordinate(emit: Emitter, layout: LinearLayout, axis: int, register: int) -> tuple[str, int]:
    """The coordinate along `axis` of the element that a register holds: an i32 register plus a constant."""
    thread, registers = _axis_bases(layout, axis)
    return _at(emit, thread, registers, register)


def flat_coordinate(emit: Emitter, layout: LinearLayout, register: int) -> tuple[str, int]:
    """The row-major index of the element that a register holds: an i32 register plus a constant."""
    thread = (*layout.bases_of("lane"), *layout.bases_of("warp"))
    return _at(emit, thread, layout.bases_of("register"), register)


def linear(emit: Emitter, source: str, images: Sequence[int]) -> str:
    """The sum (XOR) of the images of the bits that are set in an i32 register."""
    shifts: dict[int, int] = {}
    for bit, image in enumerate(images):
        while image:
            low = image & -image
            shift = low.bit_length() - 1 - bit
            shifts[shift] = shifts.get(shift, 0) | 1 << bit
            image ^= low
    result, covered = "0", 0
    for shift, mask in shifts.items():
        term = emit.shift(emit.and_(source, str(mask)), shift)
        moved = mask << shift if shift > 0 else mask >> -shift
        if result == "0":
            result = term
        elif covered & moved:
            result = emit.xor(result, term)
        else:
            result = emit.instruction(f"or disjoint i32 {result}, {term}")
        covered |= moved
    return result


def owns(emit: Emitter, layout: LinearLayout) -> str:
    """An i1 register: whether this thread is the first that holds its elements (`true` when nothing is
    replicated)."""
    free = layout.free_bits("lane") | layout.free_bits("warp") << 5
    if not free:
        return "true"
    with emit.at_entry():
        return emit.compare("eq", emit.and_(emit.thread_id(), str(free)), "0")


def register_moves(source: LinearLayout, result: LinearLayout) -> list[int]:
    """For each register of `result` the register of `source`, of the same thread, with the same element.

    The shapes may differ in axes of size one and in axes that `source` has with size one (broadcast).  Raises
    `InternalError` when elements would have to change threads: that is what ttg.convert_layout is for.
    """
    return list(_register_moves(source, result))


@lru_cache(maxsize=1024)
def _register_moves(source: LinearLayout, result: LinearLayout) -> tuple[int, ...]:
    def projected(flat: int) -> int:
        if source.numel == result.numel:
            return flat
        coordinates = result.unflatten(flat)
        return source.flatten([c if size > 1 else 0 for c, size in zip(coordinates, source.shape)])

    for dim in ("lane", "warp", "block"):
        if tuple(projected(basis) for basis in result.bases_of(dim)) != source.bases_of(dim):
            raise InternalError(f"elements would change threads between {source} and {result}")
    first: dict[int, int] = {}
    for register, flat in enumerate(source.registers()):
        first.setdefault(flat, register)
    try:
        return tuple(first[projected(flat)] for flat in result.registers())
    except KeyError:
        raise InternalError(f"the thread lacks elements of {result} in {source}") from None


@lru_cache(maxsize=1024)
def _axis_bases(layout: LinearLayout, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    thread = (*layout.bases_along("lane", axis), *layout.bases_along("warp", axis))
    return thread, layout.bases_along("register", axis)


def _at(emit: Emitter, thread: tuple[int, ...], registers: tuple[int, ...], register: int) -> tuple[str, int]:
    with emit.at_entry():
        base = linear(emit, emit.thread_id(), thread) if any(thread) else "0"
        constant, overlap = 0, 0
        for bit, basis in enumerate(registers):
            if register >> bit & 1:
                constant ^= basis
        for basis in thread:
            overlap |= basis
        shared = constant & overlap
        return emit.xor(base, str(shared)), constant ^ shared
