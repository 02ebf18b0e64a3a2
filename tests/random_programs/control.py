"""Statements: assignments, branches, loops, helpers; and the end of a program, which stores what it made."""

from __future__ import annotations

from random_programs import dot_loops, memory, reductions, shapes  # noqa: F401  register their producers
from random_programs.arrays import Argument
from random_programs.elementwise import TOLERANCES, inexact, widened
from random_programs.generator import (
    LOOP_OPTIONS,
    STATEMENTS,
    Generator,
    constant,
    number,
    producer,
    statement,
    tuple_text,
)
from random_programs.memory import store
from random_programs.nodes import Expr, Helper, Line, Statement
from random_programs.types import F32, I1, I32, INTEGERS, DType, Type, full

MAX_TRIPS = 6
DEEPEST = 3


def finish(g: Generator) -> None:
    """Draw the statements of a program, and store what is left."""
    for _ in range(g.pick(0, 0, 0, 1, 1, 2)):
        helper(g)
    if g.programs > 1 and g.chance(0.15):
        early_return(g)
    for _ in range(g.pick(1, 2, 2, 3, 3, 4)):
        g.statement(DEEPEST)
    if g.chance(0.2):
        value = inexact(g, g.shape(), 1)
        if value is not None:
            store(g, value, TOLERANCES[value.type.dtype])
    left = [(name, t) for name, t in g.scopes[0].items() if name[0] in "vamw" and t.kind != "inexact"]
    g.random.shuffle(left)
    for name, type_ in left[:6]:
        store(g, Expr(type_, name))
    if len(left) < 2:
        g.budget = max(g.budget, 12)
        store(g, g.expression(g.number_dtype(), g.shape()))


def draw_statement(g: Generator, depth: int) -> None:
    """A statement of any kind."""
    if depth <= 0:
        assignment(g, depth)
        return
    for _ in range(6):
        [(_, function)] = g.random.choices(STATEMENTS, [weight for weight, _ in STATEMENTS])
        if function(g, depth):
            return


def body(g: Generator, depth: int, **variables: Type) -> list[Statement]:
    """A block of its own, which changes at least one variable from outside."""
    block: list[Statement] = []
    outer = mutable(g)
    with g.nested(block, **variables):
        for _ in range(g.pick(0, 0, 1, 1, 2)):
            g.statement(depth - 1)
        for name, type_ in g.random.sample(outer, min(len(outer), g.pick(1, 1, 2, 3))):
            change(g, name, type_)
    return block


def mutable(g: Generator) -> list[tuple[str, Type]]:
    """Variables that may be assigned to."""
    return [(name, t) for name, t in g.variables() if name[0] in "vm" and t.kind != "inexact"]


def change(g: Generator, name: str, type_: Type) -> None:
    """Assign a new value to a variable, most often one that depends on the old."""
    old = Expr(type_, name)
    dtype, shape = type_.dtype, type_.shape
    for _ in range(4):
        if dtype.is_bool or dtype.is_fp8 or not type_.is_whole or g.chance(0.3):
            value = g.expression(dtype, shape, 2)
        else:
            other = g.expression(dtype, g.pick(shape, shape, ()), 2)
            value = _accumulated(g, old, other)
        fitted = g.fitted(value, type_.low, type_.high) if type_.is_whole and value.type.is_whole else value
        if fitted is not None and fitted.type.fits(type_) and str(fitted) != name:
            g.assign(name, fitted, type_)
            return


def _accumulated(g: Generator, old: Expr, other: Expr) -> Expr:
    """An old value with something added."""
    t, o = old.type, other.type
    sign = g.pick("+", "+", "-", "max", "min", *(() if t.dtype.is_float else ("^", "*")))
    if not o.is_whole:
        return old
    if sign in ("max", "min"):
        low, high = (
            (max(t.low, o.low), max(t.high, o.high))
            if sign == "max"
            else (min(t.low, o.low), min(t.high, o.high))
        )
        return Expr(t.ranged(low, high), f"tl.{sign}imum(", old, ", ", other, ")", widened(t.dtype))
    low, high = (t.low + o.low, t.high + o.high) if sign == "+" else (t.low - o.high, t.high - o.low)
    if sign in "^*" or low < t.dtype.low or high > t.dtype.high:
        if t.dtype.is_float:
            return old
        return Expr(full(t.dtype, t.shape), "(", old, f" {sign} ", other, ")")
    return Expr(t.ranged(low, high), "(", old, f" {sign} ", other, ")")


@statement(3)
def assignment(g: Generator, depth: int) -> bool:
    """A new variable."""
    value = g.expression(g.dtype() if g.chance(0.9) else I1, g.shape(), 3)
    t = value.type
    if g.chance(0.5) and t.is_whole and not t.dtype.is_fp8 and not t.dtype.is_bool:
        bound = g.pick(16, 64, min(t.dtype.high, 1024))
        wide = (
            full(t.dtype, t.shape)
            if not t.dtype.is_float
            else t.ranged(min(t.low, -bound), max(t.high, bound))
        )
        g.assign(g.fresh("m"), value, wide)
    else:
        g.assign(g.fresh("m"), value)
    return True


@statement(2.5)
def branch(g: Generator, depth: int) -> bool:
    """if, elif, else on scalars."""
    if not mutable(g):
        assignment(g, depth)
    added = Statement(Line("if ", g.expression(I1, (), 2), ":"), body=[])
    added.body = body(g, depth)
    if g.chance(0.3):
        added.others.append((Line("elif ", g.comparison((), 1), ":"), body(g, depth)))
    if g.chance(0.5):
        added.others.append((Line("else:"), body(g, depth)))
    hoist(g, added)
    return True


def hoist(g: Generator, added: Statement) -> None:
    g.blocks[-1].append(added)


@statement(3)
def for_loop(g: Generator, depth: int) -> bool:
    """A loop, which may run no round at all."""
    if g.trips > 8:
        return False
    if not mutable(g):
        assignment(g, depth)
    name = g.fresh("i")
    form = g.pick("up", "up", "up", "down", "step", "static", "nested")
    low, high = g.scalar(-3, 3) if g.chance(0.4) else g.literal(I32, -2, 0), g.scalar(0, 4)
    inside, text = (
        Type(I32, (), low.type.low, max(high.type.high - 1, low.type.low)),
        ["range(", low, ", ", high, ")"],
    )
    trips = max(high.type.high - low.type.low, 0)
    if form == "up" and g.chance(0.5):
        inside, trips = Type(I32, (), 0, max(high.type.high - 1, 0)), high.type.high
        text = ["range(", high, ")"]
    elif form == "down":
        step = g.pick(-1, -2)
        inside = Type(I32, (), min(low.type.low + 1, high.type.high), max(high.type.high, low.type.low))
        text = ["range(", high, ", ", low, f", {step})"]
    elif form == "step":
        step = g.scalar(1, 3)
        text = ["range(", low, ", ", high, ", ", step, ")"]
    elif form == "static":
        trips = g.pick(0, 1, 2, 3)
        head = Statement(Line(f"for {name} in tl.static_range({trips}):"), body=[])
        assert head.body is not None
        known = Type(I32, (), 0, max(trips - 1, 0))
        inner = g.fresh("c")
        head.body.append(Statement(Line(f"{inner} = tl.full((), {name}, tl.int32)"), ((inner, known),)))
        head.body += _rounds(g, depth, trips, inner, known)
        hoist(g, head)
        return True
    if g.chance(0.4):
        text[0], text[-1] = "tl.range(", f"{text[-1][:-1]}, {g.pick(*LOOP_OPTIONS)})"
    head = Statement(Line(f"for {name} in ", *text, ":"), body=[])
    head.body = _rounds(g, depth, trips, name, inside)
    hoist(g, head)
    return True


def _rounds(g: Generator, depth: int, trips: int, name: str, type_: Type) -> list[Statement]:
    """The body of a loop of at most so many rounds."""
    outer, g.trips = g.trips, g.trips * max(trips, 1)
    was_dead, g.is_dead = g.is_dead, g.is_dead or trips == 0
    found = body(g, depth, **{name: type_})
    g.trips, g.is_dead = outer, was_dead
    return found


@statement(1)
def running(g: Generator, depth: int) -> bool:
    """A sum or an extreme over what a loop loads row by row, as kernels reduce what does not fit into a
    tensor."""
    if g.trips > 8 or g.in_helper:
        return False
    dtype = g.pick(I32, F32, F32, *(t for t in g.dtypes if not t.is_fp8 and t.bits >= 32))
    rows, columns = g.pick(1, 2, 4, 8), g.pick(8, 16, 32, 64)
    low, high = g.pick((-100, -50), (-8, 8), (3, 50)) if dtype.is_signed else (3, 50)
    trips, axis = g.pick(0, 1, 2, 3, 5), g.pick(0, 1)
    shape = (columns,) if axis == 0 else (rows,)
    array = g.array(dtype, low, high)
    form = g.pick("sum", "max", "min")
    size = rows * columns // shape[0] * max(trips, 1)
    bounds = (low * size - 9, high * size + 9) if form == "sum" else (min(low, -200), max(high, 200))
    bounds = max(bounds[0], dtype.low), bounds[1]
    begin = (
        g.random.randint(max(-9, dtype.low), 9)
        if form == "sum"
        else bounds[0]
        if form == "max"
        else bounds[1]
    )
    total = g.assign(g.fresh("m"), constant(Type(dtype, shape, begin, begin)), Type(dtype, shape, *bounds))
    count = next((name for name, t in g.variables() if t == Type(I32, (), trips, trips)), str(trips))
    name = g.fresh("i")
    place = f"tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :] + {name} * {g.pick(4, rows * columns)}"
    head = Statement(Line(f"for {name} in range({count}):"), body=[])
    assert head.body is not None
    with g.nested(head.body):
        piece = Expr(Type(dtype, (rows, columns), low, high), f"tl.load({array.name} + ({place}) % 4096)")
        part = Expr(Type(dtype, shape, *bounds), f"tl.{form}(", g.named(piece), f", {axis})")
        parts = (
            ("(", total, " + ", part, ")") if form == "sum" else (f"tl.{form}imum(", total, ", ", part, ")")
        )
        g.assign(str(total), Expr(total.type, *parts), total.type)
    hoist(g, head)
    return True


@statement(1.5)
def while_loop(g: Generator, depth: int) -> bool:
    """A loop with a counter, and a condition of more than that."""
    if g.trips > 8:
        return False
    if not mutable(g):
        assignment(g, depth)
    name = g.fresh("w")
    end = g.scalar(0, 4)
    start = g.pick(0, 0, 1, -1)
    type_ = Type(I32, (), start, max(end.type.high, start))
    g.assign(
        name,
        Expr(Type(I32, (), start, start), f"tl.full((), {start}, tl.int32)" if g.chance(0.5) else str(start)),
        type_,
    )
    parts: list[str | Expr] = [f"while {name} < ", end]
    if g.chance(0.3):
        parts = [f"while ({name} < ", end, ") & ", g.comparison((), 1)]
    head = Statement(Line(*parts, ":"), body=[])
    head.body = _rounds(
        g, depth, max(end.type.high - start, 0), name, Type(I32, (), start, max(end.type.high - 1, start))
    )
    head.body.append(Statement(Line(f"{name} += 1"), is_fixed=True))
    hoist(g, head)
    return True


@statement(1.5)
def guarded(g: Generator, depth: int) -> bool:
    """A quotient by a number that may be zero, where that is not reached when it is: in a branch, or a loop
    without rounds."""
    zeros = [name for name, t in g.variables() if t == Type(I32, (), 0, 0)]
    others = [name for name, t in g.variables() if t.dtype == I32 and t.shape == () and name[0] in "nwvm"]
    if not zeros and g.chance(0.7):
        zeros = [g.declare(Argument(g.fresh("n"), I32)).name]
    if not others and not zeros:
        return False
    name = g.pick(*(zeros or others))
    shape = g.pick((), g.shape())
    base = g.expression(I32, shape, 1)
    dividend = (
        base if base.type.low > I32.low else Expr(Type(I32, shape, 0, I32.high), "(", base, " & 2147483647)")
    )
    sign = g.pick("//", "%")
    result = g.assign(g.fresh("m"), g.constant(I32, shape), full(I32, shape))
    use = Expr(full(I32, shape), "(", result, f" {g.pick('+', '^', '-')} ", dividend, f" {sign} {name})")
    inner = Statement(Line(str(result), " = ", use), ((str(result), full(I32, shape)),))
    form = g.pick("if", "loop", "loop", "where")
    if form == "loop" and name in zeros:
        other = g.pick(*zeros)
        hoist(g, Statement(Line(f"for {g.fresh('i')} in range(0, {other}):"), body=[inner], is_guard=True))
        if g.chance(0.5):
            check = Statement(Line(f"if {name} != 0:"), body=[inner], is_guard=True)
            hoist(g, Statement(Line(f"for {g.fresh('i')} in range(2):"), body=[check]))
    elif form == "where":
        safe = Expr(full(I32, shape), "(", dividend, f" {sign} tl.where({name} == 0, 1, {name}))")
        g.assign(str(result), safe, full(I32, shape))
    else:
        hoist(g, Statement(Line(f"if {name} != 0:"), body=[inner], is_guard=True))
    test = Statement(
        Line(f"if {name} == 0:"), body=[Statement(Line(f"{result} = {result} - {g.pick(1, 5, 100)}"))]
    )
    hoist(g, test)
    return True


@statement(0.7)
def stored(g: Generator, depth: int) -> bool:
    """A value that is stored on the spot, perhaps in each round."""
    store(g, g.expression(g.dtype(), g.shape(), 3))
    return True


@statement(0.3)
def barrier(g: Generator, depth: int) -> bool:
    if len(g.blocks) > 1:
        return False
    g.add("tl.debug_barrier()")
    return True


@statement(0.3)
def returned(g: Generator, depth: int) -> bool:
    """An early return under a condition."""
    if len(g.blocks) > 1:
        return False
    hoist(g, Statement(Line("if ", g.comparison((), 1), ":"), body=[Statement(Line("return"))]))
    return True


def early_return(g: Generator) -> None:
    """Some programs end at once."""
    hoist(
        g,
        Statement(
            Line(f"if tl.program_id(0) {g.pick('==', '>')} {g.pick(0, 1)}:"), body=[Statement(Line("return"))]
        ),
    )


def helper(g: Generator) -> None:
    """A function of two numbers, with statements of its own, whatever their shape."""
    dtype = g.number_dtype()
    bound = min(dtype.high, 16)
    type_ = Type(dtype, (), -bound if dtype.low < 0 else 0, bound)
    name = g.fresh("helper")
    block: list[Statement] = []
    scopes, budget = g.scopes, g.budget
    g.scopes, g.in_helper, g.budget = [{}], True, 12
    with g.nested(block, a=type_, b=type_):
        values = [g.whole(dtype, (), -64 if dtype.low < 0 else 0, 64, 3) for _ in range(g.pick(1, 1, 2))]
    g.scopes, g.in_helper, g.budget = scopes, False, budget
    g.helpers.append(
        Helper(
            name,
            (("a", type_), ("b", type_)),
            block,
            Line(values[0], *(part for v in values[1:] for part in (", ", v))),
        )
    )
    g.functions.append((name, type_, tuple(value.type for value in values)))


@producer(1)
def called(g: Generator, dtype: DType, shape: tuple[int, ...], depth: int) -> Expr | None:
    """A call of a function of the program, with scalars."""
    known = [call for call in g.functions if call[1].dtype == dtype]
    if not known or shape:
        return None
    name, parameter, results = g.pick(*known)
    a, b = (g.whole(dtype, (), parameter.low, parameter.high, depth) for _ in range(2))
    if len(results) > 1:
        return g.pick(*g.unpacked(results, f"{name}(", a, ", ", b, ")"))
    return Expr(results[0], f"{name}(", a, ", ", b, ")")


Generator.statement = draw_statement

__all__ = ["INTEGERS", "number", "tuple_text"]
