"""The types and hints that Triton would compile a call for, made from its arguments alone.

The result has the form of a compiled kernel as far as `capture` reads one, so that a call that nothing was compiled for is
recorded as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kbuild.aot.capture.serving.values import address, element_type, is_array

Path = tuple[int, ...]


def specialized(function: Any, values: Mapping[str, Any]) -> Any:
    """A kernel in the form of Triton's compiled one: `src` has the function, its signature, constants and attributes.

    `function` has `params` as Triton's JIT functions have them; `values` are those of all its parameters.
    """
    signature: dict[str, Any] = {}
    constants: dict[Path, Any] = {}
    attrs: dict[Path, Any] = {}
    for index, parameter in enumerate(function.params):
        value = values.get(parameter.name)
        if parameter.is_constexpr:
            signature[parameter.name], constants[index,] = "constexpr", value
        else:
            is_free = bool(getattr(parameter, "do_not_specialize", False))
            signature[parameter.name] = _argument(value, (index,), constants, attrs, is_free)
    return SimpleNamespace(
        src=SimpleNamespace(fn=function, signature=signature, constants=constants, attrs=attrs)
    )


def _argument(
    value: Any, path: Path, constants: dict[Path, Any], attrs: dict[Path, Any], is_free: bool
) -> Any:
    if isinstance(value, tuple | list):
        return tuple(
            _argument(item, (*path, index), constants, attrs, is_free) for index, item in enumerate(value)
        )
    found = "" if is_free else hint(value)
    if value is None or found == "1":
        constants[path] = value
        return "constexpr"
    if found == "16":
        attrs[path] = [["tt.divisibility", 16]]
    return _type(value)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if -(1 << 31) <= value < 1 << 31 else "i64" if value < 1 << 63 else "u64"
    if isinstance(value, float):
        return "fp32"
    block: Sequence[int] | None = getattr(value, "block_shape", None)
    if block is not None:
        return f"tensordesc<{element_type(value.base)}[{','.join(map(str, block))}]>"
    return f"*{element_type(value)}"


def hint(value: Any) -> str:
    """The hint of an argument: `16` where that divides it, `1` where it is one, else nothing."""
    if isinstance(value, bool | float) or value is None:
        return ""
    if isinstance(value, int):
        return "1" if value == 1 else "16" if value % 16 == 0 else ""
    return "16" if is_array(value) and address(value) % 16 == 0 else ""
