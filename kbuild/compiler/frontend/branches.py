"""`if`, the conditional expression, and returns before the end.

The IR's control flow is structured, so an early return is an `if` whose other branch holds all that follows.
Where both branches may go on and one may return inside, a flag says which happened, and what follows stands
under it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.compiler.frontend.scope import (
    POISON,
    Poisoned,
    Undefined,
    form,
    materialised,
    settled_like,
    settles,
    type_text,
)
from kbuild.compiler.frontend.visitor import Item, MaybeReturned, Returned, State, Visitor, reads
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import I1, I64, FloatType, IntType, Type, element_of, is_pointer, like
from kbuild.compiler.ops.control import If, Yield
from kbuild.compiler.ops.elementwise import Constant, IntToPtr, Select
from kbuild.compiler.ops.tensor import Unsplat
from kbuild.compiler.semantic.arith import as_condition
from kbuild.compiler.semantic.types import INT1
from kbuild.compiler.semantic.values import RunTime, Tensor, describe, flatten, rebuild
from kbuild.errors import CompileError

_ABSENT = Undefined("")
"""Marks a name that a branch does not have."""


@dataclass
class _Side:
    """One branch: its operations, the names at its end, and whether it returned."""

    block: Block
    values: dict[str, Any]
    state: State
    yields: list[Value] = field(default_factory=list)


def truth(visitor: Visitor, node: ast.expr, value: Any) -> Tensor | bool:
    """A condition: known while compiling, or an i1 scalar."""
    if not isinstance(value, Tensor):
        return bool(value)
    if value.numel != 1 or value.is_block_pointer:
        visitor.fail(
            node,
            f"the condition is {describe(value)}; `if` and `while` need one truth value",
            "choose element by element with tl.where(condition, a, b), or reduce it first: tl.max(condition.to(tl.int32))",
        )
    visitor.locate(node)
    if value.shape:
        value = visitor.ctx.tensor(Unsplat(value.value), value.dtype)
    return as_condition(visitor.ctx, value)


@reads(ast.If)
def read_if(visitor: Visitor, node: ast.If, rest: Sequence[Item]) -> State:
    condition = truth(visitor, node.test, visitor.expression(node.test))
    tail = visitor.tail and not rest
    if not isinstance(condition, Tensor):
        state = visitor.run_nested(node.body if condition else node.orelse, tail)
        return _guarded(visitor, node, state, rest) if isinstance(state, MaybeReturned) else state
    if visitor.frame.pure:
        visitor.constant_value(node.test, "the condition")
    then = _branch(visitor, node.body, tail)
    otherwise = _branch(visitor, node.orelse, tail)
    if isinstance(then.state, Returned) != isinstance(otherwise.state, Returned):
        # One side ends here, so all that follows belongs to the other one.
        going = otherwise if isinstance(then.state, Returned) else then
        if rest:
            _continue(visitor, going, rest)
        return _merge(visitor, node, condition, then, otherwise)
    state = _merge(visitor, node, condition, then, otherwise)
    return _guarded(visitor, node, state, rest) if isinstance(state, MaybeReturned) else state


def _branch(visitor: Visitor, body: Sequence[Item], tail: bool) -> _Side:
    """Read a branch, leaving the names outside as they were."""
    frame, block = visitor.frame, Block()
    saved = frame.values
    frame.values = dict(saved)
    with visitor.builder.inside(block):
        state = visitor.run_nested(body, tail)
    side = _Side(block, frame.values, state)
    frame.values = saved
    return side


def _continue(visitor: Visitor, side: _Side, rest: Sequence[Item]) -> None:
    """Read what follows inside a branch that has been read already."""
    frame = visitor.frame
    saved, frame.values = frame.values, side.values
    with visitor.builder.inside(side.block):
        state = side.state
        if isinstance(state, MaybeReturned):
            side.state = _guarded(visitor, state.node or frame.function.node, state, rest)
        else:
            side.state = visitor.run_nested(rest, visitor.tail)
    side.values, frame.values = frame.values, saved


def _guarded(visitor: Visitor, node: ast.AST, state: MaybeReturned, rest: Sequence[Item]) -> State:
    """Read what follows a statement that may have returned, under a branch where it has not."""
    if not rest and not visitor.tail:
        return state
    flag = Tensor(state.flag, INT1)
    then = _Side(Block(), dict(visitor.frame.values), Returned(state.value, state.node))
    otherwise = _branch(visitor, rest, visitor.tail)
    return _merge(visitor, node, flag, then, otherwise)


def _merge(visitor: Visitor, node: ast.AST, condition: Tensor, then: _Side, otherwise: _Side) -> State:
    """The `scf.if` of two branches; the names and the state after it."""
    sides = (then, otherwise)
    visitor.locate(node)
    merged = _merge_names(visitor, node, sides)
    returned, flagged = _merge_returns(visitor, node, sides)
    for side in sides:
        with visitor.builder.inside(side.block):
            visitor.ctx.add(Yield(tuple(side.yields)))
    types = tuple(value.type for value in then.yields)
    operation = visitor.ctx.add(If(condition.value, then.block, otherwise.block, types))
    results = list(operation.results)
    for name, template in merged.items():
        value = rebuild(template, results)
        for part in flatten(value):
            part.value.name = name
        visitor.frame.values[name] = value
    if returned is None:
        return None
    flag = results.pop(0) if flagged else None
    value = rebuild(returned.value, results)
    return Returned(value, returned.node) if flag is None else MaybeReturned(flag, value, returned.node)


def _merge_names(visitor: Visitor, node: ast.AST, sides: tuple[_Side, _Side]) -> dict[str, Any]:
    """Yield the names that the branches left different; return the templates of those.  A branch that
    returned yields unused values of the right types."""
    values = visitor.frame.values
    going = [side for side in sides if not isinstance(side.state, Returned)]
    if not going:
        return {}
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for side in going for name in side.values):
        found = [side.values.get(name, _ABSENT) for side in going]
        if name in values and all(value is values[name] for value in found):
            continue
        value = _common(visitor, node, name, found)
        if isinstance(value, Undefined) or not flatten(value):
            values[name] = value
            continue
        merged[name] = value
        for side in sides:
            with visitor.builder.inside(side.block):
                if side in going:
                    side.yields += _parts_like(visitor, side.values[name], value)
                else:
                    side.yields += _placeholders(visitor, value)
    return merged


def _parts(value: Any) -> list[Value]:
    return [part.value for part in flatten(value)]


def _parts_like(visitor: Visitor, value: Any, template: Any) -> list[Value]:
    """The values of run time in a value, its numbers among them where the template has them so."""
    settled = settled_like(visitor.ctx, value, template) if visitor.ctx.explicit_layouts else None
    parts = _parts(value if settled is None else settled)
    return parts if len(parts) == len(flatten(template)) else _parts(materialised(visitor.ctx, value))


def _common(visitor: Visitor, node: ast.AST, name: str, found: list[Any]) -> Any:
    """The value of a name after the branches: the form that both share, or the reason why it has none."""
    frame = visitor.frame
    if any(value is POISON for value in found):
        return POISON
    line = getattr(node, "lineno", 0)
    if any(isinstance(value, Undefined) for value in found):
        known = next(
            (value for value in found if isinstance(value, Undefined) and value is not _ABSENT), None
        )
        return known or Undefined(
            f"`{name}` has a value only in one branch of the `if` at line {line}",
            f"give {name} a value before the `if`, or in both branches",
        )
    forms = [form(value) for value in found]
    if all(item == forms[0] for item in forms):
        return found[0]
    with visitor.builder.inside(Block()):  # numbers only to learn their types
        typed = [materialised(visitor.ctx, value) for value in found]
    forms = [form(value) for value in typed]
    if forms[0] == forms[1]:
        return typed[0]
    for value, other in (typed, reversed(typed)):
        if settles(visitor.ctx, value, other):
            return other
    place = frame.sites.get(name, node)
    return Undefined(
        f"`{name}` is {type_text(found[0])} in one branch of the `if` at line {line}, and {type_text(found[1])} in the other",
        "convert one of them with .to(...), or annotate the condition's values with tl.constexpr"
        if not _differ_in_layout(typed)
        else f"convert one of them: gl.convert_layout({name}, layout)",
        frame.loc(place),
    )


def _differ_in_layout(values: list[Any]) -> bool:
    first, second = values
    return (
        isinstance(first, Tensor)
        and isinstance(second, Tensor)
        and (first.dtype, first.shape) == (second.dtype, second.shape)
    )


def _merge_returns(
    visitor: Visitor, node: ast.AST, sides: tuple[_Side, _Side]
) -> tuple[Returned | None, bool]:
    """Yield what the branches returned, after a flag where they may go on; return the template, and whether
    there is a flag."""
    states = [side.state for side in sides if side.state is not None]
    if not states:
        return None, False
    ended = [state for state in states if not _falls_off(state)]
    _check_returns(visitor, node, ended if ended and _is_of_run_time(ended[0].value) else states)
    template = next((state for state in states if flatten(state.value)), (ended or states)[0])
    flagged = any(not isinstance(side.state, Returned) for side in sides)
    for side in sides:
        with visitor.builder.inside(side.block):
            if flagged:
                side.yields.append(_flag(visitor, side.state))
            if side.state is None or _falls_off(side.state):
                side.yields += _placeholders(visitor, template.value)
            else:
                side.yields += _parts(side.state.value)
    return Returned(template.value, template.node), flagged


def _falls_off(state: Returned | MaybeReturned) -> bool:
    """Whether a function ends without `return`.  Where it returns a value elsewhere, the value here is unused, or
    anything."""
    return isinstance(state, Returned) and state.node is None and state.value is None


def _is_of_run_time(value: Any) -> bool:
    """Whether all of a value exists at run time."""
    return all(map(_is_of_run_time, value)) if isinstance(value, tuple) else isinstance(value, RunTime)


def _flag(visitor: Visitor, state: State) -> Value:
    if isinstance(state, MaybeReturned):
        return state.flag
    return visitor.ctx.add(Constant(isinstance(state, Returned), I1)).result


def _check_returns(visitor: Visitor, node: ast.AST, states: Sequence[Returned | MaybeReturned]) -> None:
    if any(state.value is POISON for state in states):
        raise Poisoned
    forms = [form(state.value) for state in states]
    if any(item != forms[0] for item in forms):
        texts = [type_text(state.value) for state in states]
        where = states[1].node or node
        raise CompileError(
            f"one `return` gives {texts[0]}, another {texts[1]}",
            visitor.frame.loc(where),
            "every return of a function must give the same types",
        )


def _placeholders(visitor: Visitor, template: Any) -> list[Value]:
    """Unused values of the types of a template."""
    return [_placeholder(visitor, part.value.type) for part in flatten(template)]


def _placeholder(visitor: Visitor, type_: Type) -> Value:
    element = element_of(type_)
    if isinstance(element, IntType | FloatType):
        return visitor.ctx.add(Constant.of(0, type_)).result
    pointee = getattr(element, "pointee", None)
    if is_pointer(type_) and isinstance(pointee, IntType | FloatType):
        zero = visitor.ctx.add(Constant.of(0, like(type_, I64)))
        return visitor.ctx.add(IntToPtr(zero.result, type_)).result
    raise CompileError(
        "a block pointer cannot be carried past an early `return`",
        visitor.builder.loc,
        "make it before the `return`",
    )


@reads(ast.IfExp)
def read_conditional(visitor: Visitor, node: ast.IfExp) -> Any:
    condition = truth(visitor, node.test, visitor.expression(node.test))
    if not isinstance(condition, Tensor):
        return visitor.expression(node.body if condition else node.orelse)
    blocks, values = (Block(), Block()), []
    for block, branch in zip(blocks, (node.body, node.orelse)):
        with visitor.builder.inside(block):
            value = visitor.expression(branch)
            visitor.locate(node)
            values.append(materialised(visitor.ctx, value))
    if form(values[0]) != form(values[1]):
        visitor.fail(
            node,
            f"`{ast.unparse(node.body)}` is {type_text(values[0])}, `{ast.unparse(node.orelse)}` is "
            f"{type_text(values[1])}; the condition is only known at run time, so both must have one type",
            "convert one of them: gl.convert_layout(x, layout)"
            if _differ_in_layout(values)
            else "convert one of them with .to(...)",
        )
    visitor.locate(node)
    return _choose(visitor, condition, blocks, values)


def _choose(visitor: Visitor, condition: Tensor, blocks: tuple[Block, Block], values: list[Any]) -> Any:
    """A select between scalars that cost nothing, else a branch."""
    parts = [_parts(value) for value in values]
    cheap = all(isinstance(op, Constant) for block in blocks for op in block)
    if cheap and all(not getattr(value.type, "shape", ()) for value in parts[0]):
        for block in blocks:
            for op in block:
                visitor.ctx.add(op.detach())
        chosen = [visitor.ctx.add(Select(condition.value, a, b)).result for a, b in zip(*parts)]
        return rebuild(values[0], chosen)
    for block, items in zip(blocks, parts):
        with visitor.builder.inside(block):
            visitor.ctx.add(Yield(tuple(items)))
    types = tuple(value.type for value in parts[0])
    operation = visitor.ctx.add(If(condition.value, *blocks, types))
    return rebuild(values[0], list(operation.results))
