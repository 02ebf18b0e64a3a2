"""From a function and a signature to the tensor IR."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from kbuild.compiler.frontend import attributes, branches, calls, constants, loops, statements
from kbuild.compiler.frontend.argument_tuples import TupleType, with_elements
from kbuild.compiler.frontend.scope import Frame, Poisoned
from kbuild.compiler.frontend.signature import (
    ArgumentType,
    argument_types,
    constexpr_value,
)
from kbuild.compiler.frontend.sources.files import find_function
from kbuild.compiler.frontend.sources.functions import SourceFunction
from kbuild.compiler.frontend.sources.live import live_function
from kbuild.compiler.ir.core import Block, Func, Module
from kbuild.compiler.ops.control import Return
from kbuild.compiler.semantic.types import INT64
from kbuild.compiler.semantic.values import NamedTuple
from kbuild.errors import CompileError, UsageError
from kbuild.options import DEFAULTS, CompileOptions

READERS = (attributes, branches, calls, constants, loops, statements)
"""The modules that fill the tables of readers, and of what evaluates constants."""


def load_source(source: Any) -> SourceFunction:
    """The function named by "path.py:function", or of a live object."""
    if not isinstance(source, str | os.PathLike):
        return live_function(source)
    path, _, name = str(source).rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"{str(source)!r} names no function", help='write "path/to/file.py:function"')
    return find_function(path, name)


def build_module(
    source: Any,
    signature: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    options: CompileOptions | None = None,
    capability: int | None = None,
) -> Module:
    """The tensor IR of a kernel.

    `source` is "path.py:function" or a function object; `signature` gives the types of its arguments, of tuples
    as `with_elements` takes them, `constexprs` the values of those known while compiling.  Options become
    attributes of the function; `debug` keeps the assertions, as `debug=True` of the kernel's decorator does.
    `capability`, as 90, is what `tl.target_info` says.
    Raises `CompileError`, or `ErrorGroup` with all errors found.
    """
    options = options or DEFAULTS
    function = source if isinstance(source, SourceFunction) else load_source(source)
    given = with_elements(function, signature, constexprs)
    types = argument_types(function, given)
    _check_layouts(function, types)
    parameters = [parameter for name, item in types.items() for parameter in item.parameters(name)]
    block = Block([dtype.ir for _, dtype, _ in parameters], [name for name, _, _ in parameters])
    hints = tuple({"divisibility": divisor} if divisor else {} for _, _, divisor in parameters)
    attributes = options.attributes()
    if function.explicit_layouts:
        _require_one_cta(function, options)
        attributes["explicit_layouts"] = True
    func = Func(function.name, block, attributes, hints)
    func.loc = function.loc
    debug = options.debug or function.debug
    reader = calls.CallVisitor(Module([func]), block, options.num_warps, debug, function.explicit_layouts)
    reader.ctx.capability = capability
    reader.module.signature = given.spelled(function)
    reader.builder.loc = function.loc
    frame = Frame(function, {}, kernel=True)
    values = list(block.arguments)
    one = reader.ctx.constant(1, INT64) if any(item.block for item in types.values()) else None

    def value(name: str) -> Any:
        """The value of an argument that is no tuple, from the front of the block's arguments."""
        if name in types:
            return types[name].value(values, one, function.explicit_layouts)
        return constexpr_value(given.constants[name], name, function.loc)

    for name in (parameter.name for parameter in function.parameters):
        if name in types or name in given.tuples or name in given.constants:
            frame.values[name] = _given(name, given.tuples.get(name), value)
    _read_kernel(reader, frame)
    reader.builder.loc = function.loc
    reader.ctx.add(Return(()))
    return reader.module


def _given(name: str, whole: TupleType | None, value: Callable[[str], Any]) -> Any:
    """The value of an argument, or of a tuple of them, whose items `value` gives by their names, in order."""
    if whole is None:
        return value(name)
    inner = (item if isinstance(item, TupleType) else None for item in whole.items)
    items = tuple(_given(f"{name}_{index}", item, value) for index, item in enumerate(inner))
    return NamedTuple.make(whole.fields, items) if whole.fields else items


def _check_layouts(function: SourceFunction, types: Mapping[str, ArgumentType]) -> None:
    """Raise UsageError where a signature has layouts for a kernel whose author does not choose them."""
    for name, item in types.items():
        if item.layout is not None and not function.explicit_layouts:
            raise UsageError(
                f"argument {name}: {function.name} is no kernel of Gluon, whose descriptors have layouts",
                function.loc,
                f"leave out {item.layout}, or decorate the kernel with @gluon.jit",
            )


def _require_one_cta(function: SourceFunction, options: CompileOptions) -> None:
    """Raise CompileError where several CTAs are to share tensors whose layouts the author chooses."""
    if options.num_ctas != DEFAULTS.num_ctas:
        raise CompileError(
            f"num_ctas is {options.num_ctas}, and the layouts of {function.name}, a kernel of Gluon, are for one block",
            function.loc,
            f"compile it with num_ctas={DEFAULTS.num_ctas}",
        )


def _read_kernel(reader: calls.CallVisitor, frame: Frame) -> None:
    try:
        calls.run_body(reader, frame)
    except CompileError as error:
        reader.record(error)
    except Poisoned:
        pass  # the error is recorded
    except RecursionError:
        reader.record(CompileError("the kernel nests too deeply to be compiled", frame.function.loc))
    reader.raise_errors()
