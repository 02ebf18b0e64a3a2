"""The arguments of a launch: arrays, numbers, and tensor maps, which can be made once their arrays have
addresses.

parameters  (a, *fp16) (M, i32) (K, i32) (lda, i64) (a_map, tensormap f16 64x64 128 a M,K lda)
values      a: array, M: 100, K: 72, lda: 80
arguments   array, 100, 72, 80, TensorMapArgument(f16, box 64 x 64, swizzle of 128 bytes, array 0, 100 x 72, strides 80, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.tensor_map import SWIZZLES, TensorMap
from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.memory import Heap

TENSOR_MAP = "tensormap "
"""The prefix of the type of a parameter that is a tensor map; then come element (`f16:nan` where NaN
fills), sizes of the box, bytes of the swizzle, the name of the parameter that is the tensor's base, its
sizes, and its strides but the last: names of parameters, or numbers."""

_ELEMENTS = {
    "f16": ("f16", 2),
    "bf16": ("bf16", 2),
    "f32": ("f32", 4),
    "tf32": ("tf32", 4),
    "i16": ("u16", 2),
    "i32": ("u32", 4),
    "s32": ("s32", 4),
    "i64": ("u64", 8),
    "s64": ("s64", 8),
    "f64": ("f64", 8),
}
"""The driver's name and the bytes of an element; others are single bytes."""


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map of a tensor in one of the other arguments."""

    element: str
    """Type of the elements, as the compiler names it; those of 8 bits are copied as bytes."""
    box: tuple[int, ...]
    """Elements along each axis that one copy moves."""
    swizzle: int
    """Bytes of a swizzled row; 0 for none."""
    base: int
    """Number of the argument that is the array."""
    shape: tuple[int, ...]
    """Sizes of the tensor; a size of zero becomes one, as the driver rejects zero."""
    strides: tuple[int, ...]
    """Elements from one index to the next, along all axes but the last, where they are neighbours."""
    array: np.ndarray | None = None
    """The tensor, where no other argument is: `base` is then the number of this one."""
    fill_nan: bool = False
    """Whether NaN is read beyond the tensor, instead of zero."""

    def at(self, address: int) -> TensorMap:
        """The map of an array at an address.  Raises TensorMapError where the driver would refuse it."""
        element, size = _ELEMENTS.get(self.element, ("u8", 1))
        mode = SWIZZLES.index(max(self.swizzle, SWIZZLES[0]))
        return TensorMap(
            address,
            element,
            tuple(max(extent, 1) for extent in self.shape[::-1]),
            tuple(stride * size for stride in self.strides[::-1]),
            self.box[::-1],
            (1,) * len(self.box),
            mode,
            self.fill_nan,
        ).check()


Argument = Any
"""A numpy array (passed as the address of a copy of its bytes), an int, a float, bytes for a parameter that
is an array, or a `TensorMapArgument`."""


def arguments_of(parameters: Sequence[tuple[str, str]], values: Mapping[str, Any]) -> list[Argument]:
    """The arguments for a kernel's parameters (name and type each), from values by name; tensor maps are made
    from them.

    Raises EmulationError for a parameter without a value.
    """
    names = [name for name, _ in parameters]

    def value(name: str) -> Any:
        if name not in values:
            raise EmulationError(f"no value for the parameter {name}", help=f"there are {', '.join(values)}")
        return values[name]

    def argument(name: str, type_: str) -> Argument:
        if not type_.startswith(TENSOR_MAP):
            return value(name)
        words, box, swizzle, base, *parts = type_.removeprefix(TENSOR_MAP).split()
        element, _, fill = words.partition(":")
        shape, strides = (
            tuple(int(word) if word.isdigit() else int(value(word)) for word in part.split(","))
            for part in parts
        )
        return TensorMapArgument(
            element,
            tuple(map(int, box.split("x"))),
            int(swizzle),
            names.index(base),
            shape,
            strides,
            value(base) if base == name else None,
            fill == "nan",
        )

    return [argument(name, type_) for name, type_ in parameters]


def array_of(argument: Argument) -> np.ndarray | None:
    """The array that an argument brings; None for a number, and for a map of another argument's array."""
    if isinstance(argument, TensorMapArgument):
        return argument.array
    return argument if isinstance(argument, np.ndarray) else None


def place(
    heap: Heap, arguments: Sequence[Argument], names: Sequence[str] = ()
) -> tuple[list[Any], list[int | None]]:
    """Copy arrays to the heap; returns the value to pass for each argument, and the address of each array.

    With `names` of the arguments reports count in elements: `x[96]`.
    Raises TensorMapError for tensor maps that the driver would refuse.
    """
    addresses: list[int | None] = []
    for number, array in enumerate(map(array_of, arguments)):
        if array is None:
            addresses.append(None)
            continue
        address = heap.allocate(array.nbytes, f"argument {number}")
        if names:
            heap.is_array(address, names[number], array.itemsize)
        heap.bytes(address, array.nbytes)[:] = np.frombuffer(array.tobytes(), np.uint8)
        addresses.append(address)

    def passed(argument: Argument, address: int | None) -> Any:
        if isinstance(argument, TensorMapArgument):
            return argument.at(addresses[argument.base] or 0).encode()
        return argument if address is None else address

    return [passed(*pair) for pair in zip(arguments, addresses)], addresses
