"""Logic, shifts, bit fields, comparisons, selections and moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbuild.emulator.isa.instruction_spec import TYPES, Form, InstructionSpec, Lanes

_BITS = "{b16|b32|b64}"
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _not(form: Form) -> Lanes:
    return np.logical_not if form.type == "pred" else np.invert


def _shift(form: Form) -> Lanes:
    """Amounts of the width or more give 0, or the sign for an arithmetic right shift."""
    width = 8 * form.dtype.itemsize
    amount_dtype = form.dtype

    def left(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
        return np.where(amount < width, a << (amount & (width - 1)).astype(amount_dtype), 0)

    def right(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
        if form.dtype.kind == "i":
            return a >> np.minimum(amount, width - 1).astype(amount_dtype)
        return np.where(amount < width, a >> (amount & (width - 1)).astype(amount_dtype), 0)

    return left if form.opcode == "shl" else right


def _funnel(form: Form) -> Lanes:
    """`shf`: the pair b:a shifted, one word of it kept."""
    left, clamp = form.has("l"), form.has("clamp")

    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        amount = (np.minimum(c, 32) if clamp else c & 31).astype(np.uint64)
        pair = (b.astype(np.uint64) << np.uint64(32)) | a
        return (((pair << amount) >> np.uint64(32)) if left else pair >> amount).astype(np.uint32)

    return function


def _extract(form: Form) -> Lanes:
    """`bfe`: a field, sign- or zero-extended."""
    width = 8 * form.dtype.itemsize

    def function(a: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        position, count = (start & 255).astype(np.int64), (length & 255).astype(np.int64)
        wide = a.astype(object) if width == 64 else a.astype(np.int64)
        if width == 64:
            return np.array(
                [_extract_one(int(x), int(p), int(n), form) for x, p, n in zip(wide, position, count)],
                form.dtype,
            )
        shifted = np.where(position < width, wide >> np.minimum(position, 63), np.where(wide < 0, -1, 0))
        inside = (
            np.minimum(count, np.maximum(width - position, 0))
            if form.dtype.kind == "u"
            else np.minimum(count, width)
        )
        field = shifted & ((1 << inside) - 1)
        if form.dtype.kind == "i":
            sign = (wide >> np.minimum(position + count - 1, width - 1)) & 1
            field = np.where(sign.astype(bool) & (count > 0), field | ~((1 << inside) - 1), field)
        return np.where(count == 0, 0, field).astype(form.dtype)

    return function


def _extract_one(value: int, position: int, count: int, form: Form) -> int:
    """One 64-bit field by Python's integers."""
    sign = 0
    if form.dtype.kind == "i" and count:
        sign = value >> min(position + count - 1, 63) & 1
    field = (value & (1 << 64) - 1) >> position if position < 64 else 0
    kept = min(count, max(64 - position, 0))
    field &= (1 << kept) - 1
    return field | (-1 << kept) if sign else field


def _insert(form: Form) -> Lanes:
    """`bfi`: the low bits of `a` put into `b`."""
    width = 8 * form.dtype.itemsize

    def function(a: np.ndarray, b: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        position, count = (start & 255).astype(np.uint64), (length & 255).astype(np.uint64)
        count = np.minimum(
            count,
            np.where(position < width, width - np.minimum(position, width).astype(np.int64), 0).astype(
                np.uint64
            ),
        )
        ones = np.where(
            count >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1)
        )
        place = np.minimum(position, np.uint64(63))
        mask = np.where(position < width, ones << place, np.uint64(0))
        return ((b.astype(np.uint64) & ~mask) | ((a.astype(np.uint64) << place) & mask)).astype(form.dtype)

    return function


def _mask(form: Form) -> Lanes:
    """`bmsk`: a number of ones from a bit on.  Numbers beyond the width are cut (`.clamp`), or their low bits
    taken (`.wrap`)."""
    wrap = form.has("wrap")

    def function(start: np.ndarray, length: np.ndarray) -> np.ndarray:
        first, count = (
            np.asarray(value & 31 if wrap else np.minimum(value, 32), np.uint64) for value in (start, length)
        )
        one = np.uint64(1)
        return (((one << count) - one) << first).astype(np.uint32)

    return function


def _count_ones(a: np.ndarray) -> np.ndarray:
    return (
        np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1), axis=1)
        .sum(1)
        .astype(np.uint32)
    )


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = np.unpackbits(np.ascontiguousarray(a)[:, None].view(np.uint8)[:, ::-1], axis=1)
    return np.where(bits.any(1), bits.argmax(1), bits.shape[1]).astype(np.uint32)


def _find(form: Form) -> Lanes:
    """`bfind`: the place of the highest bit that differs from the sign, or all ones."""
    width = 8 * form.dtype.itemsize

    def function(a: np.ndarray) -> np.ndarray:
        plain = (
            np.where(a < 0, ~a, a).astype(form.dtype).view(f"u{form.dtype.itemsize}")
            if form.dtype.kind == "i"
            else a
        )
        zeros = _leading_zeros(plain).astype(np.int64)
        place = zeros if form.has("shiftamt") else width - 1 - zeros
        return np.where(zeros == width, -1, place).astype(np.int64).astype(np.uint32)

    return function


def _reverse(a: np.ndarray) -> np.ndarray:
    bits = np.unpackbits(np.ascontiguousarray(a)[:, None].view(np.uint8), axis=1, bitorder="little")
    return np.ascontiguousarray(np.packbits(bits[:, ::-1], axis=1, bitorder="little")).view(a.dtype).ravel()


def _permute(form: Form) -> Lanes:
    """`prmt`: each byte of the result is one of the eight bytes of b:a, or the copies of its sign."""
    mode = form.choose("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")

    def function(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
        sources = np.empty((len(a), 8), np.uint8)
        sources[:, :4] = np.ascontiguousarray(a)[:, None].view(np.uint8)
        sources[:, 4:] = np.ascontiguousarray(b)[:, None].view(np.uint8)
        picks = _picks(mode, selector)
        chosen = np.take_along_axis(sources, (picks & 7).astype(np.intp), axis=1)
        if not mode and (picks & 8).any():
            chosen = np.where(picks & 8, np.where(chosen & 0x80, 0xFF, 0), chosen).astype(np.uint8)
        return np.ascontiguousarray(chosen).view(np.uint32).ravel()

    return function


def _picks(mode: str, selector: np.ndarray) -> np.ndarray:
    """Which source byte each byte of the result takes, [lanes, 4]."""
    place = np.arange(4, dtype=np.uint32)
    if not mode:
        return (selector[:, None] >> (4 * place)) & 15
    low = (selector & 3)[:, None]
    return {
        "f4e": (low + place) & 7,
        "b4e": (low - place) & 7,
        "rc8": low + 0 * place,
        "ecl": np.maximum(place, low),
        "ecr": np.minimum(place, low),
        "rc16": (low & 1) * 2 + (place & 1),
    }[mode].astype(np.uint32)


def _lookup(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    """`lop3`: any function of three bits, by its truth table."""
    number, result = int(table[0]), np.zeros_like(a)
    for index in range(8):
        if number >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result


def _compare(form: Form) -> Lanes:
    """The comparison alone, to a bool per lane."""
    name = form.modifiers[0]
    if name in _COMPARE and not (name == "ne" and form.dtype.kind == "f"):
        return _COMPARE[name]
    if name == "ne":
        return lambda a, b: (a < b) | (a > b)
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    plain = _COMPARE[_UNORDERED[name]]
    return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)


def _bfloat_values(function: Lanes) -> Lanes:
    return lambda *values: function(*((value.astype(np.uint32) << 16).view(np.float32) for value in values))


def _comparison(form: Form) -> Lanes:
    compare = _bfloat_values(_compare(form)) if form.type == "bf16" else _compare(form)
    if form.has("ftz"):
        return lambda a, b: compare(flush(a), flush(b))
    return compare


_TINY = {np.dtype(kind): np.finfo(kind).tiny for kind in ("f2", "f4", "f8")}


def flush(values: np.ndarray) -> np.ndarray:
    """Subnormal numbers of a float type as zeros of their sign."""
    return np.where(np.abs(values) < _TINY[values.dtype], np.copysign(values.dtype.type(0), values), values)


def _set_predicate(form: Form) -> Lanes:
    """`setp`: one predicate or a pair of opposite ones, optionally combined with a third."""
    compare = _comparison(form)
    combine = _COMBINE.get(form.choose("and", "or", "xor"))
    if combine is None:
        return compare
    return lambda a, b, c: combine(compare(a, b), c)


_OPPOSITE = {
    "eq": "ne",
    "ne": "eq",
    "lt": "ge",
    "ge": "lt",
    "gt": "le",
    "le": "gt",
    "lo": "hs",
    "hs": "lo",
    "hi": "ls",
    "ls": "hi",
}
_OPPOSITE_FLOAT = {
    "eq": "neu",
    "neu": "eq",
    "ne": "equ",
    "equ": "ne",
    "lt": "geu",
    "geu": "lt",
    "le": "gtu",
    "gtu": "le",
    "gt": "leu",
    "leu": "gt",
    "ge": "ltu",
    "ltu": "ge",
    "num": "nan",
    "nan": "num",
}


def opposite(form: Form) -> Form:
    """The form of `setp` that gives the second predicate of `p|q`: it holds where the comparison does not."""
    names = _OPPOSITE_FLOAT if form.type in ("f16", "bf16", "f32", "f64") else _OPPOSITE
    return Form(form.row, form.opcode, (names[form.modifiers[0]], *form.modifiers[1:]))


def _set(form: Form) -> Lanes:
    """`set`: all ones (or 1.0) where the comparison holds."""
    compare = _comparison(form)
    ones = np.float32(1) if form.types[0] == "f32" else np.uint32(0xFFFFFFFF)
    return lambda a, b: np.where(compare(a, b), ones, ones.dtype.type(0))


def _set_halves(form: Form) -> Lanes:
    """`set` of one half or a pair: 1.0 where the comparison holds, or all ones for a result of integers."""
    kind, source = form.types
    plain = source.removesuffix("x2")
    compare = _comparison(
        replace(form, modifiers=(*(each for each in form.modifiers if each not in form.types), plain))
    )
    width = np.dtype("u2" if kind.startswith(("f16", "bf16")) or source.endswith("x2") else "u4")
    ones = {"f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80}.get(kind, np.iinfo(width).max)

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        one, other = (np.ascontiguousarray(value).view(TYPES[plain]) for value in (a, b))
        return np.where(compare(one, other), width.type(ones), width.type(0)).view(TYPES[kind])

    return function


def _select(form: Form) -> Lanes:
    return lambda a, b, predicate: np.where(predicate, a, b)


_ORDERED = "{eq|ne|lt|le|gt|ge"
_FLOAT_COMPARE = _ORDERED + "|equ|neu|ltu|leu|gtu|geu|num|nan}"
_LATER = "it is of CUDA C++ alone, and waits for the next measurement"
_INTEGER = "{u16|u32|u64|s16|s32|s64}"

ROWS = [
    InstructionSpec("and{pred|b16|b32|b64}", "t = t t", "bitwise and", lambda _: np.bitwise_and),
    InstructionSpec("or{pred|b16|b32|b64}", "t = t t", "bitwise or", lambda _: np.bitwise_or),
    InstructionSpec("xor{pred|b16|b32|b64}", "t = t t", "bitwise exclusive or", lambda _: np.bitwise_xor),
    InstructionSpec("not{pred|b16|b32|b64}", "t = t", "complement", _not),
    InstructionSpec(
        "cnot" + _BITS, "t = t", "1 where the source is 0", lambda form: lambda a: (a == 0).astype(form.dtype)
    ),
    InstructionSpec("shl" + _BITS, "t = t u32", "left shift", _shift),
    InstructionSpec(
        "shr{b16|b32|b64|u16|u32|u64|s16|s32|s64}",
        "t = t u32",
        "right shift, arithmetic for signed types",
        _shift,
    ),
    InstructionSpec("shf{l|r}{wrap|clamp}.b32", "t = t t u32", "funnel shift", _funnel),
    InstructionSpec("bfe{u32|u64|s32|s64}", "t = t u32 u32", "extract a bit field", _extract),
    InstructionSpec("bfi{b32|b64}", "t = t t u32 u32", "insert a bit field", _insert),
    InstructionSpec("bmsk{clamp|wrap}.b32", "t = t u32", "a run of ones", _mask),
    InstructionSpec(
        "bfind[shiftamt]{u32|u64|s32|s64}", "u32 = t", "place of the most significant bit", _find
    ),
    InstructionSpec("popc{b32|b64}", "u32 = t", "number of ones", lambda _: _count_ones),
    InstructionSpec("clz{b32|b64}", "u32 = t", "number of leading zeros", lambda _: _leading_zeros),
    InstructionSpec("brev{b32|b64}", "t = t", "bits in reverse", lambda _: _reverse),
    InstructionSpec("prmt.b32[f4e|b4e|rc8|ecl|ecr|rc16]", "t = t t u32", "bytes permuted", _permute),
    InstructionSpec(
        "lop3.b32",
        "t = t t t b32",
        "any logic function of three sources",
        lambda _: _lookup,
        unasked="the test program would have a register where it needs a number",
    ),
    InstructionSpec("setp{eq|ne}" + _BITS, "pred pred? = t t", "compare bits", _set_predicate),
    InstructionSpec(
        "setp{eq|ne}{and|or|xor}" + _BITS, "pred pred? = t t pred", "compare bits and combine", _set_predicate
    ),
    InstructionSpec(
        "setp{eq|ne|lt|le|gt|ge|lo|ls|hi|hs}" + _INTEGER,
        "pred pred? = t t",
        "compare integers",
        _set_predicate,
    ),
    InstructionSpec(
        "setp{eq|ne|lt|le|gt|ge|lo|ls|hi|hs}{and|or|xor}" + _INTEGER,
        "pred pred? = t t pred",
        "compare integers and combine",
        _set_predicate,
    ),
    InstructionSpec(
        "setp" + _FLOAT_COMPARE + "[ftz]{f16|bf16|f32|f64}",
        "pred pred? = t t",
        "compare floats",
        _set_predicate,
    ),
    InstructionSpec(
        "setp" + _FLOAT_COMPARE + "{and|or|xor}[ftz]{f32|f64}",
        "pred pred? = t t pred",
        "compare floats and combine",
        _set_predicate,
    ),
    InstructionSpec(
        "set" + _FLOAT_COMPARE + "[ftz]{u32|s32|f32}{u32|s32|f32}", "t0 = t t", "compare to a number", _set
    ),
    InstructionSpec(
        "set" + _FLOAT_COMPARE + "[ftz]{f16|u32|s32}{f16}",
        "t0 = t t",
        "compare to a number",
        _set_halves,
        unasked=_LATER,
    ),
    InstructionSpec(
        "set" + _FLOAT_COMPARE + "[ftz]{bf16|u32|s32}{bf16}",
        "t0 = t t",
        "compare to a number",
        _set_halves,
        unasked=_LATER,
    ),
    InstructionSpec(
        "set" + _FLOAT_COMPARE + "[ftz]{f16x2|u32|s32}{f16x2}",
        "t0 = t t",
        "compare to numbers, by halves",
        _set_halves,
        unasked=_LATER,
    ),
    InstructionSpec(
        "set" + _FLOAT_COMPARE + "[ftz]{bf16x2|u32|s32}{bf16x2}",
        "t0 = t t",
        "compare to numbers, by halves",
        _set_halves,
        unasked=_LATER,
    ),
    InstructionSpec(
        "selp{b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64}",
        "t = t t pred",
        "one of two, by a predicate",
        _select,
    ),
]
