"""Expressions, except calls and attributes."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kbuild.compiler.frontend import constexpr
from kbuild.compiler.frontend.assign import assign, bind
from kbuild.compiler.frontend.python import HOST, PYTHON
from kbuild.compiler.frontend.scope import POISON, Deferred, Poisoned, Undefined, assigned_names
from kbuild.compiler.frontend.sources import modules
from kbuild.compiler.frontend.sources.functions import Plain
from kbuild.compiler.frontend.visitor import CallSite, Visitor, reads
from kbuild.compiler.semantic import arith
from kbuild.compiler.semantic.dot import dot
from kbuild.compiler.semantic.shape import subscript
from kbuild.compiler.semantic.types import TypeBase
from kbuild.compiler.semantic.values import Range, Tensor, describe
from kbuild.errors import CompileError, nearest


@reads(ast.Constant)
def read_constant(visitor: Visitor, node: ast.Constant) -> Any:
    if isinstance(node.value, complex | bytes):
        visitor.fail(node, f"{type(node.value).__name__} numbers are not possible in a kernel")
    if isinstance(node.value, str) and not constexpr.is_text(node.value):
        visitor.fail(node, "a string with half of a surrogate pair is not text")
    return node.value


@reads(ast.Name)
def read_name(visitor: Visitor, node: ast.Name) -> Any:
    frame = visitor.frame
    value = frame.values.get(node.id, frame)
    if value is frame:
        return _global(visitor, node)
    if isinstance(value, Undefined):
        if value is POISON:
            raise Poisoned
        raise CompileError(value.reason, value.loc or frame.loc(node), value.help)
    if isinstance(value, Deferred):
        visitor.locate(node)
        return value.make()
    return value


def _global(visitor: Visitor, node: ast.Name) -> Any:
    frame = visitor.frame
    try:
        value = visitor.resolve(frame.function, node.id, node)
    except KeyError:
        value = (HOST.get(node.id) if frame.pure else None) or PYTHON.get(node.id)
        if value is None:
            _undefined(visitor, node)
        return value
    if isinstance(value, Plain):
        if frame.pure or isinstance(value.value, TypeBase):
            return value.value
        place = f" ({value.loc})" if value.loc else ""
        visitor.fail(
            node,
            f"`{node.id}` is a variable of the module{place}; a kernel can only use constants",
            value.advice(node.id),
        )
    return value


def _undefined(visitor: Visitor, node: ast.Name) -> None:
    frame = visitor.frame
    known = [*frame.values, *frame.function.namespace.names(), *PYTHON]
    close = nearest(node.id, known)
    if not close and node.id in modules.language_names():
        close = f"tl.{node.id}"
    visitor.fail(node, f"`{node.id}` is not defined", f"did you mean `{close}`?" if close else "")


@reads(ast.Tuple, ast.List)
def read_tuple(visitor: Visitor, node: ast.Tuple | ast.List) -> Any:
    """Kernels have no lists that change; code that runs while compiling does."""
    items = unpacked(visitor, node.elts)
    return items if visitor.frame.pure and isinstance(node, ast.List) else tuple(items)


def unpacked(visitor: Visitor, nodes: Sequence[ast.expr]) -> list[Any]:
    """The values of some expressions, with `*items` in the place of its items."""
    values: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values.extend(iterable(visitor, node.value))
        else:
            values.append(visitor.expression(node))
    return values


def iterable(visitor: Visitor, node: ast.expr) -> tuple[Any, ...]:
    """The items of something whose length is known while compiling."""
    value = visitor.expression(node)
    items = host_items(visitor, value) if visitor.frame.pure else static_items(value)
    if items is None:
        visitor.fail(node, f"{describe(value)} is not a sequence known while compiling")
    return items


def host_items(visitor: Visitor, value: Any) -> tuple[Any, ...] | None:
    """The items of anything that Python iterates over; None for everything else."""
    if not isinstance(value, Iterable) or isinstance(value, tuple):
        return static_items(value)
    return tuple(itertools.islice(value, constexpr.MAX_ITEMS))


def static_items(value: Any) -> tuple[Any, ...] | None:
    """The items of a tuple, or of a range known while compiling; None for everything else."""
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, Range) and all(
        isinstance(part, int) for part in (value.start, value.stop, value.step)
    ):
        return tuple(range(value.start, value.stop, value.step))
    return None


@reads(ast.BinOp)
def read_binary(visitor: Visitor, node: ast.BinOp) -> Any:
    left, right = visitor.expression(node.left), visitor.expression(node.right)
    return operate(visitor, node, node.op, left, right)


def operate(visitor: Visitor, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """`left op right`."""
    symbol = constexpr.BINARY[type(op)][0]
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        visitor.locate(node)
        visitor.site = CallSite(node, visitor.frame)
        if symbol == "@":
            return dot(visitor.ctx, left, right)
        return arith.BINARY[symbol](visitor.ctx, left, right)
    try:
        return constexpr.binary(op, left, right)
    except (ArithmeticError, TypeError, ValueError) as error:
        visitor.fail(node, f"{describe(left)} {symbol} {describe(right)}: {error}")


@reads(ast.UnaryOp)
def read_unary(visitor: Visitor, node: ast.UnaryOp) -> Any:
    value = visitor.expression(node.operand)
    if isinstance(value, Tensor):
        visitor.locate(node)
        visitor.site = CallSite(node, visitor.frame)
        if isinstance(node.op, ast.USub):
            return arith.negate(visitor.ctx, value, sanitize=True)
        if isinstance(node.op, ast.Invert):
            return arith.invert(visitor.ctx, value)
        return arith.logical_not(visitor.ctx, value) if isinstance(node.op, ast.Not) else value
    try:
        return constexpr.unary(node.op, value)
    except TypeError as error:
        visitor.fail(node, f"{describe(value)}: {error}")


@reads(ast.Compare)
def read_compare(visitor: Visitor, node: ast.Compare) -> Any:
    left = visitor.expression(node.left)
    result: Any = True
    for op, comparator in zip(node.ops, node.comparators):
        right = visitor.expression(comparator)
        single = _compare(visitor, node, op, left, right)
        if result is True:
            result = single
        elif isinstance(result, Tensor) or isinstance(single, Tensor):
            result = arith.logical_and(visitor.ctx, result, single)
        else:
            result = result and single
        if result is False:
            return False
        left = right
    return result


def _compare(visitor: Visitor, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> Any:
    symbol = constexpr.COMPARE[type(op)][0]
    at_run_time = isinstance(left, Tensor) or isinstance(right, Tensor)
    if symbol in ("in", "not in") and isinstance(right, tuple):
        return _member(visitor, node, left, right, symbol == "in")
    if symbol in ("is", "is not"):
        same = constexpr.compare(ast.Is(), left, right) if not at_run_time else left is right
        return same == (symbol == "is")
    if at_run_time:
        if (left is None or right is None or isinstance(left, str) or isinstance(right, str)) and symbol in (
            "==",
            "!=",
        ):
            return symbol == "!="
        if symbol in ("in", "not in"):
            help = "write the values as a tuple: x in (1, 2)"
            visitor.fail(node, f"`{symbol}` looks a value up in a tuple, found {describe(right)}", help)
        visitor.locate(node)
        visitor.site = CallSite(node, visitor.frame)
        return arith.compare(visitor.ctx, symbol, left, right)
    try:
        return constexpr.compare(op, left, right)
    except TypeError as error:
        visitor.fail(node, f"{describe(left)} {symbol} {describe(right)}: {error}")


def _member(visitor: Visitor, node: ast.Compare, value: Any, items: tuple[Any, ...], wanted: bool) -> Any:
    """Whether a value is one of several: the comparisons with each, joined."""
    result: Any = False
    for item in items:
        same = _compare(visitor, node, ast.Eq(), value, item)
        if same is True:
            return wanted
        if same is not False:
            result = same if result is False else arith.logical_or(visitor.ctx, result, same)
    if isinstance(result, Tensor):
        return result if wanted else arith.logical_not(visitor.ctx, result)
    return not wanted


@reads(ast.BoolOp)
def read_logic(visitor: Visitor, node: ast.BoolOp) -> Any:
    """Evaluate operands that are known while compiling, which decide or drop out, and combine the rest."""
    conjunction = isinstance(node.op, ast.And)
    result: Any = None
    for item in node.values:
        value = visitor.expression(item)
        if isinstance(value, Tensor):
            if isinstance(result, Tensor):
                visitor.locate(node)
                visitor.site = CallSite(node, visitor.frame)
                value = (arith.logical_and if conjunction else arith.logical_or)(visitor.ctx, result, value)
            result = value
        elif bool(value) != conjunction:
            return value
        elif not isinstance(result, Tensor):
            result = value
    return result


@reads(ast.NamedExpr)
def read_walrus(visitor: Visitor, node: ast.NamedExpr) -> Any:
    assign(visitor, node.target, visitor.expression(node.value), node)
    return visitor.frame.values[node.target.id]


@reads(ast.Slice)
def read_slice(visitor: Visitor, node: ast.Slice) -> slice:
    parts = [
        visitor.expression(part) if part is not None else None for part in (node.lower, node.upper, node.step)
    ]
    return slice(*parts)


@reads(ast.Subscript)
def read_subscript(visitor: Visitor, node: ast.Subscript) -> Any:
    value, index = visitor.expression(node.value), visitor.expression(node.slice)
    if isinstance(value, Tensor):
        visitor.locate(node)
        visitor.site = CallSite(node, visitor.frame)
        return subscript(visitor.ctx, value, index)
    if isinstance(index, Tensor):
        visitor.fail(
            node.slice,
            f"the index is {describe(index)}, which is not known while compiling",
            "unroll the loop with tl.static_range",
        )
    try:
        return value[index]
    except (TypeError, LookupError, ValueError) as error:
        visitor.fail(node, f"{describe(value)}: {error}")


@reads(ast.JoinedStr)
def read_f_string(visitor: Visitor, node: ast.JoinedStr) -> str:
    text = ""
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            text += str(read_constant(visitor, part)) if isinstance(part, ast.Constant) else ""
            continue
        value = visitor.expression(part.value)
        if isinstance(value, Tensor):
            visitor.fail(
                part.value,
                f"`{ast.unparse(part.value)}` is {describe(value)}, an f-string is made while compiling",
                "print values of run time with tl.device_print",
            )
        converted = {-1: lambda v: v, 115: str, 114: repr, 97: ascii}[part.conversion](value)
        specification = (
            read_f_string(visitor, part.format_spec) if isinstance(part.format_spec, ast.JoinedStr) else ""
        )
        try:
            text += format(converted, specification)
        except (TypeError, ValueError) as error:
            visitor.fail(part, str(error))
    return text


@reads(ast.ListComp)
def read_comprehension(visitor: Visitor, node: ast.ListComp) -> Any:
    if len(node.generators) != 1 and not visitor.frame.pure:
        visitor.fail(node, "a comprehension with several `for` is not possible in a kernel")
    items = list(comprehended(visitor, node.generators, lambda: visitor.expression(node.elt)))
    return items if visitor.frame.pure else tuple(items)


def comprehended(
    visitor: Visitor, generators: Sequence[ast.comprehension], element: Callable[[], Any]
) -> Iterator[Any]:
    """The elements of a comprehension, whose variables are its own."""
    if not generators:
        yield element()
        return
    generator, *inner = generators
    values = visitor.frame.values
    saved = {name: values[name] for name in assigned_names(generator.target) if name in values}
    for item in iterable(visitor, generator.iter):
        if visitor.frame.pure:
            visitor.count_step(generator.target)
        bind(visitor, generator.target, item)
        if all(visitor.constant_value(condition, "the condition") for condition in generator.ifs):
            yield from comprehended(visitor, inner, element)
    values.update(saved)
