"""Arrays on the fake driver's devices, as packages take them: with `__cuda_array_interface__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbuild.emulator.driver.core import Driver
from kbuild.errors import UsageError


class ArrayNamespace:
    """What `__array_namespace__` of the array API standard gives of such an array: `empty`, and numpy's types by
    name."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def empty(self, shape: int | Sequence[int], *, dtype: Any = "float32", device: int = 0) -> Array:
        """An array of bytes 0xFF: NaN, or -1."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return Array(self._driver, device, sizes, np.dtype(dtype), "")

    def __getattr__(self, name: str) -> np.dtype[Any]:
        try:
            return np.dtype(name)
        except TypeError:
            raise AttributeError(f"numpy has no type {name}") from None


class Array:
    """An array on a device, contiguous unless it is a view; its memory is freed with the object."""

    def __init__(
        self, driver: Driver, device: int, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
    ) -> None:
        element = dtype.itemsize if name else 0
        name = name or f"array of {shape}"
        self._driver = driver
        self.device = device
        """Ordinal of its device."""
        self.shape = shape
        self.dtype = dtype
        self.size = int(np.prod(shape))
        self.nbytes = self.size * dtype.itemsize
        self.pointer = driver.allocate(device, self.nbytes, name, element) if self.nbytes else 0
        """Its address on the device; 0 for an array without elements."""
        self._strides: tuple[int, ...] | None = None
        self._owner: Array | None = None

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Array:
        """Other sizes and strides, in elements, of the same memory, from the element `offset` on."""
        made = Array.__new__(Array)
        made._driver, made.device, made.dtype, made._owner = self._driver, self.device, self.dtype, self
        made.shape = tuple(shape)
        made.size = int(np.prod(made.shape))
        made.nbytes = made.size * made.dtype.itemsize
        made.pointer = self.pointer + offset * self.dtype.itemsize
        made._strides = tuple(stride * self.dtype.itemsize for stride in strides)
        return made

    def __array_namespace__(self, *, api_version: str | None = None) -> ArrayNamespace:
        return ArrayNamespace(self._driver)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Those of ml_dtypes have letters of their own, which no other library knows: they are bytes here.
        kind = self.dtype.str if self.dtype.isbuiltin == 1 else f"<V{self.dtype.itemsize}"
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": kind,
            "data": (self.pointer, False),
            "strides": self._strides,
        }

    def copy_to_host(self) -> np.ndarray:
        """Its contents, when all work on the device is done."""
        if not self.nbytes:
            return np.zeros(self.shape, self.dtype)
        return (
            self._driver.copy_out(self.device, self.pointer, self.nbytes).view(self.dtype).reshape(self.shape)
        )

    def copy_from_host(self, values: Any) -> None:
        """Overwrite it.  Raises UsageError for another shape or type."""
        host = np.ascontiguousarray(values)
        if host.size != self.size or host.dtype != self.dtype:
            raise UsageError(
                f"an array of {host.shape} {host.dtype} does not fit one of {self.shape} {self.dtype}"
            )
        if self.nbytes:
            self._driver.copy_in(self.device, self.pointer, host.reshape(-1).view(np.uint8))

    def free(self) -> None:
        """Free the memory; a kernel that touches it later is reported."""
        if self.pointer:
            self._driver.release(self.pointer)
        self.pointer, self.nbytes, self.size, self.shape = 0, 0, 0, (0,)

    def __del__(self) -> None:
        if getattr(self, "pointer", 0) and self._owner is None:
            self.free()

    def __repr__(self) -> str:
        return f"<array of {self.shape} {self.dtype} at {self.pointer:#x} on device {self.device}>"
