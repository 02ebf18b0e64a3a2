"""Shared memory: descriptors, and tensors moved to and from it with vectors or ldmatrix.

A descriptor is a pointer plus a constant: element offsets within a buffer are XOR sums (swizzles), so the
start of a subslice is a constant to XOR, not to add.  Of an offset, the thread's part is computed once; the
constant of each access is XORed only where it meets bits of the thread's part, and is an immediate of the
instruction elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import MemDescType, Type
from kbuild.compiler.layout import LinearLayout, moved_up
from kbuild.compiler.layout.padded import Gaps
from kbuild.compiler.layout.shared import LdmatrixPlan, SharedAccess, load_plan, store_plan
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import SHARED_POINTER, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, from_words, per_word, to_word, to_words
from kbuild.compiler.ops.gpu import (
    LocalAlloc,
    LocalDealloc,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    MemDescReinterpret,
    MemDescReshape,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.errors import InternalError


class ThreadOffset(NamedTuple):
    """The places of a thread's accesses: byte offsets that are XOR sums of lane and warp parts and of a constant."""

    pointer: str
    """Start of the buffer."""
    base: str
    """The thread's part, in bytes (i32)."""
    reach: int
    """The bits of byte offsets that the thread's part can set."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Pairs of an interval and the padding after it, in bytes: powers of two."""

    def address(self, emit: Emitter, constant: int) -> str:
        """The pointer to thread part XOR `constant` bytes."""
        pointer, fixed = self.split(emit, constant)
        return emit.offset_pointer(pointer, fixed, SHARED_POINTER)

    def split(self, emit: Emitter, constant: int) -> tuple[str, int]:
        """The same as a pointer and what to add to it."""
        varying, fixed = constant & self.reach, constant & ~self.reach
        moved = emit.xor(self.base, str(varying)) if varying else self.base
        # The bits of the two parts are apart, so the gaps below the whole are those of each together.
        if self.reach:
            moved = _moved_up(emit, moved, self.gaps)
        return emit.offset_pointer(self.pointer, moved, SHARED_POINTER), moved_up(fixed, self.gaps)


def _moved_up(emit: Emitter, offset: str, gaps: Gaps) -> str:
    """An offset in bytes with the gaps below it."""
    parts = [
        emit.mul(emit.instruction(f"lshr i32 {offset}, {interval.bit_length() - 1}"), str(padding))
        for interval, padding in gaps
    ]
    for part in parts:
        offset = emit.add(offset, part)
    return offset


def thread_offset(
    emit: Emitter,
    pointer: str,
    lane: Sequence[int],
    warp: Sequence[int],
    element_bytes: int,
    gaps: Gaps = (),
) -> ThreadOffset:
    """The part of the offsets that depends on the thread; `lane` and `warp` give what each bit adds, and `gaps`
    where places stay empty, in elements.

    It is computed once, except where registers are short: a few instructions for each access cost less than a
    register that is taken all through a loop."""
    images = tuple(image * element_bytes for image in (*lane, *warp))
    in_bytes = tuple((interval * element_bytes, padding * element_bytes) for interval, padding in gaps)
    reach = 0
    for image in images:
        reach |= image
    if emit.is_short and reach:
        return ThreadOffset(pointer, linear(emit, emit.thread_id_again(), images), reach, in_bytes)
    with emit.at_entry():
        base = linear(emit, emit.thread_id(), images) if reach else "0"
    return ThreadOffset(pointer, base, reach, in_bytes)


def store_vector(emit: Emitter, pointer: str, registers: Sequence[str], type_: Type) -> None:
    """Store elements at consecutive places of shared memory, aligned to their total size."""
    bits = memory_bits(type_) * len(registers)
    if bits < 32:
        word = to_word(emit, registers, type_)
        narrow = emit.instruction(f"trunc i32 {word} to i{bits}") if word[0] == "%" else word
        emit.line(f"store i{bits} {narrow}, {SHARED_POINTER} {pointer}, align {bits // 8}")
        return
    words = to_words(emit, registers, type_)
    kind = "i64" if memory_bits(type_) == 64 else "i32"
    value, vector = words[0], kind
    if len(words) > 1:
        vector, value = f"<{len(words)} x {kind}>", "poison"
        for index, word in enumerate(words):
            value = emit.instruction(f"insertelement {vector} {value}, {kind} {word}, i32 {index}")
    emit.line(f"store {vector} {value}, {SHARED_POINTER} {pointer}, align {bits // 8}")


def load_vector(emit: Emitter, pointer: str, count: int, type_: Type) -> list[str]:
    """Load `count` elements from consecutive places of shared memory, aligned to their total size."""
    bits = memory_bits(type_) * count
    if bits < 32:
        narrow = emit.effect(f"load i{bits}, {SHARED_POINTER} {pointer}, align {bits // 8}")
        return from_word(emit, emit.instruction(f"zext i{bits} {narrow} to i32"), type_, count)
    kind = "i64" if memory_bits(type_) == 64 else "i32"
    words = count // per_word(type_)
    if words == 1:
        return from_word(
            emit, emit.effect(f"load {kind}, {SHARED_POINTER} {pointer}, align {bits // 8}"), type_
        )
    vector = f"<{words} x {kind}>"
    value = emit.effect(f"load {vector}, {SHARED_POINTER} {pointer}, align {bits // 8}")
    return from_words(
        emit, [emit.instruction(f"extractelement {vector} {value}, i32 {i}") for i in range(words)], type_
    )


def store_all(
    emit: Emitter, access: SharedAccess, pointer: str, registers: Sequence[str], type_: Type, start: int = 0
) -> None:
    """Carry out the stores of an access plan; `start` is XORed to every offset, in elements."""
    size, within = memory_bits(type_) // 8, start & access.vector - 1
    place = thread_offset(emit, pointer, access.lane, access.warp, size, access.gaps)
    for group, offset in zip(access.groups, access.offsets):
        values = [registers[group[element ^ within]] for element in range(len(group))]
        store_vector(emit, place.address(emit, (offset ^ start ^ within) * size), values, type_)


def load_all(
    emit: Emitter, access: SharedAccess, pointer: str, type_: Type, start: int = 0
) -> dict[int, str]:
    """Carry out the loads of an access plan; the registers filled, by number.

    Where the swizzle moves a part's start within a vector, the vector has the same elements in another order."""
    size, within = memory_bits(type_) // 8, start & access.vector - 1
    place = thread_offset(emit, pointer, access.lane, access.warp, size, access.gaps)
    found: dict[int, str] = {}
    for group, offset in zip(access.groups, access.offsets):
        address = place.address(emit, (offset ^ start ^ within) * size)
        loaded = load_vector(emit, address, len(group), type_)
        found.update((group[element ^ within], value) for element, value in enumerate(loaded))
    return found


def store_matrices(
    emit: Emitter, plan: LdmatrixPlan, pointer: str, registers: Sequence[str], type_: Type, start: int = 0
) -> None:
    """Carry out stores by stmatrix; `start` is XORed to every offset, in elements."""
    size = memory_bits(type_) // 8
    place = thread_offset(emit, pointer, plan.lane, plan.warp, size, plan.gaps)
    name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{plan.x}{'.trans' if plan.transposed else ''}.b16.p3"
    for group, offset in zip(plan.groups, plan.offsets):
        words = [to_word(emit, [registers[index] for index in packed], type_) for packed in group]
        address = place.address(emit, (offset ^ start) * size)
        emit.call(name, "void", [(SHARED_POINTER, address), *(("i32", word) for word in words)], effect=True)


def with_copies(registers: dict[int, str], result: LinearLayout) -> list[str]:
    """All registers of a layout, where only the first of equal ones were filled."""
    return [
        registers[index] if index in registers else registers[first]
        for index, first in enumerate(result.representatives())
    ]


# -- descriptors ---------------------------------------------------------------------------------------------------


def descriptor(emit: Emitter, value: Value) -> tuple[str, int]:
    """The pointer to a tile, and the element offset to XOR to all offsets."""
    pointer, start = emit.registers(value)
    return pointer, int(start)


def _type(value: Value) -> MemDescType:
    assert isinstance(value.type, MemDescType), f"{value} is not a descriptor"
    return value.type


@lower(LocalAlloc)
def lower_local_alloc(emit: Emitter, op: LocalAlloc) -> Sequence[str]:
    if op.offset is None:
        raise InternalError("shared memory has not been allocated", op.loc)
    pointer = emit.shared_pointer(op.offset)
    if op.src is not None:
        tile = _type(op.result)
        _store(emit, op.src, tile, pointer, 0)
    return [pointer, "0"]


@lower(LocalDealloc)
def lower_local_dealloc(emit: Emitter, op: LocalDealloc) -> None:
    """Nothing: the places were chosen at compile time."""


@lower(MemDescIndex)
def lower_memdesc_index(emit: Emitter, op: MemDescIndex) -> Sequence[str]:
    pointer, start = descriptor(emit, op.src)
    distance = _type(op.src).tile_bytes if op.pitch is None else op.pitch
    offset = emit.mul(emit.scalar(op.index), str(distance))
    return [emit.offset_pointer(pointer, offset, SHARED_POINTER), str(start)]


@lower(MemDescSubslice)
def lower_memdesc_subslice(emit: Emitter, op: MemDescSubslice) -> Sequence[str]:
    pointer, start = descriptor(emit, op.src)
    return [pointer, str(start ^ offset_of(_type(op.src).layout, op.offsets))]


def offset_of(shared: LinearLayout, coordinates: Sequence[int]) -> int:
    """The offset, in elements, at which a shared layout keeps the element of some coordinates."""
    wanted = shared.flatten(coordinates)
    row_major = [1 << bit for bit in range((shared.numel - 1).bit_length())]
    place = LinearLayout.make(shared.shape, register=row_major, lane=[], warp=[])
    images = shared.solve(place).part("register", "offset")
    result = 0
    for bit, image in enumerate(images):
        if wanted >> bit & 1:
            result ^= image
    return result


@lower(MemDescTrans, MemDescReshape)
def lower_memdesc_trans(emit: Emitter, op: MemDescTrans | MemDescReshape) -> Sequence[str]:
    return emit.registers(op.src)


@lower(MemDescReinterpret)
def lower_memdesc_reinterpret(emit: Emitter, op: MemDescReinterpret) -> Sequence[str]:
    return emit.registers(op.src)


# -- tensors -------------------------------------------------------------------------------------------------------


@lower(LocalStore)
def lower_local_store(emit: Emitter, op: LocalStore) -> None:
    pointer, start = descriptor(emit, op.dst)
    _store(emit, op.value, _type(op.dst), pointer, start)


def _store(emit: Emitter, value: Value, tile: MemDescType, pointer: str, start: int) -> None:
    """Write a tensor into a tile, by stmatrix where that moves more at a time than the threads alone."""
    source, bits = layout(value.type), memory_bits(value.type)
    plan = store_plan(source, tile.layout, bits, emit.target.has("stmatrix"))
    if isinstance(plan, SharedAccess):
        store_all(emit, plan, pointer, emit.registers(value), value.type, start)
    else:
        store_matrices(emit, plan, pointer, emit.registers(value), value.type, start)


@lower(LocalLoad)
def lower_local_load(emit: Emitter, op: LocalLoad) -> Sequence[str]:
    pointer, start = descriptor(emit, op.src)
    result, shared, bits = layout(op.type), _type(op.src).layout, memory_bits(op.type)
    plan = load_plan(result, shared, bits, emit.target.has("ldmatrix"))
    if isinstance(plan, SharedAccess):
        return with_copies(load_all(emit, plan, pointer, op.type, start), result)
    return _load_matrices(emit, plan, pointer, start, op, bits)


def _load_matrices(emit: Emitter, plan, pointer: str, start: int, op: LocalLoad, bits: int) -> Sequence[str]:
    """Registers by way of ldmatrix: each lane supplies the address of one row."""
    size = bits // 8
    place = thread_offset(emit, pointer, plan.lane, plan.warp, size, plan.gaps)
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{plan.x}{'.trans' if plan.transposed else ''}.b16.p3"
    kinds = ["i32"] * plan.x
    found: dict[int, str] = {}
    for matrices, offset in zip(plan.groups, plan.offsets):
        address = place.address(emit, (offset ^ start) * size)
        struct = "i32" if plan.x == 1 else f"{{{', '.join(kinds)}}}"
        value = emit.call(name, struct, [(SHARED_POINTER, address)], effect=True)
        words = [value] if plan.x == 1 else emit.unpack(value, kinds)
        for word, registers in zip(words, matrices):
            found.update(zip(registers, from_word(emit, word, op.type)))
    return with_copies(found, layout(op.type))
