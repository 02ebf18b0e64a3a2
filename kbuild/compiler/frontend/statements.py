"""Statements without control flow."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kbuild.compiler.frontend.assign import assign, bind
from kbuild.compiler.frontend.expressions import iterable, operate
from kbuild.compiler.frontend.scope import materialised
from kbuild.compiler.frontend.sources.functions import is_constexpr_annotation
from kbuild.compiler.frontend.visitor import CallSite, Item, Returned, State, Visitor, reads
from kbuild.compiler.ops.tensor import AxisAttributes
from kbuild.compiler.semantic.debug import device_assert
from kbuild.compiler.semantic.values import Tensor


@reads(ast.Pass)
def read_pass(visitor: Visitor, node: ast.Pass, rest: Sequence[Item]) -> State:
    return None


@reads(ast.Expr)
def read_expression_statement(visitor: Visitor, node: ast.Expr, rest: Sequence[Item]) -> State:
    if isinstance(node.value, ast.Constant):  # a docstring, or `...`
        return None
    if visitor.frame.pure and _grow_list(visitor, node.value):
        return None
    _keep_guarantee(visitor, node.value, visitor.expression(node.value))
    _check_used(visitor, node.value)
    return None


def _keep_guarantee(visitor: Visitor, node: ast.expr, value: Any) -> None:
    """`tl.multiple_of(x, 16)` as a statement guarantees that of `x`, from there on: in Triton it marks the value itself."""
    given = value.value if isinstance(value, Tensor) else None
    while (
        given is not None
        and isinstance(given.op, AxisAttributes)
        and isinstance(node, ast.Call)
        and node.args
    ):
        node, given = node.args[0], given.op.src
    if isinstance(node, ast.Name):
        known = visitor.frame.values.get(node.id)
        if isinstance(known, Tensor) and known.value is given and known.value is not value.value:
            visitor.frame.values[node.id] = value


def _grow_list(visitor: Visitor, node: ast.expr) -> bool:
    """`items.append(x)` and `items.extend(xs)` in a function that runs while compiling; whether it is one."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in ("append", "extend") or not isinstance(node.func.value, ast.Name):
        return False
    items, given = visitor.expression(node.func.value), visitor.expression(node.args[0])
    if not isinstance(items, tuple):
        return False
    bind(visitor, node.func.value, (*items, given) if node.func.attr == "append" else (*items, *given))
    return True


def _check_used(visitor: Visitor, node: ast.expr) -> None:
    """A moved block pointer that is dropped was meant to be kept."""
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "advance":
            visitor.fail(
                node,
                "the result of tl.advance is not used, and the block pointer itself does not move",
                "write pointer = tl.advance(pointer, offsets)",
            )


@reads(ast.Assign)
def read_assign(visitor: Visitor, node: ast.Assign, rest: Sequence[Item]) -> State:
    value = visitor.expression(node.value)
    for target in node.targets:
        assign(visitor, target, value, node)
    return None


@reads(ast.AnnAssign)
def read_annotated_assign(visitor: Visitor, node: ast.AnnAssign, rest: Sequence[Item]) -> State:
    if node.value is None:
        return None
    value = visitor.expression(node.value)
    if is_constexpr_annotation(node.annotation):
        bind(
            visitor, node.target, value
        )  # One of run time stays that: the annotation is a wish, as in Triton.
    else:
        assign(visitor, node.target, value, node)
    return None


@reads(ast.AugAssign)
def read_augmented_assign(visitor: Visitor, node: ast.AugAssign, rest: Sequence[Item]) -> State:
    if not isinstance(node.target, ast.Name) and not (
        isinstance(node.target, ast.Subscript) and visitor.frame.pure
    ):
        bind(visitor, node.target, None)  # says why not
    left = visitor.expression(_as_load(node.target))
    if isinstance(left, list) and isinstance(node.op, ast.Add):
        items = list(iterable(visitor, node.value))
        operate(visitor, node, node.op, left, items)  # says if that is too long
        left.extend(items)
        return None
    assign(visitor, node.target, operate(visitor, node, node.op, left, visitor.expression(node.value)), node)
    return None


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    assert isinstance(target, ast.Name)
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


@reads(ast.Assert)
def read_assert(visitor: Visitor, node: ast.Assert, rest: Sequence[Item]) -> State:
    condition = visitor.expression(node.test)
    message = visitor.expression(node.msg) if node.msg is not None else ""
    if not isinstance(condition, Tensor):
        if not condition:
            visitor.fail(node.test, f"assertion failed while compiling: {message or ast.unparse(node.test)}")
        return None
    visitor.locate(node)
    visitor.site = CallSite(node, visitor.frame)
    device_assert(visitor.ctx, condition, message or ast.unparse(node.test))
    return None


@reads(ast.Return)
def read_return(visitor: Visitor, node: ast.Return, rest: Sequence[Item]) -> State:
    frame = visitor.frame
    if frame.loops:
        visitor.fail(
            node,
            "`return` inside a loop is not possible in a kernel",
            "compute a mask in the loop and act after it, or use tl.static_range",
        )
    value = visitor.expression(node.value) if node.value is not None else None
    if frame.kernel and value is not None:
        visitor.fail(node, "a kernel returns nothing", "write the result with tl.store")
    if not frame.pure:
        visitor.locate(node)
        value = materialised(visitor.ctx, value)
    return Returned(value, node)
