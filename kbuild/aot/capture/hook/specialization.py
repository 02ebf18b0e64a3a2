"""What Triton compiled for a launch, in one form for all its versions.

Everything is read from the compiled kernel: `.src` has the function, its signature, constants and attributes.

    Triton        signature                       constants    attributes
    3.2           run-time arguments by name      by name      an object with the indices of arguments
    3.3 and on    all parameters by name, tuples  by path      lists of pairs by path
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.aot.capture.hook.plain import plain

Path = tuple[int, ...]
"""The place of an argument: the index of its parameter, then those within tuples."""


def specialization(kernel: Any) -> dict[str, Any]:
    """Types and hints of a compiled kernel's arguments, as `"*fp16:16"`, and its compile-time values, both by the name of
    the parameter.  A tuple is a list, and an argument that is None is `"none"`."""
    source = kernel.src
    function = source.fn
    names = list(function.arg_names)
    found = _Leaves(names, source)
    given: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    declared = {parameter.name for parameter in function.params if parameter.is_constexpr}
    for index, name in enumerate(names):
        if name in declared:
            constants[name] = plain(found.constants.get((index,)))
        else:
            given[name] = found.argument(source.signature.get(name, "constexpr"), (index,))
    return {"args": given, "constexprs": constants}


class _Leaves:
    """The attributes and constants of a source by path."""

    def __init__(self, names: Sequence[str], source: Any) -> None:
        self.constants: dict[Path, Any] = {}
        for key, value in dict(source.constants or {}).items():
            path = (names.index(key),) if isinstance(key, str) else (key,) if isinstance(key, int) else key
            self.constants[tuple(path)] = value
        self.divisible, ones = _attributes(source.attrs)
        for path in ones:
            self.constants.setdefault(path, 1)

    def argument(self, type_: Any, path: Path) -> Any:
        """The text of an argument; a list of them for a tuple."""
        if path not in self.constants and isinstance(type_, tuple | list):
            return [self.argument(each, (*path, index)) for index, each in enumerate(type_)]
        if path in self.constants:
            value = plain(self.constants[path])
            if value is None:
                return "none"
            if type(value) is int and value == 1:
                return f"{'i32' if type_ == 'constexpr' else type_}:1"
            return {"constant": value}
        return f"{type_}:16" if path in self.divisible else str(type_)


def _attributes(attributes: Any) -> tuple[set[Path], set[Path]]:
    """The arguments that 16 divides, and those that are one."""
    by_kind = getattr(attributes, "arg_properties", None)
    if by_kind is not None:  # Triton 3.2
        both = (by_kind.get(f"tt.{kind}", ()) for kind in ("divisibility", "equal_to"))
        divisible, ones = ({(int(index),) for index in indices} for indices in both)
        return divisible, ones
    found: set[Path] = set()
    for path, pairs in attributes.items() if isinstance(attributes, Mapping) else ():
        if any(list(pair) == ["tt.divisibility", 16] for pair in pairs):
            found.add((path,) if isinstance(path, int) else tuple(path))
    return found, set()


def launch_values(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The run-time arguments of a launch by name: numbers, and of a tensor its shape and strides, in elements."""
    bound = dict(zip(function.arg_names, args)) | dict(kwargs)
    found = {}
    for parameter in function.params:
        if not parameter.is_constexpr and parameter.name in bound:
            value = _measured(bound[parameter.name])
            if value is not None:
                found[parameter.name] = value
    return found


def _measured(value: Any) -> Any:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, tuple | list):
        return [_measured(item) for item in value]
    base = getattr(value, "base", value)  # That of a tensor descriptor.
    shape = getattr(value, "shape", None)
    if not hasattr(base, "data_ptr") or shape is None:
        return None
    strides = base.stride() if callable(getattr(base, "stride", None)) else ()
    return {"shape": [int(size) for size in shape], "strides": [int(stride) for stride in strides]}


def options_of(function: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """How a launch asked the kernel to be compiled: those of its keywords that are no parameters."""
    names = {*function.arg_names, "instrumentation_mode", "warmup", "grid", "stream", "device"}
    return {name: plain(value) for name, value in kwargs.items() if name not in names and value is not None}
