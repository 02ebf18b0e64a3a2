"""The functions of a Python file, read from its syntax tree: no module is imported to check a manifest."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from kbuild.aot.manifest.functions.kernel_function import KernelFunction, KernelParameter
from kbuild.aot.manifest.kinds import dotted_type
from kbuild.aot.syntax import module_functions, syntax_tree


@lru_cache(maxsize=256)
def python_functions(path: Path) -> dict[str, KernelFunction]:
    """The top-level functions of a Python file by name; SyntaxError, UnicodeDecodeError or OSError as reading
    it raises."""
    try:
        module = syntax_tree(path)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from None
    return {name: _function(node) for name, node in module_functions(module).items()}


def _function(node: ast.FunctionDef) -> KernelFunction:
    positional = node.args.posonlyargs + node.args.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults)) + list(
        node.args.defaults
    )
    pairs = [*zip(positional, defaults), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
    called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    names = [_last(one) for one in called]
    return KernelFunction(
        tuple(_parameter(argument, default) for argument, default in pairs),
        ast.get_docstring(node) or "",
        tuple(f"@triton.{name}" for name in ("autotune", "heuristics") if name in names),
        "jit" in [*names, *map(_last, node.decorator_list)],
    )


def _last(decorator: ast.expr) -> str:
    """The last word of a decorator: `jit` of `@triton.jit`."""
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


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
