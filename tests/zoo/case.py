"""A case of the zoo: a kernel, its arguments, and the results that numpy expects.

The same cases run through the interpreter, through every pass, through ptxas for every architecture, and on a
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kbuild.options import CompileOptions

KERNELS = Path(__file__).parent / "kernels"
SHIPPED = Path(__file__).parent.parent.parent / "kernels"

_TYPE_NAMES = {
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
}


@dataclass(frozen=True)
class Bits:
    """An array of a type that numpy lacks, as its bits: `bf16` in uint16, the fp8 types in uint8."""

    data: np.ndarray
    type_name: str


def bf16(values: np.ndarray) -> Bits:
    """Rounded to the nearest bfloat16, ties to even."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return Bits(((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16), "bf16")


def numbers(array: np.ndarray | Bits) -> np.ndarray:
    """The float64 values of an array."""
    if not isinstance(array, Bits):
        return array.astype(np.float64)
    if array.type_name == "bf16":
        return (array.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    bias, mantissa = {"fp8e4nv": (7, 3), "fp8e4b15": (15, 3), "fp8e5": (15, 2)}[array.type_name]
    raw = array.data.astype(np.int64)
    exponent, fraction = (raw & 0x7F) >> mantissa, raw & ((1 << mantissa) - 1)
    scaled = np.where(
        exponent == 0,
        fraction * 2.0 ** (1 - bias - mantissa),
        (fraction + (1 << mantissa)) * 2.0 ** (exponent - bias - mantissa),
    )
    return np.where(raw & 0x80, -scaled, scaled)


Argument = np.ndarray | Bits | int | float


@dataclass(frozen=True)
class Case:
    """One kernel with one set of arguments."""

    name: str
    file: str
    function: str
    make: Callable[[np.random.Generator], dict[str, Argument]]
    """Fresh arguments by name, outputs poisoned."""
    expect: Callable[..., Mapping[str, ArrayLike]]
    """The right contents (float64 or integers) of each output, from the arguments before the launch."""
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] = (1,)
    num_warps: int = 4
    num_stages: int = 3
    cluster_size: int = 1
    """Where the architecture has clusters."""
    tolerance: float = 0.0
    """Largest error allowed, relative to the largest right value of the output; 0 means exact."""
    aligned: bool = True
    """Whether hints state that pointers are divisible by 16, and integers where they are, and that ones are
    ones."""
    archs: tuple[str, ...] = ("sm_80", "sm_90")

    @property
    def source(self) -> str:
        folder = SHIPPED if (SHIPPED / self.file).exists() else KERNELS
        return f"{folder / self.file}:{self.function}"

    def options(self, arch: str) -> CompileOptions:
        """Warps, stages and clusters for an architecture."""
        clusters = self.cluster_size if arch == "sm_90" else 1
        return CompileOptions(num_warps=self.num_warps, num_stages=self.num_stages, cluster_size=clusters)

    def signature(self, arguments: Mapping[str, Argument]) -> dict[str, str]:
        """The types of run-time arguments, with the hints that hold."""
        return {name: self._type(value) for name, value in arguments.items()}

    def _type(self, value: Argument) -> str:
        if isinstance(value, np.ndarray | Bits):
            name = value.type_name if isinstance(value, Bits) else _TYPE_NAMES[str(value.dtype)]
            return f"*{name}:16" if self.aligned else f"*{name}"
        if isinstance(value, float):
            return "fp32"
        if self.aligned and value == 1:
            return "i32:1"
        return "i32:16" if self.aligned and value % 16 == 0 else "i32"

    def check(self, before: Mapping[str, Argument], after: Mapping[str, np.ndarray | Bits]) -> None:
        """Compare the outputs with the expected ones.  Raises AssertionError with the worst place."""
        for name, right in self.expect(**before).items():
            found, right = numbers(after[name]).ravel(), np.asarray(right, np.float64).ravel()
            same = (found == right) | (np.isnan(found) & np.isnan(right))
            with np.errstate(invalid="ignore"):
                error = np.where(same, 0.0, np.abs(found - right))
            allowed = self.tolerance * max(np.max(np.abs(right[np.isfinite(right)]), initial=0.0), 1e-30)
            worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
            assert error[worst] <= allowed, (
                f"{self.name}: {name}[{worst}] is {found[worst]}, expected {right[worst]}; "
                f"{np.count_nonzero(~(error <= allowed))} of {error.size} wrong, error {error[worst]:.3g}, allowed {allowed:.3g}"
            )
