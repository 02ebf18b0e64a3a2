"""The grid, loops over ranges, hints, and questions that are answered while compiling."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops.tensor import AxisAttributes, GetNumPrograms, GetProgramId
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import INT32, int_dtype
from kbuild.compiler.semantic.values import Range, Tensor, WhileCondition, describe


def _axis(ctx: BuildContext, axis: Any) -> int:
    if axis not in (0, 1, 2) or isinstance(axis, bool):
        ctx.error(f"axis is {describe(axis)}; a grid has axes 0, 1 and 2", "axis")
    return axis


@builtin()
def program_id(ctx: BuildContext, axis):
    """The number of this program along an axis of the grid."""
    return ctx.tensor(GetProgramId(_axis(ctx, axis)), INT32)


@builtin()
def num_programs(ctx: BuildContext, axis):
    """The size of the grid along an axis."""
    return ctx.tensor(GetNumPrograms(_axis(ctx, axis)), INT32)


_LOOP_HINTS = (
    "num_stages",
    "loop_unroll_factor",
    "disallow_acc_multi_buffer",
    "flatten",
    "warp_specialize",
    "disable_licm",
)


@builtin(name="range")
def range_(
    ctx: BuildContext,
    arg1,
    arg2=None,
    step=None,
    num_stages=None,
    loop_unroll_factor=None,
    disallow_acc_multi_buffer=False,
    flatten=False,
    warp_specialize=False,
    disable_licm=False,
):
    """A loop over integers, as Python's `range`, with options for the compiler: `num_stages` of software
    pipelining, `loop_unroll_factor`, `flatten` nested loops, `warp_specialize`."""
    start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
    given = (
        num_stages,
        loop_unroll_factor,
        bool(disallow_acc_multi_buffer),
        bool(flatten),
        bool(warp_specialize),
        bool(disable_licm),
    )
    for name, value in zip(_LOOP_HINTS[:2], given):
        if value is not None and (not isinstance(value, int) or value < 0):
            ctx.error(f"{name} is {describe(value)}; it must be a number known while compiling", name)
    hints = tuple((name, value) for name, value in zip(_LOOP_HINTS, given) if value not in (None, False))
    return Range(start, stop, 1 if step is None else step, hints=hints)


@builtin()
def static_range(ctx: BuildContext, arg1, arg2=None, step=None):
    """A loop unrolled while compiling, its variable known in every round."""
    start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
    step = 1 if step is None else step
    for value, name in ((start, "start"), (stop, "end"), (step, "step")):
        if not isinstance(value, int):
            at = "arg1" if (name == "start") or arg2 is None else "arg2" if name == "end" else "step"
            ctx.error(
                f"{name} of tl.static_range is {describe(value)}; it must be an integer known while compiling",
                at,
                help="use tl.range for a loop at run time",
            )
    if step == 0:
        ctx.error("step of tl.static_range is 0", "step")
    return Range(start, stop, step, static=True)


@builtin()
def condition(ctx: BuildContext, arg1, disable_licm=False):
    """The condition of a `while`, with options for the compiler."""
    return WhileCondition(arg1)


def _add_attribute(ctx: BuildContext, x: Any, values: Any, field: str) -> Tensor:
    if not isinstance(x, Tensor):
        return x
    items = values if isinstance(values, tuple) else (values,)
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool) or item <= 0:
            ctx.error(
                f"values has {describe(item)}; its items are positive integers known while compiling",
                "values",
            )
    if len(items) != max(len(x.shape), 1):
        ctx.error(
            f"values has {len(items)} items, {ctx.name('input')} has {len(x.shape)} dimensions", "values"
        )
    return ctx.tensor(AxisAttributes(x.value, **{field: items}), x.dtype, x.shape)


@builtin()
def multiple_of(ctx: BuildContext, input, values):
    """`input`, assumed to be a multiple of `values` (per dimension, the first of every contiguous run); as a
    statement, the name from there on."""
    return _add_attribute(ctx, to_tensor(ctx, input, "input"), values, "divisibility")


@builtin()
def max_contiguous(ctx: BuildContext, input, values):
    """`input`, assumed to rise by one within runs of `values` elements per dimension; as a statement, the name."""
    return _add_attribute(ctx, input, values, "contiguity")


@builtin()
def max_constancy(ctx: BuildContext, input, values):
    """`input`, assumed to be constant within runs of `values` elements per dimension; as a statement, the name."""
    return _add_attribute(ctx, input, values, "constancy")


@builtin()
def assume(ctx: BuildContext, cond):
    """A condition that is assumed to hold.  Only its type is checked."""
    if not isinstance(cond, Tensor | bool | int):
        ctx.error(f"cond is {describe(cond)}, which is not a condition", "cond")
    if cond is False:
        ctx.error("the assumption is false while compiling", "cond")


@builtin("cuda")
def num_threads(ctx: BuildContext):
    """Threads of a program."""
    return ctx.num_warps * 32


@builtin("cuda")
def num_warps(ctx: BuildContext):
    """Warps of a program."""
    return ctx.num_warps


@builtin("triton")
def cdiv(ctx: BuildContext, x, y):
    """x / y rounded up, of numbers known while compiling."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        ctx.error("triton.cdiv is for numbers known while compiling", help="write tl.cdiv")
    return -(-x // y)


@builtin("triton")
def next_power_of_2(ctx: BuildContext, n):
    """The least power of two that is not less than n, known while compiling."""
    if not isinstance(n, int):
        ctx.error(f"n is {describe(n)}; triton.next_power_of_2 takes a number known while compiling", "n")
    return 1 << max(n - 1, 0).bit_length()


@builtin()
def get_int_dtype(ctx: BuildContext, bitwidth, signed):
    """The integer type of a width."""
    return int_dtype(bitwidth, signed)


@builtin("target_info")
def is_cuda(ctx: BuildContext):
    """True: kernels are compiled for NVIDIA's GPUs."""
    return True


@builtin("target_info")
def is_hip(ctx: BuildContext):
    """False."""
    return False


@builtin("target_info")
def is_hip_cdna3(ctx: BuildContext):
    """False."""
    return False


@builtin("target_info")
def is_hip_cdna4(ctx: BuildContext):
    """False."""
    return False


@builtin("target_info")
def is_hip_gfx1250(ctx: BuildContext):
    """False."""
    return False


@builtin("target_info")
def cuda_capability_geq(ctx: BuildContext, major, minor=0):
    """Whether the device that a kernel is compiled for has at least this compute capability."""
    for name, value in (("major", major), ("minor", minor)):
        if not isinstance(value, int):
            ctx.error(f"{name} is {describe(value)}; it must be a number known while compiling", name)
    if ctx.capability is None:
        ctx.error("the compute capability is not known where a kernel is not compiled for a device")
    return ctx.capability >= major * 10 + minor
