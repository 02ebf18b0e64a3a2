"""`for` and `while`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from kbuild.compiler.frontend.assign import bind
from kbuild.compiler.frontend.branches import truth
from kbuild.compiler.frontend.expressions import iterable, static_items
from kbuild.compiler.frontend.host import run_loop
from kbuild.compiler.frontend.scope import (
    POISON,
    Deferred,
    Poisoned,
    Undefined,
    assigned_names,
    contains_return,
    form,
    materialised,
    settled_like,
    settles,
    type_text,
)
from kbuild.compiler.frontend.visitor import Item, State, Visitor, reads
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ops.control import Condition as ConditionOp
from kbuild.compiler.ops.control import For, While, Yield
from kbuild.compiler.ops.elementwise import AddI, DivSI, MulI, SubI
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.promote import integer_promote, to_tensor
from kbuild.compiler.semantic.types import DType
from kbuild.compiler.semantic.values import Range, RunTime, Tensor, WhileCondition, describe, flatten, rebuild
from kbuild.errors import CompileError

MAX_STATIC_ROUNDS = 1 << 16
"""Rounds of one unrolled loop; more are an error."""


def _check_no_else(visitor: Visitor, node: ast.For | ast.While) -> None:
    if node.orelse:
        visitor.fail(
            node.orelse[0],
            "`else` after a loop is not possible in a kernel",
            "write its statements after the loop",
        )


@reads(ast.For)
def read_for(visitor: Visitor, node: ast.For, rest: Sequence[Item]) -> State:
    if visitor.frame.pure:
        return run_loop(visitor, node, iterable(visitor, node.iter))
    _check_no_else(visitor, node)
    iterator = visitor.expression(node.iter)
    if isinstance(iterator, Range) and not iterator.static:
        _read_range(visitor, node, iterator)
        return None
    items = static_items(iterator)
    if items is None:
        visitor.fail(
            node.iter,
            f"a loop runs over range, tl.range, tl.static_range or a tuple, not over {describe(iterator)}",
        )
    return _unrolled(visitor, node, items, rest)


def _unrolled(visitor: Visitor, node: ast.For, items: tuple[Any, ...], rest: Sequence[Item]) -> State:
    """A loop known while compiling: its body once for each item.  Where the body returns, all that follows
    must be known to the reader of that `return`, so everything is read as one list."""
    if len(items) > MAX_STATIC_ROUNDS:
        visitor.fail(
            node.iter,
            f"the loop would be unrolled {len(items)} times, at most {MAX_STATIC_ROUNDS} are possible",
            "use tl.range",
        )
    steps: list[Item] = []
    for item in items:
        steps.append(lambda item=item: bind(visitor, node.target, item))
        steps.extend(node.body)
    if contains_return(node):
        return visitor.run([*steps, *rest])
    return visitor.run_nested(steps, False)


def _names_carried(visitor: Visitor, names: Sequence[str]) -> list[str]:
    """The names that have a value of run time before the loop."""
    values = visitor.frame.values
    return [name for name in names if name in values and flatten(values[name])]


def _read_range(visitor: Visitor, node: ast.For, iterator: Range) -> None:
    if not isinstance(node.target, ast.Name):
        visitor.fail(node.target, "a loop over numbers has one variable")
    bounds, falling, dtype = _bounds(visitor, node, iterator)
    names = [name for name in assigned_names(node.body) if name != node.target.id]
    retries = 0
    while not _try_range(visitor, node, node.target.id, bounds, falling, dtype, iterator, names):
        retries += 1
        assert retries <= len(names) + 1, "every retry turns at least one constant into a value"


def _bounds(visitor: Visitor, node: ast.For, iterator: Range) -> tuple[list[Tensor], bool, DType]:
    """Lower bound, upper bound and step > 0 in one type; whether the loop counts down."""
    start, stop, step = iterator.start, iterator.stop, iterator.step
    falling = isinstance(step, int) and step < 0
    if step == 0 and not isinstance(step, Tensor):
        visitor.fail(node.iter, "the step of the loop is 0")
    if falling:
        start, stop, step = stop, start, -step
    values = []
    for value, name in ((start, "start"), (stop, "end"), (step, "step")):
        visitor.locate(node.iter)
        if (
            isinstance(value, float)
            or not isinstance(value, Tensor | int)
            or (isinstance(value, Tensor) and (value.shape or not value.dtype.is_int()))
        ):
            visitor.fail(node.iter, f"the {name} of the loop is {describe(value)}; it must be an integer")
        values.append(to_tensor(visitor.ctx, value))
    dtypes: list[DType] = [value.dtype for value in values]  # type: ignore[misc]
    dtype = integer_promote(integer_promote(dtypes[0], dtypes[1]), dtypes[2])
    return [cast_to(visitor.ctx, value, dtype) for value in values], falling, dtype


def _try_range(
    visitor: Visitor,
    node: ast.For,
    target: str,
    bounds: list[Tensor],
    falling: bool,
    dtype: DType,
    iterator: Range,
    names: Sequence[str],
) -> bool:
    """Read the loop once; False when a name that was a constant turned out to change, and has been made a
    value."""
    frame, before = visitor.frame, visitor.frame.values
    carried = _names_carried(visitor, names)
    parts = [part for name in carried for part in flatten(before[name])]
    block = Block([dtype.ir, *(part.value.type for part in parts)], [target])
    frame.values = _with_arguments(before, carried, block.arguments[1:])
    with visitor.builder.inside(block):
        frame.values[target] = _induction(visitor, node, block.arguments[0], bounds, falling, dtype)
        frame.sites[target] = node.target
        changed, yields = _read_body(visitor, node, before, names, carried)
    if changed:
        _discard(block)
        _make_values(visitor, changed)
        return False
    _drop_unchanged(block, parts, carried, before, yields)
    hints = dict(iterator.hints)
    lower, upper, step = (bound.value for bound in bounds)
    operation = visitor.ctx.add(For(lower, upper, step, tuple(part.value for part in parts), block, **hints))
    _set_results(visitor, node, carried, operation.results, names)
    frame.values[target] = Deferred(lambda: _last_index(visitor, bounds, falling, dtype), dtype)
    return True


def _last_index(visitor: Visitor, bounds: list[Tensor], falling: bool, dtype: DType) -> Tensor:
    """The loop variable of the last round: what it is after the loop."""
    lower, upper, step = (bound.value for bound in bounds)
    one = visitor.ctx.constant(1, dtype).value
    add = visitor.ctx.add
    distance = add(SubI(add(SubI(upper, lower)).result, one)).result
    rounds = add(MulI(add(DivSI(distance, step)).result, step)).result
    if falling:
        return visitor.ctx.tensor(SubI(upper, rounds), dtype)
    return visitor.ctx.tensor(AddI(lower, rounds), dtype)


def _with_arguments(
    before: dict[str, Any], carried: Sequence[str], arguments: Sequence[Value]
) -> dict[str, Any]:
    """The names inside a loop: the carried ones stand for the block's arguments."""
    values, left = dict(before), list(arguments)
    for name in carried:
        values[name] = rebuild(before[name], left)
        for part in flatten(values[name]):
            part.value.name = name
    return values


def _induction(
    visitor: Visitor, node: ast.For, variable: Value, bounds: list[Tensor], falling: bool, dtype: DType
) -> Tensor:
    """The loop variable as the author sees it: counting down, it is lower + upper - variable."""
    if not falling:
        return Tensor(variable, dtype)
    visitor.locate(node.iter)
    rest = visitor.ctx.add(SubI(bounds[1].value, variable))
    return visitor.ctx.tensor(AddI(rest.result, bounds[0].value), dtype)


def _check_poison(after: dict[str, Any], names: Sequence[str]) -> None:
    if any(after.get(name) is POISON for name in names):
        raise Poisoned


def _read_body(
    visitor: Visitor,
    node: ast.For | ast.While,
    before: dict[str, Any],
    names: Sequence[str],
    carried: list[str],
) -> tuple[dict[str, Any], list[Value]]:
    """Read the body into the current block, and end that with the carried values; the names that were
    constants, or of an open layout, and change, with what they change to; and the values.  The names mean what
    they meant before the loop again."""
    frame = visitor.frame
    frame.loops += 1
    visitor.run_nested(node.body, False)
    after, frame.values = frame.values, before
    frame.loops -= 1
    _check_poison(after, names)
    changed = _constants_changed(visitor, node, before, after, names, carried)
    changed |= {name: after[name] for name in carried if settles(visitor.ctx, before[name], after[name])}
    yields = _yields(visitor, node, before, after, carried) if not changed else []
    visitor.locate(node)
    visitor.ctx.add(Yield(tuple(yields)))
    return changed, yields


def _constants_changed(
    visitor: Visitor,
    node: ast.AST,
    before: dict[str, Any],
    after: dict[str, Any],
    names: Sequence[str],
    carried: list[str],
) -> dict[str, Any]:
    """The names that are constants before the loop and something else at its end."""
    changed = {
        name: after[name]
        for name in names
        if name in before
        and name not in carried
        and not isinstance(before[name], Undefined)
        and after[name] is not before[name]
        and form(after[name]) != form(before[name])
    }
    for name in changed:
        frame = visitor.frame
        if not isinstance(before[name], bool | int | float | Deferred):
            raise CompileError(
                f"`{name}` is {type_text(before[name])} before the loop and {type_text(after[name])} at its end",
                frame.loc(frame.sites.get(name, node)),
                "give it a value of the final type before the loop",
            )
    return changed


def _make_values(visitor: Visitor, changed: dict[str, Any]) -> None:
    """Make values of constants, and settle open layouts, in front of the loop whose body was read."""
    for name, after in changed.items():
        before = visitor.frame.values[name]
        if isinstance(before, Deferred):
            visitor.frame.values[name] = _index_carried(name, before, after)
            continue
        value = materialised(visitor.ctx, before)
        settled = settled_like(visitor.ctx, value, after)
        visitor.frame.values[name] = value if settled is None else settled


def _index_carried(name: str, before: Deferred, after: Any) -> Tensor | Undefined:
    """What the variable of an earlier loop is before a loop that assigns it as well: its last value, or nothing
    where it is of another type after the body, of which an error tells only where it is read."""
    if not isinstance(after, Deferred | Tensor) or after.dtype == before.dtype:
        return before.make()
    return Undefined(
        f"`{name}` is {before.dtype} before the loop and {after.dtype} at its end",
        f"give one of the two variables another name than {name}",
    )


def _discard(block: Block) -> None:
    """Remove all operations of a block that will not be used."""
    for op in reversed(list(block)):
        op.erase()


def _yields(
    visitor: Visitor, node: ast.AST, before: dict[str, Any], after: dict[str, Any], carried: Sequence[str]
) -> list[Value]:
    """The carried values at the end of the body, which must have the types that they began with."""
    yields: list[Value] = []
    frame = visitor.frame
    for name in carried:
        value = after[name]
        if isinstance(value, Undefined):
            raise CompileError(value.reason, value.loc or frame.loc(node), value.help)
        value = value.make() if isinstance(value, Deferred) else materialised(visitor.ctx, value)
        settled = settled_like(visitor.ctx, value, before[name]) if visitor.ctx.explicit_layouts else None
        value = value if settled is None else settled
        if form(value) != form(before[name]):
            raise CompileError(
                f"`{name}` is {type_text(before[name])} before the loop and {type_text(value)} at its end; a variable that a "
                "loop changes must keep its type",
                frame.loc(frame.sites.get(name, node)),
                _type_hint(name, before[name], value),
            )
        yields += [part.value for part in flatten(value)]
    return yields


_TL_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


def _type_hint(name: str, before: Any, after: Any) -> str:
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return ""
    if before.shape != after.shape:
        dtype = _TL_NAMES.get(str(after.dtype), str(after.dtype))
        return f"begin with {name} = tl.zeros({list(after.shape)}, tl.{dtype})" if after.shape else ""
    if before.dtype == after.dtype and before.shape:
        return f"begin with it in that layout, or convert it in the loop: {name} = gl.convert_layout({name}, layout)"
    if after.dtype.is_floating() and before.dtype.is_int():
        return f"begin with {name} = 0.0" if not before.shape else ""
    return f"convert it in the loop, as in {name} = (...).to({name}.dtype)"


def _drop_unchanged(
    block: Block, parts: list[RunTime], carried: list[str], before: dict[str, Any], yields: list[Value]
) -> None:
    """Leave out values that the body passes on unchanged, and names all of whose parts are unchanged."""
    arguments = block.arguments[1:]
    position = 0
    for name in list(carried):
        count = len(flatten(before[name]))
        if all(yields[i] is arguments[i] for i in range(position, position + count)):
            carried.remove(name)
            for i in range(position, position + count):
                block.terminator.set_operand(i, parts[i].value)
                arguments[i].replace_by(parts[i].value)
        position += count
    keep = [i for i, value in enumerate(yields) if value is not arguments[i]]
    dropped = [i for i in range(len(yields)) if i not in keep and not arguments[i].users]
    if dropped:
        final = block.terminator
        final.values = tuple(value for i, value in enumerate(final.operands) if i not in dropped)  # type: ignore[attr-defined]
        for i in reversed(dropped):
            block.erase_argument(i + 1)
            del parts[i]


def _set_results(
    visitor: Visitor, node: ast.AST, carried: Sequence[str], results: Sequence[Value], assigned: Sequence[str]
) -> None:
    """The names after the loop: results, and for those that only the loop assigned, why they have no value."""
    values, left = visitor.frame.values, list(results)
    for name in carried:
        values[name] = rebuild(values[name], left)
        for part in flatten(values[name]):
            part.value.name = name
    line = getattr(node, "lineno", 0)
    for name in assigned:
        if name not in values:
            values[name] = Undefined(
                f"`{name}` is assigned only inside the loop at line {line}, which may run zero times",
                f"give {name} a value before the loop",
            )


@reads(ast.While)
def read_while(visitor: Visitor, node: ast.While, rest: Sequence[Item]) -> State:
    if visitor.frame.pure:
        return run_loop(visitor, node, _rounds(visitor, node))
    _check_no_else(visitor, node)
    names = list(assigned_names(node.body))
    while not _try_while(visitor, node, names):
        pass
    return None


def _rounds(visitor: Visitor, node: ast.While) -> Iterator[None]:
    """The rounds of a loop that runs while compiling."""
    while visitor.constant_value(node.test, "the condition"):
        visitor.count_step(node)
        yield None


def _try_while(visitor: Visitor, node: ast.While, names: Sequence[str]) -> bool:
    """Read the loop once; False when a name that was a constant turned out to change, and has been made a
    value."""
    frame, before = visitor.frame, visitor.frame.values
    carried = _names_carried(visitor, names)
    parts = [part for name in carried for part in flatten(before[name])]
    types = [part.value.type for part in parts]
    test, body = Block(types), Block(types)
    frame.values = _with_arguments(before, carried, test.arguments)
    with visitor.builder.inside(test):
        condition = visitor.expression(node.test)
        condition = truth(
            visitor, node.test, condition.value if isinstance(condition, WhileCondition) else condition
        )
    if not isinstance(condition, Tensor):
        frame.values = before
        _discard(test)
        if not condition:
            return True
        visitor.fail(
            node.test,
            f"`while {ast.unparse(node.test)}` never ends: the condition is known while compiling",
            "let the condition depend on values of run time",
        )
    frame.values = _with_arguments(before, carried, body.arguments)
    with visitor.builder.inside(body):
        changed, _ = _read_body(visitor, node, before, names, carried)
    if changed:
        _discard(body)
        _discard(test)
        _make_values(visitor, changed)
        return False
    with visitor.builder.inside(test):
        visitor.ctx.add(ConditionOp(condition.value, tuple(test.arguments)))
    operation = visitor.ctx.add(While(tuple(part.value for part in parts), test, body, tuple(types)))
    _set_results(visitor, node, carried, operation.results, names)
    return True
