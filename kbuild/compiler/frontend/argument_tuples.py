"""Tuples as arguments of kernels: their elements are parameters of the cubin, or constants.

strides = (i32, i32:1)                        strides_0, strides_1
x = (pointer=*fp32, shape=(i32, i32))         x_0, x_1_0, x_1_1: a named tuple with a tuple in it
activation = (function=relu, captured=())     a function is a constant, and so are numbers and None
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.frontend.sources.files import NamedTupleClass, attribute
from kbuild.compiler.frontend.sources.functions import SourceFunction, SourceParameter, Unresolved
from kbuild.compiler.semantic.values import NamedTuple
from kbuild.errors import Loc, UsageError

CONSTANT = "constexpr"
"""What stands for a constant in place of a type, as in Triton's signatures."""
_FIELD = re.compile(r"([^\W\d]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)
_LITERAL = re.compile(r"None|True|False|[-+]?(\d.*|\.\d.*|inf|nan)")
_PATH = re.compile(r"(?:_(?:0|[1-9]\d{0,3}))+")


@dataclass(frozen=True)
class TupleType:
    """The type of a tuple: those of its elements, and for a named tuple the names of its fields."""

    items: tuple[Any, ...]
    """`TupleType`s, and for single arguments the texts of their types; constants are `Known`."""
    fields: tuple[str, ...] = ()

    def leaves(self, name: str) -> Iterator[tuple[str, Any]]:
        """The elements that are no tuples, with their names as arguments, where this is the argument `name`."""
        for index, item in enumerate(self.items):
            if isinstance(item, TupleType):
                yield from item.leaves(f"{name}_{index}")
            else:
                yield f"{name}_{index}", item

    def __str__(self) -> str:
        names = [f"{name}=" for name in self.fields] or [""] * len(self.items)
        return f"({', '.join(name + str(item) for name, item in zip(names, self.items))})"


@dataclass(frozen=True)
class Known:
    """A constant in the place of a type."""

    value: Any

    def __str__(self) -> str:
        is_literal = self.value is None or isinstance(self.value, bool | int | float)
        return repr(self.value) if is_literal else CONSTANT


def tuple_type(given: Any) -> TupleType | None:
    """The type of a tuple from its text, a tuple, a list, or a dict or named tuple by whose names its elements are
    known; None for the type of a single argument."""
    if isinstance(given, str):
        return _parse(given)
    if isinstance(given, Mapping):
        return TupleType(tuple(map(_element, given.values())), tuple(map(str, given)))
    if isinstance(given, tuple | list):
        fields = given.fields if isinstance(given, NamedTuple) else getattr(given, "_fields", ())
        return TupleType(tuple(map(_element, given)), tuple(fields))
    return None


def _element(given: Any) -> Any:
    inner = tuple_type(given)
    if inner is not None:
        return inner
    return given.strip() if isinstance(given, str) else Known(given)


def _parse(text: str) -> TupleType | None:
    stripped = text.strip()
    if not (stripped.startswith("(") and stripped.endswith(")")):
        return None
    texts, depth = [""], 0
    for character in stripped[1:-1]:
        depth += (character in "[(<") - (character in "])>")
        if character == "," and not depth:
            texts.append("")
        else:
            texts[-1] += character
    named = [_FIELD.fullmatch(item.strip()) for item in texts if item.strip()]
    if named and all(named):
        return TupleType(
            tuple(_parsed_element(found[2]) for found in named if found),
            tuple(found[1] for found in named if found),
        )
    return TupleType(tuple(_parsed_element(item) for item in texts if item.strip()))


def _parsed_element(text: str) -> Any:
    inner, stripped = _parse(text), text.strip()
    if inner is not None:
        return inner
    if _LITERAL.fullmatch(stripped):
        try:
            special = stripped.lstrip("+-") in ("inf", "nan")
            return Known(float(stripped) if special else ast.literal_eval(stripped))
        except (ValueError, SyntaxError):
            return stripped
    return stripped


@dataclass(frozen=True)
class ArgumentTexts:
    """The arguments of a kernel, those in tuples one by one."""

    types: Mapping[str, str]
    """The texts of their types."""
    constants: Mapping[str, Any]
    """The values of those known while compiling."""
    tuples: Mapping[str, TupleType]
    """The types of the arguments that are tuples."""

    def names_of(self, name: str) -> tuple[str, ...]:
        """The arguments that a parameter stands for."""
        found = self.tuples.get(name)
        return (name,) if found is None else tuple(leaf for leaf, _ in found.leaves(name))

    def spelled(self, function: SourceFunction) -> tuple[tuple[str, str], ...]:
        """Name and type of each run-time argument in the order of the parameters, with the type of a tuple as one
        text."""
        names = [parameter.name for parameter in function.parameters]
        return tuple(
            (name, str(self.tuples.get(name) or self.types[name].strip()))
            for name in names
            if name in self.tuples or name in self.types
        )


def with_elements(
    function: SourceFunction, signature: Mapping[str, Any], constexprs: Mapping[str, Any]
) -> ArgumentTexts:
    """A signature and constants with the elements of tuples as arguments of their own, `strides_0` and `strides_1`
    for `strides`, `x_1_0` for `x[1][0]`.

    Tuples are given whole, as `("*fp32", "i32")`, `{"pointer": "*fp32"}` or `"(pointer=*fp32)"`, or element by
    element, where the constants among them have no type but a value.  The names of their fields are also those of
    the class that annotates the parameter.  Raises `UsageError`.
    """
    types: dict[str, str] = {}
    constants: dict[str, Any] = dict(constexprs)
    tuples: dict[str, TupleType] = {}
    for name, given in signature.items():
        found = tuple_type(given)
        if found is None:
            types[name] = str(given)
            continue
        tuples[name] = found
        for leaf, item in found.leaves(name):
            if isinstance(item, Known):
                constants[leaf] = item.value
            elif item != CONSTANT:
                types[leaf] = item
    for parameter in function.parameters:
        name = parameter.name
        if parameter.constexpr or name in types or name in constexprs:
            continue
        if name not in tuples:
            paths = _paths(function, name, [*types, *constants])
            if not paths:
                continue
            tuples[name] = _from_paths(function, name, paths, types)
        tuples[name] = _with_fields(function, parameter, tuples[name])
    for name, found in tuples.items():
        _check_leaves(function, name, found, {**types, **constants})
    return ArgumentTexts(types, constants, tuples)


def _check_leaves(function: SourceFunction, name: str, found: TupleType, given: Mapping[str, Any]) -> None:
    parameters = {parameter.name for parameter in function.parameters}
    for leaf, _ in found.leaves(name):
        if leaf in parameters:
            message = (
                f"an element of argument {name} would be {leaf}, which is a parameter of {function.name}"
            )
            raise UsageError(message, function.loc, "give one of them another name")
        if leaf not in given:
            help = f'give it a value as a constant, or in place of its "{CONSTANT}" in the tuple'
            raise UsageError(
                f"argument {name}: {leaf} is a constexpr, which has no value", function.loc, help
            )


def _paths(function: SourceFunction, name: str, keys: list[str]) -> list[tuple[int, ...]]:
    """The places in a tuple of the arguments that are elements of it, by their names."""
    parameters = {parameter.name for parameter in function.parameters}
    return [
        tuple(map(int, rest[1:].split("_")))
        for rest in (key[len(name) :] for key in dict.fromkeys(keys) if key.startswith(f"{name}_"))
        if _PATH.fullmatch(rest) and f"{name}{rest}" not in parameters
    ]


def _from_paths(
    function: SourceFunction, name: str, paths: list[tuple[int, ...]], types: Mapping[str, str]
) -> TupleType:
    """The tuple that is given element by element."""
    groups: dict[int, list[tuple[int, ...]]] = {}
    for first, *rest in paths:
        groups.setdefault(first, []).append(tuple(rest))
    missing = set(range(max(groups) + 1)) - {*groups}
    if missing:
        text = f"argument {name}: {name}_{max(groups)} is given, and not {name}_{min(missing)} before it"
        raise UsageError(text, function.loc)
    items: list[Any] = []
    for index in sorted(groups):
        inner, leaf = [path for path in groups[index] if path], f"{name}_{index}"
        if inner and len(inner) != len(groups[index]):
            raise UsageError(f"argument {name}: {leaf} is given, and elements of it, too", function.loc)
        items.append(_from_paths(function, leaf, inner, types) if inner else types.get(leaf, CONSTANT))
    return TupleType(tuple(items))


def _with_fields(function: SourceFunction, parameter: SourceParameter, found: TupleType) -> TupleType:
    """The type with the names of the class that annotates the parameter, where it has none of its own."""
    cls = _named(function.namespace, parameter.node.annotation)
    return found if cls is None else _named_as(found, cls, parameter.name, function.loc)


def _named_as(found: TupleType, cls: NamedTupleClass, name: str, loc: Loc) -> TupleType:
    if found.fields:
        return found
    if len(cls.fields) != len(found.items):
        text = (
            f"argument {name}: {found} has {len(found.items)} elements, and {cls.name} has {len(cls.fields)}"
        )
        raise UsageError(text, loc, f"{cls.name} has {', '.join(cls.fields)}")
    items = list(found.items)
    for index, annotation in enumerate(cls.annotations):
        inner = _named(cls.namespace, annotation)
        if inner is not None and isinstance(items[index], TupleType):
            items[index] = _named_as(items[index], inner, f"{name}_{index}", loc)
    return TupleType(tuple(items), cls.fields)


def _named(namespace: Any, annotation: ast.expr | None) -> NamedTupleClass | None:
    """The class of named tuples that an annotation is."""
    try:
        if isinstance(annotation, ast.Name):
            found = namespace.resolve(annotation.id)
        elif isinstance(annotation, ast.Attribute) and isinstance(annotation.value, ast.Name):
            found = attribute(namespace.resolve(annotation.value.id), annotation.attr)
        else:
            return None
    except (KeyError, Unresolved):
        return None
    return found if isinstance(found, NamedTupleClass) else None
