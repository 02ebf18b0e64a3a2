"""Different functions for different warps."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Block
from kbuild.compiler.ops.gpu import WarpPartition, WarpPartitions, WarpReturn, WarpYield
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.values import RunTime, Tensor, describe, flatten, rebuild
from kbuild.targets.wgmma import MOST_REGISTERS, REGISTER_UNIT

FEWEST_REGISTERS = 24
MAX_WORKER_WARPS = 16


@builtin("gl")
def warp_specialize(ctx: BuildContext, functions_and_args, worker_num_warps, worker_num_regs=None):
    """Runs several functions at once, each by warps of its own: the first, the default, by the program's, the others
    by further warps, as many as `worker_num_warps` says.  `functions_and_args` is a list of pairs of a function and a
    tuple of arguments; only the default's may be tensors.  A thread of the others keeps `worker_num_regs` registers,
    and the default's share what is left.  Returns what the default returns."""
    pairs = _pairs(ctx, functions_and_args)
    warps = _numbers(ctx, worker_num_warps, "worker_num_warps", len(pairs) - 1)
    registers: tuple[int | None, ...] = (None,) * len(warps)
    if worker_num_regs is not None:
        registers = _numbers(ctx, worker_num_regs, "worker_num_regs", len(warps))
    for count in warps:
        if count & (count - 1) or not 1 <= count <= MAX_WORKER_WARPS:
            ctx.error(
                f"worker_num_warps has {count}; it is a power of two, up to {MAX_WORKER_WARPS}",
                "worker_num_warps",
            )
    for count in registers:
        if count is not None and (count % REGISTER_UNIT or not FEWEST_REGISTERS <= count <= MOST_REGISTERS):
            ctx.error(
                f"worker_num_regs has {count}; it is a multiple of {REGISTER_UNIT} from {FEWEST_REGISTERS} to "
                f"{MOST_REGISTERS}",
                "worker_num_regs",
            )
    default = Block()
    with ctx.builder.inside(default):
        result = ctx.frontend.call(pairs[0][0], list(pairs[0][1]))
        yielded = [value.value for value in flatten(result)]
        ctx.add(WarpYield(tuple(yielded)))
    partitions = Block()
    for (function, args), count, kept in zip(pairs[1:], warps, registers):
        _read_partition(ctx, partitions, function, args, count, kept)
    with ctx.builder.inside(partitions):
        ctx.add(WarpReturn())
    op = ctx.add(WarpPartitions((), default, partitions, tuple(value.type for value in yielded)))
    return rebuild(result, list(op.results))


def _read_partition(
    ctx: BuildContext,
    partitions: Block,
    function: Any,
    args: tuple[Any, ...],
    warps: int,
    registers: int | None,
) -> None:
    """Append what a function does, by so many warps."""
    body, outer = Block(), ctx.num_warps
    ctx.num_warps = warps
    try:
        with ctx.builder.inside(body):
            result = ctx.frontend.call(function, list(args))
            ctx.add(WarpReturn())
    finally:
        ctx.num_warps = outer
    if result is not None:
        ctx.error(
            f"a partition returns {describe(result)}, only the default's function returns values",
            "functions_and_args",
            help="pass it in shared memory",
        )
    with ctx.builder.inside(partitions):
        ctx.add(WarpPartition(body, warps, registers))


def _pairs(ctx: BuildContext, value: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """The functions with their arguments."""
    items = value if isinstance(value, tuple) else ()
    for number, item in enumerate(items):
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], tuple):
            ctx.error(
                f"item {number} of functions_and_args is {describe(item)}; it is a function and a tuple of arguments",
                "functions_and_args",
                help="write (function, (argument, …)); a tuple of one has a comma: (x,)",
            )
        tensor = next(
            (part for part in flatten(item[1]) if isinstance(part, RunTime) and _is_tensor(part)), None
        )
        if number and tensor is not None:
            ctx.error(
                f"a partition takes {describe(tensor)}; only the default's function takes tensors",
                "functions_and_args",
                help="pass it in shared memory",
            )
    if not items:
        ctx.error("functions_and_args has no function", "functions_and_args")
    return list(items)


def _is_tensor(value: RunTime) -> bool:
    return isinstance(value, Tensor) and bool(value.shape)


def _numbers(ctx: BuildContext, value: Any, name: str, count: int) -> tuple[int, ...]:
    """A list of numbers known while compiling, one for each partition."""
    items = value if isinstance(value, tuple) else (value,)
    if any(not isinstance(item, int) or isinstance(item, bool) for item in items):
        ctx.error(f"{name} is {describe(value)}; it is a list of numbers known while compiling", name)
    if len(items) != count:
        ctx.error(f"{name} has {len(items)} numbers, there are {count} partitions besides the default", name)
    return items
