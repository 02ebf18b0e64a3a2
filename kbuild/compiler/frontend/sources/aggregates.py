"""Classes of the author's whose objects kernels make and pass on: `@gluon.aggregate`.

    @gluon.aggregate
    class Range:
        start: gl.tensor
        step: gl.constexpr

        @gluon.constexpr_function
        def __init__(self, start, step): …

Their `__init__` runs while compiling, and gives each field its value; nothing changes one afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from kbuild.compiler.frontend.sources.functions import (
    Namespace,
    SourceFunction,
    Unresolved,
    is_constexpr_annotation,
    make_function,
)
from kbuild.compiler.semantic.values import Structure
from kbuild.errors import Loc

DECORATORS = ("aggregate", "_aggregate")


class AggregateClass:
    """A class, by its definition."""

    def __init__(self, node: ast.ClassDef, file: str, namespace: Namespace) -> None:
        self.name = node.name
        self.loc = Loc(file, node.lineno, node.col_offset + 1)
        fields = [
            item
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        self.fields = tuple(item.target.id for item in fields if isinstance(item.target, ast.Name))
        self.constants = frozenset(
            name for name, item in zip(self.fields, fields) if is_constexpr_annotation(item.annotation)
        )
        self.functions: dict[str, SourceFunction] = {
            item.name: make_function(item, file, namespace)
            for item in node.body
            if isinstance(item, ast.FunctionDef)
        }
        if "__init__" not in self.functions:
            raise Unresolved(f"the aggregate {self.name} has no __init__ to make its objects")


class Aggregate(Structure):
    """An object of such a class: its items are the values of the fields."""

    cls: AggregateClass
    materialises = False

    @classmethod
    def make(cls, of: AggregateClass, items: tuple[Any, ...]) -> Aggregate:
        made = cls(items)
        made.cls = of
        return made

    def with_items(self, items: tuple[Any, ...]) -> Aggregate:
        return Aggregate.make(self.cls, items)

    @property
    def kind(self) -> Any:
        return self.cls

    @property
    def title(self) -> str:
        return self.cls.name

    def facts(self) -> Mapping[str, Any]:
        return dict(zip(self.cls.fields, self))


class Unfinished:
    """An object while its `__init__` runs."""

    def __init__(self, cls: AggregateClass) -> None:
        self.cls = cls
        self.name = f"a {cls.name}"
        self.values: dict[str, Any] = {}


def is_aggregate(node: ast.ClassDef) -> bool:
    """Whether a class is decorated as one."""
    names = (
        item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "")
        for item in node.decorator_list
    )
    return any(name in DECORATORS for name in names)
