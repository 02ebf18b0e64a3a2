"""Python that runs while compiling: the bodies of `@triton.constexpr_function` and of what these call, and the
functions that the constants of a module are computed by.

There, lists, dicts and sets are Python's own and change in place; what leaves for a kernel is made of tuples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from kbuild.compiler.frontend.assign import bind
from kbuild.compiler.frontend.expressions import comprehended
from kbuild.compiler.frontend.python import EXCEPTIONS
from kbuild.compiler.frontend.scope import Frame
from kbuild.compiler.frontend.sources.functions import Namespace, make_function
from kbuild.compiler.frontend.visitor import Item, State, Visitor, reads, unsupported
from kbuild.compiler.semantic.values import describe
from kbuild.errors import CompileError, Loc


class RaisedError(CompileError):
    """An exception of the author's, which a `try` may catch."""

    def __init__(self, exception: Exception, loc: Loc) -> None:
        text = f"{type(exception).__name__}: {exception}" if str(exception) else type(exception).__name__
        super().__init__(text, loc)
        self.exception = exception


class _BreakLoop(Exception):
    """A `break` on its way to its loop."""


class _ContinueLoop(Exception):
    """A `continue` on its way to its loop."""


def _only_here(visitor: Visitor, node: ast.AST) -> None:
    """Refuse syntax that kernels do not have."""
    if not visitor.frame.pure:
        visitor.fail(node, *unsupported(node))


def run_loop(visitor: Visitor, node: ast.For | ast.While, rounds: Iterable[Any]) -> State:
    """A loop of code that runs while compiling: its body for each of the rounds, which bind what they need."""
    for bound in rounds:
        if isinstance(node, ast.For):
            bind(visitor, node.target, bound)
        try:
            state = visitor.run_nested(node.body, False)
        except _ContinueLoop:
            continue
        except _BreakLoop:
            return None
        if state is not None:
            return state
    return visitor.run_nested(node.orelse, False)


@reads(ast.Break, ast.Continue)
def read_jump(visitor: Visitor, node: ast.Break | ast.Continue, rest: Sequence[Item]) -> State:
    _only_here(visitor, node)
    raise _BreakLoop if isinstance(node, ast.Break) else _ContinueLoop


@reads(ast.Raise)
def read_raise(visitor: Visitor, node: ast.Raise, rest: Sequence[Item]) -> State:
    _only_here(visitor, node)
    if node.exc is None:
        if visitor.frame.caught is None:
            visitor.fail(node, "`raise` alone stands in an `except`, which has caught something")
        raise visitor.frame.caught
    value = visitor.expression(node.exc)
    if isinstance(value, type) and issubclass(value, Exception):
        value = value()
    if not isinstance(value, Exception):
        visitor.fail(node.exc, f"{describe(value)} is not an exception", "raise ValueError, for one")
    raise RaisedError(value, visitor.frame.loc(node))


@reads(ast.Try)
def read_try(visitor: Visitor, node: ast.Try, rest: Sequence[Item]) -> State:
    _only_here(visitor, node)
    try:
        state = _guarded_body(visitor, node)
    finally:
        final = visitor.run_nested(node.finalbody, False)
    return final if final is not None else state


def _guarded_body(visitor: Visitor, node: ast.Try) -> State:
    try:
        state = visitor.run_nested(node.body, False)
    except CompileError as error:
        return _handled(visitor, node, error)
    return state if state is not None else visitor.run_nested(node.orelse, False)


def _handled(visitor: Visitor, node: ast.Try, error: CompileError) -> State:
    """The `except` that takes an exception; raises the error where there is none."""
    exception = error.exception if isinstance(error, RaisedError) else error.__context__
    if not isinstance(exception, EXCEPTIONS):
        raise error  # A mistake of the author's, which nothing catches.
    for handler in node.handlers:
        kinds = Exception if handler.type is None else visitor.expression(handler.type)
        kinds = tuple(kinds) if isinstance(kinds, tuple | list) else kinds
        if isinstance(exception, kinds):
            frame = visitor.frame
            saved, frame.caught = frame.caught, error
            if handler.name:
                frame.values[handler.name] = exception
            try:
                return visitor.run_nested(handler.body, False)
            finally:
                frame.caught = saved
    raise error


@reads(ast.Delete)
def read_delete(visitor: Visitor, node: ast.Delete, rest: Sequence[Item]) -> State:
    _only_here(visitor, node)
    for target in node.targets:
        if isinstance(target, ast.Name):
            visitor.frame.values.pop(target.id, None)
            continue
        owner = visitor.expression(target.value) if isinstance(target, ast.Subscript) else None
        if not isinstance(owner, list | dict) or not isinstance(target, ast.Subscript):
            visitor.fail(target, f"{describe(owner)} has nothing that could be deleted")
        index = visitor.expression(target.slice)
        try:
            del owner[index]
        except (LookupError, TypeError) as error:
            visitor.fail(target, f"{type(error).__name__}: {error}")
    return None


@reads(ast.Dict)
def read_dict(visitor: Visitor, node: ast.Dict) -> dict[Any, Any]:
    _only_here(visitor, node)
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            found.update(visitor.expression(value))
        else:
            found[_hashable(visitor, key)] = visitor.expression(value)
    return found


def _hashable(visitor: Visitor, node: ast.expr) -> Any:
    value = visitor.expression(node)
    try:
        hash(value)
    except TypeError as error:
        visitor.fail(node, f"TypeError: {error}")
    return value


@reads(ast.Set)
def read_set(visitor: Visitor, node: ast.Set) -> set[Any]:
    _only_here(visitor, node)
    return {_hashable(visitor, item) for item in node.elts}


@reads(ast.GeneratorExp)
def read_generator(visitor: Visitor, node: ast.GeneratorExp) -> tuple[Any, ...]:
    _only_here(visitor, node)
    return tuple(comprehended(visitor, node.generators, lambda: visitor.expression(node.elt)))


@reads(ast.SetComp)
def read_set_comprehension(visitor: Visitor, node: ast.SetComp) -> set[Any]:
    _only_here(visitor, node)
    return set(comprehended(visitor, node.generators, lambda: _hashable(visitor, node.elt)))


@reads(ast.DictComp)
def read_dict_comprehension(visitor: Visitor, node: ast.DictComp) -> dict[Any, Any]:
    _only_here(visitor, node)

    def item() -> tuple[Any, Any]:
        return _hashable(visitor, node.key), visitor.expression(node.value)

    return dict(comprehended(visitor, node.generators, item))


# Functions inside of functions


class _Enclosing:
    """The names of a function for those that are written in it."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def resolve(self, name: str) -> Any:
        if name in self.frame.values:
            return self.frame.values[name]
        return self.frame.function.namespace.resolve(name)

    def names(self) -> list[str]:
        return [*self.frame.values, *self.frame.function.namespace.names()]


class InnerFunction:
    """A function that a function makes, for Python's own ones to call, too."""

    def __init__(self, visitor: Visitor, node: ast.FunctionDef) -> None:
        frame = visitor.frame
        namespace: Namespace = _Enclosing(frame)
        self.visitor, self.node = visitor, node
        self.function = make_function(node, frame.function.file, namespace, kind="constexpr")
        self.__name__ = node.name

    def __call__(self, *args: Any) -> Any:
        return self.visitor.call(self.function, list(args))


@reads(ast.FunctionDef)
def read_function(visitor: Visitor, node: ast.FunctionDef, rest: Sequence[Item]) -> State:
    _only_here(visitor, node)
    visitor.frame.values[node.name] = InnerFunction(visitor, node)
    return None


@reads(ast.Lambda)
def read_lambda(visitor: Visitor, node: ast.Lambda) -> InnerFunction:
    _only_here(visitor, node)
    returned = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.FunctionDef("lambda", node.args, [returned], [])
    return InnerFunction(visitor, ast.copy_location(made, node))
