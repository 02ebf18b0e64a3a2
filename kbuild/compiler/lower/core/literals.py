"""LLVM's spelling of types and constants."""

from __future__ import annotations

import math
import struct

from kbuild.compiler.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS8,
    I1,
    FloatType,
    IntType,
    PointerType,
    Type,
    bit_width,
    element_of,
)
from kbuild.compiler.ops.elementwise import round_float
from kbuild.errors import InternalError

GLOBAL_POINTER = "ptr addrspace(1)"
SHARED_POINTER = "ptr addrspace(3)"
SHARED = "@shared = external addrspace(3) global [0 x i8], align 1024"
"""A program's shared memory.  A kernel that declares it takes 1,024 bytes of it on sm_90, used or not: a part of the
cache, which a multiprocessor has to be given before such a program can start."""
_FLOATS: dict[Type, str] = {
    F64: "double",
    F32: "float",
    F16: "half",
    BF16: "bfloat",
    **dict.fromkeys(FLOATS8, "i8"),
}


def llvm_type(type_: Type) -> str:
    """The LLVM type of one register of a value: of a scalar, or of one element of a tensor.  f8 travels as i8."""
    element = element_of(type_)
    if isinstance(element, IntType):
        return f"i{element.bits}"
    if isinstance(element, PointerType):
        return GLOBAL_POINTER
    if element not in _FLOATS:
        raise InternalError(f"{element} has no register")
    return _FLOATS[element]


def memory_type(type_: Type) -> str:
    """The LLVM type of an element in memory: i1 takes a byte, pointers are 64-bit integers."""
    element = element_of(type_)
    if isinstance(element, PointerType):
        return "i64"
    return "i8" if element == I1 else llvm_type(element)


def memory_bits(type_: Type) -> int:
    """Bits of an element in memory."""
    return max(8, bit_width(type_))


def constant(value: float, type_: Type) -> str:
    """The text of a number as a constant of a type; floats are rounded to it, integers wrapped into it."""
    element = element_of(type_)
    if element == I1:
        return "true" if value else "false"
    if isinstance(element, IntType):
        number = int(value) & (1 << element.bits) - 1
        return str(number - (1 << element.bits) if number >> (element.bits - 1) else number)
    if isinstance(element, PointerType):
        if value:
            raise InternalError(f"the pointer constant {value} is not null")
        return "null"
    assert isinstance(element, FloatType)
    bits = float_bits(value, element)
    if element in FLOATS8:
        return str(bits - 256 if bits > 127 else bits)
    if element == F16:
        return f"0xH{bits:04X}"
    if element == BF16:
        return f"0xR{bits:04X}"
    if element == F64:
        return f"0x{bits:016X}"
    # LLVM writes f32 constants as the double of the same value.
    return f"0x{_double_bits(struct.unpack('<f', struct.pack('<I', bits))[0]):016X}"


def constant_bits(text: str, type_: Type) -> int:
    """The bits of a constant that `constant` wrote for a number."""
    element = element_of(type_)
    if isinstance(element, IntType) or element in FLOATS8:
        return int(text)
    if element in (F16, BF16):
        return int(text[3:], 16)
    if element == F64:
        return int(text, 16)
    return struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]))[0]


def float_bits(value: float, type_: FloatType) -> int:
    """The bits of a number rounded to a type, nearest even.  Finite numbers saturate in f8 and overflow to
    infinity elsewhere; infinity is kept where the type has it."""
    if type_ == F64:
        return _double_bits(value)
    exponent_bits, mantissa_bits = type_.exponent_bits, type_.mantissa_bits
    sign = (math.copysign(1.0, value) < 0) << (exponent_bits + mantissa_bits)
    special = (1 << exponent_bits) - 1 << mantissa_bits
    if math.isnan(value):
        return sign | (0x7F if type_.bits == 8 else special | 1 << (mantissa_bits - 1))
    keeps_infinity = math.isinf(value) and type_.specials == "ieee"
    magnitude = abs(value if keeps_infinity else round_float(value, type_))
    if math.isinf(magnitude):
        return sign | special
    least = 1 - type_.bias
    exponent = max(math.frexp(magnitude)[1] - 1, least) if magnitude else least
    return sign | (exponent - least << mantissa_bits) + int(math.ldexp(magnitude, mantissa_bits - exponent))


def _double_bits(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def asm_string(text: str) -> str:
    """A text as it stands between the quotes of an LLVM string."""
    return text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
