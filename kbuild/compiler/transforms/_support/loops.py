"""What is known of loops before they run."""

from __future__ import annotations

from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant


def trip_count(loop: For) -> int | None:
    """How often a loop runs; None when that is not known."""
    bounds = [value.owner for value in (loop.lower, loop.upper, loop.step)]
    numbers = [int(op.value) for op in bounds if isinstance(op, Constant)]
    if len(numbers) < 3 or numbers[2] < 1:
        return None
    lower, upper, step = numbers
    return max(0, -(-(upper - lower) // step))
