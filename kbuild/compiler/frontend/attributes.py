"""Attributes and methods: `value.name`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kbuild.compiler import library
from kbuild.compiler.frontend.evaluate import limits_of
from kbuild.compiler.frontend.sources import live, modules
from kbuild.compiler.frontend.sources.aggregates import Aggregate, AggregateClass, Unfinished
from kbuild.compiler.frontend.sources.classes import ConstantClass
from kbuild.compiler.frontend.sources.files import NamedTupleClass, NamespacePackage, SourceModule
from kbuild.compiler.frontend.sources.files import attribute as source_attribute
from kbuild.compiler.frontend.sources.functions import Plain, SourceFunction, Unresolved, UnresolvedModule
from kbuild.compiler.frontend.sources.limits import LIMITS
from kbuild.compiler.frontend.sources.modules import PropagateNan, PythonModule
from kbuild.compiler.frontend.visitor import Visitor, reads
from kbuild.compiler.layout.gluon import Layout
from kbuild.compiler.semantic import TABLES
from kbuild.compiler.semantic.registry import Builtin
from kbuild.compiler.semantic.shape import permuted
from kbuild.compiler.semantic.types import ConstexprType, TypeBase, as_dtype
from kbuild.compiler.semantic.values import (
    ClassMarker,
    Tensor,
    WithFacts,
    describe,
)
from kbuild.errors import CompileError, nearest

_CONSTANTS = bool | int | float | str | tuple | TypeBase | PropagateNan | Layout
_HOST_VALUES = (
    *(list, dict, set, frozenset, str, int, float, Exception, Enum, type(Enum), ConstantClass),
    *LIMITS,
)
"""Values whose attributes code that runs while compiling may use."""
_NOT_BOUNDED = frozenset(("ljust", "rjust", "center", "zfill", "expandtabs", "format_map"))
"""Methods whose results may be of any size."""
_PYTHON_METHODS = frozenset(
    (
        "bit_length",
        "count",
        "index",
        "is_integer",
        "lower",
        "upper",
        "startswith",
        "endswith",
        "replace",
        "strip",
        "split",
        "format",
        "join",
        "removeprefix",
        "removesuffix",
    )
)


@dataclass(frozen=True)
class Method:
    """A function bound to the value before the dot."""

    function: Builtin | SourceFunction
    owner: Any
    node: ast.expr | None
    """The expression before the dot."""

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{describe(self.owner)}.{self.function.name.split('.')[-1]}"


@reads(ast.Attribute)
def read_attribute(visitor: Visitor, node: ast.Attribute) -> Any:
    found = _foreign_constant(visitor, node)
    if found is not node:
        return found
    return attribute(visitor, visitor.expression(node.value), node.attr, node)


def _foreign_constant(visitor: Visitor, node: ast.Attribute) -> Any:
    """The number, text or None that a member of torch or numpy is, as `torch.version.hip`; the node itself where it names no such
    thing."""
    root: ast.expr = node
    names: list[str] = []
    while isinstance(root, ast.Attribute):
        names.append(root.attr)
        root = root.value
    if not isinstance(root, ast.Name) or root.id in visitor.frame.values:
        return node
    try:
        visitor.frame.function.namespace.resolve(root.id)
        return node
    except (KeyError, Unresolved) as error:
        value = limits_of(error.module) if isinstance(error, UnresolvedModule) else None
    if value is None:
        return node
    for name in reversed(names):
        value = getattr(value, name, node)
        if value is node:
            return node
    return value if value is None or isinstance(value, bool | int | float | str) else node


def attribute(visitor: Visitor, value: Any, name: str, node: ast.AST) -> Any:
    """`value.name`."""
    owner = node.value if isinstance(node, ast.Attribute) else None
    if isinstance(value, Tensor):
        return _of_tensor(visitor, value, name, node, owner)
    if isinstance(value, PythonModule | SourceModule | NamespacePackage | live.LiveModule):
        return _of_module(visitor, value, name, node)
    if isinstance(value, AggregateClass) and name in value.functions:
        return value.functions[name]
    if isinstance(value, Unfinished) and name in value.values:
        return value.values[name]
    if isinstance(value, WithFacts):
        return _of_value(visitor, value, name, node, owner)
    if name in ("value", "type") and _is_known(value):
        return value if name == "value" else ConstexprType(value)
    if isinstance(value, _CONSTANTS) and not name.startswith("_"):
        found = getattr(value, name, None)
        allowed = isinstance(value, TypeBase | PropagateNan | Layout) or name in _PYTHON_METHODS
        if found is not None and allowed:
            return found
    if isinstance(value, ClassMarker) and value.name == "jit":
        return value
    if isinstance(value, str) and isinstance(named := as_dtype(value), TypeBase):
        return attribute(visitor, named, name, node)
    if isinstance(value, type) and issubclass(value, Layout) and not name.startswith("_"):
        found = getattr(value, name, None)
        if callable(found):
            return found
    is_public = not name.startswith("_") and name not in _NOT_BOUNDED
    if visitor.frame.pure and is_public and isinstance(value, _HOST_VALUES):
        try:
            return source_attribute(value, name)
        except Unresolved as error:
            visitor.fail(node, str(error))
    visitor.fail(node, f"{describe(value)} has no attribute `{name}`", _close(name, _attribute_names(value)))


def _is_known(value: Any) -> bool:
    """Whether a value is a constant without attributes of these names: of its own."""
    if isinstance(value, tuple):
        return all(map(_is_known, value))
    is_constant = isinstance(value, bool | int | float | str | TypeBase | None)
    return is_constant and not isinstance(value, ConstexprType)


def _attribute_names(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")] if isinstance(value, TypeBase) else []


def _close(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return f"did you mean `{close}`?" if close else ""


def _of_tensor(visitor: Visitor, value: Tensor, name: str, node: ast.AST, owner: ast.expr | None) -> Any:
    if name == "dtype":
        return value.dtype
    if name == "shape":
        return value.shape
    if name == "type":
        return value.type
    if name == "numel":
        return value.numel
    if name == "T":
        if len(value.shape) != 2:
            visitor.fail(
                node,
                f".T exchanges two dimensions, the value is {describe(value)}",
                "use .trans(...) or .permute(...)",
            )
        visitor.locate(node)
        return permuted(visitor.ctx, value, (1, 0))
    builtin = TABLES["tl"].get(name)
    if builtin is not None and builtin.method:
        return Method(builtin, value, owner)
    if name in library.METHODS:
        return Method(modules.library_function(name), value, owner)
    if name == "store" or name == "load":
        return Method(TABLES["tl"][name], value, owner)
    known = [key for key, entry in TABLES["tl"].items() if entry.method] + list(library.METHODS)
    visitor.fail(
        node,
        f"{describe(value)} has no attribute `{name}`",
        _close(name, [*known, "dtype", "shape", "type", "T"]),
    )


def _of_value(visitor: Visitor, value: WithFacts, name: str, node: ast.AST, owner: ast.expr | None) -> Any:
    """An attribute or method of what is not a tensor, but more than a constant."""
    facts, methods = value.facts(), TABLES.get(value.methods, {})
    if name in facts:
        return facts[name]
    if name in methods:
        return Method(methods[name], value, owner)
    functions = value.cls.functions if isinstance(value, Aggregate) else {}
    if name in functions:
        return Method(functions[name], value, owner)
    known = [*facts, *methods, *functions]
    visitor.fail(node, f"{describe(value)} has no attribute `{name}`", _close(name, known))


def _of_module(visitor: Visitor, value: Any, name: str, node: ast.AST) -> Any:
    try:
        found = (
            live.member(value, name) if isinstance(value, live.LiveModule) else source_attribute(value, name)
        )
    except Unresolved as error:
        known = (
            modules.language_names() if isinstance(value, PythonModule) and "language" in value.name else []
        )
        visitor.fail(node, str(error), _close(name, known))
    if isinstance(found, Plain):
        if visitor.frame.pure:
            return found.value
        visitor.fail(
            node,
            f"`{name}` is a variable of a module; a kernel can only use constants",
            found.advice(name),
        )
    return found


__all__ = ["CompileError", "Method", "NamedTupleClass", "attribute"]
