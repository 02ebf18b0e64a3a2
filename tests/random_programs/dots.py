"""Dots: single, chained, in loops that load as they go."""

from __future__ import annotations

from random_programs.elementwise import widened
from random_programs.generator import Generator, number, statement, tuple_text
from random_programs.memory import store
from random_programs.nodes import Expr
from random_programs.types import ANY, BF16, E4M3, E5M2, F16, F32, F64, I8, I32, DType, Type

OPERANDS = (F16, F16, F16, BF16, F32, F32, I8, E4M3, E5M2, F64)
_SUMS = {F32: 1 << 20, F16: 2048, I32: 1 << 30, F64: 1 << 40}
"""Up to which number dots are exact, in any order of summation."""
_FP8_SUMS = 1 << 12


class DotChoices:
    """The choices of a dot: sizes, types, and how large its operands may be."""

    def __init__(self, g: Generator, rounds: int) -> None:
        self.a = self.b = g.pick(*OPERANDS)
        if self.a.is_fp8 and g.chance(0.2):
            self.b = g.pick(E4M3, E5M2)
        self.result: DType = I32 if self.a == I8 else F64 if self.a == F64 else F32
        if self.a == F16 and g.chance(0.2):
            self.result = F16
        most = 32 if self.a == F64 else 128
        sizes = [size for size in (16, 16, 32, 32, 64, 64, 128) if size <= most]
        self.m, self.n, self.k = g.pick(*sizes), g.pick(*sizes), g.pick(*sizes)
        if self.a.bits == 8:
            self.k = max(self.k, 32)
        most, halved = g.pick(14, 14, 15, 16, 17), "mnk"
        if g.num_warps >= 4 and self.a != F64 and g.chance(0.7):  # Rows for a warpgroup.
            self.m, most, halved = 64, max(most, 15), "nk"
        if self.a in (
            F32,
            F64,
        ):  # Perhaps by scalar instructions, which are many where there are few threads.
            most = min(most, 12 + g.num_warps.bit_length())
        while self.m * self.n * self.k > 1 << most or self.m * self.n > 1 << 13:
            name = max(halved, key=lambda letter: getattr(self, letter))
            setattr(self, name, getattr(self, name) // 2)
        self.limit = _FP8_SUMS if self.a.is_fp8 else _SUMS[self.result]
        self.bound = 8
        while self.bound > 1 and self.k * self.bound**2 * rounds > self.limit // 2:
            self.bound //= 2
        self.precision = (
            g.pick(
                "", "", ', input_precision="ieee"', ', input_precision="bf16x6"', ', input_precision="tf32x3"'
            )
            if self.a == F32
            else ""
        )
        if self.a == F64:
            self.precision = g.pick("", ', input_precision="ieee"')

    def fits(self, rounds: int) -> bool:
        return self.k * self.bound**2 * rounds <= self.limit // 2

    @property
    def step(self) -> int:
        """The most that one dot adds."""
        return self.k * self.bound**2

    def text(self, a: Expr, b: Expr, acc: Expr | None) -> list[str | Expr]:
        kind = ", out_dtype=tl.float16" if self.result == F16 else ""
        kind = ", out_dtype=tl.float64" if self.result == F64 else kind
        return ["tl.dot(", a, ", ", b, *((", ", acc) if acc else ()), self.precision, kind, ")"]


def operand(g: Generator, choices: DotChoices, dtype: DType, shape: tuple[int, ...]) -> Expr:
    """A matrix of small numbers: loaded, or computed."""
    bound = choices.bound
    known = [
        Expr(t, name)
        for name, t in g.variables()
        if (t.dtype, t.shape) == (dtype, shape) and t.within(-bound, bound)
    ]
    if known and g.chance(0.5):
        return g.pick(*known)
    if g.chance(0.25):
        found = g.whole(dtype, shape[::-1] if len(shape) == 2 else shape, -bound, bound, 1)
        return Expr(found.type.shaped(*shape), "tl.trans(", found, ")") if len(shape) == 2 else found
    if g.chance(0.5):
        array = g.array(dtype, -bound, bound, 16384)
        return Expr(Type(dtype, shape, -bound, bound), f"tl.load({array.name} + {grid_text(g, shape)})")
    return g.whole(dtype, shape, -bound, bound, 2)


def start(g: Generator, dtype: DType, shape: tuple[int, ...], low: int, high: int) -> Expr:
    """The initial value of a sum of dots: numbers of any origin, or the same in all elements, as a bias is in
    all rows."""
    if g.chance(0.4):
        return g.whole(dtype, shape, low, high, 2)
    form = g.pick("constant", "scalar", "row", "column")
    if form == "constant":
        return g.constant(dtype, shape, low, high)
    ones = (1,) * (len(shape) - 2)
    small = {"scalar": (), "row": (*ones, 1, shape[-1]), "column": (*ones, shape[-2], 1)}[form]
    value = g.whole(dtype, small, low, high, 1)
    return Expr(value.type.shaped(*shape), "tl.broadcast_to(", value, f", {tuple_text(shape)})")


def finished(g: Generator, sums: Expr) -> Expr:
    """Sums of dots, as kernels finish them."""
    for _ in range(g.pick(0, 1, 1, 2)):
        sums = _step(g, sums) if len(sums.type.shape) == 2 else sums
    return sums


def _step(g: Generator, sums: Expr) -> Expr:
    form, (m, n), dtype = (
        g.pick("rows", "relu", "trans", "trans", "cast", "cast", "bias"),
        sums.type.shape,
        sums.type.dtype,
    )
    if form == "relu":
        type_ = (
            sums.type.ranged(max(sums.type.low, 0), max(sums.type.high, 0))
            if sums.type.is_whole
            else sums.type
        )
        return Expr(type_, "tl.maximum(", sums, f", {number(0, dtype)})", widened(dtype))
    if form == "trans":
        return Expr(sums.type.shaped(n, m), "tl.trans(", sums, ")")
    if form == "cast" and dtype == F32:
        narrow = g.pick(F16, F16, BF16)
        is_exact = sums.type.within(-narrow.limit, narrow.limit)
        type_ = (
            Type(narrow, (m, n), sums.type.low, sums.type.high)
            if is_exact
            else Type(narrow, (m, n), kind=ANY)
        )
        return Expr(type_, sums, f".to(tl.{narrow.name})")
    if form == "rows" and sums.type.is_whole and dtype != BF16:
        return rows(g, sums)
    if form == "bias" and sums.type.is_whole and sums.type.high + 8 <= dtype.high:
        bias = g.whole(dtype, (1, n), -8, 8, 1)
        return Expr(sums.type.ranged(sums.type.low - 8, sums.type.high + 8), "(", sums, " + ", bias, ")")
    return sums


def rows(g: Generator, sums: Expr) -> Expr:
    """One number of each row or column: its sum where that is exact, or its maximum."""
    m, n = sums.type.shape
    axis = g.pick(0, 1)
    left, gone = (n, m) if axis == 0 else (m, n)
    if max(abs(sums.type.low), sums.type.high) * gone <= sums.type.dtype.high and g.chance(0.5):
        return Expr(
            sums.type.shaped(left).ranged(sums.type.low * gone, sums.type.high * gone),
            "tl.sum(",
            sums,
            f", {axis})",
        )
    back = ".to(tl.float16)" if sums.type.dtype == F16 else ""
    return Expr(sums.type.shaped(left), "tl.max(", sums, f", {axis}){back}")


def grid_text(g: Generator, shape: tuple[int, ...]) -> str:
    """Offsets of a matrix of at most 16384 elements, in rows or columns."""
    strides = [1] * len(shape)
    order = list(range(len(shape)))[::-1] if g.chance(0.6) else g.random.sample(range(len(shape)), len(shape))
    stride = 1
    for axis in order:
        strides[axis], stride = stride, stride * shape[axis]
    parts = []
    for axis, size in enumerate(shape):
        index = ", ".join(":" if number == axis else "None" for number in range(len(shape)))
        parts.append(f"tl.arange(0, {size})[{index}]" + (f" * {strides[axis]}" if strides[axis] != 1 else ""))
    return " + ".join(parts)


@statement(2)
def dot(g: Generator, depth: int) -> bool:
    """A dot, perhaps with an initial value, perhaps as the operand of another."""
    choices = DotChoices(g, 1)
    if not choices.fits(1):
        return False
    batch = (g.pick(2, 4),) if g.chance(0.15) and choices.m * choices.n * choices.k <= 1 << 14 else ()
    a = operand(g, choices, choices.a, (*batch, choices.m, choices.k))
    b = operand(g, choices, choices.b, (*batch, choices.k, choices.n))
    a, b = (g.named(value) if g.chance(0.5) else value for value in (a, b))
    shape = (*batch, choices.m, choices.n)
    bound = choices.limit // 4
    acc = start(g, choices.result, shape, -bound, bound) if g.chance(0.65) else None
    extra = max(abs(acc.type.low), abs(acc.type.high)) if acc else 0
    type_ = Type(choices.result, shape, -choices.step - extra, choices.step + extra)
    found = g.named(Expr(type_, *choices.text(a, b, acc)))
    if g.chance(0.4) and not batch and not choices.a.is_fp8 and choices.n >= (32 if choices.a == I8 else 16):
        found = _chained(g, choices, found) or found
    if g.chance(0.7):
        store(g, finished(g, found))
    if g.chance(0.3) and found.type.high + 8 <= found.type.dtype.high:
        other = g.whole(found.type.dtype, found.type.shape, -8, 8, 1)
        store(
            g, Expr(found.type.ranged(found.type.low - 8, found.type.high + 8), "(", found, " + ", other, ")")
        )
    return True


def _chained(g: Generator, choices: DotChoices, first: Expr) -> Expr | None:
    """A second dot that takes the first as one of its operands, as it is or transposed."""
    second = DotChoices(g, 1)
    second.a = second.b = choices.a
    second.result, second.precision, second.limit = choices.result, choices.precision, choices.limit
    shape, is_transposed, is_right = (choices.m, choices.n), g.chance(0.4), g.chance(0.4)
    rows, columns = shape[::-1] if is_transposed else shape
    other = g.pick(16, 32, max(second.m, 16))
    second.m, second.k, second.n = (other, rows, columns) if is_right else (rows, columns, min(other, 32))
    second.bound = 2
    if (
        not second.fits(1)
        or second.k < (32 if choices.a.bits == 8 else 16)
        or second.m * second.n * second.k > 1 << 16
    ):
        return None
    fitted = g.fitted(first, -2, 2)
    if fitted is None:
        return None
    a = Expr(Type(second.a, shape, fitted.type.low, fitted.type.high), fitted, f".to(tl.{second.a.name})")
    if is_transposed:
        a = Expr(a.type.shaped(rows, columns), "tl.trans(", a, ")")
    if is_right:
        a, b = operand(g, second, second.a, (second.m, second.k)), a
    else:
        b = operand(g, second, second.b, (second.k, second.n))
    type_ = Type(second.result, (second.m, second.n), -second.step, second.step)
    return g.named(Expr(type_, *second.text(a, b, None)))
