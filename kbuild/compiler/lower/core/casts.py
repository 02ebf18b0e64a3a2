"""Conversions between element types.

f8 and packed 16-bit conversions take two registers per instruction where the hardware does; sm_80, which has
no f8 instructions, computes them with integer operations (exact, NaN included), and so do all architectures those of
f8E4M3B15, four registers at a time.  bf16 and f8 meet integers and f64 in f32; integers of 8 bits have ways of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbuild.compiler.ir.types import (
    BF16,
    F8E4M3B15,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    FLOATS8,
    I1,
    FloatType,
    IntType,
    PointerType,
    Type,
    element_of,
)
from kbuild.compiler.lower.core.emit import Chunk, Emitter
from kbuild.compiler.lower.core.literals import constant, float_bits, llvm_type
from kbuild.compiler.lower.core.words import chosen_bytes, from_word, known_place, to_word
from kbuild.compiler.ops import elementwise as rows
from kbuild.errors import CompileError, InternalError

Convert = Callable[[int], str]
"""Register index → the converted register."""
_PTX_NAME = {F8E4M3FN: "e4m3x2", F8E5M2: "e5m2x2"}
_F8_TO_BF16 = """{{
.reg .b16 low, high;
.reg .b32 halves, first, second;
cvt.rn.f16x2.{} halves, $1;
mov.b32 {{low, high}}, halves;
cvt.f32.f16 first, low;
cvt.f32.f16 second, high;
cvt.rn.bf16x2.f32 $0, second, first;
}}"""
"""Two at a time; LLVM would find nothing to improve, and takes a third longer for the instructions."""


def cast_registers(emit: Emitter, op: rows.Cast, source: Sequence[str]) -> Sequence[str]:
    """The lazy registers of a conversion."""
    old, new = element_of(op.src.type), element_of(op.type)
    if old == new:
        return source
    if isinstance(old, FloatType) and isinstance(new, FloatType) and not isinstance(op, rows.Bitcast):
        return convert_floats(emit, source, old, new, op.rounding if isinstance(op, rows.TruncF) else "rtne")
    if isinstance(old, FloatType) and isinstance(new, IntType) and not isinstance(op, rows.Bitcast):
        wide = source if old in (F16, F32, F64) else convert_floats(emit, source, old, F32)
        kind = llvm_type(old if old in (F16, F32, F64) else F32)
        return emit.lazy(len(source), lambda i: _to_integer(emit, op.llvm, wide[i], kind, new))
    if isinstance(old, IntType) and isinstance(new, FloatType) and not isinstance(op, rows.Bitcast):
        middle = new if new in (F16, F32, F64) else F32
        opcode = "uitofp" if old == I1 else op.llvm
        if old.bits == 8 and new != F64 and len(source) > 1:
            return _from_bytes(emit, source, opcode == "sitofp", new)
        exact = emit.lazy(
            len(source),
            lambda i: emit.instruction(f"{opcode} {llvm_type(old)} {source[i]} to {llvm_type(middle)}"),
        )
        return exact if middle == new else convert_floats(emit, exact, F32, new)
    return emit.lazy(len(source), lambda i: _plain(emit, op, source[i], old, new))


def _from_bytes(emit: Emitter, source: Sequence[str], signed: bool, new: FloatType) -> Sequence[str]:
    """Whole numbers of 8 bits in the place of the last bits of a number whose last bit counts ones, which is taken away
    again: exact, and several instructions of the kind that a multiprocessor has most units for, where it has fewest for
    conversions."""
    if new == F16:
        return emit.lazy(len(source), by_pairs(emit, lambda i: _bytes_to_f16(emit, source, i, signed)))
    if new == BF16 and signed:
        return emit.lazy(len(source), by_pairs(emit, lambda i: _signed_bytes_to_bf16(emit, source, i)))
    wide = emit.lazy(len(source), lambda i: _byte_to_f32(emit, source, i, signed))
    return wide if new == F32 else convert_floats(emit, wide, F32, new)


def _byte_to_f32(emit: Emitter, source: Sequence[str], index: int, signed: bool) -> str:
    """In the place of the last bits of 2^23; of signed numbers, 128 more than each."""
    word = _word_of_bytes(emit, source, index, signed)
    bits = chosen_bytes(emit, word, str(0x4B000000), 0x7440 + (index & 3))
    number = emit.instruction(f"bitcast i32 {bits} to float")
    return emit.instruction(f"fsub float {number}, {constant(2.0**23 + 128 * signed, F32)}")


def _bytes_to_f16(emit: Emitter, source: Sequence[str], index: int, signed: bool) -> tuple[str, str]:
    """In the place of the last bits of 2^10, as to f32."""
    word = _word_of_bytes(emit, source, index, signed)
    bits = chosen_bytes(emit, word, str(0x64), 0x4140 if index & 2 == 0 else 0x4342)
    numbers = emit.instruction(f"bitcast i32 {bits} to <2 x half>")
    offset = constant(2.0**10 + 128 * signed, F16)
    result = emit.instruction(f"fsub <2 x half> {numbers}, <half {offset}, half {offset}>")
    first, second = from_word(emit, emit.instruction(f"bitcast <2 x half> {result} to i32"), F16)
    return first, second


def _signed_bytes_to_bf16(emit: Emitter, source: Sequence[str], index: int) -> tuple[str, str]:
    """The lower seven bits in the place of the last ones of 2^7, less 2^7, or 2^8 where the sign is set: that bit is then
    the last one of the exponent."""
    word = _word_of_bytes(emit, source, index, False)
    bits = chosen_bytes(emit, word, str(0x43), 0x4140 if index & 2 == 0 else 0x4342)
    numbers, offsets = (emit.and_(bits, str(mask - (1 << 32))) for mask in (0xFF7FFF7F, 0xFF80FF80))
    minus_one = str(0xBF80BF80 - (1 << 32))
    operands = [("i32", offsets), ("i32", minus_one), ("i32", numbers)]
    result = emit.asm("fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", operands, ["i32"])[0]
    first, second = from_word(emit, result, BF16)
    return first, second


def _word_of_bytes(emit: Emitter, source: Sequence[str], index: int, biased: bool) -> str:
    """The four bytes that `index` is among; signed ones moved to where none is negative."""
    first = index & ~3
    word = to_word(emit, source[first : min(first + 4, len(source))], IntType(8))
    return emit.xor(word, str(0x80808080 - (1 << 32))) if biased else word


def _plain(emit: Emitter, op: rows.Cast, register: str, old: Type, new: Type) -> str:
    """Conversions that are one instruction: between integers, pointers, and of bits."""
    opcode = op.llvm
    if isinstance(op, rows.Bitcast) and (isinstance(old, PointerType) or isinstance(new, PointerType)):
        if isinstance(old, PointerType) and isinstance(new, PointerType):
            return register
        opcode = "ptrtoint" if isinstance(old, PointerType) else "inttoptr"
    kinds = llvm_type(old), llvm_type(new)
    if kinds[0] == kinds[1]:
        return register
    if isinstance(old, IntType) and isinstance(new, IntType) and register[0] != "%" and old != I1:
        value = int(register) & (1 << old.bits) - 1 if opcode == "zext" else int(register)
        return constant(value, new)
    result = emit.instruction(f"{opcode} {kinds[0]} {register} to {kinds[1]}")
    if kinds[0] == "i32" and opcode == "trunc":
        emit.places.setdefault(result, emit.places.get(register, (register, 0)))
    elif opcode == "bitcast" and register in emit.places:
        emit.places.setdefault(result, emit.places[register])
    return result


def _to_integer(emit: Emitter, opcode: str, register: str, kind: str, new: IntType) -> str:
    """Toward zero by PTX's `cvt.rzi`, which saturates.  In LLVM an out-of-range result is poison: `freeze` keeps it
    from concluding anything about the result, and an opaque copy from choosing among constants that may be
    converted.  8 bits are truncated from 16, since LLVM otherwise omits the masks that separate neighbours in
    a word."""
    bits = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}[kind]
    hidden = emit.opaque(emit.instruction(f"bitcast {kind} {register} to {bits}"), bits)
    register = emit.instruction(f"bitcast {bits} {hidden} to {kind}")
    whole = emit.instruction(f"{opcode} {kind} {register} to i{max(new.bits, 16)}")
    number = emit.instruction(f"freeze i{max(new.bits, 16)} {whole}")
    return number if new.bits >= 16 else emit.instruction(f"trunc i16 {number} to {llvm_type(new)}")


def convert_floats(
    emit: Emitter, source: Sequence[str], old: FloatType, new: FloatType, rounding: str = "rtne"
) -> Sequence[str]:
    """Between floating-point types; to a narrower one rounding to nearest even (`rtne`) or toward zero
    (`rtz`).  To f8E4M3B15 there is one way alone: from f16, ties away from zero (`rna`)."""
    if (old, new, rounding) == (F16, F8E4M3B15, "rna"):
        return emit.lazy(len(source), lambda i: _pack_e4b15(emit, source, i))
    if rounding == "rtz" and new in (F16, BF16, *FLOATS8):
        # What is cut off in two steps is what is cut off in one.
        wide = (
            source if old == F32 else convert_floats(emit, source, old, F32, "rtz" if old == F64 else "rtne")
        )
        nearest = convert_floats(emit, wide, F32, new) if new in FLOATS8 else ()
        return emit.lazy(
            len(source),
            lambda i: (
                _not_beyond(emit, nearest[i], wide[i], new) if nearest else _toward_zero(emit, wide[i], new)
            ),
        )
    if rounding == "rtz" and (old, new) == (F64, F32):
        return emit.lazy(len(source), lambda i: _cut_double(emit, source[i]))
    if rounding != "rtne" or new == F8E4M3B15:
        raise CompileError(
            f"no conversion from {old} to {new} rounds by {rounding!r}",
            emit.loc,
            "convert to f16, and that by 'rna'" if new == F8E4M3B15 else "use the default, 'rtne'",
        )
    direct = _direct(emit, source, old, new)
    if direct is not None:
        return emit.lazy(len(source), direct)
    # Widening is exact, so a conversion through another type rounds once.
    middle = F16 if old in FLOATS8 else F32
    if middle in (old, new):
        raise InternalError(f"no conversion from {old} to {new}", emit.loc)
    return convert_floats(emit, convert_floats(emit, source, old, middle), middle, new)


def _direct(emit: Emitter, source: Sequence[str], old: FloatType, new: FloatType) -> Convert | None:
    """The conversion in one step, or None when it needs an intermediate type."""
    native = emit.target.has("fp8_conversion")
    if old == F8E4M3B15 and new == F16:
        return lambda i: _unpack_e4b15(emit, source, i)
    if old in _PTX_NAME and new in (F16, BF16) and native:
        return by_pairs(emit, lambda i: _unpack_f8(emit, source, old, new, i))
    if old in FLOATS8 and new == F16:
        return lambda i: (_e5m2_to_f16 if old == F8E5M2 else _e4m3_to_f16)(emit, source[i])
    if new in FLOATS8 and old == F32:
        if native:
            return lambda i: _pack_f8(emit, source, new, i)
        return lambda i: _f32_to_f8(emit, source[i], new)
    if old in FLOATS8 or new in FLOATS8 or (BF16 in (old, new) and F32 not in (old, new)):
        return None
    if old == F32 and new in (F16, BF16) and len(source) > 1:
        return by_pairs(emit, lambda i: _pack_16(emit, source, new, i))
    opcode = "fpext" if new.bits > old.bits else "fptrunc"
    return lambda i: emit.instruction(f"{opcode} {llvm_type(old)} {source[i]} to {llvm_type(new)}")


def by_pairs(emit: Emitter, make: Callable[[int], tuple[str, str]]) -> Convert:
    """A conversion that makes two registers at once, and each pair once where it is written."""
    known: dict[tuple[int, Chunk], tuple[str, str]] = {}

    def convert(index: int) -> str:
        pair = index & ~1, emit.chunk
        if pair not in known:
            known[pair] = make(index)
        return known[pair][index & 1]

    return convert


def neighbours(source: Sequence[str], index: int) -> tuple[str, str]:
    """The even-numbered register of the pair that `index` is in, and the odd one (the same again at an odd
    end)."""
    return source[index & ~1], source[min(index | 1, len(source) - 1)]


def _pack_16(emit: Emitter, source: Sequence[str], new: FloatType, index: int) -> tuple[str, str]:
    low, high = neighbours(source, index)
    pair = f"<2 x {llvm_type(new)}>"
    name = "llvm.nvvm.ff2f16x2.rn" if new == F16 else "llvm.nvvm.ff2bf16x2.rn"
    packed = emit.call(name, pair, [("float", high), ("float", low)])
    first, second = (emit.instruction(f"extractelement {pair} {packed}, i32 {part}") for part in (0, 1))
    word = emit.instruction(f"bitcast {pair} {packed} to i32")
    emit.places.update({first: (word, 0), second: (word, 16)})
    return first, second


def _pack_f8(emit: Emitter, source: Sequence[str], new: FloatType, index: int) -> str:
    low, high = neighbours(source, index)
    template = f"cvt.rn.satfinite.{_PTX_NAME[new]}.f32 $0, $1, $2;"
    word = emit.asm(template, "=h,f,f", [("float", high), ("float", low)], ["i16"])[0]
    return emit.instruction(f"trunc i16 {emit.shift(word, -8 if index & 1 else 0, 'i16')} to i8")


def _unpack_f8(
    emit: Emitter, source: Sequence[str], old: FloatType, new: FloatType, index: int
) -> tuple[str, str]:
    low, high = neighbours(source, index)
    known = known_place(emit, (low, high), 8)
    if known is not None:
        word = emit.instruction(f"trunc i32 {emit.shift(known[0], -known[1])} to i16")
    else:
        wide = [emit.instruction(f"zext i8 {register} to i16") for register in (low, high)]
        word = emit.or_(wide[0], emit.shift(wide[1], 8, "i16"), "i16")
    template = f"cvt.rn.f16x2.{_PTX_NAME[old]} $0, $1;" if new == F16 else _F8_TO_BF16.format(_PTX_NAME[old])
    packed = emit.asm(template, "=r,h", [("i16", word)], ["i32"])[0]
    first, second = from_word(emit, packed, new)
    return first, second


def _toward_zero(emit: Emitter, register: str, new: FloatType) -> str:
    name = "f16" if new == F16 else "bf16"
    bits = emit.asm(f"cvt.rz.{name}.f32 $0, $1;", "=h,f", [("float", register)], ["i16"])[0]
    return emit.instruction(f"bitcast i16 {bits} to {llvm_type(new)}")


def _cut_double(emit: Emitter, register: str) -> str:
    return emit.asm("cvt.rz.f32.f64 $0, $1;", "=f,d", [("double", register)], ["float"])[0]


def _not_beyond(emit: Emitter, nearest: str, register: str, new: FloatType) -> str:
    """The nearest f8, or its neighbour toward zero where it is beyond the number: the one before it in the order of
    the bits."""
    back = convert_floats(emit, [nearest], new, F32)[0]
    sizes = [emit.call("llvm.fabs.f32", "float", [("float", value)]) for value in (back, register)]
    beyond = emit.instruction(f"fcmp ogt float {sizes[0]}, {sizes[1]}")
    return emit.instruction(f"sub i8 {nearest}, {emit.instruction(f'zext i1 {beyond} to i8')}")


def _e5m2_to_f16(emit: Emitter, register: str) -> str:
    """e5m2 is the upper byte of an f16."""
    wide = emit.shift(emit.instruction(f"zext i8 {register} to i16"), 8, "i16")
    return emit.instruction(f"bitcast i16 {wide} to half")


def _e4m3_to_f16(emit: Emitter, register: str) -> str:
    """The bits one place below f16's, times 2^8 for the difference of the exponents' biases; 0x7f is NaN."""
    wide = emit.instruction(f"zext i8 {register} to i16")
    magnitude = emit.and_(wide, "127", "i16")
    sign = emit.shift(emit.and_(wide, "128", "i16"), 8, "i16")
    small = emit.instruction(f"bitcast i16 {emit.or_(emit.shift(magnitude, 7, 'i16'), sign, 'i16')} to half")
    value = emit.instruction(f"fmul half {small}, {constant(256.0, F16)}")
    nan = emit.compare("eq", magnitude, "127", "i16")
    return emit.select(nan, constant(float("nan"), F16), value, "half")


def _unpack_e4b15(emit: Emitter, source: Sequence[str], index: int) -> str:
    """The bits below an f16's sign one place down: four bytes become the upper bytes of two words at a time."""
    word = to_word(emit, _four(source, index), F8E4M3B15)
    # Bytes 0 and 1 of the word, or 2 and 3, each above one of zero.
    spread = emit.asm(
        f"prmt.b32 $0, $1, 0, {'0x1404' if index & 2 == 0 else '0x3424'};", "=r,r", [("i32", word)], ["i32"]
    )[0]
    magnitude = emit.shift(emit.and_(spread, str(0x7F007F00)), -1)
    halves = emit.or_(magnitude, emit.and_(spread, str(0x80008000 - (1 << 32))))
    return from_word(emit, halves, F16)[index & 1]


def _pack_e4b15(emit: Emitter, source: Sequence[str], index: int) -> str:
    """The upper byte of an f16 moved one place up, below its sign, after adding half of the last bit that stays.  The
    minimum of PTX is the number where the other is NaN."""
    four = _four(source, index)
    limit = to_word(emit, [constant(1.75, F16)] * 2, F16)
    upper = []
    for pair in (four[:2], four[2:]):
        bits = to_word(emit, pair, F16)
        size = emit.and_(bits, str(0x7FFF7FFF))
        halves = [emit.instruction(f"bitcast i32 {word} to <2 x half>") for word in (size, limit)]
        least = emit.call("llvm.minnum.v2f16", "<2 x half>", [("<2 x half>", half) for half in halves])
        moved = emit.shift(emit.instruction(f"bitcast <2 x half> {least} to i32"), 1)
        sign = emit.and_(bits, str(0x80008000 - (1 << 32)))
        upper.append(emit.or_(emit.add(moved, str(0x00800080)), sign))
    word = emit.asm("prmt.b32 $0, $1, $2, 0x7531;", "=r,r,r", [("i32", each) for each in upper], ["i32"])[0]
    return from_word(emit, word, F8E4M3B15)[index & 3]


def _four(source: Sequence[str], index: int) -> list[str]:
    """The four registers that `index` is among, the last again past the end."""
    first = index & ~3
    return [source[min(first + place, len(source) - 1)] for place in range(4)]


def _f32_to_f8(emit: Emitter, register: str, new: FloatType) -> str:
    """Nearest even, saturating, with integers: adding a power of two rounds subnormals in the f32 adder,
    adding half a unit (and the last bit) to the f32 bits rounds the others."""
    bias, mantissa = new.bias, new.mantissa_bits
    drop = 23 - mantissa
    largest = float_bits(new.largest, F32)
    bits = emit.instruction(f"bitcast float {register} to i32")
    magnitude = emit.and_(bits, str(0x7FFFFFFF))
    is_nan = emit.compare("ugt", magnitude, str(0x7F800000))
    clamped = emit.call("llvm.umin.i32", "i32", [("i32", magnitude), ("i32", str(largest))])
    # The power of two whose last f32 bit is the smallest f8 subnormal.
    magic = 127 + (1 - bias - mantissa) + 23 << 23
    shifter = emit.instruction(f"bitcast i32 {magic} to float")
    absolute = emit.instruction(f"bitcast i32 {clamped} to float")
    aligned = emit.instruction(f"fadd float {absolute}, {shifter}")
    subnormal = emit.add(emit.instruction(f"bitcast float {aligned} to i32"), str(-magic))
    last = emit.and_(emit.shift(clamped, -drop), "1")
    rebased = emit.add(clamped, str((bias - 127 << 23) + (1 << (drop - 1)) - 1))
    normal = emit.shift(emit.add(rebased, last), -drop)
    small = emit.compare("ult", clamped, str(128 - bias << 23))
    value = emit.select(small, subnormal, normal, "i32")
    number = emit.select(is_nan, "127", value, "i32")
    signed = emit.or_(number, emit.and_(emit.shift(bits, -24), "128"))
    return emit.instruction(f"trunc i32 {signed} to i8")
