"""From a function and a signature to the tensor IR."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.frontend import attributes, branches, calls, loops, statements  # they fill the tables of readers
from kbuild.compiler.frontend.functions import Function
from kbuild.compiler.frontend.live import live_function
from kbuild.compiler.frontend.scope import Frame, Poisoned
from kbuild.compiler.frontend.source import find_function
from kbuild.compiler.ir.core import Block, Func, Module
from kbuild.compiler.ops.control import Return
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME, DType, PointerType
from kbuild.compiler.semantic.values import Tensor
from kbuild.errors import CompileError

READERS = (attributes, branches, calls, loops, statements)


@dataclass(frozen=True)
class ArgumentType:
    """An argument's type in a signature: `*fp16:16`, `i32:1`, `fp32`."""

    dtype: DType | PointerType
    divisibility: int | None
    """What divides it: bytes of a pointer's address, an integer's value."""
    one: bool = False
    """Equal to one, so that it is no argument at all."""


def parse_type(text: str, argument: str) -> ArgumentType:
    """A type of a signature; raises `CompileError` naming the argument."""
    name, _, promise = text.strip().partition(":")
    pointer, const = name.startswith("*"), name.startswith("*k")
    element = name[2:] if const else name[1:] if pointer else name
    dtype = BY_SIGNATURE_NAME.get(element)
    if dtype is None or (promise and not promise.isdigit()):
        close = difflib.get_close_matches(element, BY_SIGNATURE_NAME, 1, 0.4)
        raise CompileError(
            f"argument {argument}: {text!r} is no type",
            hint=f"did you mean {text.replace(element, close[0]) if element else close[0]!r}?" if close else
            'types are like "*fp16:16", "i32", "i32:1", "fp32"',
        )  # fmt: skip
    value = int(promise) if promise else None
    one = value == 1 and not pointer
    if one and not dtype.is_int():
        raise CompileError(f"argument {argument}: {text!r} says that it is 1, only integers can")
    return ArgumentType(PointerType(dtype, const) if pointer else dtype, value if value and value > 1 else None, one)


def load_source(source: Any) -> Function:
    """The function meant by "path.py:function", or by a live object."""
    if not isinstance(source, str | os.PathLike):
        return live_function(source)
    path, _, name = str(source).rpartition(":")
    if not path or not name.isidentifier():
        raise CompileError(f"{str(source)!r} names no function", hint='write "path/to/file.py:function"')
    return find_function(path, name)


def build_module(
    source: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    num_warps: int = 4,
    num_stages: int = 3,
    debug: bool = False,
) -> Module:
    """The tensor IR of a kernel.

    `source` is "path.py:function" or a function object; `signature` gives the types of its arguments, `constexprs` the
    values of those known while compiling.  `num_warps` and `num_stages` become attributes of the function.  Raises
    `CompileError`, or `ErrorGroup` with all mistakes found.
    """
    function = load_source(source)
    if not isinstance(num_warps, int) or num_warps < 1 or num_warps & (num_warps - 1) or num_warps > 32:
        raise CompileError(f"num_warps is {num_warps}; it must be a power of two up to 32", function.loc)
    types = _argument_types(function, signature, constexprs)
    block = Block([item.dtype.ir for item in types.values()], list(types))
    hints = tuple({"divisibility": item.divisibility} if item.divisibility else {} for item in types.values())
    func = Func(function.name, block, {"num_warps": num_warps, "num_stages": num_stages}, hints)
    func.loc = function.loc
    module = Module([func])
    reader = calls.Reader(module, block, num_warps, debug)
    frame = Frame(function, {}, kernel=True)
    for (name, item), argument in zip(types.items(), block.arguments):
        frame.values[name] = Tensor(argument, item.dtype)
    for parameter in function.parameters:
        if parameter.name in constexprs:
            frame.values[parameter.name] = constexpr_value(constexprs[parameter.name])
        elif parameter.name in signature and parameter.name not in types:
            frame.values[parameter.name] = 1
    _read_kernel(reader, frame)
    reader.builder.loc = function.loc
    reader.ctx.add(Return(()))
    return module


def _read_kernel(reader: calls.Reader, frame: Frame) -> None:
    reader.builder.loc = frame.function.loc
    try:
        calls.run_body(reader, frame)
    except CompileError as error:
        reader.record(error)
    except Poisoned:
        pass
    except RecursionError:
        reader.record(CompileError("the kernel nests too deeply to be compiled", frame.function.loc))
    reader.raise_errors()


def constexpr_value(value: Any) -> Any:
    """A constant given from outside, as kernels see it: lists become tuples, functions are found."""
    if isinstance(value, list | tuple):
        return tuple(constexpr_value(item) for item in value)
    if hasattr(value, "fn"):
        return live_function(value)
    return value


def _argument_types(
    function: Function, signature: Mapping[str, str], constexprs: Mapping[str, Any]
) -> dict[str, ArgumentType]:
    """The types of the parameters that exist at run time, in order; all that is wrong with the arguments."""
    names = [parameter.name for parameter in function.parameters]
    for name in [*signature, *constexprs]:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1, 0.5)
            raise CompileError(
                f"kernel {function.name} has no argument {name}", function.loc,
                f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}",
            )  # fmt: skip
        if name in signature and name in constexprs:
            raise CompileError(f"argument {name} of kernel {function.name} has a type and a constant value", function.loc)
    types: dict[str, ArgumentType] = {}
    for parameter in function.parameters:
        if parameter.name in signature:
            parsed = parse_type(signature[parameter.name], parameter.name)
            if not parsed.one:
                types[parameter.name] = parsed
        elif parameter.name not in constexprs and parameter.default is None:
            missing = [
                p.name for p in function.parameters
                if p.name not in signature and p.name not in constexprs and p.default is None
            ]  # fmt: skip
            raise CompileError(
                f"kernel {function.name} is missing {', '.join(missing)}", function.loc,
                "give a value for a tl.constexpr, a type for another argument",
            )  # fmt: skip
    return types
