"""Live function objects: their definition, found through `inspect`, and their names, through globals and
closure."""

from __future__ import annotations

import ast
import os
import re
import sys
import textwrap
import types
from dataclasses import fields
from typing import Any

from kbuild.compiler.frontend.constexpr import is_text
from kbuild.compiler.frontend.sources import modules
from kbuild.compiler.frontend.sources.aggregates import AggregateClass
from kbuild.compiler.frontend.sources.files import NamedTupleClass, load_module, parse
from kbuild.compiler.frontend.sources.functions import Plain, SourceFunction, Unresolved, make_function
from kbuild.compiler.frontend.sources.modules import PythonModule
from kbuild.compiler.layout.gluon import PUBLIC, Layout
from kbuild.compiler.semantic.types import BY_NAME, TypeBase
from kbuild.compiler.semantic.values import NamedTuple
from kbuild.errors import UsageError

_RUN_WHILE_COMPILING = ("ConstexprFunction", "constexpr")
"""The classes of objects of Triton's and ours whose functions run while compiling."""


class LiveModule:
    """An imported module that is not one of the known ones."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.name = module.__name__


class LiveNamespace:
    """The names that a live function sees."""

    def __init__(self, function: types.FunctionType) -> None:
        self.globals = function.__globals__
        self.closure: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.closure[name] = cell.cell_contents
            except ValueError:  # not bound yet
                continue

    def resolve(self, name: str) -> Any:
        if name in self.closure:
            return convert(self.closure[name], name)
        return convert(self.globals[name], name)

    def names(self) -> list[str]:
        return [*self.closure, *self.globals]


def convert(value: Any, name: str) -> Any:
    """A live object as the frontend knows it."""
    if isinstance(value, types.ModuleType):
        return PythonModule(value.__name__) if modules.is_known(value.__name__) else LiveModule(value)
    if isinstance(value, TypeBase | PythonModule):
        return value
    home = getattr(type(value), "__module__", "") or ""
    if home.startswith(("triton.", "kbuild.")):
        if type(value).__name__ == "constexpr":
            return convert_constant(value)
        if type(value).__name__ == "dtype" and value.name in BY_NAME:
            return BY_NAME[value.name]
    found = _function(value)
    if found is not None:
        return found
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return NamedTupleClass(value.__name__, tuple(value._fields))  # type: ignore[attr-defined]
    if isinstance(value, type) and (aggregate := _aggregate(value)) is not None:
        return aggregate
    try:
        return Plain(convert_constant(value), None)
    except Unresolved:
        raise Unresolved(f"{name} is a {type(value).__name__}, which has no meaning in a kernel") from None


def convert_constant(value: Any) -> Any:
    """A live constant: numbers, strings, None, tuples, dtypes, functions; raises `Unresolved` for others."""
    if isinstance(value, str) and not is_text(value):
        raise Unresolved(f"{value!r} is not text: it has half of a surrogate pair")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = tuple(convert_constant(item) for item in value)
        fields = value.fields if isinstance(value, NamedTuple) else getattr(value, "_fields", None)
        return NamedTuple.make(tuple(fields), items) if fields else items
    if isinstance(value, dict):
        return {convert_constant(key): convert_constant(item) for key, item in value.items()}
    home = getattr(type(value), "__module__", "") or ""
    if isinstance(value, TypeBase | Layout):
        return value
    if home.startswith("triton.experimental.gluon.") and type(value).__name__ in PUBLIC:
        return _layout(value)
    if home.startswith(("triton.", "kbuild.")) and type(value).__name__ == "constexpr":
        held = value.value
        return live_function(value) if isinstance(held, types.FunctionType) else convert_constant(held)
    if home.startswith("triton.") and getattr(value, "name", None) in BY_NAME:
        return BY_NAME[value.name]
    found = _function(value)
    if found is not None:
        return found
    if isinstance(value, type) and (aggregate := _aggregate(value)) is not None:
        return aggregate
    raise Unresolved(f"{value!r} is not a constant")


def _function(value: Any) -> Any:
    """A function of the language, of `math`, or of the author's; None for what is no function."""
    owner, name = getattr(value, "__module__", "") or "", getattr(value, "__name__", None)
    if name and modules.is_known(owner) and owner != "math":
        return modules.member(owner, name)
    if isinstance(value, types.FunctionType) or (
        hasattr(value, "fn") and not isinstance(value, tuple | type)
    ):
        return live_function(value)
    return value if isinstance(value, types.BuiltinFunctionType) and owner == "math" else None


def _aggregate(cls: type) -> AggregateClass | None:
    """The definition of a live class, if it is one whose objects kernels make."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    try:
        found = load_module(os.path.abspath(file)).resolve(cls.__name__) if file else None
    except (KeyError, Unresolved):
        return None
    return found if isinstance(found, AggregateClass) else None


def _layout(value: Any) -> Layout:
    """One of Triton's objects for layouts as one of ours, which has the same fields."""
    cls = PUBLIC[type(value).__name__]
    given = {field.name: getattr(value, field.name) for field in fields(cls)}  # type: ignore[arg-type]
    try:
        return cls(**{name: convert_constant(item) for name, item in given.items()})
    except ValueError as error:
        raise Unresolved(str(error)) from None


def member(module: LiveModule, name: str) -> Any:
    """A member of a live module."""
    try:
        return convert(getattr(module.module, name), f"{module.name}.{name}")
    except AttributeError:
        raise Unresolved(f"{module.name} has no {name}") from None


def live_function(value: Any) -> SourceFunction:
    """The function behind an object: itself, or what its `.fn` leads to."""
    kind, gluon, text = "plain", False, ""
    while not isinstance(value, types.FunctionType):
        if type(value).__name__ in _RUN_WHILE_COMPILING or getattr(value, "kind", "") == "constexpr":
            kind = "constexpr"
        elif kind == "plain":
            kind = "jit"
        gluon = gluon or type(value).__name__ == "GluonJITFunction"
        text = text or _replaced_source(value)
        inner = value.value if type(value).__name__ == "constexpr" else getattr(value, "fn", None)
        if inner is None:
            raise UsageError(f"{value!r} is not a function and has no .fn that leads to one")
        value = inner
    file, node = _parsed(value, text, value.__code__.co_firstlineno) if text else _definition(value)
    return make_function(node, file, LiveNamespace(value), kind=kind if kind != "plain" else "", gluon=gluon)


def _replaced_source(value: Any) -> str:
    """The text of one of Triton's functions where it is no longer the one that it was written with
    (`_unsafe_update_src`), from the line of its first decorator on; empty where it is."""
    text, lines = getattr(value, "src", None), getattr(value, "raw_src", None)
    if not isinstance(text, str) or not isinstance(lines, list):
        return ""
    own = textwrap.dedent("".join(lines))
    before = re.split(r"^def\b", own, maxsplit=1, flags=re.MULTILINE)[0]
    return "" if own == before + text else "\n" * before.count("\n") + text


def _definition(function: types.FunctionType) -> tuple[str, ast.FunctionDef]:
    code = function.__code__
    file = code.co_filename
    if os.path.isfile(file):
        node = load_module(os.path.abspath(file)).functions.get((code.co_name, code.co_firstlineno))
        if node is not None:
            return file, node
    import inspect  # slow to import, and seldom needed: most functions come from files

    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise UsageError(
            f"the source of {function.__qualname__} is not available", help="put it into a file"
        ) from None
    return _parsed(function, textwrap.dedent("".join(lines)), first)


def _parsed(function: types.FunctionType, text: str, first: int) -> tuple[str, ast.FunctionDef]:
    """The definition in a text that begins at a line of the function's file."""
    file = function.__code__.co_filename
    tree = parse(file, text)
    ast.increment_lineno(tree, first - 1)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{function.__qualname__} is not written with def")
    return file, node
