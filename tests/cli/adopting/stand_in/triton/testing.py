"""How long calls take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.runtime.driver import driver


def do_bench(
    fn: Callable[[], Any], warmup: int = 25, rep: int = 100, quantiles: Any = None, return_mode: str = "mean"
) -> Any:
    """By events of the device, of which there are none."""
    driver.active.get_device_interface().Event(enable_timing=True)
