"""Draws programs from a seed.

`Generator.expression` gives an expression of an element type and a shape: it picks among producers, functions
that are registered with a weight and return None where they do not apply.  Statements are drawn by functions
of the same kind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from random_programs.arrays import Argument
from random_programs.nodes import Expr, Helper, Line, Program, Statement
from random_programs.types import (
    ANY,
    F16,
    F32,
    FP8,
    I1,
    I32,
    INTEGERS,
    NUMBERS,
    WHOLE,
    DType,
    Type,
    full,
    pow2,
    worst,
)

ARRAY = 4096
"""Elements of an input."""
LOOP_OPTIONS = (
    "num_stages=2",
    "num_stages=4",
    "loop_unroll_factor=2",
    "loop_unroll_factor=3",
    "disable_licm=True",
)
"""Options of `tl.range`."""
MAX_WARPS = 8
"""Of all programs of a launch together: more of them take time and show nothing new."""
Producer = Callable[["Generator", DType, tuple[int, ...], int], Expr | None]
StatementMaker = Callable[["Generator", int], bool]
PRODUCERS: list[tuple[float, Producer]] = []
STATEMENTS: list[tuple[float, StatementMaker]] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])


def producer(weight: float) -> Callable[[_Function], _Function]:
    """Register a function that makes expressions."""

    def register(function: _Function) -> _Function:
        PRODUCERS.append((weight, function))
        return function

    return register


def statement(weight: float) -> Callable[[_Function], _Function]:
    """Register a function that adds statements to the current block; it returns whether it did."""

    def register(function: _Function) -> _Function:
        STATEMENTS.append((weight, function))
        return function

    return register


class Generator:
    """The state of drawing one program."""

    statement: ClassVar[Callable[[Generator, int], None]]
    """`control.draw_statement`, of what all modules have registered."""
    loaded_bits: ClassVar[Callable[[Generator, DType, tuple[int, ...]], Expr]]
    """`memory.loaded_bits`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arguments: list[Argument] = []
        self.helpers: list[Helper] = []
        self.functions: list[tuple[str, Type, tuple[Type, ...]]] = []
        """Helpers to call with two numbers: name, type of the parameters, and those of the results."""
        self.ones: set[str] = set()
        """Arguments that are known to be one while compiling: numbers of Python, which take the types of
        others."""
        self.body: list[Statement] = []
        self.blocks: list[list[Statement]] = [self.body]
        self.scopes: list[dict[str, Type]] = [{}]
        self.names: dict[str, int] = {}
        self.in_helper = False
        self.trips = 1
        """How often the current block runs at most."""
        self.is_dead = False
        """Whether the current block never runs."""
        self.budget = self.pick(10, 20, 30, 60)
        """Expressions left to be made of others."""
        pick = self.pick
        self.num_warps = pick(1, 1, 2, 4, 4, 8)
        self.num_stages = pick(1, 2, 3, 3, 4, 5)
        grids = ((1,), (1,), (2,), (3,), (2, 2))
        self.grid = pick(*(grid for grid in grids if math.prod(grid) * self.num_warps <= MAX_WARPS))
        self.dtypes: tuple[DType, ...] = (
            I32,
            *self.random.sample(NUMBERS, 3),
            *self.random.sample((F32, F16, *FP8), 1),
        )
        """The element types that this program uses most."""
        self.most = min(pick(128, 256, 256, 512, 512, 1024, 4096), self.num_warps * pick(256, 256, 512))
        """Elements of a tensor at most; dots may have more."""
        a, b = pick(*pow2(64)), pick(2, 4, 8, 16, 32, 32, 64, 128)
        while a * b > self.most:
            a, b = pick((max(a // 2, 1), b), (a, max(b // 2, 2)))
        self.shapes: tuple[tuple[int, ...], ...] = ((), (a * b,), (a, b), (a, b), (a, b))
        if self.chance(0.3):
            self.shapes += ((b, a), (2, a, b // 2))
        self.declare_scalars()

    # Drawing

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, prefix: str) -> str:
        number = self.names.get(prefix, 0)
        self.names[prefix] = number + 1
        return f"{prefix}{number}"

    def dtype(self) -> DType:
        return self.pick(*self.dtypes)

    def number_dtype(self) -> DType:
        """An element type that has arithmetic."""
        return self.pick(*(dtype for dtype in self.dtypes if not dtype.is_fp8))

    def integer_dtype(self) -> DType:
        return self.pick(*(dtype for dtype in self.dtypes if not dtype.is_float))

    def shape(self) -> tuple[int, ...]:
        return self.pick(*self.shapes)

    # Names and statements

    def declare_scalars(self) -> None:
        """Numbers passed to the kernel: trip counts, divisors, sizes."""
        for _ in range(3):
            value = self.pick(0, 0, 1, 2, 2, 3, 3, 5, 16, 32, -1, -7)
            hint = (
                ":1"
                if value == 1 and self.chance(0.5)
                else ":16"
                if value % 16 == 0 and self.chance(0.5)
                else ""
            )
            self.declare(Argument(self.fresh("n"), I32, value=value, hint=hint))
        if self.chance(0.4):
            dtype = self.pick(*INTEGERS)
            value = self.random.randint(dtype.low, dtype.high)
            self.declare(Argument(self.fresh("n"), dtype, value=value))
        if self.chance(0.3):
            self.declare(Argument(self.fresh("f"), F32, value=float(self.random.randint(-9, 9))))

    def declare(self, argument: Argument) -> Argument:
        """Add an argument to the kernel; a number is a variable of it."""
        self.arguments.append(argument)
        if argument.hint == ":1":
            self.ones.add(argument.name)
        if not argument.size and not argument.descriptor:
            self.scopes[0][argument.name] = Type(argument.dtype, (), int(argument.value), int(argument.value))
        return argument

    def array(self, dtype: DType, low: int = 0, high: int = 0, size: int = ARRAY) -> Argument:
        """An input with numbers of a range, or with arbitrary ones."""
        for argument in self.arguments:
            same = (argument.dtype, argument.low, argument.high, argument.size) == (dtype, low, high, size)
            if same and not argument.is_output and not argument.descriptor and self.chance(0.8):
                return argument
        hint = self.pick(":16", ":16", ":16", "")
        return self.declare(Argument(self.fresh("x"), dtype, size, low, high, hint=hint))

    def output(
        self, dtype: DType, size: int, low: int = 0, high: int = 0, tolerance: float = 0.0
    ) -> Argument:
        """An array that is written; it begins with numbers of a range where there is one."""
        name, hint = self.fresh("out"), self.pick(":16", ":16", ":16", "")
        return self.declare(
            Argument(name, dtype, size, low, high, is_output=True, tolerance=tolerance, hint=hint)
        )

    @property
    def programs(self) -> int:
        """Programs of the grid."""
        return self.grid[0] * (self.grid[1] if len(self.grid) > 1 else 1)

    def add(self, *parts: str | Expr) -> Statement:
        """Add a statement to the current block."""
        self.blocks[-1].append(Statement(Line(*parts)))
        return self.blocks[-1][-1]

    def assign(self, name: str, value: Expr, type_: Type | None = None) -> Expr:
        """Assign to a variable; a new one is declared with a type."""
        added = self.add(name, " = ", value)
        added.defines = ((name, type_ or value.type),)
        if not any(name in scope for scope in self.scopes):
            self.scopes[-1][name] = type_ or value.type
        return Expr(type_ or value.type, name)

    def named(self, value: Expr) -> Expr:
        """The value in a variable of its own."""
        return value if is_name(value) else self.assign(self.fresh("v"), value)

    def kept(self, value: Expr) -> Expr:
        """The value in a variable that nothing assigns to again: an index and the mask that says where it is inside
        go together, in the condition of a `while`, too."""
        return self.assign(self.fresh("k"), value)

    def unpacked(self, types: Sequence[Type], *parts: str | Expr) -> list[Expr]:
        """The values of a tuple in variables of their own."""
        names = [self.fresh("v") for _ in types]
        added = self.add(", ".join(names), " = ", *parts)
        added.defines = tuple(zip(names, types))
        self.scopes[-1].update(added.defines)
        return [Expr(type_, name) for name, type_ in zip(names, types)]

    @contextmanager
    def nested(self, block: list[Statement], **variables: Type) -> Iterator[None]:
        """Statements go to a block, and names made meanwhile end with it."""
        self.blocks.append(block)
        self.scopes.append(dict(variables))
        yield
        self.blocks.pop()
        self.scopes.pop()

    def variables(self) -> list[tuple[str, Type]]:
        """What is visible here."""
        return [item for scope in self.scopes for item in scope.items()]

    # Expressions

    def expression(self, dtype: DType, shape: tuple[int, ...], depth: int = 3) -> Expr:
        """Any expression of an element type and a shape, but no inexact one."""
        self.budget -= 1
        if depth > 0 and self.budget > 0:
            weights = [weight for weight, _ in PRODUCERS]
            for _ in range(4):
                [(_, function)] = self.random.choices(PRODUCERS, weights)
                found = function(self, dtype, shape, depth - 1)
                if found is not None:
                    assert (found.type.dtype, found.type.shape) == (dtype, shape), (
                        f"{function.__name__}: {found}: {found.type}"
                    )
                    return self.named(found) if self.chance(0.25) else found
        return self.leaf(dtype, shape)

    def leaf(self, dtype: DType, shape: tuple[int, ...]) -> Expr:
        """A variable, a constant, or something loaded."""
        known = [
            Expr(t, name)
            for name, t in self.variables()
            if (t.dtype, t.shape) == (dtype, shape) and t.kind != "inexact"
        ]
        known = [value for value in known if str(value) not in self.ones]
        if known and self.chance(0.6):
            return self.pick(*known)
        if dtype.is_bool:
            return self.comparison(shape, 0)
        if not shape and not dtype.is_fp8 and self.chance(0.5):
            numbers = [
                Expr(t, name)
                for name, t in self.variables()
                if (t.dtype, t.shape) == (I32, ()) and t.within(dtype.low, dtype.high)
            ]
            if numbers:
                found = self.pick(*numbers)
                return Expr(
                    Type(dtype, (), found.type.low, found.type.high), "tl.cast(", found, f", tl.{dtype.name})"
                )
        if self.chance(0.15) and not dtype.is_fp8:
            return self.constant(dtype, shape)
        if not self.in_helper and self.chance(0.85 if shape else 0.3):
            return self.loaded(dtype, shape)
        scalars = [
            Expr(t, name)
            for name, t in self.variables()
            if (t.dtype, t.shape) == (dtype, ()) and t.kind != "inexact"
        ]
        if scalars and shape:
            value = self.pick(*scalars)
            return Expr(value.type.shaped(*shape), "tl.broadcast_to(", value, f", {tuple_text(shape)})")
        return self.constant(dtype, shape)

    def loaded(self, dtype: DType, shape: tuple[int, ...]) -> Expr:
        """Something from memory; set by the module of memory."""
        raise NotImplementedError

    def comparison(self, shape: tuple[int, ...], depth: int) -> Expr:
        """Two numbers compared; set by the module of elementwise expressions."""
        raise NotImplementedError

    def whole(self, dtype: DType, shape: tuple[int, ...], low: int, high: int, depth: int = 3) -> Expr:
        """An expression whose value lies in a range."""
        for _ in range(3):
            found = self.expression(dtype, shape, depth)
            if found.type.within(low, high):
                return found
            if found.type.is_whole and (self.chance(0.7) or dtype.is_fp8):
                fitted = self.fitted(found, low, high)
                if fitted is not None:
                    return fitted
        if self.in_helper or not shape:
            return self.constant(dtype, shape, low, high)
        return self.loaded_between(dtype, shape, low, high)

    def loaded_between(self, dtype: DType, shape: tuple[int, ...], low: int, high: int) -> Expr:
        raise NotImplementedError

    def fitted(self, value: Expr, low: int, high: int) -> Expr | None:
        """A value brought into a range by arithmetic."""
        type_ = value.type
        dtype = type_.dtype
        if type_.within(low, high):
            return value
        if not type_.is_whole or dtype.is_bool or dtype.is_fp8 or low < dtype.low or high > dtype.high:
            return None
        if not dtype.is_float:
            if low <= 0 < high and self.chance(0.5):
                mask = (1 << (min(high, 1 << 31) + 1).bit_length() - 1) - 1
                if mask > 0:
                    return Expr(type_.ranged(0, mask), "(", value, f" & {mask})")
            span = min(high - low, 1 << 20)
            most = min(span, -low, high, dtype.high - 1)  # The divisor is of the same type.
            if most > 0 and self.chance(0.5):
                return Expr(type_.ranged(-most, most), "(", value, f" % {most + 1})")
        fitted = Type(dtype, type_.shape, max(low, min(type_.low, high)), min(high, max(type_.high, low)))
        if self.chance(0.3) and low < high and dtype not in (I1,) and dtype.is_float and dtype.bits >= 32:
            return Expr(fitted, "tl.clamp(", value, f", {number(low, dtype)}, {number(high, dtype)})")
        back = "" if dtype.bits >= 32 else f".to(tl.{dtype.name})"
        return Expr(
            fitted, "tl.minimum(tl.maximum(", value, f", {number(low, dtype)}), {number(high, dtype)}){back}"
        )

    def constant(
        self, dtype: DType, shape: tuple[int, ...], low: int | None = None, high: int | None = None
    ) -> Expr:
        """A number of a range, in every element."""
        usual = max(dtype.low, -9), min(dtype.high, 9)
        bounds = usual[0] if low is None else low, usual[1] if high is None else high
        if self.chance(0.2) and not dtype.is_float and bounds == usual:
            bounds = self.pick((dtype.low, dtype.low), (dtype.high, dtype.high), (dtype.low, dtype.high))
        value = self.random.randint(*bounds)
        return constant(Type(dtype, shape, value, value))

    def literal(self, dtype: DType, low: int, high: int) -> Expr:
        """A number as Python writes it."""
        value = self.random.randint(low, high)
        return Expr(Type(dtype, (), value, value), number(value, dtype))

    def scalar(self, low: int, high: int, dtype: DType = I32) -> Expr:
        """A scalar of a range, preferably one of run time."""
        known = [
            Expr(t, name)
            for name, t in self.variables()
            if (t.dtype, t.shape) == (dtype, ()) and t.within(low, high)
        ]
        if known and self.chance(0.7):
            return self.pick(*known)
        return self.whole(dtype, (), low, high, 1) if self.chance(0.4) else self.literal(dtype, low, high)


def constant(type_: Type) -> Expr:
    """The lowest number of a type in every element."""
    value = type_.low if type_.kind == WHOLE else 0
    dtype = type_.dtype
    if dtype.is_fp8:
        text = f"tl.full({tuple_text(type_.shape)}, {value}, tl.float32).to(tl.{dtype.name})"
    elif dtype.is_bool:
        text = f"(tl.full({tuple_text(type_.shape)}, {value}, tl.int32) != 0)"
    else:
        text = f"tl.full({tuple_text(type_.shape)}, {value}, tl.{dtype.name})"
    return Expr(Type(dtype, type_.shape, value, value), text)


def number(value: int, dtype: DType) -> str:
    return f"{value}.0" if dtype.is_float else str(value)


def tuple_text(items: Sequence[Any]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"


def is_name(value: Expr) -> bool:
    return len(value.parts) == 1 and isinstance(value.parts[0], str) and value.parts[0].isidentifier()


def program(seed: int) -> Program:
    """The program of a seed."""
    from random_programs.control import finish  # It and what it imports register themselves.

    generator = Generator(seed)
    finish(generator)
    return Program(
        f"program_{seed}",
        generator.arguments,
        generator.helpers,
        generator.body,
        generator.grid,
        generator.num_warps,
        generator.num_stages,
    )


__all__ = [
    "ANY",
    "Generator",
    "constant",
    "full",
    "number",
    "producer",
    "program",
    "statement",
    "tuple_text",
    "worst",
]
