"""The semantics of kernels, in numpy: the reference with which passes and the compiler are compared.

    run(module, [x, y, out, 1000], grid=(4,))

Programs run one after the other; a program that waits for another lets it run.  Memory is checked: an access
outside the arrays raises `InterpretError` at its line. Masked-off lanes and unwritten shared memory hold
NaN.  Arrays of bf16 are uint16, of f8 uint8: `encode` and `decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbuild.compiler.interp import elementwise, gpu, nvidia, partitions, tensor  # noqa: F401  register their meanings
from kbuild.compiler.interp.formats import decode, encode, memory_dtype, tf32_cut, value_dtype, wide_f32
from kbuild.compiler.interp.machine import MEANINGS, meaning_of, means, run_grid
from kbuild.compiler.interp.memory import GlobalMemory, Trace
from kbuild.compiler.interp.nvidia import TensorMapValue
from kbuild.compiler.interp.programs import Index
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.types import (
    DescriptorType,
    Type,
    bit_width,
    is_float,
    is_pointer,
    is_tensor,
    pointee_of,
    shape_of,
)
from kbuild.errors import InterpretError
from kbuild.options import CompileOptions
from kbuild.tensor_map import MapSources, number_of

__all__ = [
    "MEANINGS",
    "Trace",
    "decode",
    "encode",
    "interpret",
    "meaning_of",
    "means",
    "memory_dtype",
    "run",
    "signature_of",
    "tf32_cut",
    "wide_f32",
]

_TYPE_NAMES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
}


def run(
    module: Module | Func,
    arguments: Sequence[Any] | Mapping[str, Any],
    grid: Sequence[int] = (1,),
    trace: Trace | None = None,
    programs: Sequence[Index] = (),
) -> None:
    """Run a kernel over a grid of 1 to 3 axes, or those of its `programs` that are given.  `arguments` are numpy
    arrays, which it may write, and numbers; in order or by name.  A `trace` records what was read and written.

    Raises `InterpretError` when an argument does not fit, an access is out of bounds or an assertion fails.
    """
    module = Module([module]) if isinstance(module, Func) else module
    kernel = module.kernel
    maps = [value for value in kernel.arguments if isinstance(value.type, DescriptorType)]
    parameters = kernel.arguments[: len(kernel.arguments) - len(maps)]
    if isinstance(arguments, Mapping):
        missing = [argument.name for argument in parameters if argument.name not in arguments]
        if missing:
            raise InterpretError(f"{kernel.name} lacks the arguments {', '.join(missing)}")
        arguments = [arguments[argument.name] for argument in parameters]
    if len(arguments) != len(parameters):
        raise InterpretError(f"{kernel.name} takes {len(parameters)} arguments, not {len(arguments)}")
    for parameter, given in zip(parameters, arguments):
        _check_argument(parameter, given)
    pointed = [
        (p.name, given) for p, given in zip(parameters, arguments) if is_pointer(p.type) and given is not None
    ]
    arrays, names = (
        [given for _, given in pointed],
        [name or f"argument {place}" for place, (name, _) in enumerate(pointed)],
    )
    memory = GlobalMemory(arrays, trace, names)
    addresses = iter([memory.address_of(index) for index in range(len(arrays))])
    values = [_argument(parameter.type, given, addresses) for parameter, given in zip(parameters, arguments)]
    values += [_tensor_map(argument, kernel.argument_hints[argument.index], values) for argument in maps]
    x, y, z = (*grid, 1, 1, 1)[:3]
    run_grid(module, memory, values, (int(x), int(y), int(z)), programs)
    memory.write_back()
    if trace is not None:
        memory.fill_trace(trace, [name for name, _ in pointed])


def _tensor_map(argument: Value, hints: Mapping[str, Any], values: Sequence[Any]) -> TensorMapValue:
    """The map that a launcher makes from other arguments."""
    assert isinstance(argument.type, DescriptorType)

    def number(word: str) -> int:
        return int(word) if word.isdigit() else int(values[number_of(word)])

    sources = MapSources.parse(hints["tensor_map"])
    size = bit_width(argument.type.block) // 8
    return TensorMapValue(
        number(sources.base),
        tuple(map(number, sources.sizes)),
        (*(number(stride) * size for stride in sources.strides), size),
        float(hints.get("fill", 0)),
    )


def _check_argument(parameter: Value, given: Any) -> None:
    type_ = parameter.type
    if is_pointer(type_) and given is not None:
        if not isinstance(given, np.ndarray):
            raise InterpretError(f"argument {parameter.name} is {type_}, which takes an array, not {given!r}")
        expected = np.dtype(memory_dtype(pointee_of(type_)))
        if given.dtype.itemsize != expected.itemsize:
            raise InterpretError(
                f"argument {parameter.name} is {type_}, which takes an array of {expected}, not {given.dtype}"
            )
    elif isinstance(given, np.ndarray) and not is_tensor(type_):
        raise InterpretError(f"argument {parameter.name} is {type_}, which takes a number, not an array")


def _argument(type_: Type, given: Any, addresses: Iterator[int]) -> Any:
    """The value of a parameter.  A tensor of pointers points at an array's elements, one after the other."""
    if is_pointer(type_):
        base = np.int64(next(addresses) if given is not None else 0)
        if given is None or not is_tensor(type_):
            return base
        return base + np.arange(given.size).reshape(shape_of(type_)) * given.dtype.itemsize
    values = np.broadcast_to(given, shape_of(type_))
    if is_float(type_):
        return decode(encode(values.astype(np.float64), type_), type_)
    return values.astype(value_dtype(type_))


def signature_of(arguments: Mapping[str, Any], types: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The signature (`"*fp32"`, `"i32"`, …) that arguments suggest, in the forms that tuples have there; `types`
    gives the types that numpy lacks."""
    return {name: _type_of_argument(name, given, types or {}) for name, given in arguments.items()}


def _type_of_argument(name: str, given: Any, types: Mapping[str, str]) -> Any:
    if name in types:
        return types[name]
    if isinstance(given, tuple | list):
        items = [_type_of_argument(f"{name}_{index}", item, types) for index, item in enumerate(given)]
        fields = getattr(given, "_fields", ())
        return dict(zip(fields, items)) if fields else tuple(items)
    if isinstance(given, np.ndarray | np.generic):
        return ("*" if isinstance(given, np.ndarray) else "") + _TYPE_NAMES[given.dtype.name]
    if isinstance(given, bool):
        return "i1"
    if isinstance(given, int):
        return "i32" if -(1 << 31) <= given < 1 << 31 else "i64"
    return "fp32" if isinstance(given, float) else given  # What is neither is a constant in a tuple.


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the elements of tuples as arguments of their own."""
    found: dict[str, Any] = {}
    for name, given in arguments.items():
        if isinstance(given, tuple | list):
            found |= _flat({f"{name}_{index}": item for index, item in enumerate(given)})
        else:
            found[name] = given
    return found


def interpret(
    build_module: Callable[..., Module],
    source: Any,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    constexprs: Mapping[str, Any],
    types: Mapping[str, str] | None = None,
    options: CompileOptions | None = None,
) -> None:
    """Run a kernel from its source.  `build_module` is the frontend's; arguments are by name, as for `run`."""
    run(build_module(source, signature_of(arguments, types), constexprs, options), _flat(arguments), grid)
