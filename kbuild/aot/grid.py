"""Launch grids: integer expressions over a kernel's arguments and constexprs, as text in the manifest.

The language is small enough to be said in C as well: integers, names, `+ - * // %`, `cdiv`, `min` and `max`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

FUNCTIONS = {"cdiv": (2, 2), "min": (2, 9), "max": (2, 9)}
"""Callable names with the least and greatest number of their arguments."""

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


class GridError(ValueError):
    """The expression says something that a grid cannot."""


def parse(text: str) -> ast.expr:
    """The checked tree of a grid expression; GridError tells what is wrong with it."""
    if len(text) > 1000:
        raise GridError("is longer than 1000 characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, GridError):
            raise
        raise GridError(f"{text!r} is not an expression") from None
    return tree


def names(tree: ast.expr) -> list[str]:
    """The arguments and constexprs that an expression names, each once, in order."""
    if isinstance(tree, ast.Name):
        return [tree.id]
    parts = tree.args if isinstance(tree, ast.Call) else ast.iter_child_nodes(tree)
    return list(dict.fromkeys(name for part in parts if isinstance(part, ast.expr) for name in names(part)))


def evaluate(tree: ast.expr, values: Mapping[str, int]) -> int:
    """The value of a checked expression, in unbounded integers; ZeroDivisionError on division by zero."""
    if isinstance(tree, ast.Constant):
        return int(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.Name):
        return int(values[tree.id])
    if isinstance(tree, ast.UnaryOp):
        return -evaluate(tree.operand, values)
    if isinstance(tree, ast.Call):
        arguments = [evaluate(argument, values) for argument in tree.args]
        function = tree.func.id  # type: ignore[attr-defined]
        return -(-arguments[0] // arguments[1]) if function == "cdiv" else {"min": min, "max": max}[function](arguments)
    assert isinstance(tree, ast.BinOp)
    left, right = evaluate(tree.left, values), evaluate(tree.right, values)
    match _OPERATORS[type(tree.op)]:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case _:
            return left % right


def _check(node: ast.expr) -> None:
    if isinstance(node, ast.Constant):
        if type(node.value) is not int:
            raise GridError(f"{ast.unparse(node)} is not an integer")
    elif isinstance(node, ast.BinOp):
        if type(node.op) not in _OPERATORS:
            raise GridError(f"{ast.unparse(node)}: only + - * // % may join the parts of a grid")
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand)
    elif isinstance(node, ast.Call):
        function = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if function not in FUNCTIONS or node.keywords:
            raise GridError(f"{ast.unparse(node)}: only {', '.join(FUNCTIONS)} may be called in a grid")
        least, most = FUNCTIONS[function]
        if not least <= len(node.args) <= most or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise GridError(f"{ast.unparse(node)}: {function} takes {least if least == most else f'{least} to {most}'} arguments")
        for argument in node.args:
            _check(argument)
    elif not isinstance(node, ast.Name):
        raise GridError(f"{ast.unparse(node)}: a grid is made of integers, arguments, constexprs, + - * // %, cdiv, min, max")
