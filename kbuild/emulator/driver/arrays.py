"""Arrays on the fake driver's devices, as packages take them: with `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.driver.core import Driver
from kbuild.errors import UsageError


class Array:
    """A contiguous array on a device; its memory is freed with the object."""

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

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Those of ml_dtypes have letters of their own, which no other library knows: they are bytes here.
        kind = self.dtype.str if self.dtype.isbuiltin == 1 else f"<V{self.dtype.itemsize}"
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": kind,
            "data": (self.pointer, False),
            "strides": None,
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
        if getattr(self, "pointer", 0):
            self.free()

    def __repr__(self) -> str:
        return f"<array of {self.shape} {self.dtype} at {self.pointer:#x} on device {self.device}>"
