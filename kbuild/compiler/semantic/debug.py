"""Printing, checking, barriers, and PTX by hand."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.types import like
from kbuild.compiler.ops.tensor import Assert, Barrier, GridDependencyWait, InlineAsm, LaunchDependents, Print
from kbuild.compiler.semantic.arith import as_condition, bit_or, logical_not
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.promote import same_shape, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import INT32, INT64, DType
from kbuild.compiler.semantic.values import Tensor, describe


@builtin()
def static_print(ctx: BuildContext, *values, sep=" ", end="\n", file=None, flush=False):
    """Prints while compiling."""
    ctx.notes.append(str(sep).join(str(value) for value in values) + str(end))


@builtin()
def static_assert(ctx: BuildContext, cond, msg=""):
    """Fails the compilation unless a condition known while compiling holds."""
    if isinstance(cond, Tensor):
        ctx.error(
            f"the condition is {describe(cond)}, which is not known while compiling",
            "cond",
            help="use tl.device_assert to check while running",
        )
    if not cond:
        sides = None if msg else ctx.frontend.compared("cond")
        found = f" (they are {describe(sides[0])} and {describe(sides[1])})" if sides else ""
        ctx.error(f"static_assert failed: {msg or ctx.frontend.argument_text('cond')}{found}", "cond")


@builtin()
def device_print(ctx: BuildContext, prefix, *args, hex=False):
    """Prints scalars and tensors from the device, with a label."""
    if not isinstance(prefix, str):
        ctx.error(f"prefix is {describe(prefix)}; it must be a string", "prefix")
    values = [to_tensor(ctx, item, "args") for item in args]
    label = prefix.strip().removesuffix(":")
    text = f" {label}: " if values and label else f" {label}" if label else " "
    signed = tuple(item.dtype.is_int_signed() for item in values)
    ctx.add(Print(tuple(item.value for item in values), text, bool(hex), signed))


@builtin()
def device_assert(ctx: BuildContext, cond, msg="", mask=None):
    """Stops the kernel where the condition fails and `mask`, if given, does not; compiled in only when
    debugging."""
    condition = as_condition(ctx, to_tensor(ctx, cond, "cond"))
    if not ctx.debug:
        return
    if mask is not None:
        condition = bit_or(ctx, condition, logical_not(ctx, to_tensor(ctx, mask, "mask")))
    ctx.add(Assert(condition.value, str(msg) or ctx.frontend.argument_text("cond")))


@builtin()
def debug_barrier(ctx: BuildContext):
    """All threads of the program wait for each other."""
    ctx.add(Barrier())


def _constraints(ctx: BuildContext, args: Any) -> list[Tensor]:
    tensors = [to_tensor(ctx, item, "args") for item in (args if isinstance(args, tuple) else (args,))]
    if tensors:
        widest = tensors[0]
        for item in tensors[1:]:
            widest = same_shape(ctx, widest, item)[0]
        tensors = [same_shape(ctx, item, widest)[0] for item in tensors]
    return tensors


@builtin()
def inline_asm_elementwise(ctx: BuildContext, asm, constraints, args, dtype, is_pure, pack):
    """PTX applied to `pack` elements of every argument at a time.  `dtype` is a type, or a tuple of them for
    several results; `constraints` are LLVM's."""
    for value, name in ((asm, "asm"), (constraints, "constraints")):
        if not isinstance(value, str):
            ctx.error(f"{name} is {describe(value)}; it must be a string", name)
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    for item in dtypes:
        if not isinstance(item, DType):
            ctx.error(f"dtype has {describe(item)}, which is not a data type", "dtype")
    if not isinstance(pack, int) or pack < 1:
        ctx.error(f"pack is {describe(pack)}; it must be a positive number known while compiling", "pack")
    tensors = _constraints(ctx, args)
    shape = tensors[0].shape if tensors else ()
    types = tuple(like(tensors[0].value.type, item.ir) if tensors else item.ir for item in dtypes)
    op = ctx.add(
        InlineAsm(tuple(item.value for item in tensors), asm, constraints, types, bool(is_pure), pack)
    )
    results = tuple(Tensor(result, item, shape) for result, item in zip(op.results, dtypes))
    return results if isinstance(dtype, tuple) else results[0]


@builtin("cuda")
def globaltimer(ctx: BuildContext):
    """The GPU's clock in nanoseconds."""
    return inline_asm_elementwise(ctx, "mov.u64 $0, %globaltimer;", "=l", (), INT64, False, 1)


@builtin("cuda")
def smid(ctx: BuildContext):
    """The number of the multiprocessor that runs the program."""
    return inline_asm_elementwise(ctx, "mov.u32 $0, %smid;", "=r", (), INT32, True, 1)


@builtin("cuda")
def gdc_wait(ctx: BuildContext):
    """Waits until the launches before this one have ended and what they wrote is seen. A kernel that is
    launched with `launch_pdl` reads nothing of theirs, and writes nothing, before it; in any other, and
    before sm_90, it does nothing."""
    ctx.add(GridDependencyWait())


@builtin("cuda")
def gdc_launch_dependents(ctx: BuildContext):
    """Lets the next launch begin, if it has `launch_pdl`, as soon as all programs have called this or ended.
    It sees what this one writes only after its own `gdc_wait`. Before sm_90 it does nothing."""
    ctx.add(LaunchDependents())
