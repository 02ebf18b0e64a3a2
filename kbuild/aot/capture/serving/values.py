"""Compile-time values and arguments of calls, in the words of a package."""

from __future__ import annotations

from typing import Any

from kbuild.aot.capture.hook.plain import plain

WORDS = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "int1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float8_e4m3fn": "fp8e4nv",
    "float8e4nv": "fp8e4nv",
    "float8e4b15": "fp8e4b15",
    "float8_e5m2": "fp8e5",
    "float8e5": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


def word(value: Any) -> Any:
    """A compile-time value as tables have it: types by their names, tuples and functions as what `plain` makes of them."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    found = plain(value)
    if not isinstance(found, dict):
        return found
    if "dtype" in found:
        return WORDS.get(found["dtype"], found["dtype"])
    return repr(found)


def is_same(known: Any, value: Any) -> bool:
    """Whether two compile-time values are the same to a kernel: True is another than 1."""
    return type(known) is type(value) and known == value


def described(value: Any) -> str:
    """A value for messages."""
    return f"{value!r:.60}"


def element_type(array: Any) -> str:
    """The word of an array's element type; empty where it says none."""
    name = str(getattr(array, "dtype", array if is_type(array) else "")).rpartition(".")[2].rstrip("'>")
    return WORDS.get(name, name)


def address(array: Any) -> int:
    """Where an array begins; 0 where it does not say."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    interface = getattr(array, "__cuda_array_interface__", None)
    return int(interface["data"][0]) if interface else 0


def is_array(value: Any) -> bool:
    """Whether an argument is a pointer to a kernel."""
    return (
        hasattr(value, "data_ptr")
        or hasattr(value, "__cuda_array_interface__")
        or hasattr(value, "__dlpack__")
    )


def is_type(value: Any) -> bool:
    """Whether an argument of `warmup` is a type in the place of an array, as torch's, or what Triton makes of it."""
    return type(value).__name__ in ("dtype", "MockTensor")


class NoArray(int):
    """The address of an array that is not there, 0."""


def is_of(kind: str, value: Any) -> bool:
    """Whether Triton would take an argument for one of this kind.  A launch would take more, such as a number where the kernel
    reads memory, or a tensor of one number."""
    if kind == "float":
        return isinstance(value, float)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "integer":
        return not isinstance(value, bool | float) and not is_array(value)
    return not isinstance(value, bool | int | float) or isinstance(value, NoArray)
