"""Names given values."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from kbuild.compiler.frontend.scope import materialised
from kbuild.compiler.frontend.sources.aggregates import Unfinished
from kbuild.compiler.frontend.visitor import Visitor
from kbuild.compiler.semantic.values import RunTime, Tensor, describe


def assign(visitor: Visitor, target: ast.expr, value: Any, node: ast.AST) -> None:
    """Give a value to a name or to several.  A number becomes a value of run time, as it may change in a
    loop; what must stay known while compiling is annotated with `tl.constexpr`."""
    if not visitor.frame.pure:
        visitor.locate(node)
        value = materialised(visitor.ctx, value)
    bind(visitor, target, value)


def bind(visitor: Visitor, target: ast.expr, value: Any) -> None:
    """Give a value to a name, or the items of a value to several, as they are."""
    if isinstance(target, ast.Name):
        _name_results(value, target.id)
        visitor.frame.values[target.id] = value
        visitor.frame.sites[target.id] = target
    elif isinstance(target, ast.Tuple | ast.List):
        _bind_items(visitor, target, value)
    elif isinstance(target, ast.Subscript) and visitor.frame.pure:
        _bind_item(visitor, target, value)
    elif isinstance(target, ast.Subscript):
        visitor.fail(
            target,
            "an element of a tensor cannot be assigned",
            "use tl.where to replace elements, or tl.store",
        )
    elif isinstance(target, ast.Attribute):
        _bind_field(visitor, target, value)
    else:
        visitor.fail(target, f"{type(target).__name__.lower()} cannot be assigned in a kernel")


def _bind_item(visitor: Visitor, target: ast.Subscript, value: Any) -> None:
    """Replace an item of a list, in a function that runs while compiling."""
    items, index = visitor.expression(target.value), visitor.expression(target.slice)
    if isinstance(items, list | dict):
        try:
            items[index] = value
        except (LookupError, TypeError, ValueError) as error:
            visitor.fail(target, f"{type(error).__name__}: {error}")
        return
    if not isinstance(items, tuple) or not isinstance(index, int) or not -len(items) <= index < len(items):
        visitor.fail(target, f"{describe(items)} has no item {describe(index)} that could be assigned")
    index %= len(items)
    bind(visitor, target.value, (*items[:index], value, *items[index + 1 :]))


def _bind_field(visitor: Visitor, target: ast.Attribute, value: Any) -> None:
    """Give a field its value, in the `__init__` of an aggregate."""
    owner = visitor.expression(target.value)
    if not isinstance(owner, Unfinished):
        visitor.fail(
            target,
            "an attribute cannot be assigned in a kernel",
            "return a new object with the changed value" if isinstance(owner, tuple) else "",
        )
    fields = owner.cls.fields
    if target.attr not in fields:
        visitor.fail(target, f"{owner.cls.name} has no field `{target.attr}`; it has {', '.join(fields)}")
    if target.attr in owner.cls.constants and isinstance(value, RunTime):
        visitor.fail(target, f"the field `{target.attr}` is a constexpr, its value is {describe(value)}")
    owner.values[target.attr] = value


def _bind_items(visitor: Visitor, target: ast.Tuple | ast.List, value: Any) -> None:
    if visitor.frame.pure and isinstance(value, Iterable) and not isinstance(value, RunTime):
        value = tuple(value)
    if not isinstance(value, tuple):
        visitor.fail(target, f"{describe(value)} is not a tuple of {len(target.elts)} values")
    stars = [place for place, item in enumerate(target.elts) if isinstance(item, ast.Starred)]
    items = tuple(value)
    if len(stars) == 1 and len(items) >= len(target.elts) - 1:
        place = stars[0]
        rest = len(items) - (len(target.elts) - 1)
        items = (*items[:place], items[place : place + rest], *items[place + rest :])
    if len(items) != len(target.elts):
        visitor.fail(target, f"{len(value)} values for {len(target.elts)} names")
    for name, item in zip(target.elts, items):
        if isinstance(name, ast.Starred):
            bind(visitor, name.value, list(item) if visitor.frame.pure else item)
        else:
            bind(visitor, name, item)


def _name_results(value: Any, name: str) -> None:
    """Let dumps show the author's names."""
    if isinstance(value, Tensor):
        if not value.value.name:
            value.value.name = name
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            _name_results(item, f"{name}_{position}")
