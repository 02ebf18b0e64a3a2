"""Calls of the example's library, and whether the package's launcher answers them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cli.adopting.serving.tensors import Tensor


class Calls:
    """Calls of the library's kernels, with the package's modules behind them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.package = world.package
        self.error = self.package.dispatch.NoVariantError
        self.asked = 0
        """How often the package had to look for the row of a call."""
        function: Any = world.module("adopt._serving.functions").Function
        self._find = find = function.find

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return find(*args, **kwargs)

        function.find = counted
        self.x = self.tensor(np.float32)

    def tensor(self, dtype: Any, device: int = 0, offset: int = 0) -> Tensor:
        """One of 4096 elements, which begins at another than the first of its memory."""
        array = self.world.driver.array(np.ones(4096 + offset, dtype), device)
        return Tensor(_Later(array, offset) if offset else array)

    def kernel(self, name: str) -> Any:
        for module in ("elementwise", "rows", "matrices"):
            found = vars(self.world.module(f"tiny_ops.{module}"))
            if name in found:
                return found[name]
        raise KeyError(name)

    def add(self, n: Any = 4096, x: Any = None, grid: Any = (4,), **more: Any) -> Any:
        x = self.x if x is None else x
        return self.kernel("add_kernel")[grid](x, x, x, n, **{"BLOCK": 1024, **more})

    def row(self, name: str, args: Any, kwargs: Any) -> Any:
        """What a call gives whose row is looked for, without a launch."""
        function = getattr(self.package.triton, name)
        values, options = function.bind(args, kwargs)
        return function.compiled(self._find(function, values, options).row)

    def is_remembered(self, call: Callable[[], Any] | None = None) -> bool:
        """Whether the launcher alone answers a call."""
        before = self.asked
        (call or self.add)()
        return self.asked == before


class _Later:
    """An array of the driver's without its first elements."""

    def __init__(self, array: Any, offset: int) -> None:
        self.own = array
        self.shape, self.dtype, self.size = (array.size - offset,), array.dtype, array.size - offset
        self.pointer = array.pointer + offset * array.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self.own.__cuda_array_interface__
        return {**found, "data": (self.pointer, False), "shape": self.shape}
