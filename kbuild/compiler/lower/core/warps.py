"""Which warps of a launch run some code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Warps:
    """The warps that run some code."""

    count: int
    first: int = 0
    """The number of the first of them in the launch."""
    barrier: int | None = None
    """The number of the hardware's barrier at which they meet; None where all warps of the launch run the code."""
    is_one_thread: bool = False
    """Whether a single thread runs the code."""
