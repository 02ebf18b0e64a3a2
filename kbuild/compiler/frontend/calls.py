"""Calls: of builtins, of the author's functions (inlined), of classes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from kbuild.compiler.frontend.attributes import Method, attribute
from kbuild.compiler.frontend.constexpr import MAX_ITEMS
from kbuild.compiler.frontend.evaluate import is_layout_maker
from kbuild.compiler.frontend.expressions import unpacked
from kbuild.compiler.frontend.host import InnerFunction
from kbuild.compiler.frontend.python import HOST, PYTHON
from kbuild.compiler.frontend.scope import POISON, Frame, Poisoned, Undefined, form, frozen
from kbuild.compiler.frontend.sources.aggregates import Aggregate, AggregateClass, Unfinished
from kbuild.compiler.frontend.sources.files import NamedTupleClass
from kbuild.compiler.frontend.sources.functions import SourceFunction, SourceParameter
from kbuild.compiler.frontend.visitor import (
    MAX_DEPTH,
    CallSite,
    MaybeReturned,
    Returned,
    Visitor,
    reads,
)
from kbuild.compiler.ir.core import Block, Func
from kbuild.compiler.ops.control import Call, Return
from kbuild.compiler.semantic.registry import TABLES, Builtin
from kbuild.compiler.semantic.types import BlockType, ConstexprType, DType, PointerDtype, as_dtype
from kbuild.compiler.semantic.values import ClassMarker, RunTime, Tensor, describe, flatten, rebuild
from kbuild.errors import CompileError, nearest

Arguments = dict[str, ast.expr | None]
_TYPES = ("dtype", "out_dtype")
"""Parameters of builtins that are types."""


class CallVisitor(Visitor):
    """The visitor with calls: what a compilation uses."""

    def call(self, function: Any, args: list[Any]) -> Any:
        site = self.site
        node = site.node if site else self.frame.function.node
        try:
            return call_value(self, function, args, {}, node)
        finally:
            self.site = site

    def attribute(self, value: Any, name: str) -> Any:
        return attribute(self, value, name, self.site.node if self.site else self.frame.function.node)


@reads(ast.Call)
def read_call(visitor: Visitor, node: ast.Call) -> Any:
    function = visitor.expression(node.func)
    args = unpacked(visitor, node.args)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            visitor.fail(
                keyword.value, "`**` in a call is not possible in a kernel", "write the arguments by name"
            )
        kwargs[keyword.arg] = visitor.expression(keyword.value)
    return call_value(visitor, function, args, kwargs, node)


def call_value(
    visitor: Visitor, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST
) -> Any:
    """The result of a call of any kind in a kernel."""
    owner = None
    if isinstance(function, Method):
        args, owner, function = [function.owner, *args], function.node, function.function
    if isinstance(function, Builtin):
        return _call_builtin(visitor, function, args, kwargs, node, owner)
    if isinstance(function, SourceFunction):
        return call_function(visitor, function, args, kwargs, node, owner)
    if isinstance(function, ClassMarker):
        return _call_class(visitor, function, args, kwargs, node)
    if isinstance(function, NamedTupleClass):
        return _make_tuple(visitor, function, args, kwargs, node)
    if isinstance(function, AggregateClass):
        return _make_aggregate(visitor, function, args, kwargs, node)
    if isinstance(function, InnerFunction):
        return call_function(visitor, function.function, args, kwargs, node)
    if callable(function):
        return _call_python(visitor, function, args, kwargs, node)
    visitor.fail(node, f"{describe(function)} cannot be called")


def _call_python(
    visitor: Visitor, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], node: ast.AST
) -> Any:
    """A function of Python's, or a method of a constant: on values known while compiling."""
    name = getattr(function, "__name__", "the function")
    is_host = visitor.frame.pure and not is_layout_maker(function)
    if not is_host:
        args, kwargs = (
            [frozen(value) for value in args],
            {key: frozen(value) for key, value in kwargs.items()},
        )
    for value in [*args, *kwargs.values()]:
        if isinstance(value, range) and len(value) > MAX_ITEMS:
            visitor.fail(node, f"a range of {len(value)} has too many numbers to be counted while compiling")
        if isinstance(value, RunTime) and function is HOST.get(name) and name in PYTHON:
            return _call_builtin(visitor, PYTHON[name], args, kwargs, node, None)
        if isinstance(value, Tensor):
            visitor.fail(
                node,
                f"{name} takes values known while compiling, one argument is {describe(value)}",
                f"use tl.{name}" if name in TABLES["tl"] else "",
            )
    try:
        result = function(*args, **kwargs)
    except (ArithmeticError, TypeError, ValueError, LookupError) as error:
        visitor.fail(node, f"{getattr(function, '__name__', 'the call')}: {error}")
    return result if is_host else frozen(result)


def _call_class(
    visitor: Visitor, marker: ClassMarker, args: list[Any], kwargs: dict[str, Any], node: ast.AST
) -> Any:
    args = [frozen(value) for value in args]
    if marker.name == "constexpr" and len(args) == 1 and not kwargs:
        if isinstance(args[0], Tensor):
            visitor.fail(node, f"tl.constexpr takes a value known while compiling, not {describe(args[0])}")
        return args[0]
    if marker.name == "tuple" and len(args) == 1 and isinstance(args[0], tuple):
        return args[0]
    if marker.name == "slice" and 1 <= len(args) <= 3 and not kwargs:
        return slice(*args)
    if marker.name == "constexpr_type" and len(args) == 1 and not kwargs and not flatten(args[0]):
        return ConstexprType(args[0])
    if marker.name == "dtype" and len(args) == 1 and isinstance(found := as_dtype(args[0]), DType):
        return found
    if marker.name in ("pointer_type", "block_type"):
        args = [as_dtype(value) for value in args]
    if marker.name == "pointer_type" and args and isinstance(args[0], DType | BlockType):
        return PointerDtype(args[0])
    if marker.name == "block_type" and len(args) == 2 and isinstance(args[0], DType | PointerDtype):
        return BlockType(args[0], tuple(args[1]))
    visitor.fail(node, f"{marker} cannot be called like this in a kernel")


def _make_tuple(
    visitor: Visitor, cls: NamedTupleClass, args: list[Any], kwargs: dict[str, Any], node: ast.AST
) -> Any:
    args, kwargs = list(frozen(tuple(args))), frozen(kwargs)
    given = dict(zip(cls.fields, args))
    given.update(kwargs)
    if len(args) > len(cls.fields) or set(given) != set(cls.fields):
        visitor.fail(node, f"{cls.name} has the fields {', '.join(cls.fields)}")
    return cls.make(tuple(given[name] for name in cls.fields))


def _make_aggregate(
    visitor: Visitor, cls: AggregateClass, args: list[Any], kwargs: dict[str, Any], node: ast.AST
) -> Aggregate:
    made = Unfinished(cls)
    args, kwargs = list(frozen(tuple(args))), frozen(kwargs)
    call_function(visitor, cls.functions["__init__"], [made, *args], kwargs, node)
    missing = [name for name in cls.fields if name not in made.values]
    if missing:
        visitor.fail(node, f"{cls.name}.__init__ gives no value to {', '.join(missing)} ({cls.loc})")
    return Aggregate.make(cls, tuple(made.values[name] for name in cls.fields))


def _call_builtin(
    visitor: Visitor,
    builtin: Builtin,
    args: list[Any],
    kwargs: dict[str, Any],
    node: ast.AST,
    owner: ast.expr | None,
) -> Any:
    if builtin.gluon and not visitor.ctx.explicit_layouts:
        help = "decorate the kernel with @gluon.jit, or use the function of tl"
        visitor.fail(node, f"{builtin.name} is for kernels of Gluon", help)
    if len(args) > len(builtin.parameters) and builtin.star is None:
        visitor.fail(
            node, f"{builtin.name} takes at most {len(builtin.parameters)} arguments, {len(args)} are given"
        )
    given = builtin.parameters[: len(args)]
    for name in kwargs:
        if name in given:
            visitor.fail(node, f"{builtin.name} is given `{name}` twice")
        if name not in builtin.parameters and name not in builtin.keyword_only:
            _unknown_keyword(visitor, builtin.name, name, [*builtin.parameters, *builtin.keyword_only], node)
    for name in builtin.required[len(args) :]:
        if name not in kwargs:
            visitor.fail(node, f"{builtin.name} is called without its argument `{name}`")
    args = [as_dtype(value) if name in _TYPES else value for name, value in zip_longest(given, args)]
    kwargs = {name: as_dtype(value) if name in _TYPES else value for name, value in kwargs.items()}
    if visitor.frame.pure and PYTHON.get(builtin.name) is not builtin:
        args, kwargs = (
            [frozen(value) for value in args],
            {key: frozen(value) for key, value in kwargs.items()},
        )
    visitor.locate(node)
    saved, visitor.site = visitor.site, CallSite(node, visitor.frame, builtin, owner)
    try:
        return builtin.function(visitor.ctx, *args, **kwargs)
    except (ArithmeticError, TypeError, ValueError) as error:
        if PYTHON.get(builtin.name) is not builtin:
            raise
        visitor.fail(node, f"{builtin.name}: {error}")  # Python's own opinion of the values
    finally:
        visitor.site = saved


def _unknown_keyword(visitor: Visitor, function: str, name: str, known: list[str], node: ast.AST) -> None:
    place = next((k for k in getattr(node, "keywords", ()) if k.arg == name), node)
    close = nearest(name, known, 0.5)
    visitor.fail(
        place,
        f"{function} has no argument `{name}`",
        f"did you mean `{close}`?" if close else f"it has {', '.join(known)}",
    )


# Functions of the author's


def call_function(
    visitor: Visitor,
    function: SourceFunction,
    args: list[Any],
    kwargs: dict[str, Any],
    node: ast.AST,
    owner: ast.expr | None = None,
) -> Any:
    """The body of a function, read in place of the call."""
    if function.kind == "plain" and not visitor.frame.pure:
        visitor.fail(
            node,
            f"`{function.name}` is a Python function, which a kernel cannot call ({function.loc})",
            "decorate it with @triton.jit",
        )
    if len(visitor.frames) > MAX_DEPTH:
        raise CompileError(
            f"`{function.name}` calls itself without end, or more than {MAX_DEPTH} calls deep",
            replace(visitor.frame.loc(node), caller=None),
        )
    if any(isinstance(value, Undefined) for value in args):
        raise Poisoned
    values, expressions = _bind_arguments(visitor, function, args, kwargs, node, owner)
    pure = function.kind == "constexpr" or visitor.frame.pure
    if pure and not any(isinstance(value, Unfinished) for value in args[:1]):
        for name, value in values.items():
            if isinstance(value, Tensor):
                visitor.fail(
                    node,
                    f"`{function.name}` runs while compiling, its argument `{name}` is {describe(value)}",
                )
    if function.noinline and not pure:
        return _call_outlined(visitor, function, values, node)
    frame = Frame(function, values, visitor.frame.loc(node), pure)
    here = visitor.frame
    frame.bound = {
        name: (expression, here) for name, expression in expressions.items() if expression is not None
    }
    result = run_body(visitor, frame)
    visitor.locate(node)
    return result if visitor.frame.pure else _leaving(result)


def _leaving(result: Any) -> Any:
    """What a function that ran while compiling gives to a kernel."""
    return result.function if isinstance(result, InnerFunction) else frozen(result)


def run_body(visitor: Visitor, frame: Frame) -> Any:
    """The value that a function returns."""
    visitor.frames.append(frame)
    saved = visitor.site
    try:
        _fill_defaults(visitor, frame)
        state = visitor.run_nested(frame.function.node.body, True)
    finally:
        visitor.frames.pop()
        visitor.site = saved
    assert not isinstance(state, MaybeReturned), "at the end of a function everything has returned"
    value = state.value if isinstance(state, Returned) else None
    if value is POISON:
        raise Poisoned
    return value


def _fill_defaults(visitor: Visitor, frame: Frame) -> None:
    """Defaults of parameters that were not given, read in the function's own module, where variables may be
    used."""
    for parameter in frame.function.parameters:
        if parameter.name not in frame.values:
            frame.values[parameter.name] = default_value(visitor, frame, parameter)


def default_value(visitor: Visitor, frame: Frame, parameter: SourceParameter) -> Any:
    """The value of a parameter's default."""
    assert parameter.default is not None
    saved, frame.pure = frame.pure, True
    try:
        value = visitor.expression(parameter.default)
        return value if saved else frozen(value)
    finally:
        frame.pure = saved


def _bind_arguments(
    visitor: Visitor,
    function: SourceFunction,
    args: list[Any],
    kwargs: dict[str, Any],
    node: ast.AST,
    owner: ast.expr | None,
) -> tuple[dict[str, Any], Arguments]:
    """Parameters with their values, and with the expressions that gave them where each has one of its own."""
    call = node if isinstance(node, ast.Call) else None
    written: list[ast.expr | None] = list(call.args) if call else []
    written = [owner, *written] if owner is not None else written
    if any(isinstance(item, ast.Starred) for item in written) or len(written) != len(args):
        written = [None] * len(args)
    positional = [parameter.name for parameter in function.parameters if not parameter.keyword_only]
    values: dict[str, Any] = dict(zip(positional, args))
    expressions: Arguments = dict(zip(positional, written))
    if len(args) > len(positional) and function.variadic is None:
        visitor.fail(
            node,
            f"`{function.name}` takes {len(positional)} arguments, {len(args)} are given ({function.loc})",
        )
    if function.variadic is not None:
        values[function.variadic] = tuple(args[len(positional) :])
    known = [parameter.name for parameter in function.parameters]
    for name, value in kwargs.items():
        if name in values:
            visitor.fail(node, f"`{function.name}` is given `{name}` twice")
        if name not in known:
            _unknown_keyword(visitor, f"`{function.name}`", name, known, node)
        values[name] = value
    for keyword in call.keywords if call else ():
        if keyword.arg is not None:
            expressions[keyword.arg] = keyword.value
    for parameter in function.parameters:
        if parameter.name not in values and parameter.default is None:
            visitor.fail(
                node, f"`{function.name}` is called without its argument `{parameter.name}` ({function.loc})"
            )
    return values, expressions


def _call_outlined(visitor: Visitor, function: SourceFunction, values: dict[str, Any], node: ast.AST) -> Any:
    """A call of a function that stays one (`noinline=True`), made for these types and constants."""
    frame = Frame(function, dict(values))
    visitor.frames.append(frame)
    try:
        _fill_defaults(visitor, frame)
    finally:
        visitor.frames.pop()
    given = frame.values
    key = (function.file, function.name, tuple((name, form(value)) for name, value in given.items()))
    known = visitor.outlined.get(key)
    if known is None:
        known = visitor.outlined[key] = _outline(visitor, function, frame)
    name, template = known
    operands = [part.value for value in given.values() for part in flatten(value)]
    visitor.locate(node)
    types = tuple(part.value.type for part in flatten(template))
    call = visitor.ctx.add(Call(tuple(operands), name, types))
    return rebuild(template, list(call.results))


def _outline(visitor: Visitor, function: SourceFunction, frame: Frame) -> tuple[str, Any]:
    """The function as one of the module; its name and the form of its result."""
    name, number = function.name, 1
    while name in visitor.module.functions:
        name, number = f"{function.name}_{number}", number + 1
    parts = [part for value in frame.values.values() for part in flatten(value)]
    block = Block([part.value.type for part in parts])
    left = list(block.arguments)
    frame.values = {key: rebuild(value, left) for key, value in frame.values.items()}
    for key, value in frame.values.items():
        for part in flatten(value):
            part.value.name = key
    made = Func(name, block, {})
    made.loc = function.loc
    visitor.module.add(made)
    with visitor.builder.inside(block):
        result = run_body(visitor, frame)
        visitor.ctx.add(Return(tuple(part.value for part in flatten(result))))
    return name, result
