"""Elementwise expressions: arithmetic, comparisons, casts."""

from __future__ import annotations

import operator

from random_programs.generator import Generator, is_name, number, producer, tuple_text
from random_programs.nodes import Expr
from random_programs.types import (
    ANY,
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    ROUNDED,
    WHOLE,
    DType,
    Type,
    corners,
    full,
    result,
    union,
    worst,
)

Shape = tuple[int, ...]


def operand_shapes(g: Generator, shape: Shape) -> tuple[Shape, Shape]:
    """Shapes that broadcast to a shape."""
    if not shape or g.chance(0.6):
        return shape, shape
    small: Shape = () if g.chance(0.5) else tuple(g.pick(1, size) for size in shape)
    if small and len(shape) > 1 and g.chance(0.5):
        other = tuple(1 if one == most > 1 and g.chance(0.5) else most for one, most in zip(small, shape))
        pair = small, other
    else:
        pair = g.pick((shape, small), (small, shape))
    covered = tuple(max(a, b) for a, b in zip(pair[0] or (1,) * len(shape), pair[1] or (1,) * len(shape)))
    return pair if covered == shape else (shape, shape)


def narrower(g: Generator, dtype: DType) -> DType:
    """A type that becomes `dtype` where it meets it."""
    if dtype == BF16:
        return dtype  # With all others it gives fp32.
    if dtype.is_float:
        return g.pick(*INTEGERS, *((F16, BF16) if dtype.bits > 16 else ()))
    fitting = [other for other in INTEGERS if other.is_signed == dtype.is_signed and other.bits < dtype.bits]
    return g.pick(*fitting, dtype)


def operands(g: Generator, dtype: DType, shape: Shape, depth: int) -> tuple[Expr, Expr]:
    """Two values of a type and a shape; one of them may be smaller, narrower, or a number of Python."""
    one_shape, other_shape = operand_shapes(g, shape)
    one = g.expression(dtype, one_shape, depth)
    if g.chance(0.15) and one_shape == shape and not dtype.is_fp8 and not dtype.is_bool:
        other = g.literal(dtype, max(dtype.low, -9), min(dtype.high, 9))
    elif g.chance(0.12):
        kind = narrower(g, dtype)
        other = g.expression(kind, other_shape, depth)
        if kind != dtype and not other.type.within(dtype.low, dtype.high):
            other = g.expression(dtype, other_shape, depth)
    else:
        other = g.expression(dtype, other_shape, depth)
    return (other, one) if g.chance(0.3) else (one, other)


@producer(6)
def arithmetic(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Sums, differences, products."""
    if dtype.is_fp8 or dtype.is_bool:
        return None
    a, b = operands(g, dtype, shape, depth)
    for sign in g.random.sample(("+", "-", "*"), 3):
        if a.type.is_whole and b.type.is_whole:
            function = {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign]
            found = result(dtype, shape, *corners(function, a.type, b.type))
        elif ROUNDED in (a.type.kind, b.type.kind) or dtype not in FLOATS:
            return None
        else:
            found = Type(dtype, shape, kind=ROUNDED)
        if found is not None:
            return Expr(found, "(", a, f" {sign} ", b, ")")
    return None


@producer(3)
def division(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Quotients and remainders by what is not zero; they truncate towards zero."""
    if dtype not in INTEGERS:
        return None
    one_shape, other_shape = operand_shapes(g, shape)
    b = divisor(g, dtype, other_shape if one_shape == shape else shape, depth)
    a = g.expression(dtype, one_shape if b.type.shape == shape else shape, depth)
    # By anything, where it matters what that gives only if it is defined.
    if g.chance(0.15) and one_shape == shape:
        b = g.named(g.expression(dtype, shape, depth))
        sign, bad = g.pick("//", "%"), f"(({b} == 0) | ({b} == -1))" if dtype.is_signed else f"({b} == 0)"
        return Expr(
            full(dtype, shape), f"tl.where({bad}, ", g.constant(dtype, shape), ", ", a, f" {sign} {b})"
        )
    return quotient(g, a, b, shape)


def quotient(g: Generator, a: Expr, b: Expr, shape: Shape) -> Expr | None:
    """a // b or a % b, where neither is undefined."""
    dtype = a.type.dtype
    if b.type.low <= 0 <= b.type.high or (
        dtype.is_signed and a.type.low == dtype.low and b.type.low <= -1 <= b.type.high
    ):
        return None
    divisor_size, size = max(abs(b.type.low), abs(b.type.high)), max(abs(a.type.low), abs(a.type.high))
    if g.chance(0.5):
        least = min(abs(b.type.low), abs(b.type.high))
        most = size // least
        low = 0 if a.type.low >= 0 and b.type.low > 0 else -most
        return Expr(Type(dtype, shape, max(low, dtype.low), min(most, dtype.high)), "(", a, " // ", b, ")")
    most = min(divisor_size - 1, size)
    return Expr(
        Type(dtype, shape, 0 if a.type.low >= 0 else -most, 0 if a.type.high <= 0 else most),
        "(",
        a,
        " % ",
        b,
        ")",
    )


def divisor(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr:
    """A value that is not zero."""
    high = min(dtype.high, 64)
    if g.chance(0.5) or dtype.bits == 8:
        value = g.pick(1, 2, 3, 4, 7, 8, 16, 24, 64, *((-1, -2, -3, -8) if dtype.is_signed else ()))
        return Expr(Type(dtype, (), value, value), str(value))
    known = [
        Expr(t, name)
        for name, t in g.variables()
        if (t.dtype, t.shape) == (dtype, ()) and not t.low <= 0 <= t.high
    ]
    if known and g.chance(0.5):
        return g.pick(*known)
    value = g.expression(dtype, shape, depth)
    if dtype.is_signed and g.chance(0.4):
        return Expr(Type(dtype, shape, -15, -3), "(", value, " % 7 - 9)")
    mask = high // 2 - 1
    return Expr(Type(dtype, shape, 1, mask + 1), "((", value, f" & {mask}) + 1)")


@producer(3)
def bits(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Bitwise operators and shifts by less than the width."""
    if dtype.is_float:
        return None
    one_shape, other_shape = operand_shapes(g, shape)
    a = g.expression(dtype, one_shape, depth)
    if dtype.is_bool or g.chance(0.5):
        b = g.expression(dtype, other_shape, depth)
        sign = g.pick("&", "|", "^")
        low, high = _bitwise_range(sign, a.type, b.type)
        return Expr(Type(dtype, shape, low, high), "(", a, f" {sign} ", b, ")")
    if one_shape != shape:
        other_shape = shape
    if g.chance(0.5) and one_shape == shape:
        amount = g.literal(dtype, 0, dtype.bits - 1)
    elif g.chance(0.3):  # By more than the width, too.
        amount = g.expression(dtype, other_shape, depth)
        return Expr(full(dtype, shape), "(", a, g.pick(" << ", " >> "), amount, ")")
    else:
        number_type = Type(dtype, other_shape, 0, dtype.bits - 1)
        amount = Expr(number_type, "(", g.expression(dtype, other_shape, depth), f" & {dtype.bits - 1})")
    if g.chance(0.5):
        found = result(dtype, shape, *corners(operator.lshift, a.type, amount.type)) or full(dtype, shape)
        return Expr(found, "(", a, " << ", amount, ")")
    return Expr(
        Type(dtype, shape, *corners(operator.rshift, a.type, amount.type)), "(", a, " >> ", amount, ")"
    )


def _bitwise_range(sign: str, a: Type, b: Type) -> tuple[int, int]:
    if a.dtype.is_bool:
        return 0, 1
    if a.low >= 0 and b.low >= 0:
        top = (1 << max(a.high, b.high).bit_length()) - 1
        return 0, min(a.high, b.high) if sign == "&" else top
    if sign == "&" and max(a.low, b.low) >= 0:
        return 0, a.high if a.low >= 0 else b.high
    top = 1 << max(abs(v) for v in (a.low, a.high, b.low, b.high)).bit_length()
    return max(-top, a.dtype.low), min(top - 1, a.dtype.high)


@producer(2)
def unary(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    if dtype.is_fp8:
        return None
    a = g.expression(dtype, shape, depth)
    if dtype.is_bool:
        return (
            Expr(Type(dtype, shape, 0, 1), "(", a, " == 0)")
            if g.chance(0.3)
            else Expr(Type(dtype, shape, 0, 1), "(~", a, ")")
        )
    form = g.pick("-", "~", "abs", "floor", "ceil")
    if form == "-":
        found = result(dtype, shape, -a.type.high, -a.type.low) if a.type.is_whole else a.type
        return Expr(found, "(-", a, ")") if found and (dtype.is_signed or dtype.is_float) else None
    if form == "~":
        found = (
            None if dtype.is_float else result(dtype, shape, ~a.type.high, ~a.type.low) or full(dtype, shape)
        )
        return found and Expr(found, "(~", a, ")")
    if form == "abs":
        if not a.type.is_whole:
            return Expr(a.type, "tl.abs(", a, ")")
        high = max(abs(a.type.low), abs(a.type.high))
        return Expr(result(dtype, shape, 0, high) or full(dtype, shape), "tl.abs(", a, ")")
    if dtype not in (F32, F64):
        return None
    return Expr(a.type, f"tl.{form}(", a, ")")


@producer(4)
def comparison(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    return compared(g, shape, depth) if dtype.is_bool else None


def compared(g: Generator, shape: Shape, depth: int) -> Expr:
    """Two numbers compared."""
    kind = g.number_dtype()
    a, b = operands(g, kind, shape, depth)
    sign = g.pick("<", "<=", ">", ">=", "==", "!=")
    return Expr(Type(I1, shape, 0, 1), "(", a, f" {sign} ", b, ")")


@producer(3)
def chosen(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """tl.where, and Python's conditional expression of scalars."""
    one_shape, other_shape = operand_shapes(g, shape)
    a, b = g.expression(dtype, one_shape, depth), g.expression(dtype, other_shape, depth)
    found = union(a.type.shaped(*shape), b.type.shaped(*shape))
    if g.chance(0.25) and one_shape == other_shape:
        return Expr(found, "(", a, " if ", g.expression(I1, (), depth), " else ", b, ")")
    return Expr(found, "tl.where(", g.expression(I1, shape, depth), ", ", a, ", ", b, ")")


@producer(2)
def extremes(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    if dtype.is_fp8 or dtype.is_bool:
        return None
    a, b = operands(g, dtype, shape, depth)
    kind = worst(a.type, b.type)
    name, function = g.pick(("minimum", min), ("maximum", max))
    low, high = (
        (function(a.type.low, b.type.low), function(a.type.high, b.type.high)) if kind == WHOLE else (0, 0)
    )
    return Expr(Type(dtype, shape, low, high, kind), f"tl.{name}(", a, ", ", b, ")", widened(dtype))


def widened(dtype: DType) -> str:
    """What brings a result of tl.minimum and tl.maximum, which may widen, back to a type."""
    return "" if dtype in (I32, I64, F32, F64) else f".to(tl.{dtype.name})"


@producer(4)
def cast(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Conversions by value that are defined and need one rounding at most."""
    source = g.pick(*NUMBERS, E4M3, E5M2, I1) if g.chance(0.5) else g.dtype()
    if source == dtype:
        return None
    a = g.expression(source, shape, depth)
    found = _cast_type(a.type, dtype)
    if found is None:
        return None
    if is_name(a) or g.chance(0.3):  # A number known while compiling has no method.
        return Expr(found, "tl.cast(", a, f", tl.{dtype.name})")
    return Expr(found, a, f".to(tl.{dtype.name})")


def _cast_type(a: Type, dtype: DType) -> Type | None:
    source, shape = a.dtype, a.shape
    if dtype.is_bool:
        return Type(dtype, shape, 0, 1) if not source.is_fp8 else None
    if a.within(dtype.low, dtype.high):
        return Type(dtype, shape, a.low, a.high)
    if not source.is_float:
        if not dtype.is_float:
            return full(dtype, shape)
        return Type(dtype, shape, kind=ROUNDED) if dtype in (F32, F64) else None
    if not dtype.is_float:
        return full(dtype, shape) if source in (F32, F64, F16) and a.kind == ANY else None
    narrow = (source, dtype) in (
        (F64, F32),
        (F32, F16),
        (F32, BF16),
        (F32, E4M3),
        (F32, E5M2),
        (F16, E4M3),
        (F16, E5M2),
    )
    widens = dtype.bits > source.bits
    return Type(dtype, shape, kind=ANY if a.kind == WHOLE else a.kind) if narrow or widens else None


@producer(1)
def bitcast(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """The bits of a number as another type; of floats only where they are known."""
    same = [other for other in (*NUMBERS, E4M3, E5M2) if other.bits == dtype.bits and other != dtype]
    if not same or dtype.is_bool:
        return None
    source = g.pick(*same)
    if source.is_float:
        if not shape or g.in_helper:
            return None
        a = g.loaded_bits(source, shape)
    else:
        a = g.expression(source, shape, depth)
    found = Type(dtype, shape, kind=ANY) if dtype.is_float else full(dtype, shape)
    return Expr(found, "tl.cast(", a, f", tl.{dtype.name}, bitcast=True)")


@producer(1)
def fused(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """tl.fma of whole numbers, and the upper half of a product."""
    if dtype in (F32, F64):
        a, b, c = (g.whole(dtype, shape, -64, 64, depth) for _ in range(3))
        low, high = corners(operator.mul, a.type, b.type)
        found = result(dtype, shape, low + c.type.low, high + c.type.high)
        return found and Expr(found, "tl.fma(", a, ", ", b, ", ", c, ")")
    if dtype.bits not in (32, 64) or dtype.is_float or dtype.is_signed:
        return None
    a, b = g.expression(dtype, shape, depth), g.expression(dtype, shape, depth)
    return Expr(full(dtype, shape), "tl.umulhi(", a, ", ", b, ")")


@producer(1.5)
def broadcast(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """A smaller tensor or a scalar spread over a shape."""
    if not shape:
        return None
    small: Shape = () if g.chance(0.4) else tuple(g.pick(1, size) for size in shape)
    a = g.expression(dtype, small, depth)
    return Expr(a.type.shaped(*shape), "tl.broadcast_to(", a, f", {tuple_text(shape)})")


INEXACT_FORMS = (
    ("tl.exp({})", -8, 8),
    ("tl.exp2({})", -10, 10),
    ("tl.log({})", 1, 2000),
    ("tl.log2({})", 1, 2000),
    ("tl.sqrt({})", 0, 2000),
    ("tl.rsqrt({})", 1, 2000),
    ("tl.sin({})", -20, 20),
    ("tl.cos({})", -20, 20),
    ("tl.erf({})", -4, 4),
    ("tl.sigmoid({})", -9, 9),
    ("tl.fdiv({}, 7.0)", -2000, 2000),
    ("({} / 3.0)", -2000, 2000),
    ("(5.0 / {})", 1, 2000),
    ("tl.softmax({})", -8, 8),
    ("tl.div_rn({}, 7.0)", -2000, 2000),
    ("tl.sqrt_rn({})", 0, 2000),
)
"""Functions with the arguments for which their errors are small."""
TOLERANCES = {F16: 4e-3, BF16: 3e-2, F32: 3e-5, F64: 1e-9}


def inexact(g: Generator, shape: Shape, depth: int) -> Expr | None:
    """A mathematical function of whole numbers: the result may only be stored."""
    form, low, high = g.pick(*INEXACT_FORMS)
    dtype = F32 if g.chance(0.7) or "_rn" in form else g.pick(F32, F64) if "erf" not in form else F32
    if "softmax" in form and len(shape) != 2:
        return None
    before, after = form.split("{}")
    return Expr(Type(dtype, shape, kind="inexact"), before, g.whole(dtype, shape, low, high, depth), after)


Generator.comparison = compared  # type: ignore[method-assign]

__all__ = ["TOLERANCES", "compared", "inexact", "number", "quotient"]
