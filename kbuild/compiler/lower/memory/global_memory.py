"""Loads and stores of global memory, as vectors of up to 128 bits.

Plain accesses are LLVM loads and stores; those with a mask or a hint are predicated PTX:

    @p ld.global.cg.v4.b32 {$0, $1, $2, $3}, [$8 + 64];          the outputs start as `other`, tied to inputs

Where a mask lets through the first elements of a vector only, as at the end of a tensor, the vector is
accessed whole by the threads that have all of it, and element by element by the others; threads without such a
vector go around these elements, except where few are stored. Each element of a replicated tensor is stored by
one thread; loads are done by every thread that holds a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbuild.compiler.analysis.access import access_width
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import PointerType, TensorType, Type, element_of
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import owns
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, constant, llvm_type, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, per_word, to_words, word_type
from kbuild.compiler.lower.memory.pointers import address
from kbuild.compiler.ops.tensor import Load, Store
from kbuild.errors import InternalError


class VectorAccess(NamedTuple):
    """The form of one vector access."""

    words: int
    word_bits: int
    """64, 32, or for a narrower access 16 or 8."""

    @property
    def suffix(self) -> str:
        """The end of the instruction's name: `.v4.b32`."""
        return f"{f'.v{self.words}' if self.words > 1 else ''}.b{self.word_bits}"

    @property
    def type(self) -> str:
        """The LLVM type of a word's register."""
        return "i64" if self.word_bits == 64 else "i32"

    @property
    def constraint(self) -> str:
        return "l" if self.word_bits == 64 else "r"

    def braced(self, first: int) -> str:
        """The operands of the words, numbered from `first`."""
        names = ", ".join(f"${first + word}" for word in range(self.words))
        return f"{{{names}}}" if self.words > 1 else names


def access_of(element: Type, count: int) -> VectorAccess:
    """The access of `count` neighbouring elements."""
    bits = memory_bits(element)
    if bits == 64:
        return VectorAccess(count, 64)
    total = bits * count
    return VectorAccess(max(1, total // 32), min(32, total))


def pointee_of(pointer: Value) -> Type:
    """The pointee type of a pointer or a tensor of pointers."""
    element = element_of(pointer.type)
    assert isinstance(element, PointerType)
    if isinstance(element.pointee, TensorType):
        raise InternalError(
            "block pointers are rewritten before lowering", pointer.op.loc if pointer.op else None
        )
    return element.pointee


def axis_info(emit: Emitter) -> AxisInfo:
    """The function's `AxisInfo`; computed once."""
    if emit.axis_info is None:
        emit.axis_info = AxisInfo(emit.func)
    return emit.axis_info


def vector_width(emit: Emitter, pointer: Value, mask: Value | None, cut: bool = False) -> int:
    """How many consecutive registers one access may cover: they are neighbours in memory, aligned, and share
    a mask; or with `cut` have one that lets through the first ones only."""
    if not isinstance(pointer.type, TensorType):
        return 1
    known = axis_info(emit)
    masked = known.get(mask) if mask is not None else None
    return access_width(
        layout(pointer.type), known.get(pointer), masked, memory_bits(pointee_of(pointer)), cut
    )


def vector_axis(emit: Emitter, pointer: Value, width: int) -> int:
    """The axis along which registers are neighbours in memory, `width` of them."""
    own, known = layout(pointer.type), axis_info(emit).get(pointer)
    fitting = [
        axis
        for axis in range(own.rank)
        if min(own.contiguous_per_thread(axis), known.contiguity[axis]) >= width
    ]
    if not fitting:
        raise InternalError(
            f"no {width} neighbours in memory are neighbours in a thread",
            pointer.op.loc if pointer.op else None,
        )
    return fitting[0]


MIN_PIECES = 32
"""Stores of single elements from which on threads without any go around them."""


# Loads


@lower(Load)
def lower_load(emit: Emitter, op: Load) -> Sequence[str]:
    element = pointee_of(op.ptr)
    width = vector_width(emit, op.ptr, op.mask, cut=not op.volatile)
    cut = width > vector_width(emit, op.ptr, op.mask)
    masks = emit.registers(op.mask) if op.mask is not None else None
    others = emit.registers(op.other) if op.other is not None else None
    count = layout(op.ptr.type).size("register") if isinstance(op.ptr.type, TensorType) else 1
    if cut and masks is not None and _fits(emit, op.ptr.type, element, width):
        defaults = list(others) if others is not None else [_zero(element)] * count
        return _load_around(emit, op, element, width, masks[:], defaults)
    vectors: dict[int, list[str]] = {}

    def element_of_vector(register: int) -> str:
        start = register - register % width
        if start not in vectors:
            other = list(others[start : start + width]) if others is not None else [_zero(element)] * width
            if cut and masks is not None:
                vectors[start] = _load_cut(emit, op, element, start, masks[start : start + width], other)
            else:
                mask = masks[start] if masks is not None else "true"
                vectors[start] = _load_vector(emit, op, element, start, mask, other)
        return vectors[start][register - start]

    registers = emit.lazy(count, element_of_vector)
    return registers[:] if op.volatile else registers


def _zero(element: Type) -> str:
    return "null" if isinstance(element, PointerType) else constant(0, element)


def _load_cut(
    emit: Emitter, op: Load, element: Type, start: int, masks: Sequence[str], other: Sequence[str]
) -> list[str]:
    """A vector whose mask may let through its first elements only.  All loads start before any is waited for."""
    whole = masks[-1]
    if whole == "true" or masks[0] == "false":
        return _load_vector(emit, op, element, start, masks[0], list(other))
    alone = emit.instruction(f"xor i1 {whole}, true")
    vector = _load_vector(emit, op, element, start, whole, [_zero(element)] * len(masks))
    kind = llvm_type(element)
    found: list[str] = []
    for place, mask in enumerate(masks[:-1]):
        single = _load_vector(emit, op, element, start + place, emit.all_of([mask, alone]), [other[place]])
        found.append(emit.select(whole, vector[place], single[0], kind))
    return [*found, emit.select(whole, vector[-1], other[-1], kind)]


def _fits(emit: Emitter, pointers: Type, element: Type, width: int) -> bool:
    """Whether a thread may hold all elements of a tile at once, and as many again of other loads.  In a tile with rows
    each vector has an address of its own, and each element a mask."""
    assert isinstance(pointers, TensorType)
    count = layout(pointers).size("register")
    has_rows = sum(size > 1 for size in pointers.shape) > 1
    others = count + 2 * count // width if has_rows else 0
    room = emit.target.limits.registers_for(32 * emit.num_warps) // 3
    return count * memory_bits(element) / 32 + others <= room


def _load_around(
    emit: Emitter, op: Load, element: Type, width: int, masks: Sequence[str], other: list[str]
) -> list[str]:
    """All vectors first; then threads with one that the mask cuts load its elements, each over its place there.

    So all vectors of a thread are on their way together, those of the next load, too.  Where loads of single elements
    stand between them, ptxas has some vectors wait until others have come and were chosen.
    """
    vectors: list[list[str]] = []
    alone: dict[int, str] = {}
    is_cut = "false"
    for start in range(0, len(masks), width):
        first, whole = masks[start], masks[start + width - 1]
        own = other[start : start + width]
        known = whole == "false"
        vectors.append(
            to_words(emit, own, element) if known else _load_words(emit, op, element, start, whole, own)
        )
        if whole != "true" and first != "false":
            alone[start] = "true" if known else emit.instruction(f"xor i1 {whole}, true")
            is_cut = emit.instruction(f"or i1 {is_cut}, {emit.all_of([first, alone[start]])}")
    if alone:
        vectors = _load_pieces(emit, op, element, width, masks, other, vectors, alone, is_cut)
    return [one for words in vectors for one in _elements(emit, words, element, width)]


def _load_pieces(
    emit: Emitter,
    op: Load,
    element: Type,
    width: int,
    masks: Sequence[str],
    other: Sequence[str],
    vectors: list[list[str]],
    alone: dict[int, str],
    is_cut: str,
) -> list[list[str]]:
    """The words of vectors, with single elements over those that a thread does not have whole; `alone` says where
    it has not, for the first element of each vector that may be cut, and `is_cut` whether any of its own is."""
    inside, after, before = emit.new_label("cut"), emit.new_label("after"), emit.chunk.label
    emit.branch(inside, is_cut, after)
    pieces: dict[int, list[str]] = {}
    with emit.scope():
        emit.start_block(inside)
        for start, condition in alone.items():
            if len(alone) == 1:  # It has brought the thread here, so none of it is loaded.
                condition, loaded = "true", [*other[start : start + width]]
            else:
                loaded = _elements(emit, vectors[start // width], element, width)
            for place, mask in enumerate(masks[start : start + width - 1]):
                guard = emit.all_of([mask, condition])
                loaded[place] = _load_vector(emit, op, element, start + place, guard, [loaded[place]])[0]
            pieces[start // width] = to_words(emit, loaded, element)
        latch = emit.chunk.label
        emit.branch(after)
    phis = emit.start_block(after)
    emit.new_chunk()
    merged = list(vectors)
    for number, words in pieces.items():
        merged[number] = [emit.fresh() for _ in words]
        for register, first, second in zip(merged[number], vectors[number], words):
            kind = word_type(element)
            phis.lines.append(f"  {register} = phi {kind} [{first}, %{before}], [{second}, %{latch}]")
    return merged


def _load_vector(
    emit: Emitter, op: Load, element: Type, start: int, mask: str, other: list[str]
) -> list[str]:
    if mask == "false":
        return other
    return _elements(emit, _load_words(emit, op, element, start, mask, other), element, len(other))


def _load_words(emit: Emitter, op: Load, element: Type, start: int, mask: str, other: list[str]) -> list[str]:
    base, offset = address(emit, op.ptr, start)
    access = access_of(element, len(other))
    modifiers = load_modifiers(emit, op)
    if mask == "true" and modifiers == ("", ""):
        return _plain_load(emit, access, base, offset)
    return _asm_load(emit, access, modifiers, base, offset, mask, to_words(emit, other, element))


def _elements(emit: Emitter, words: Sequence[str], element: Type, count: int) -> list[str]:
    """The elements that words hold, `count` of them."""
    step = per_word(element)
    found: list[str] = []
    for word in words:
        found += from_word(emit, word, element, min(step, count - len(found)))
    return found


def _plain_load(emit: Emitter, access: VectorAccess, base: str, offset: int) -> list[str]:
    pointer = emit.offset_pointer(base, offset, GLOBAL_POINTER)
    kind = f"i{access.word_bits}"
    if access.words > 1:
        vector = f"<{access.words} x {kind}>"
        loaded = emit.effect(
            f"load {vector}, {GLOBAL_POINTER} {pointer}, align {access.words * access.word_bits // 8}"
        )
        return [
            emit.instruction(f"extractelement {vector} {loaded}, i32 {word}") for word in range(access.words)
        ]
    loaded = emit.effect(f"load {kind}, {GLOBAL_POINTER} {pointer}, align {access.word_bits // 8}")
    return [loaded if access.word_bits >= 32 else emit.instruction(f"zext {kind} {loaded} to i32")]


def _asm_load(
    emit: Emitter,
    access: VectorAccess,
    modifiers: tuple[str, str],
    base: str,
    offset: int,
    mask: str,
    other: list[str],
) -> list[str]:
    words = access.words
    operands = [(GLOBAL_POINTER, base)]
    constraints = [f"={access.constraint}"] * words
    guard = ""
    if mask != "true":
        operands = [(access.type, word) for word in other] + operands
        constraints += [str(word) for word in range(words)]
        guard = f"@${2 * words + 1} "
    place = len(constraints)
    constraints.append("l")
    if guard:
        operands.append(("i1", mask))
        constraints.append("b")
    hint = ""
    if modifiers[1]:
        hint = f", ${len(constraints)}"
        operands.append(("i64", modifiers[1]))
        constraints.append("l")
    template = f"{guard}ld{modifiers[0] or '.global'}{access.suffix} {access.braced(0)}, [${place} + {offset}]{hint};"
    return emit.asm(template, ",".join(constraints), operands, [access.type] * words, effect=True)


def load_modifiers(emit: Emitter, op: Load) -> tuple[str, str]:
    """The text between `ld` and the type, and the register of an L2 policy; both empty for a plain load."""
    if op.volatile:
        return ".volatile.global", ""
    cache, policy = _dotted(op.cache), l2_policy(emit, op.eviction)
    if not cache and not policy:
        return "", ""
    # PTX has either a cache operator or an L1 priority.
    level = f".L1::{op.eviction}" if policy and not cache else ""
    return f".global{cache}{level}{'.L2::cache_hint' if policy else ''}", policy


def l2_policy(emit: Emitter, eviction: str) -> str:
    """The register of the L2 policy for an eviction hint, made once; "" for none."""
    if eviction not in ("evict_first", "evict_last"):
        return ""
    with emit.at_entry():
        return emit.asm(f"createpolicy.fractional.L2::{eviction}.b64 $0, 0f3F800000;", "=l", [], ["i64"])[0]


def _dotted(cache: str) -> str:
    return f".{cache.lstrip('.')}" if cache else ""


# Stores


@lower(Store)
def lower_store(emit: Emitter, op: Store) -> None:
    element = pointee_of(op.ptr)
    width = vector_width(emit, op.ptr, op.mask, cut=True)
    cut = width > vector_width(emit, op.ptr, op.mask)
    masks = emit.registers(op.mask) if op.mask is not None else None
    owner, unique = writers(emit, op.ptr.type)
    others = _stored_next(emit, op)
    starts = [start for start in range(0, len(emit.registers(op.value)), width) if start in unique]
    if not cut or masks is None or (width - 1) * len(starts) < MIN_PIECES:
        for start in starts:
            for other, kind in others:
                to_words(emit, other[start : start + width], kind)
            own = masks[start : start + width] if masks is not None else ["true"]
            _store(emit, op, element, start, width, own, owner, cut)
        return
    # Where masks cut none of a thread's vectors, as in all tiles but the last and in tensors whose rows are whole
    # vectors, it goes another way than around each single element.
    is_cut = "false"
    for start in starts:
        whole = emit.instruction(f"xor i1 {masks[start + width - 1]}, true")
        is_cut = emit.instruction(f"or i1 {is_cut}, {emit.all_of([owner, masks[start], whole])}")
    is_whole = emit.instruction(f"xor i1 {is_cut}, true")
    for start in starts:
        to_words(emit, emit.registers(op.value)[start : start + width], element)
    for condition, pieces in ((is_cut, True), (is_whole, False)):
        with emit.when(condition):
            for start in starts:
                own = masks[start : start + width]
                _store(emit, op, element, start, width, own, owner, cut, pieces)


def _store(
    emit: Emitter,
    op: Store,
    element: Type,
    start: int,
    width: int,
    own: Sequence[str],
    owner: str,
    cut: bool,
    pieces: bool = True,
) -> None:
    """Store a vector, or the first elements of one that the mask cuts."""
    values = emit.registers(op.value)
    whole = emit.all_of([owner, own[-1] if cut else own[0]])
    # The values first: what their loads compute for addresses, the store's own addresses may share.
    words = to_words(emit, values[start : start + width], element)
    if whole != "false":
        base, offset = address(emit, op.ptr, start)
        _store_vector(emit, op, access_of(element, width), base, offset, whole, words)
    if pieces and cut and own[-1] != "true" and own[0] != "false":
        alone = emit.instruction(f"xor i1 {own[-1]}, true")
        for place, mask in enumerate(own[:-1]):
            base, offset = address(emit, op.ptr, start)
            offset += place * memory_bits(element) // 8
            word = to_words(emit, values[start + place : start + place + 1], element)
            guard = emit.all_of([owner, mask, alone])
            if guard != "false":
                _store_vector(emit, op, access_of(element, 1), base, offset, guard, word)


def _stored_next(emit: Emitter, op: Store) -> list[tuple[Sequence[str], Type]]:
    """The registers, and types, of what the following stores take: those that are computed of the same, so that each
    vector of theirs is best computed with that of this one."""
    found: list[tuple[Sequence[str], Type]] = []
    following = op.next if op.value in emit.late else None
    while isinstance(following, Store):
        if following.value in emit.late:
            registers = emit.registers(following.value)
            if len(registers) == len(emit.registers(op.value)):
                found.append((registers, pointee_of(following.ptr)))
        following = following.next
    return found


def writers(emit: Emitter, type_: Type) -> tuple[str, frozenset[int] | range]:
    """The writers of each element of a value, each once: the threads where an i1 register holds, with these
    registers."""
    if isinstance(type_, TensorType):
        own = layout(type_)
        return owns(emit, own), frozenset(own.unique_registers())
    with emit.at_entry():
        return emit.compare("eq", emit.thread_id(), "0"), range(1)


def _store_vector(
    emit: Emitter, op: Store, access: VectorAccess, base: str, offset: int, mask: str, words: Sequence[str]
) -> None:
    cache, policy = _dotted(op.cache), l2_policy(emit, op.eviction)
    if mask == "true" and not cache and not policy:
        _plain_store(emit, access, base, offset, words)
        return
    constraints = [access.constraint] * len(words) + ["l"]
    operands = [(access.type, word) for word in words] + [(GLOBAL_POINTER, base)]
    if access.word_bits == 16:
        # A register as wide as the store: ptxas would clear the upper half of a wider one, an instruction for each.
        constraints[0] = "h"
        operands[0] = ("i16", emit.instruction(f"trunc i32 {words[0]} to i16"))
    guard = hint = ""
    if mask != "true":
        guard = f"@${len(constraints)} "
        operands.append(("i1", mask))
        constraints.append("b")
    if policy:
        hint = f", ${len(constraints)}"
        operands.append(("i64", policy))
        constraints.append("l")
    level = f".L1::{op.eviction}" if policy and not cache else ""
    name = f"st.global{cache}{level}{'.L2::cache_hint' if policy else ''}{access.suffix}"
    template = f"{guard}{name} [${len(words)} + {offset}], {access.braced(0)}{hint};"
    emit.asm(template, ",".join(constraints), operands, [], effect=True)


def _plain_store(emit: Emitter, access: VectorAccess, base: str, offset: int, words: Sequence[str]) -> None:
    pointer = emit.offset_pointer(base, offset, GLOBAL_POINTER)
    kind, value = f"i{access.word_bits}", words[0]
    if access.words > 1:
        kind, value = f"<{access.words} x {kind}>", "poison"
        for place, word in enumerate(words):
            value = emit.instruction(f"insertelement {kind} {value}, {access.type} {word}, i32 {place}")
    elif access.word_bits < 32:
        value = emit.instruction(f"trunc i32 {value} to {kind}")
    emit.line(
        f"store {kind} {value}, {GLOBAL_POINTER} {pointer}, align {access.words * access.word_bits // 8}"
    )
