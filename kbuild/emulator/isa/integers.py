"""Integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbuild.emulator.isa.instruction_spec import TYPES, Form, InstructionSpec, Lanes

_WIDER = {"u1": "u2", "u2": "u4", "u4": "u8", "i1": "i2", "i2": "i4", "i4": "i8"}


def _add(form: Form) -> Lanes:
    return _saturated(np.add, form.dtype) if form.has("sat") else np.add


def _sub(form: Form) -> Lanes:
    return _saturated(np.subtract, form.dtype) if form.has("sat") else np.subtract


def _saturated(function: Callable[..., np.ndarray], dtype: np.dtype) -> Lanes:
    limits = np.iinfo(dtype)
    return lambda a, b: np.clip(function(a.astype(np.int64), b), limits.min, limits.max).astype(dtype)


def _mul(form: Form) -> Lanes:
    if form.has("lo"):
        return np.multiply
    if form.has("wide"):
        wide = TYPES[form.operand_type("wide")]
        return lambda a, b: np.multiply(a, b, dtype=wide)
    return lambda a, b: high_product(a, b, form.dtype)


def high_product(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The upper half of the products, exactly."""
    if dtype.itemsize < 8:
        wide = np.dtype(_WIDER[dtype.str[1:]])
        return (np.multiply(a, b, dtype=wide) >> (8 * dtype.itemsize)).astype(dtype)
    low = np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> np.uint64(32), y & low, y >> np.uint64(32)
    middle = x1 * y0 + (x0 * y0 >> np.uint64(32))
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    if dtype.kind == "i":
        high = high - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)
    return high.astype(np.uint64).view(dtype)


def _mad(form: Form) -> Lanes:
    product = _mul(form)
    if form.has("sat"):
        add = _saturated(np.add, form.dtype)
        return lambda a, b, c: add(product(a, b), c)
    return lambda a, b, c: np.add(product(a, b), c)


def _low_bits(values: np.ndarray) -> np.ndarray:
    """The low 24 bits of 32, as a number of 64."""
    return (values << 8 >> 8).astype(np.int64)


def _mul_short(form: Form) -> Lanes:
    """`mul24`: of the 48 bits of a product of 24 bits, the low or the high 32."""
    down = 16 if form.has("hi") else 0
    return lambda a, b: (_low_bits(a) * _low_bits(b) >> down).astype(form.dtype)


def _mad_short(form: Form) -> Lanes:
    product, add = _mul_short(form), _add(form)
    return lambda a, b, c: add(product(a, b), c)


def _add_carry(form: Form) -> Lanes:
    """`add.cc`, `addc`: the carry is the register's last source and last result."""

    def function(a: np.ndarray, b: np.ndarray, *carry: np.ndarray) -> tuple[np.ndarray, ...]:
        x, y = a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")
        total = x + y
        out = total < x
        if carry:
            total = total + carry[0].astype(total.dtype)
            out |= (total == 0) & carry[0]
        return (total.view(a.dtype), out) if form.has("cc") else (total.view(a.dtype),)

    return function


def _sub_borrow(form: Form) -> Lanes:
    def function(a: np.ndarray, b: np.ndarray, *borrow: np.ndarray) -> tuple[np.ndarray, ...]:
        x, y = a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")
        less = borrow[0].astype(x.dtype) if borrow else np.zeros_like(x)
        total = x - y - less
        out = (x < y) | ((x == y) & (less != 0))
        return (total.view(a.dtype), out) if form.has("cc") else (total.view(a.dtype),)

    return function


def _mad_carry(form: Form) -> Lanes:
    product, add = _mul(form), _add_carry(form)
    return lambda a, b, c, *carry: add(product(a, b), c, *carry)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients rounded towards zero; all ones for a divisor of zero, as the hardware gives."""
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = a // divisor
    if a.dtype.kind == "i":
        quotient = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    ones = np.array(-1 if a.dtype.kind == "i" else np.iinfo(a.dtype).max, a.dtype)
    return np.where(b == 0, ones, quotient)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a - divide(a, b) * b`; all ones for a divisor of zero, as the hardware gives."""
    quotient = divide(a, b)
    return np.where(b == 0, quotient, a - quotient * b)


def _dot(form: Form) -> Lanes:
    """`dp4a` and `dp2a`: products of bytes (and halves), added up."""
    a_type, b_type = (TYPES[t.replace("32", "8")] for t in form.types)
    wide = form.opcode == "dp2a"
    first = TYPES[form.types[0].replace("32", "16")] if wide else a_type

    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        left = np.ascontiguousarray(a).view(first).reshape(len(a), -1).astype(np.int64)
        right = np.ascontiguousarray(b).view(b_type).reshape(len(b), 4).astype(np.int64)
        if wide:
            right = right[:, 2:] if form.has("hi") else right[:, :2]
        return ((left * right).sum(1) + c).astype(np.int64).astype(c.dtype)

    return function


def _extreme(form: Form) -> Lanes:
    extreme = np.minimum if form.opcode == "min" else np.maximum
    return (lambda a, b: np.maximum(extreme(a, b), np.zeros((), a.dtype))) if form.has("relu") else extreme


def _byte_differences(form: Form) -> Lanes:
    """`vabsdiff2` and `vabsdiff4`: element by element, in the sources' types; without `.add` the addend is not used."""
    width = "8" if form.opcode.endswith("4") else "16"
    kinds = [TYPES[type_.replace("32", width)] for type_ in form.types[1:]]

    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        left, right = (
            np.ascontiguousarray(value).view(kind).reshape(len(value), -1).astype(np.int64)
            for value, kind in zip((a, b), kinds)
        )
        found = np.abs(left - right)
        if form.has("add"):
            return (found.sum(axis=1) + c).astype(form.dtype)
        return found.astype(f"u{int(width) // 8}").view(TYPES[form.types[0]]).reshape(-1)

    return function


_LATER = "it is of CUDA C++ alone, and waits for the next measurement"
ROWS = [
    InstructionSpec("add{u16|u32|u64|s16|s64}", "t = t t", "sum", _add),
    InstructionSpec("add[sat].s32", "t = t t", "sum, clamped with .sat", _add),
    InstructionSpec(
        "add{u16x2|s16x2}", "t = t t", "sums of both halves", lambda form: packed_halves(np.add, form)
    ),
    InstructionSpec("sub{u16|u32|u64|s16|s64}", "t = t t", "difference", _sub),
    InstructionSpec("sub[sat].s32", "t = t t", "difference, clamped with .sat", _sub),
    InstructionSpec("add.cc{u32|s32|u64|s64}", "t cc = t t", "sum, and its carry", _add_carry),
    InstructionSpec("addc[cc]{u32|s32|u64|s64}", "t cc? = t t cc", "sum with carry", _add_carry),
    InstructionSpec("sub.cc{u32|s32|u64|s64}", "t cc = t t", "difference, and its borrow", _sub_borrow),
    InstructionSpec("subc[cc]{u32|s32|u64|s64}", "t cc? = t t cc", "difference with borrow", _sub_borrow),
    InstructionSpec("mul{lo|hi}{u16|u32|u64|s16|s32|s64}", "t = t t", "one half of the product", _mul),
    InstructionSpec("mul.wide{u16|u32|s16|s32}", "wide = t t", "the whole product", _mul),
    InstructionSpec(
        "mad{lo|hi}{u16|u32|u64|s16|s64}", "t = t t t", "one half of the product, plus an addend", _mad
    ),
    InstructionSpec("mad.lo.s32", "t = t t t", "low half of the product, plus an addend", _mad),
    InstructionSpec("mad.hi[sat].s32", "t = t t t", "high half of the product, plus an addend", _mad),
    InstructionSpec(
        "mad.wide{u16|u32|s16|s32}", "wide = t t wide", "the whole product, plus an addend", _mad
    ),
    InstructionSpec(
        "mad{lo|hi}.cc{u32|s32|u64|s64}", "t cc = t t t", "multiply and add, and the carry", _mad_carry
    ),
    InstructionSpec(
        "madc{lo|hi}[cc]{u32|s32|u64|s64}", "t cc? = t t t cc", "multiply and add with carry", _mad_carry
    ),
    InstructionSpec(
        "mul24{lo|hi}{u32|s32}", "t = t t", "low or high 32 bits of the product of 24 bits", _mul_short
    ),
    InstructionSpec("mad24{lo|hi}{u32|s32}", "t = t t t", "product of 24 bits, plus an addend", _mad_short),
    InstructionSpec(
        "mad24.hi.sat.s32", "t = t t t", "product of 24 bits, plus an addend, clamped", _mad_short
    ),
    InstructionSpec(
        "div{u16|u32|u64|s16|s32|s64}", "t = t t", "quotient, rounded towards zero", lambda _: divide
    ),
    InstructionSpec(
        "rem{u16|u32|u64|s16|s32|s64}", "t = t t", "remainder with the dividend's sign", lambda _: remainder
    ),
    InstructionSpec("abs{s16|s32|s64}", "t = t", "absolute value", lambda _: np.absolute),
    InstructionSpec("neg{s16|s32|s64}", "t = t", "negative", lambda _: np.negative),
    InstructionSpec("min{u16|u32|u64|s16|s64}", "t = t t", "smaller", lambda _: np.minimum),
    InstructionSpec("max{u16|u32|u64|s16|s64}", "t = t t", "larger", lambda _: np.maximum),
    InstructionSpec("min[relu].s32", "t = t t", "smaller; with .relu zero for negative numbers", _extreme),
    InstructionSpec("max[relu].s32", "t = t t", "larger; with .relu zero for negative numbers", _extreme),
    InstructionSpec(
        "min{u16x2|s16x2}", "t = t t", "smaller of both halves", lambda form: packed_halves(np.minimum, form)
    ),
    InstructionSpec(
        "max{u16x2|s16x2}", "t = t t", "larger of both halves", lambda form: packed_halves(np.maximum, form)
    ),
    InstructionSpec(
        "sad{u16|u32|u64|s16|s32|s64}",
        "t = t t t",
        "absolute difference, plus an addend",
        lambda _: lambda a, b, c: np.where(a < b, b - a, a - b) + c,
    ),
    InstructionSpec(
        "vabsdiff4{u32|s32}{u32|s32}{u32|s32}[add]",
        "t0 = t t t0",
        "absolute differences of four bytes, or their sum plus an addend",
        _byte_differences,
        unasked=_LATER,
    ),
    InstructionSpec(
        "vabsdiff2{u32|s32}{u32|s32}{u32|s32}[add]",
        "t0 = t t t0",
        "absolute differences of two halves, or their sum plus an addend",
        _byte_differences,
        unasked=_LATER,
    ),
    InstructionSpec(
        "dp4a{u32|s32}{u32|s32}", "b32 = t0 t s32", "four products of bytes, plus an addend", _dot
    ),
    InstructionSpec(
        "dp2a{lo|hi}{u32|s32}{u32|s32}",
        "b32 = t0 t s32",
        "two products of halves and bytes, plus an addend",
        _dot,
    ),
]


def packed_halves(function: Callable[..., np.ndarray], form: Form) -> Lanes:
    """A 16-bit integer function on both halves of 32-bit registers."""
    half = np.dtype("i2" if form.type == "s16x2" else "u2")
    return lambda a, b: function(a.view(half), b.view(half)).view(np.uint32)
