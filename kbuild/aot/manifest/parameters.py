"""The parameters of a kernel function, read from its file's syntax tree: no module is imported to check a
manifest."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.kinds import dotted_type
from kbuild.aot.manifest.model import Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, names_of
from kbuild.aot.syntax import syntax_tree


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel."""

    name: str
    """Its name."""
    is_constexpr: bool
    """Whether it is annotated `tl.constexpr`."""
    has_default: bool
    """Whether a call may leave it out."""
    default: Value = None
    """The default's value where `is_literal`, and for a type such as `tl.float16` the manifest's word."""
    is_literal: bool = False
    """Whether the default is a plain value rather than an expression that only the compiler can work out."""


@dataclass(frozen=True)
class KernelFunction:
    """The parts of a kernel function that a manifest has to agree with."""

    parameters: tuple[KernelParameter, ...]
    """In order."""
    doc: str
    """Its doc string, or nothing."""
    decorators: tuple[str, ...] = ()
    """Those of `@triton.autotune` and `@triton.heuristics` that it has."""


@lru_cache(maxsize=256)
def functions(path: Path) -> dict[str, KernelFunction]:
    """The top-level functions of a Python file by name; SyntaxError, UnicodeDecodeError or OSError as reading
    it raises."""
    try:
        module = syntax_tree(path)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from None
    return {node.name: _function(node) for node in module.body if isinstance(node, ast.FunctionDef)}


def with_elements(
    reader: ManifestReader, path: KeyPath, args: Mapping[str, Any], function: KernelFunction
) -> tuple[dict[str, Any], KernelFunction]:
    """The table `args` and the function with the elements of tuples as arguments of their own: `strides_0` and
    `strides_1` for `strides = ["i32", "i32"]`."""
    known = [parameter.name for parameter in function.parameters]
    table: dict[str, Any] = {}
    elements: dict[str, list[str]] = {}
    for key, given in args.items():
        if not isinstance(given, list) or not given:
            table[key] = given
            continue
        for name in names_of(key):
            elements[name] = [f"{name}_{index}" for index in range(len(given))]
            for index, element in enumerate(elements[name]):
                reader.also_at((*path, key, index), (*path, element))
                if element in known:
                    message = f"the kernel has a parameter {element}, which would be the name of an element"
                    reader.error((*path, key), message, "give one of them another name")
            table |= dict(zip(elements[name], given))
    parameters = (
        replace(parameter, name=name) if name != parameter.name else parameter
        for parameter in function.parameters
        for name in (
            [parameter.name] if parameter.is_constexpr else elements.get(parameter.name, [parameter.name])
        )
    )
    return table, replace(function, parameters=tuple(parameters))


def _function(node: ast.FunctionDef) -> KernelFunction:
    positional = node.args.posonlyargs + node.args.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults)) + list(
        node.args.defaults
    )
    pairs = [*zip(positional, defaults), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
    called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    names = [one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in called]
    return KernelFunction(
        tuple(_parameter(argument, default) for argument, default in pairs),
        ast.get_docstring(node) or "",
        tuple(f"@triton.{name}" for name in ("autotune", "heuristics") if name in names),
    )


def _parameter(argument: ast.arg, default: ast.expr | None) -> KernelParameter:
    annotation = argument.annotation
    text = (
        annotation.value
        if isinstance(annotation, ast.Constant)
        else ast.unparse(annotation)
        if annotation
        else ""
    )
    is_constexpr = str(text).rpartition(".")[2] == "constexpr"
    if default is None:
        return KernelParameter(argument.arg, is_constexpr, has_default=False)
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError):
        named = dotted_type(ast.unparse(default)) or None
        return KernelParameter(argument.arg, is_constexpr, True, named if is_constexpr else None)
    is_literal = value is None or isinstance(value, (bool, int, float, str))
    return KernelParameter(argument.arg, is_constexpr, True, value if is_literal else None, is_literal)
