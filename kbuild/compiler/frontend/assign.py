"""Names given values."""

from __future__ import annotations

import ast
from typing import Any

from kbuild.compiler.frontend.scope import materialised
from kbuild.compiler.frontend.visitor import Visitor
from kbuild.compiler.semantic.values import Tensor, describe


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
    elif isinstance(target, ast.Subscript):
        visitor.fail(
            target,
            "an element of a tensor cannot be assigned",
            "use tl.where to replace elements, or tl.store",
        )
    elif isinstance(target, ast.Attribute):
        visitor.fail(target, "an attribute cannot be assigned in a kernel")
    else:
        visitor.fail(target, f"{type(target).__name__.lower()} cannot be assigned in a kernel")


def _bind_items(visitor: Visitor, target: ast.Tuple | ast.List, value: Any) -> None:
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
        bind(visitor, name.value if isinstance(name, ast.Starred) else name, item)


def _name_results(value: Any, name: str) -> None:
    """Let dumps show the author's names."""
    if isinstance(value, Tensor):
        if not value.value.name:
            value.value.name = name
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            _name_results(item, f"{name}_{position}")
