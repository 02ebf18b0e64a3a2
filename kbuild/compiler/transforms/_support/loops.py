"""What is known of loops before they run."""

from __future__ import annotations

from kbuild.compiler.ir.types import MemDescType, TensorType, bit_width
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.targets.target import Target


def trip_count(loop: For) -> int | None:
    """How often a loop runs; None when that is not known."""
    bounds = [value.owner for value in (loop.lower, loop.upper, loop.step)]
    numbers = [int(op.value) for op in bounds if isinstance(op, Constant)]
    if len(numbers) < 3 or numbers[2] < 1:
        return None
    lower, upper, step = numbers
    return max(0, -(-(upper - lower) // step))


def is_short(loop: For, target: Target) -> bool:
    """Whether the dots by warpgroups of an iteration take less time than what else it waits for."""
    cycles = sum(_cycles(op, target) for op in loop.body if isinstance(op, WarpGroupDot))
    return cycles <= target.thresholds.short_iteration_cycles


def _cycles(dot: WarpGroupDot, target: Target) -> float:
    """Cycles that the tensor cores of a multiprocessor take for a dot."""
    a, c = dot.a.type, dot.c.type
    assert isinstance(a, MemDescType | TensorType) and isinstance(c, TensorType)
    depth = a.tile_shape[1] if isinstance(a, MemDescType) else a.shape[1]
    return c.numel * depth * bit_width(a) / target.thresholds.mma_bits_per_cycle
