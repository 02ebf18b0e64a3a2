"""Integer expressions of the manifest: launch grids and run-time conditions.

One text, three uses: `parse` checks it, `evaluate` computes it in Python, `to_c` prints it for the launcher.
The meaning is Python's on 64-bit signed integers (`//` and `%` round towards minus infinity, truth is 0 or
1); where an intermediate result leaves that range, or something is divided by zero, both forms report a fault
and no value.

    cdiv(N_CTX, BLOCK_M)      1024 < n_cols <= 2048      M <= 64 and K % 8 == 0      max(1, n // 2)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from kbuild.errors import ManifestError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_LENGTH = 1000
NUM_SMS = "num_sms"
"""A name that grids may use besides arguments and constants: the multiprocessors of the device."""
_FUNCTIONS = {"cdiv": (2, 2), "min": (2, 8), "max": (2, 8), "abs": (1, 1), "next_power_of_2": (1, 1)}
_BINARY = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "floor_modulo",
}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class ExpressionFault(ArithmeticError):
    """A value left the range of 64-bit integers, or something was divided by zero."""


@dataclass(frozen=True)
class Expression:
    """A checked expression; equal where the text is equal up to spaces and parentheses."""

    text: str
    """The normal form, as `ast.unparse` prints it."""
    names: tuple[str, ...]
    """The names that occur, in alphabetical order."""

    @cached_property
    def tree(self) -> ast.expr:
        """The syntax tree of the normal form."""
        return ast.parse(self.text, mode="eval").body


def parse(text: str, names: Collection[str], where: str) -> Expression:
    """Check an expression that may name `names`; a ManifestError begins with `where`, the manifest's key."""
    if len(text) > MAX_LENGTH:
        raise ManifestError(f"{where}: the expression has {len(text)} characters; {MAX_LENGTH} are allowed")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        found = _check(tree, text, names, where)
        return Expression(ast.unparse(tree), tuple(sorted(found)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ManifestError(
            f'{where}: "{text}" is not an expression', help="write for example cdiv(n, BLOCK)"
        ) from error


def evaluate(expression: Expression, values: Mapping[str, int]) -> int:
    """The value of the expression; truth is 0 or 1.  ExpressionFault outside of 64 bits and on division by
    zero."""
    return _evaluate(expression.tree, values)


def substituted(text: str, values: Mapping[str, int | str]) -> str:
    """The normal form of an expression with numbers, or other expressions, for the names that have a value."""
    parts = {name: ast.parse(str(value), mode="eval").body for name, value in values.items()}
    return ast.unparse(_Substitution(parts).visit(ast.parse(text, mode="eval").body))


class _Substitution(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The expression for a name."""
        return self._parts.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A call, whose function is no name of a value even where a value is called so."""
        node.args = [self.visit(argument) for argument in node.args]
        return node


def to_c(expression: Expression, reference: Callable[[str], str]) -> str:
    """The expression in C: `reference` prints a name as an int64_t; faults are added to an `int *fault` in
    scope."""
    return _to_c(expression.tree, reference)


def _check(node: ast.expr, text: str, names: Collection[str], where: str) -> set[str]:
    """The names below a node; ManifestError for anything outside the language."""

    def fail(message: str, help: str = "") -> ManifestError:
        return ManifestError(f'{where}: {message} in "{text}"', help=help)

    def below(*nodes: ast.expr) -> set[str]:
        return set().union(*(_check(child, text, names, where) for child in nodes))

    match node:
        case ast.Constant(value=bool() | int() as value):
            if not INT64_MIN <= value <= INT64_MAX:
                raise fail(f"{value} does not fit 64 bits")
            return set()
        case ast.Name(id=name):
            if name not in names:
                raise fail(f'unknown name "{name}"', f"the names known here are {', '.join(names) or 'none'}")
            return {name}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            return below(operand)
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) not in _BINARY:
                help = "write // or cdiv(a, b)" if isinstance(op, ast.Div) else "the operators are + - * // %"
                raise fail(f'unknown operator in "{ast.unparse(node)}"', help)
            return below(left, right)
        case ast.BoolOp(values=values):
            return below(*values)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            if any(type(op) not in _COMPARE for op in ops):
                raise fail(
                    f'unknown comparison in "{ast.unparse(node)}"', "the comparisons are < <= > >= == !="
                )
            if any(not isinstance(middle, ast.Constant | ast.Name) for middle in comparators[:-1]):
                raise fail(
                    "a chain of comparisons goes through a name or a number", "join two comparisons by and"
                )
            return below(left, *comparators)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return below(test, body, orelse)
        case ast.Call(func=function, args=arguments, keywords=[]):
            name = _function_name(function)
            if name not in _FUNCTIONS:
                raise fail(
                    f'unknown function "{ast.unparse(function)}"',
                    f"the functions are {', '.join(_FUNCTIONS)}",
                )
            least, most = _FUNCTIONS[name]
            if not least <= len(arguments) <= most:
                raise fail(
                    f"{name} takes {least if least == most else f'{least} to {most}'} arguments, not {len(arguments)}"
                )
            return below(*arguments)
        case _:
            raise fail(
                f'"{ast.unparse(node)}" is not an integer expression',
                "write integers, names, operators, cdiv, min, max",
            )


def _function_name(node: ast.expr) -> str:
    """`cdiv`, also where it is spelled triton.cdiv or tl.cdiv; empty when it is not a plain name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="triton" | "tl"), attr=name):
            return name
        case _:
            return ""


def _in_range(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ExpressionFault(f"{value} does not fit 64 bits")
    return value


def _floor(name: str, left: int, right: int) -> int:
    if right == 0:
        raise ExpressionFault("division by zero")
    if name == "cdiv":
        return _in_range(-(-left // right))
    return _in_range(left // right if name == "floor_divide" else left % right)


def _apply(name: str, arguments: list[int]) -> int:
    """A function or binary operator on values."""
    match name:
        case "add":
            return _in_range(arguments[0] + arguments[1])
        case "subtract":
            return _in_range(arguments[0] - arguments[1])
        case "multiply":
            return _in_range(arguments[0] * arguments[1])
        case "min":
            return min(arguments)
        case "max":
            return max(arguments)
        case "abs":
            return _in_range(abs(arguments[0]))
        case "next_power_of_2":
            return _in_range(1 << (arguments[0] - 1).bit_length() if arguments[0] > 1 else 1)
        case _:
            return _floor(name, arguments[0], arguments[1])


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int:
    def of(child: ast.expr) -> int:
        return _evaluate(child, values)

    match node:
        case ast.Constant(value=value):
            return int(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return int(values[name])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not of(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _in_range(-of(operand))
        case ast.UnaryOp(operand=operand):
            return of(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(_BINARY[type(op)], [of(left), of(right)])
        case ast.BoolOp(op=ast.And(), values=parts):
            return int(all(of(part) for part in parts))
        case ast.BoolOp(values=parts):
            return int(any(of(part) for part in parts))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return int(
                all(_compare(op, of(a), of(b)) for op, a, b in zip(ops, [left, *comparators], comparators))
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return of(body) if of(test) else of(orelse)
        case ast.Call(func=function, args=arguments):
            return _apply(_function_name(function), [of(argument) for argument in arguments])
        case _:
            raise AssertionError(f"unchecked node {type(node).__name__}")


def _compare(op: ast.cmpop, left: int, right: int) -> bool:
    match _COMPARE[type(op)]:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "==":
            return left == right
        case _:
            return left != right


def _to_c(node: ast.expr, reference: Callable[[str], str]) -> str:
    def of(child: ast.expr) -> str:
        return _to_c(child, reference)

    match node:
        case ast.Constant(value=value):
            return f"INT64_C({int(value)})"  # type: ignore[arg-type]
        case ast.Name(id=name):
            return reference(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"(int64_t)!{of(operand)}"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"subtract(0, {of(operand)}, fault)"
        case ast.UnaryOp(operand=operand):
            return of(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return f"{_BINARY[type(op)]}({of(left)}, {of(right)}, fault)"
        case ast.BoolOp(op=op, values=parts):
            operator = " && " if isinstance(op, ast.And) else " || "
            return f"(int64_t)({operator.join(f'({of(part)} != 0)' for part in parts)})"
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            pairs = zip(ops, [left, *comparators], comparators)
            return (
                f"(int64_t)({' && '.join(f'({of(a)} {_COMPARE[type(op)]} {of(b)})' for op, a, b in pairs)})"
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({of(test)} != 0 ? {of(body)} : {of(orelse)})"
        case ast.Call(func=function, args=arguments):
            return _call_to_c(_function_name(function), [of(argument) for argument in arguments])
        case _:
            raise AssertionError(f"unchecked node {type(node).__name__}")


def _call_to_c(name: str, arguments: list[str]) -> str:
    if name in ("min", "max"):
        nested = arguments[0]
        for argument in arguments[1:]:
            nested = f"{name}imum({nested}, {argument})"
        return nested
    function = {"cdiv": "ceiling_divide", "abs": "absolute"}.get(name, name)
    return f"{function}({', '.join(arguments)}, fault)"
