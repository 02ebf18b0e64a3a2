"""The names of a function while it is read: what they stand for, and why some stand for nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kbuild.compiler.frontend.sources.functions import SourceFunction
from kbuild.compiler.ir.core import Block
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.types import ScalarType
from kbuild.compiler.semantic.values import RunTime, Structure, Tensor, TensorDescriptor, describe
from kbuild.errors import CompileError, Loc


class Poisoned(Exception):
    """A value is missing because of an error that is already reported."""


@dataclass(frozen=True)
class Undefined:
    """A name that has no value here although it is assigned somewhere; `reason` is the message for its
    uses."""

    reason: str
    help: str = ""
    loc: Loc | None = None
    """Where the error is, when not at the use."""


@dataclass
class Deferred:
    """A number that is computed only when it is used."""

    make: Callable[[], Tensor]
    dtype: ScalarType


POISON = Undefined("")
"""The value of names whose assignment failed."""


@dataclass
class Frame:
    """One function being read: the kernel, or a function inlined into it."""

    function: SourceFunction
    values: dict[str, Any]
    caller: Loc | None = None
    """The place of the call, with its own callers."""
    pure: bool = False
    """Runs while compiling (`constexpr_function`): numbers stay numbers."""
    kernel: bool = False
    loops: int = 0
    """How many loops of run time enclose the present statement."""
    caught: CompileError | None = None
    """What the `except` that encloses the present statement has caught, where it runs while compiling."""
    sites: dict[str, ast.AST] = field(default_factory=dict)
    """Where names were last assigned."""
    bound: dict[str, tuple[ast.expr, Frame]] = field(default_factory=dict)
    """For messages: which expression of which function gave a parameter its value."""

    def loc(self, node: ast.AST) -> Loc:
        """The place of a node.  Inside the library, the place of the call that led there."""
        if self.function.library and self.caller is not None:
            return self.caller
        line = getattr(node, "lineno", self.function.node.lineno)
        column = getattr(node, "col_offset", 0) + 1
        end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", None) == line else None
        return Loc(
            self.function.file,
            line,
            column,
            (end + 1) if end is not None else 0,
            self.function.name,
            self.caller,
        )


def assigned_names(nodes: list[ast.stmt] | ast.AST) -> tuple[str, ...]:
    """The names that statements assign, in order, loops and branches included."""
    if isinstance(nodes, ast.AST):
        known = getattr(nodes, "_assigned", None)
        if known is None:
            known = tuple(dict.fromkeys(name for item in ast.walk(nodes) for name in _bound_names(item)))
            nodes._assigned = known  # type: ignore[attr-defined]
        return known
    return tuple(dict.fromkeys(name for node in nodes for name in assigned_names(node)))


def _bound_names(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,) if isinstance(node.ctx, ast.Store) else ()
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.alias):
        return ((node.asname or node.name).split(".")[0],)
    return ()


def contains_return(node: ast.AST) -> bool:
    """Whether a statement holds a `return`."""
    known = getattr(node, "_returns", None)
    if known is None:
        known = any(isinstance(item, ast.Return) for item in ast.walk(node))
        node._returns = known  # type: ignore[attr-defined]
    return known


def materialised(ctx: BuildContext, value: Any) -> Any:
    """Numbers as values of run time; tuples of them too; the rest as it is."""
    if isinstance(value, bool | int | float):
        return to_tensor(ctx, value)
    if isinstance(value, Structure):
        if not value.materialises:
            return value
        return value.with_items(tuple(materialised(ctx, item) for item in value))
    if isinstance(value, tuple):
        return tuple(materialised(ctx, item) for item in value)
    return value


def settled_like(ctx: BuildContext, value: Any, template: Any) -> Any:
    """`value` with layouts that are still open made those of a template of otherwise the same form; None where
    that does not give it the template's form."""
    if isinstance(value, Tensor) and isinstance(template, Tensor):
        value = places.settled_like(ctx, value, template)
    elif isinstance(value, RunTime) and isinstance(template, RunTime):
        value = template.taking(value)
    elif isinstance(value, tuple) and isinstance(template, tuple) and len(value) == len(template):
        items = tuple(settled_like(ctx, *pair) for pair in zip(value, template))
        if any(item is None and own is not None for item, own in zip(items, value)):
            return None
        value = value.with_items(items) if isinstance(value, Structure) else items
    return value if form(value) == form(template) else None


def settles(ctx: BuildContext, value: Any, template: Any) -> bool:
    """Whether a value has another form than a template only because its layout is still open."""
    if not ctx.explicit_layouts or form(value) == form(template):
        return False
    tried = Block()
    with ctx.builder.inside(tried):
        found = settled_like(ctx, value, template) is not None
    for op in reversed(list(tried)):
        op.erase()
    return found


def form(value: Any) -> Any:
    """What two values must share to be one variable: types of run time, and equal constants."""
    if isinstance(value, RunTime):
        return value.form
    if isinstance(value, tuple):
        kind = value.kind if isinstance(value, Structure) else None
        return (kind, *(form(item) for item in value))
    return ("constant", type(value).__name__, value)


_ITERATORS = (
    range,
    map,
    filter,
    zip,
    enumerate,
    reversed,
    *(type(v) for v in ({}.keys(), {}.values(), {}.items())),
)


def frozen(value: Any) -> Any:
    """What code that ran while compiling gives to a kernel: lists, and what Python only iterates over, are
    tuples."""
    if isinstance(value, (list, *_ITERATORS)) or type(value) is tuple:
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return value


def type_text(value: Any) -> str:
    """A value's type for messages about variables."""
    if isinstance(value, Tensor):
        return str(value.type)
    if isinstance(value, TensorDescriptor | RunTime):
        return describe(value)
    if isinstance(value, tuple):
        return f"({', '.join(type_text(item) for item in value)})"
    return repr(value) if not isinstance(value, ScalarType) else str(value)
