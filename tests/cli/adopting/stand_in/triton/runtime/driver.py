"""The device."""

from __future__ import annotations

import os
from typing import Any

from triton.backends.compiler import GPUTarget


class _Device:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> Any:
        return lambda call, quantiles: [float(call() or 0)] * len(quantiles)


class _Driver:
    def __init__(self) -> None:
        self._active: Any = _Device() if os.environ.get("STAND_IN_GPU") else None

    @property
    def active(self) -> Any:
        if self._active is None:
            raise RuntimeError("0 active drivers ([]). There should only be one.")
        return self._active

    def set_active(self, device: Any) -> None:
        self._active = device


driver = _Driver()
