"""Classes of a module whose members constants are made of: enumerations, and classes that only hold constants."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from typing import Any

from kbuild.compiler.frontend.sources.functions import Unresolved

_ENUMS = {kind.__name__: kind for kind in (enum.Enum, enum.IntEnum, enum.Flag, enum.IntFlag)}


class ConstantClass:
    """A class by the constants in its body, which are computed when they are used."""

    def __init__(self, name: str, members: dict[str, ast.expr], value: Callable[[ast.expr], Any]) -> None:
        self.name = name
        self.members = members
        self._value = value

    def member(self, name: str) -> Any:
        """The value of a constant; raises `Unresolved`."""
        if name not in self.members:
            raise Unresolved(f"the class {self.name} has no constant {name}")
        return self._value(self.members[name])


def constant_class(node: ast.ClassDef, value: Callable[[ast.expr], Any]) -> Any:
    """A class as its module's constants see it, a class of Python's for an enumeration; `value` evaluates an
    expression.  Raises `Unresolved` for a class that is more than its constants."""
    bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
    members = {
        target.id: item.value
        for item in node.body
        if isinstance(item, ast.Assign | ast.AnnAssign) and item.value is not None
        for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
        if isinstance(target, ast.Name)
    }
    kinds = [_ENUMS[base] for base in bases if base in _ENUMS]
    if kinds:
        of_numbers = kinds[0] is enum.Enum and "int" in bases
        kind = enum.IntEnum if of_numbers else kinds[0]
        return _enumeration(kind, node.name, {name: _member(item, value) for name, item in members.items()})
    if node.decorator_list or any(base != "object" for base in bases):
        raise Unresolved(f"{node.name} is a class, which has no meaning in a kernel")
    return ConstantClass(node.name, members, value)


def _enumeration(kind: Any, name: str, members: dict[str, Any]) -> Any:
    try:
        return kind(name, members)
    except (TypeError, ValueError) as error:
        raise Unresolved(f"the enumeration {name}: {error}") from None


def _member(node: ast.expr, value: Callable[[ast.expr], Any]) -> Any:
    called = node.func if isinstance(node, ast.Call) and not node.args else None
    if called is not None and (getattr(called, "attr", None) or getattr(called, "id", "")) == "auto":
        return enum.auto()
    return value(node)


def constants_of(value: Any) -> list[tuple[str, Any]] | None:
    """The members of such a class, with their values; None for all else."""
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return [(member.name, member.value) for member in value]
    if not isinstance(value, ConstantClass):
        return None
    found: list[tuple[str, Any]] = []
    for name in value.members:
        try:
            found.append((name, value.member(name)))
        except Unresolved:
            found.append((name, None))
    return found
