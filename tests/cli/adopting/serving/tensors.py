"""As much of torch as wrappers of kernels take, over arrays of the fake driver."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kbuild.emulator.driver import FakeDriver


class Tensor:
    """A contiguous array on the fake driver's device."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype, self.device = array.shape, array.dtype, "cuda:0"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__

    def data_ptr(self) -> int:
        return self.array.pointer

    def numel(self) -> int:
        return self.array.size

    def stride(self, axis: int | None = None) -> Any:
        strides = [int(np.prod(self.shape[place + 1 :])) for place in range(len(self.shape))]
        return tuple(strides) if axis is None else strides[axis]

    def numpy(self) -> np.ndarray:
        return self.array.copy_to_host()


def torch_over(driver: FakeDriver) -> Any:
    """A module `torch` with `tensor`, `empty` and `empty_like`."""
    module: Any = ModuleType("torch")
    module.float32 = np.dtype("float32")
    module.cuda = SimpleNamespace(
        current_device=lambda: 0, current_stream=lambda device: SimpleNamespace(cuda_stream=0)
    )
    module.tensor = lambda values: Tensor(driver.array(values))
    module.empty = lambda *shape, dtype, device: Tensor(driver.empty(shape, dtype))
    module.empty_like = lambda x: Tensor(driver.empty(x.shape, x.dtype))
    return module
