"""32-bit words: how elements travel through memory, shuffles and tensor cores.

A word holds 4, 2 or 1 elements, the first in the lowest bits; a 64-bit element is a word of its own (`i64`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.types import I1, FloatType, IntType, PointerType, Type, element_of
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, constant_bits, llvm_type, memory_bits


def word_type(type_: Type) -> str:
    """The LLVM type of the words that hold elements of a type."""
    return "i64" if memory_bits(type_) == 64 else "i32"


def per_word(type_: Type) -> int:
    """How many elements of a type one word holds."""
    return max(1, 32 // memory_bits(type_))


def to_word(emit: Emitter, registers: Sequence[str], type_: Type) -> str:
    """Elements packed into one word; fewer than `per_word` leave its upper bits zero."""
    element = element_of(type_)
    kind, bits = llvm_type(element), memory_bits(element)
    if bits == 64:
        return _as_integer(emit, registers[0], element, "i64")
    if bits == 32:
        return _as_integer(emit, registers[0], element, "i32")
    if all(register[0] != "%" for register in registers):
        parts = [
            int(_as_integer(emit, register, element, f"i{bits}")) & (1 << bits) - 1 for register in registers
        ]
        return str(sum(part << bits * place for place, part in enumerate(parts)))
    known = known_place(emit, registers, bits)
    if known is not None and len(registers) * bits == 32:
        return emit.shift(known[0], -known[1])
    if len(registers) == 2 and bits == 16:
        pair = f"<2 x {kind}>"
        low = emit.instruction(f"insertelement {pair} poison, {kind} {registers[0]}, i32 0")
        both = emit.instruction(f"insertelement {pair} {low}, {kind} {registers[1]}, i32 1")
        return emit.instruction(f"bitcast {pair} {both} to i32")
    if len(registers) == 4 and all(emit.places.get(register, ("", 1))[1] % 8 == 0 for register in registers):
        return _gathered(emit, registers)
    word = "0"
    for position, register in enumerate(registers):
        integer = _as_integer(emit, register, element, f"i{bits}")
        if integer[0] == "%":
            moved = emit.shift(emit.instruction(f"zext i{bits} {integer} to i32"), bits * position)
        else:
            moved = str((int(integer) & (1 << bits) - 1) << bits * position)
        word = emit.or_(word, moved)
    return word


def _gathered(emit: Emitter, registers: Sequence[str]) -> str:
    """Four bytes of any words, as a word: two at a time."""
    places = [emit.places[register] for register in registers]
    words = list(dict.fromkeys(word for word, _ in places))
    if len(words) > 2:
        low, high = (_gathered(emit, [*registers[start : start + 2]] * 2) for start in (0, 2))
        return chosen_bytes(emit, low, high, 0x5410)
    chosen = [4 * words.index(word) + start // 8 for word, start in places]
    return chosen_bytes(
        emit, words[0], words[-1], sum(byte << 4 * place for place, byte in enumerate(chosen))
    )


def chosen_bytes(emit: Emitter, first: str, second: str, selector: int) -> str:
    """Bytes of two words, numbered from the lowest of the first, by the selector's digits."""
    operands = [("i32", first), ("i32", second), ("i32", str(selector))]
    return emit.call("llvm.nvvm.prmt", "i32", operands)


def from_word(emit: Emitter, word: str, type_: Type, count: int | None = None) -> list[str]:
    """The first `count` (all by default) elements that a word holds."""
    element = element_of(type_)
    kind, bits = llvm_type(element), memory_bits(element)
    count = per_word(element) if count is None else count
    if bits >= 32:
        return [_from_integer(emit, word, element, f"i{bits}")]
    if bits == 16:
        pair = f"<2 x {kind}>"
        vector = emit.instruction(f"bitcast i32 {word} to {pair}")
        halves = [emit.instruction(f"extractelement {pair} {vector}, i32 {index}") for index in range(count)]
        emit.places.update((half, (word, 16 * index)) for index, half in enumerate(halves))
        return halves
    parts = [emit.instruction(f"trunc i32 {emit.shift(word, -8 * index)} to i8") for index in range(count)]
    if element != I1:
        emit.places.update((part, (word, 8 * index)) for index, part in enumerate(parts))
    return [_from_integer(emit, part, element, "i8") for part in parts]


def known_place(emit: Emitter, registers: Sequence[str], bits: int) -> tuple[str, int] | None:
    """The word that registers are neighbouring bits of, in order, and the first of the bits."""
    first = emit.places.get(registers[0])
    if first is None:
        return None
    word, start = first
    follow = all(
        emit.places.get(register) == (word, start + bits * place) for place, register in enumerate(registers)
    )
    return first if follow else None


def to_words(emit: Emitter, registers: Sequence[str], type_: Type) -> list[str]:
    """Consecutive elements packed into words."""
    step = per_word(type_)
    return [to_word(emit, registers[start : start + step], type_) for start in range(0, len(registers), step)]


def from_words(emit: Emitter, words: Sequence[str], type_: Type) -> list[str]:
    """The elements that words hold, in order."""
    return [register for word in words for register in from_word(emit, word, type_)]


def _as_integer(emit: Emitter, register: str, element: Type, integer: str) -> str:
    if element == I1:
        if register in ("true", "false"):
            return "1" if register == "true" else "0"
        return emit.instruction(f"zext i1 {register} to i8")
    if isinstance(element, PointerType):
        return "0" if register == "null" else emit.instruction(f"ptrtoint {GLOBAL_POINTER} {register} to i64")
    if isinstance(element, FloatType) and element.bits > 8:
        if register[0] != "%":
            return str(constant_bits(register, element))
        return emit.instruction(f"bitcast {llvm_type(element)} {register} to {integer}")
    return register


def _from_integer(emit: Emitter, register: str, element: Type, integer: str) -> str:
    if element == I1:
        return emit.instruction(f"icmp ne i8 {register}, 0")
    if isinstance(element, PointerType):
        return emit.instruction(f"inttoptr i64 {register} to {GLOBAL_POINTER}")
    if isinstance(element, IntType) or element.bits == 8:  # type: ignore[union-attr]
        return register
    return emit.instruction(f"bitcast {integer} {register} to {llvm_type(element)}")
