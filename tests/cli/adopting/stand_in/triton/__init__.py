"""As much of Triton as launching takes, for tests on machines without it: kernels are specialised as by Triton 3.2 or, by
default, 3.6, which STAND_IN_TRITON says, and do nothing.  Without STAND_IN_GPU there is no device, as on a machine without
one."""

from __future__ import annotations

import os

from triton import language
from triton.runtime.autotuner import Config, autotune, heuristics
from triton.runtime.jit import jit

__version__ = os.environ.get("STAND_IN_TRITON", "3.6.0")
__all__ = ["Config", "autotune", "cdiv", "heuristics", "jit", "language", "next_power_of_2"]


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
