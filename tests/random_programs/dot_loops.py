"""Dots along K in a loop, whose tiles come by pointers that move, offsets, block pointers and
descriptors."""

from __future__ import annotations

from random_programs.arrays import Argument
from random_programs.dots import DotChoices, finished, rows, start
from random_programs.generator import LOOP_OPTIONS, Generator, statement
from random_programs.memory import host_descriptor, store
from random_programs.nodes import Expr, Line, Statement
from random_programs.types import I32, DType, Type

_SIZE = 16384
"""Elements of an operand's array."""


class Side:
    """One operand: how its tiles are loaded in each round."""

    def __init__(self, g: Generator, choices: DotChoices, side: str, rounds: int) -> None:
        self.g, self.is_a, self.bound, self.k, self.rounds = g, side == "a", choices.bound, choices.k, rounds
        self.dtype: DType = choices.a if self.is_a else choices.b
        self.shape = (choices.m, choices.k) if self.is_a else (choices.k, choices.n)
        depth = choices.k * max(rounds, 1)
        self.sizes = (choices.m, depth) if self.is_a else (depth, choices.n)
        self.is_transposed = g.chance(0.35)
        self.name = g.fresh(f"p{side}")
        forms = ("pointer", "pointer", "pointer", "offsets", "offsets", "block", "descriptor", "host")
        self.form = g.pick(*forms)
        aligned = self.form in ("descriptor", "host")
        self.array = self._array(aligned)
        getattr(self, f"_prepare_{self.form}")()

    def _array(self, aligned: bool) -> Argument:
        g = self.g
        if aligned:
            argument = Argument(g.fresh("x"), self.dtype, _SIZE, -self.bound, self.bound, hint=":16")
            return argument if self.form == "host" else g.declare(argument)
        if g.chance(0.5):  # It ends where the last tile does.
            return g.declare(
                Argument(
                    g.fresh("x"),
                    self.dtype,
                    self.sizes[0] * self.sizes[1],
                    -self.bound,
                    self.bound,
                    hint=":16",
                )
            )
        return g.array(self.dtype, -self.bound, self.bound, _SIZE)

    # What stands before the loop

    def _strides(self) -> tuple[str, str]:
        """Of rows and columns: numbers, or arguments."""
        rows, columns = self.sizes
        values = (1, rows) if self.is_transposed else (columns, 1)
        texts = [str(value) for value in values]
        for axis, value in enumerate(values):
            if value > 1 and self.g.chance(0.4):
                hint = ":16" if value % 16 == 0 and self.g.chance(0.8) else ""
                texts[axis] = self.g.declare(Argument(self.g.fresh("s"), I32, value=value, hint=hint)).name
        return texts[0], texts[1]

    def _prepare_pointer(self) -> None:
        self.strides = self._strides()
        rows, columns = self.strides
        self.g.add(
            f"{self.name} = {self.array.name} + tl.arange(0, {self.shape[0]})[:, None] * {rows} + "
            f"tl.arange(0, {self.shape[1]})[None, :] * {columns}"
        )

    _prepare_offsets = _prepare_pointer

    def _laid_out(self) -> tuple[list[int], list[int]]:
        """Sizes and block as they lie in memory, rows last."""
        turn = -1 if self.is_transposed else 1
        return list(self.sizes[::turn]), list(self.shape[::turn])

    def _cut(self, sizes: list[int]) -> list[int]:
        """Sizes that end before the array does: what lies beyond is zero."""
        return [size - self.g.pick(0, 0, 0, 1, size // 4) for size in sizes]

    def _prepare_block(self) -> None:
        sizes, block = self._laid_out()
        cut = self._cut(sizes)
        self.g.add(
            f"{self.name} = tl.make_block_ptr({self.array.name}, ({cut[0]}, {cut[1]}), ({sizes[1]}, 1), (0, 0), "
            f"({block[0]}, {block[1]}), (1, 0))"
        )

    def _prepare_descriptor(self) -> None:
        sizes, block = self._laid_out()
        self.g.add(
            f"{self.name} = tl.make_tensor_descriptor({self.array.name}, {self._cut(sizes)}, [{sizes[1]}, 1], {block})"
        )

    def _prepare_host(self) -> None:
        sizes, block = self._laid_out()
        self.name = host_descriptor(self.g, self.array, self._cut(sizes), [sizes[1], 1], block).name

    # What stands in it

    def tile(self, counter: str) -> Expr:
        """The tile of a round, perhaps computed further."""
        type_ = Type(self.dtype, self.shape, -self.bound, self.bound)
        along = f"{counter} * {self.k}"
        at = f"[0, {along}]" if self.is_a != self.is_transposed else f"[{along}, 0]"
        if self.form in ("pointer", "offsets"):
            text = f"tl.load({self._pointer(counter)}{self._mask(counter)})"
        elif self.form == "block":
            text = f'tl.load({self.name}, boundary_check=(0, 1), padding_option="zero")'
        else:
            text = f"{self.name}.load({at})"
        if self.form not in ("pointer", "offsets") and self.is_transposed:
            text = f"tl.trans({text})"
        return self._computed(Expr(type_, text), counter)

    def _pointer(self, counter: str) -> str:
        stride = self.strides[1 if self.is_a else 0]
        return self.name if self.form == "pointer" else f"{self.name} + {counter} * {self.k} * {stride}"

    def _mask(self, counter: str) -> str:
        if self.dtype.is_fp8 or self.g.chance(0.6):
            return ""
        most = self.k * max(self.rounds, 1)
        bound = str(self.g.random.randint(0, most))
        if self.g.chance(0.5):
            bound = self.g.declare(Argument(self.g.fresh("n"), I32, value=int(bound))).name
        axis = f"tl.arange(0, {self.k})[{'None, :' if self.is_a else ':, None'}]"
        return (
            f", mask={axis} < {bound} - {counter} * {self.k}, other={'0.0' if self.dtype.is_float else '0'}"
        )

    def _computed(self, found: Expr, counter: str) -> Expr:
        g, dtype = self.g, self.dtype
        if g.chance(0.7) or dtype.is_fp8 or self.bound < 2:
            return g.named(found)
        one = "1.0" if dtype.is_float else "1"
        form = g.pick(
            "-{}",
            f"{{}} * -{one}",
            "tl.where({c} == 1, {}, -{})",
            "tl.abs({})",
            f"tl.minimum({{}}, {one}).to(tl.{dtype.name})",
        )
        if "{c}" in form:
            found = g.named(found)
        pieces: list[str | Expr] = []
        for number, text in enumerate(f"({form})".replace("{c}", counter).split("{}")):
            pieces += ([found] if number else []) + [text]
        return g.named(Expr(found.type, *pieces))

    def move(self) -> None:
        """The statements at the end of a round."""
        if self.form == "pointer":
            self.g.add(f"{self.name} += {self.k} * {self.strides[1 if self.is_a else 0]}")
        elif self.form == "block":
            step = f"(0, {self.k})" if self.is_a != self.is_transposed else f"({self.k}, 0)"
            self.g.add(f"{self.name} = tl.advance({self.name}, {step})")


@statement(2)
def dot_loop(g: Generator, depth: int) -> bool:
    """A sum of dots."""
    if len(g.blocks) > 2 or g.in_helper:
        return False
    rounds = g.pick(0, 1, 2, 3, 4, 5, 6)
    choices = DotChoices(g, rounds + 1)
    while rounds * choices.k * max(choices.m, choices.n) > _SIZE and rounds:
        rounds -= 1
    if not choices.fits(rounds + 1) or choices.k * max(choices.m, choices.n) > _SIZE:
        return False
    trips = _trips(g, rounds)
    shape, total = (choices.m, choices.n), choices.step * max(rounds, 1)
    low, high = (-choices.step, choices.step) if g.chance(0.3) else (0, 0)
    init = start(g, choices.result, shape, low, high) if high else g.constant(choices.result, shape, 0, 0)
    acc = g.assign(
        g.fresh("acc"), init, Type(choices.result, shape, -total - choices.step, total + choices.step)
    )
    sides = [Side(g, choices, side, rounds) for side in "ab"]
    fixed = {side: side.tile("0") for side in sides if g.chance(0.3)}
    counter = g.fresh("k")
    head = _head(g, counter, trips, bool(fixed))
    assert head.body is not None
    with g.nested(head.body, **{counter: Type(I32, (), 0, max(rounds - 1, 0))}):
        outer, g.trips = g.trips, g.trips * max(rounds, 1)
        a, b = (fixed.get(side) or side.tile(counter) for side in sides)
        if g.chance(0.3):
            g.statement(depth - 1)
        if g.chance(0.3):
            summed = Expr(acc.type, "(", acc, " + ", Expr(acc.type, *choices.text(a, b, None)), ")")
        else:
            summed = Expr(acc.type, *choices.text(a, b, acc))
        g.assign(str(acc), summed, acc.type)
        if g.chance(0.15):
            g.statement(depth - 1)
        if g.chance(0.5 if fixed else 0.2):
            store(g, rows(g, acc))
        for side in sides:
            if side not in fixed:
                side.move()
        if str(head.head).startswith("while"):
            head.body.append(Statement(Line(f"{counter} += 1"), is_fixed=True))
        g.trips = outer
    g.blocks[-1].append(head)
    store(g, finished(g, acc))
    return True


def _head(g: Generator, counter: str, trips: str, keeps: bool) -> Statement:
    """The head of a loop that counts rounds from zero on; `keeps` says that an operand is there for all of
    them."""
    forms = (
        ("range", "tl.range", "while", "while", "while")
        if keeps
        else ("range", "range", "range", "tl.range", "tl.range", "while")
    )
    form = g.pick(*forms)
    if form == "while":
        g.add(f"{counter} = {g.pick('0', 'tl.full((), 0, tl.int32)')}")
        return Statement(Line(f"while {counter} < {trips}:"), body=[])
    option = f", {g.pick(*LOOP_OPTIONS)}" if form == "tl.range" and g.chance(0.6) else ""
    return Statement(Line(f"for {counter} in {form}(0, {trips}{option}):"), body=[])


def _trips(g: Generator, rounds: int) -> str:
    """The number of rounds: of run time, mostly."""
    known = [
        name for name, t in g.variables() if (t.dtype, t.shape, t.low, t.high) == (I32, (), rounds, rounds)
    ]
    if known:
        return g.pick(*known)
    return str(rounds) if g.chance(0.3) else g.declare(Argument(g.fresh("n"), I32, value=rounds)).name
