"""Loads, stores, atomic operations, block pointers and descriptors, all of them within their arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from random_programs.arrays import Argument
from random_programs.elementwise import compared, quotient
from random_programs.generator import ARRAY, Generator, producer, statement, tuple_text
from random_programs.nodes import Expr, rigid
from random_programs.types import (
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    INTEGERS,
    U32,
    U64,
    DType,
    Type,
    full,
    result,
    union,
)

Shape = tuple[int, ...]


def arange(g: Generator, shape: Shape, axis: int) -> Expr:
    """The numbers of an axis, with ones elsewhere."""
    size = shape[axis]
    start = g.pick(0, 0, 0, 0, 8, 3)
    text = f"tl.arange({start}, {start + size})" if size > 1 else "tl.arange(0, 1)"
    start = start if size > 1 else 0
    if len(shape) > 1:
        text += f"[{', '.join(':' if number == axis else 'None' for number in range(len(shape)))}]"
    return Expr(
        Type(
            I32, tuple(size if number == axis else 1 for number in range(len(shape))), start, start + size - 1
        ),
        text,
    )


def row_major(shape: Shape) -> Expr:
    """The number of each element."""
    if not shape:
        return Expr(Type(I32), "0")
    parts, stride = [], math.prod(shape)
    for axis, size in enumerate(shape):
        stride //= size
        index = (
            f"[{', '.join(':' if number == axis else 'None' for number in range(len(shape)))}]"
            if len(shape) > 1
            else ""
        )
        parts.append(f"tl.arange(0, {size}){index}" + (f" * {stride}" if stride != 1 else ""))
    text = " + ".join(parts)
    return Expr(
        Type(I32, shape, 0, math.prod(shape) - 1), f"({text})" if " * " in text or " + " in text else text
    )


def index(g: Generator, shape: Shape, depth: int = 2) -> Expr:
    """Numbers of elements, as kernels compute them: sums of strided ranges, quotients, remainders, negative
    ones."""
    if not shape:
        return g.scalar(-64, 64)
    kind = g.random.random()
    if kind < 0.12:
        return wrapped(g, shape)
    if kind < 0.17 and not g.in_helper:
        return _paged(g, shape)
    if kind < 0.55 or depth == 0:
        found = row_major(shape) if g.chance(0.6) else _strided(g, shape)
        if g.chance(0.4):
            found = _added(found, g.scalar(-32, 256), shape)
        return found
    return _transformed(g, index(g, shape, depth - 1), shape)


def wrapped(g: Generator, shape: Shape) -> Expr:
    """Quotients and remainders of numbers that begin below zero, as windows around a place and circular
    buffers have them."""
    begin = g.pick(-8, -16, -32, -64, -3) if g.chance(0.7) else g.scalar(-64, 16)
    begin = Expr(Type(I32, (), begin, begin), str(begin)) if isinstance(begin, int) else begin
    divisor = g.pick(4, 8, 16, 16, 32, 64, 3)
    numbers = _added(row_major(shape), begin, shape)
    return quotient(g, numbers, Expr(Type(I32, (), divisor, divisor), str(divisor)), shape) or numbers


def _paged(g: Generator, shape: Shape) -> Expr:
    """Numbers whose pages a table names, as caches are laid out."""
    page, rows = g.pick(4, 8, 16), row_major(shape)
    table = g.array(I32, 0, 31)
    place = Expr(Type(I32, shape, 0, rows.type.high // page), "(", rows, f" // {page})")
    parts: list[str | Expr] = [f"tl.load({table.name} + ", place]
    if g.chance(0.5):
        other = g.literal(I32, 0, 31) if g.chance(0.4) else Expr(Type(I32, shape, 0, 31), "(", rows, " & 31)")
        parts += [", mask=", condition(g, g.pick(place, place, rows), shape), ", other=", other]
    return Expr(Type(I32, shape, 0, 31 * page + page - 1), "(", *parts, f") * {page} + ", rows, f" % {page})")


def _strided(g: Generator, shape: Shape) -> Expr:
    parts: list[str | Expr] = []
    low = high = 0
    for axis in range(len(shape)):
        stride = g.pick(0, 1, 1, 2, 4, 16, shape[-1], 64)
        numbers = arange(g, shape, axis)
        if g.chance(0.3):
            numbers = _transformed(g, numbers, numbers.type.shape)
        low, high = low + numbers.type.low * stride, high + numbers.type.high * stride
        parts += [" + " if parts else "(", numbers, f" * {stride}"]
    return Expr(Type(I32, shape, low, high), *parts, ")")


def _added(a: Expr, b: Expr, shape: Shape) -> Expr:
    found = result(I32, shape, a.type.low + b.type.low, a.type.high + b.type.high)
    return Expr(found or full(I32, shape), "(", a, " + ", b, ")")


def _transformed(g: Generator, a: Expr, shape: Shape) -> Expr:
    """A step of index arithmetic."""
    form = g.pick("//", "%", "//", "%", "-", "&", "^", "|", ">>", "*", "where", "min", "-x", "r-")
    value = g.pick(1, 2, 4, 4, 8, 8, 16, 16, 32, 3, 5, 64)
    t = a.type
    if form in ("//", "%"):
        if g.chance(0.6):
            a = (
                Expr(Type(I32, shape, t.low - value, t.high - value), "(", a, f" - {value})")
                if g.chance(0.6)
                else a
            )
        divisor = g.pick(2, 4, 8, 16, 16, 32, 3)
        return quotient(g, a, Expr(Type(I32, (), divisor, divisor), str(divisor)), shape) or a
    if form == "-":
        return _added(a, Expr(Type(I32, (), -value, -value), str(-value)), shape)
    if form == "&":
        return (
            Expr(Type(I32, shape, 0, value * 2 - 1), "(", a, f" & {value * 2 - 1})")
            if value & (value - 1) == 0
            else a
        )
    if form in ("^", "|") and t.low >= 0:
        return Expr(
            Type(I32, shape, 0, (1 << max(t.high, value).bit_length()) - 1), "(", a, f" {form} {value})"
        )
    if form == ">>":
        amount = g.pick(1, 2, 3)
        return Expr(Type(I32, shape, t.low >> amount, t.high >> amount), "(", a, f" >> {amount})")
    if form == "*":
        return (
            Expr(Type(I32, shape, t.low * value, t.high * value), "(", a, f" * {value})")
            if t.high * value < 1 << 20
            else a
        )
    if form == "where":
        mask = condition(g, a, shape)
        other = row_major(shape)
        return Expr(union(t, other.type), "tl.where(", mask, ", ", a, ", ", other, ")")
    if form == "min":
        return Expr(Type(I32, shape, min(t.low, value), min(t.high, value)), "tl.minimum(", a, f", {value})")
    if form == "-x":
        return Expr(Type(I32, shape, -t.high, -t.low), "(-", a, ")")
    return Expr(Type(I32, shape, value - t.high, value - t.low), f"({value} - ", a, ")")


def condition(g: Generator, a: Expr, shape: Shape) -> Expr:
    """A mask over numbers of elements."""
    if g.chance(0.4):
        a = _transformed(g, a, shape) if g.chance(0.8) or not shape else wrapped(g, shape)
    middle = g.random.randint(min(a.type.low, 0), max(a.type.high, 1))
    bound = g.literal(I32, middle, middle) if g.chance(0.6) else g.scalar(-(1 << 12), 1 << 12)
    sign = g.pick("<", "<", "<", "<=", ">", ">=", "!=", "==")
    return Expr(Type(I1, shape, 0, 1), "(", a, f" {sign} ", bound, ")")


def _mask(g: Generator, numbers: Expr, shape: Shape) -> Expr:
    return condition(g, numbers, shape) if g.chance(0.4) else _edges(g, shape)


def _edges(g: Generator, shape: Shape) -> Expr:
    """The mask of a block that lies across the edges of a matrix."""
    parts: list[str | Expr] = []
    for axis, size in enumerate(shape):
        if axis + 1 < len(shape) and g.chance(0.5):
            continue
        numbers = f"tl.arange(0, {size})"
        if len(shape) > 1:
            numbers += f"[{', '.join(':' if number == axis else 'None' for number in range(len(shape)))}]"
        bound = g.literal(I32, 0, size) if g.chance(0.6) else g.scalar(-3, size + 3)
        parts += [" & " if parts else "", f"({numbers} < ", bound, ")"]
    return Expr(Type(I1, shape, 0, 1), "tl.broadcast_to(", *parts, f", {tuple_text(shape)})")


def within(g: Generator, a: Expr, size: int) -> tuple[Expr, Expr | None]:
    """An index brought into an array, or a mask that says where it is inside."""
    shape = a.type.shape
    low, high = a.type.low, a.type.high
    if low >= 0 and high < size:
        return a, None
    step = g.pick(1, 16, 16)
    shift = -(low // step) * step
    if high + shift < size and low > -(1 << 30) and g.chance(0.6):
        return Expr(Type(I32, shape, low + shift, high + shift), "(", a, f" + {shift})"), None
    if not shape or g.chance(0.5):
        return Expr(Type(I32, shape, 0, size - 1), "(", a, f" & {size - 1})"), None
    a = g.kept(a)
    return a, Expr(Type(I1, shape, 0, 1), "((", a, " >= 0) & (", a, f" < {size}))")


def addressed(g: Generator, offsets: Expr) -> Expr:
    """Offsets in any type that holds them."""
    if g.chance(0.8):
        return offsets
    fitting = [dtype for dtype in INTEGERS if offsets.type.within(dtype.low, dtype.high)]
    dtype = g.pick(I64, *fitting)
    return Expr(
        Type(dtype, offsets.type.shape, offsets.type.low, offsets.type.high),
        "tl.cast(",
        offsets,
        f", tl.{dtype.name})",
    )


def load(g: Generator, dtype: DType, shape: Shape, low: int, high: int) -> Expr:
    """Something from an array of numbers of a range; arbitrary ones where both ends are zero."""
    if g.chance(0.12) and len(shape) in (1, 2) and not dtype.is_bool and min(shape, default=0) > 1:
        found = block(g, dtype, shape, low, high)
        if found is not None:
            return found
    array = g.array(dtype, low, high)
    type_ = Type(dtype, shape, low, high) if low or high else full(dtype, shape)
    if g.chance(0.75) or not shape:
        offsets = index(g, shape)
    else:
        offsets = g.expression(I32, shape, 1)
    offsets, mask = within(g, offsets, array.size)
    if mask is None and shape and g.chance(0.5):
        mask = _mask(g, offsets, shape) if g.chance(0.7) else compared(g, shape, 1)
    offsets = addressed(g, offsets)
    if mask is None:
        return Expr(type_, f"tl.load({array.name} + ", offsets, ")")
    if g.chance(0.8) and not dtype.is_fp8:
        other = _other(g, dtype, shape, type_)
        found = union(type_, other.type.shaped(*shape))
        return Expr(found, f"tl.load({array.name} + ", offsets, ", mask=", mask, ", other=", other, ")")
    mask = g.kept(mask)
    other = g.constant(dtype, shape, *((low, high) if low or high else (0, 1)))
    value = Expr(type_, f"tl.load({array.name} + ", offsets, ", mask=", mask, ")")
    return Expr(union(type_, other.type), "tl.where(", mask, ", ", rigid(value), ", ", other, ")")


def _other(g: Generator, dtype: DType, shape: Shape, like: Type) -> Expr:
    """The value of masked elements."""
    low, high = (max(like.low, -9), min(like.high, 9)) if like.is_whole else (-9, 9)
    if low > high:
        low = high = like.low
    return g.literal(dtype, low, high) if g.chance(0.3) else g.whole(dtype, shape, low, high, 1)


def loaded(g: Generator, dtype: DType, shape: Shape) -> Expr:
    """A leaf: whole numbers of some range, or arbitrary ones."""
    if dtype.is_fp8:
        bound = g.pick(2, dtype.limit // 2)
    elif dtype.is_float:
        bound = g.pick(0, 1, 4, 4, 8, 8)
    else:
        bound = g.pick(0, 0, 3, 8, 100)
    return load(g, dtype, shape, max(-bound, dtype.low), min(bound, dtype.high))


def loaded_between(g: Generator, dtype: DType, shape: Shape, low: int, high: int) -> Expr:
    """A leaf of a range."""
    if low >= high or dtype.is_bool:
        return g.constant(dtype, shape, low, high)
    low, high = max(low, -(1 << 40)), min(high, 1 << 40)
    found = load(g, dtype, shape, low, high)
    return found if found.type.within(low, high) else g.constant(dtype, shape, low, high)


def loaded_bits(g: Generator, dtype: DType, shape: Shape) -> Expr:
    """Arbitrary floats, unchanged."""
    array = g.array(dtype, size=max(ARRAY, math.prod(shape)))
    return Expr(full(dtype, shape), f"tl.load({array.name} + {row_major(shape)})")


def block(g: Generator, dtype: DType, shape: Shape, low: int, high: int) -> Expr | None:
    """A block of a matrix or vector, by a block pointer or a descriptor, which may lie across the edges."""
    array = g.array(dtype, low, high)
    rows = g.pick(7, 16, 20, 32)
    pitch = g.pick(32, 64, 128)
    sizes = (rows, pitch - g.pick(0, 0, 3, 16)) if len(shape) == 2 else (g.pick(100, 256, 1000),)
    strides = (pitch, 1) if len(shape) == 2 else (1,)
    offsets = [g.scalar(-8, 40) for _ in shape]
    type_ = union(Type(dtype, shape, low, high) if low or high else full(dtype, shape), Type(dtype, shape))
    if g.chance(0.5) and shape[-1] * dtype.bits >= 128 and max(shape) <= 256:
        aligned = array if array.hint == ":16" else None
        if aligned is not None:
            name = g.fresh("d")
            g.add(
                f"{name} = tl.make_tensor_descriptor({array.name}, {list(sizes)}, {list(strides)}, {list(shape)})"
            )
            return Expr(type_, f"{name}.load([", *_listed(offsets), "])")
    if (
        g.chance(0.2)
        and shape[-1] * dtype.bits >= 128
        and max(shape) <= 256
        and pitch * dtype.bits % 128 == 0
    ):
        made = host_descriptor(g, array, sizes, strides, shape)
        return Expr(type_, f"{made.name}.load([", *_listed(offsets), "])")
    checked = tuple(range(len(shape)))
    order = tuple(reversed(checked))
    name = g.fresh("p")
    g.add(
        f"{name} = tl.make_block_ptr({array.name}, {tuple_text(sizes)}, {tuple_text(strides)}, (",
        *_listed(offsets),
        f",), {tuple_text(shape)}, {tuple_text(order)})",
    )
    pointer = name
    if g.chance(0.4):
        pointer = f"tl.advance({name}, {tuple_text([g.random.randint(-9, 20) for _ in shape])})"
    return Expr(type_, f'tl.load({pointer}, boundary_check={tuple_text(checked)}, padding_option="zero")')


def host_descriptor(
    g: Generator, like: Argument, sizes: Sequence[int], strides: Sequence[int], block: Sequence[int]
) -> Argument:
    """A descriptor that the host has made, of an array of its own."""
    name = g.fresh("h")
    companions = [(f"{name}_shape_{axis}", size) for axis, size in enumerate(sizes)]
    companions += [(f"{name}_stride_{axis}", stride) for axis, stride in enumerate(strides[:-1])]
    type_ = f"tensordesc<{like.dtype.signature}[{'x'.join(map(str, block))}]>"
    return g.declare(replace(like, name=name, descriptor=type_, companions=tuple(companions)))


def _listed(items: list[Expr]) -> list[str | Expr]:
    return [part for number, item in enumerate(items) for part in ((", ", item) if number else (item,))]


def program_number(g: Generator) -> str:
    """The number of the program in the grid."""
    return "tl.program_id(0)" if len(g.grid) == 1 else f"(tl.program_id(0) + tl.program_id(1) * {g.grid[0]})"


@producer(0.7)
def program_id(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """The place in the grid, and its size."""
    if dtype != I32 or shape or g.in_helper:
        return None
    axis = g.random.randrange(len(g.grid))
    if g.chance(0.3):
        return Expr(Type(I32, (), g.grid[axis], g.grid[axis]), f"tl.num_programs({axis})")
    return Expr(Type(I32, (), 0, g.grid[axis] - 1), f"tl.program_id({axis})")


@producer(1.5)
def numbers(g: Generator, dtype: DType, shape: Shape, depth: int) -> Expr | None:
    """Index arithmetic as a value."""
    return index(g, shape) if dtype == I32 and shape and not g.in_helper else None


def store(g: Generator, value: Expr, tolerance: float = 0.0) -> None:
    """Write a value to an output of its own: in any order, and not everywhere."""
    shape, dtype = value.type.shape, value.type.dtype
    if dtype.is_bool:
        value, dtype = Expr(Type(I32, shape, 0, 1), value, ".to(tl.int32)"), I32
    span = math.prod(shape)
    offsets = _places(g, shape)
    output = g.output(dtype, span * g.programs * 2, tolerance=tolerance)
    base = f"{program_number(g)} * {span}" if g.programs > 1 else "0"
    if len(shape) in (1, 2) and g.chance(0.15) and min(shape) > 1:
        _store_block(g, output, value, base)
        return
    parts: list[str | Expr] = [f"tl.store({output.name} + {base} + ", addressed(g, offsets), ", ", value]
    if shape and g.chance(0.25):
        parts += [", mask=", _mask(g, row_major(shape), shape)]
    g.add(*parts, ")")


def _places(g: Generator, shape: Shape) -> Expr:
    """A place of its own for each element."""
    if len(shape) < 2 or g.chance(0.7):
        found, last = row_major(shape), math.prod(shape) - 1
        form = g.pick(
            f"({found} ^ {g.pick(1, 4, 16) & last})",
            f"({last} - {found})",
            f"({found} * {g.pick(3, 5, 33)} & {last})",
        )
        return Expr(found.type, form) if shape and g.chance(0.2) else found
    order = g.random.sample(range(len(shape)), len(shape))
    strides, stride = [0] * len(shape), 1
    for axis in order:
        strides[axis], stride = stride, stride * shape[axis]
    parts = [
        f"tl.arange(0, {size})[{', '.join(':' if n == axis else 'None' for n in range(len(shape)))}] * {strides[axis]}"
        for axis, size in enumerate(shape)
    ]
    return Expr(Type(I32, shape, 0, math.prod(shape) - 1), f"({' + '.join(parts)})")


def _store_block(g: Generator, output: Argument, value: Expr, base: str) -> None:
    """A store by a block pointer or a descriptor, cut at the edges."""
    shape = value.type.shape
    sizes = tuple(size - g.pick(0, 0, 1) for size in shape)
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    bits = value.type.dtype.bits
    if shape[-1] * bits >= 128 and max(shape) <= 256 and output.hint == ":16" and g.chance(0.6):
        name = g.fresh("d")
        g.add(
            f"{name} = tl.make_tensor_descriptor({output.name} + {base}, {list(sizes)}, {list(strides)}, {list(shape)})"
        )
        g.add(f"{name}.store({[0] * len(shape)}, ", value, ")")
        return
    name = g.fresh("p")
    checked = tuple(range(len(shape)))
    g.add(
        f"{name} = tl.make_block_ptr({output.name} + {base}, {tuple_text(sizes)}, {tuple_text(strides)}, "
        f"{tuple_text([0] * len(shape))}, {tuple_text(shape)}, {tuple_text(checked[::-1])})"
    )
    g.add(f"tl.store({name}, ", value, f", boundary_check={tuple_text(checked)})")


@statement(1.5)
def atomic(g: Generator, depth: int) -> bool:
    """An atomic operation whose result does not depend on the order."""
    shape = g.shape()
    operation = g.pick("add", "max", "max", "min", "min", "and", "or", "xor", "xchg", "cas")
    dtype = g.pick(I32, I32, U32, I64, U64, *((F32, F16, F64) if operation == "add" else ()))
    low, high = (-8, 8) if dtype.is_signed else (0, 8)
    is_any = not dtype.is_float and operation != "cas" and g.chance(0.5)
    shared = operation not in ("xchg", "cas") and g.chance(0.5)
    size = 64 if shared else max(math.prod(shape), 1) * g.programs
    output = g.output(dtype, size, *((0, 0) if is_any else (low, high)))
    bound = 1 if dtype == F16 else 4
    value = (
        g.expression(dtype, shape, 2)
        if is_any
        else g.whole(dtype, shape, -bound if dtype.is_signed else 0, bound, 1)
    )
    if shared:
        if dtype.is_float and math.prod(shape) * g.programs * bound * g.trips > dtype.limit // 2:
            value = g.constant(dtype, shape, 0, 0)
        offsets, base = Expr(Type(I32, shape, 0, 63), "(", index(g, shape), " & 63)"), ""
    else:
        offsets, base = row_major(shape), f"{program_number(g)} * {math.prod(shape)} + "
        if g.trips * bound > dtype.limit // 2 and dtype.is_float:
            return False
    parts: list[str | Expr] = [f"tl.atomic_{operation}({output.name} + {base}{offsets}, "]
    if operation == "cas":
        parts += [g.whole(dtype, shape, low, high, 1), ", "]
    parts.append(value)
    if shape and operation != "cas" and g.chance(0.3):
        parts += [", mask=", condition(g, row_major(shape), shape)]
        shared = True
    parts.append(g.pick(")", ")", ', sem="relaxed")'))
    if shared or g.trips > 1 or (dtype.is_float and dtype == F16):
        g.add(*parts)
    else:
        store(g, g.assign(g.fresh("v"), Expr(full(dtype, shape), *parts)))
    return True


@statement(0.5)
def round_trip(g: Generator, depth: int) -> bool:
    """What was written is read by other threads, behind a barrier."""
    shape = g.shape()
    if len(g.blocks) > 1 or not shape:
        return False
    value = g.expression(g.number_dtype(), shape, 2)
    dtype, span = value.type.dtype, math.prod(shape)
    output = g.output(dtype, span * g.programs)
    base = f"{output.name} + {program_number(g)} * {span}" if g.programs > 1 else output.name
    g.add(f"tl.store({base} + {row_major(shape)}, ", value, ")")
    g.add("tl.debug_barrier()")
    place = index(g, shape)
    place = Expr(Type(I32, shape, 0, span - 1), "(", place, f" & {span - 1})")
    found = g.assign(g.fresh("m"), Expr(value.type, f"tl.load({base} + ", place, ")"))
    g.add("tl.debug_barrier()")
    return bool(str(found))


Generator.loaded = loaded  # type: ignore[method-assign]
Generator.loaded_between = loaded_between  # type: ignore[method-assign]
Generator.loaded_bits = loaded_bits

__all__ = ["ARRAY", "INTEGERS"]
