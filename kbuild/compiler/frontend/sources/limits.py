"""`finfo`, `iinfo` and number types of torch and numpy, which constants of modules are often made of.

    NEGATIVE = tl.constexpr(torch.finfo(torch.float32).min)
    LARGEST = tl.constexpr(np.iinfo(np.int32).max)

Neither library is imported, or has to be installed; all else of theirs has no value while compiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, F64


@dataclass(frozen=True)
class NumberType:
    """A type of torch or numpy, such as `torch.float32`."""

    name: str


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` says of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` says of an integer type."""

    bits: int
    max: int
    min: int


class HostModule:
    """A library of the host, as far as constants may need it."""

    def __init__(self, name: str, members: dict[str, Any]) -> None:
        self._name, self._members = name, members

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._members:
            raise AttributeError(name)
        return self._members[name]

    def __repr__(self) -> str:
        return f"module {self._name}"


_FLOATS = {
    "float16": F16,
    "bfloat16": BF16,
    "float32": F32,
    "float64": F64,
    "float8_e4m3fn": F8E4M3FN,
    "float8_e5m2": F8E5M2,
}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def finfo(type_: object) -> FloatLimits:
    """The limits of a floating-point type; TypeError for anything else."""
    format = _FLOATS.get(type_.name) if isinstance(type_, NumberType) else None
    if format is None:
        raise TypeError(f"finfo takes a floating-point type, not {getattr(type_, 'name', type_)!r}")
    smallest, largest = 2.0 ** (1 - format.bias), format.largest
    return FloatLimits(format.bits, 2.0**-format.mantissa_bits, largest, -largest, smallest, smallest)


def iinfo(type_: object) -> IntegerLimits:
    """The limits of an integer type; TypeError for anything else."""
    if not isinstance(type_, NumberType) or type_.name not in _INTEGERS:
        raise TypeError(f"iinfo takes an integer type, not {getattr(type_, 'name', type_)!r}")
    bits = int(type_.name.partition("int")[2])
    if type_.name.startswith("u"):
        return IntegerLimits(bits, (1 << bits) - 1, 0)
    return IntegerLimits(bits, (1 << bits - 1) - 1, -1 << bits - 1)


def _module(name: str, floats: list[str], others: dict[str, str], **more: HostModule) -> HostModule:
    """A library with these types, names of its own for some of them, and modules."""
    types = {type_: NumberType(type_) for type_ in [*floats, *_INTEGERS]}
    types |= {other: types[type_] for other, type_ in others.items()}
    numbers = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
    return HostModule(name, {**types, **numbers, **more, "finfo": finfo, "iinfo": iinfo})


LIMITS = (HostModule, NumberType, FloatLimits, IntegerLimits)
"""The classes of what foreign modules hold."""
_TORCH = _module(
    "torch",
    [*_FLOATS],
    {
        "half": "float16",
        "float": "float32",
        "double": "float64",
        "short": "int16",
        "int": "int32",
        "long": "int64",
    },
    version=HostModule("torch.version", {"hip": None}),  # Kernels are compiled for CUDA.
)
_NUMPY = _module(
    "numpy", ["float16", "float32", "float64"], {"half": "float16", "single": "float32", "double": "float64"}
)
MODULES = {"torch": _TORCH, "numpy": _NUMPY}
"""The libraries, by the names under which they are imported."""
