"""Matrix multiplication."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops.tensor import Dot
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import reshape_to
from kbuild.compiler.semantic.types import BF16, FP8E4B15, FP16, FP32, FP64, INT8, INT32, UINT8, DType
from kbuild.compiler.semantic.values import Tensor, describe, shape_text

_OPERANDS = (INT8, UINT8, FP16, BF16, FP32, FP64)
_PRECISIONS = ("tf32", "tf32x3", "bf16x3", "bf16x6", "ieee")
MAX_IMPRECISE_FP8 = 0
"""Accumulation steps of fp8 dots that may be imprecise, when the author does not say."""


def _check_operands(ctx: BuildContext, a: Any, b: Any) -> None:
    for value, name in ((a, "input"), (b, "other")):
        if not isinstance(value, Tensor) or len(value.shape) < 2:
            ctx.error(
                f"tl.dot multiplies matrices, {ctx.name(name)} is {describe(value)}",
                name,
                help="make a matrix of a vector with x[:, None] or x[None, :]",
            )
        if value.dtype not in _OPERANDS and not value.dtype.is_fp8():
            ctx.error(
                f"tl.dot does not multiply {value.dtype}, the type of {ctx.name(name)}",
                name,
                help="convert to tl.float16, tl.bfloat16 or tl.float32",
            )
    if a.dtype != b.dtype and not (a.dtype.is_fp8() and b.dtype.is_fp8()):
        ctx.error(
            f"tl.dot needs operands of one type, {ctx.name('input')} is {a.dtype}, {ctx.name('other')} is {b.dtype}",
            help="convert one of them to the type of the other, as in x.to(y.dtype)",
        )


def _check_shapes(ctx: BuildContext, a: Tensor, b: Tensor, precision: str) -> None:
    shapes = f"input has shape {shape_text(a.shape)}, other has shape {shape_text(b.shape)}"
    if len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        ctx.error(f"tl.dot needs operands of equal rank and batch: {shapes}")
    if a.shape[-1] != b.shape[-2]:
        text = ctx.frontend.argument_text("other") or "other"
        fits = a.shape[-1] == b.shape[-1]
        ctx.error(
            f"tl.dot sums over {a.shape[-1]} columns of input and {b.shape[-2]} rows of other: {shapes}",
            help=f"did you mean tl.trans({text})?" if fits else "",
        )
    scalar = a.dtype == FP64 or (a.dtype == FP32 and precision == "ieee")
    least = 1 if scalar else 32 if a.dtype.primitive_bitwidth == 8 else 16
    if a.shape[-1] < least:
        ctx.error(
            f"tl.dot sums over {a.shape[-1]} elements, at least {least} are needed for {a.dtype}: {shapes}",
            help="take a larger block"
            + (', or input_precision="ieee"' if a.dtype == FP32 else "")
            + ", or write tl.sum(a[:, :, None] * b[None, :, :], 1)",
        )


def _result_dtype(ctx: BuildContext, a: Tensor, out_dtype: Any) -> DType:
    if a.dtype.is_int():
        if a.dtype != INT8:
            ctx.error(f"tl.dot multiplies int8 among the integers, not {a.dtype}", "input")
        return INT32
    if not isinstance(out_dtype, DType):
        ctx.error(f"out_dtype is {describe(out_dtype)}, which is not a data type", "out_dtype")
    if out_dtype == BF16:
        ctx.error(
            "tl.dot does not accumulate in bf16", "out_dtype", help="take tl.float32, and convert the result"
        )
    if a.dtype in (FP32, BF16):
        return FP32
    if a.dtype == FP64:
        return FP64
    if out_dtype not in (FP16, FP32):
        ctx.error(f"out_dtype is {out_dtype}; it can be fp16 or fp32", "out_dtype")
    return out_dtype


def _precision(ctx: BuildContext, input_precision: Any, allow_tf32: Any) -> str:
    if input_precision is not None and allow_tf32 is not None:
        ctx.error("input_precision and allow_tf32 are both given", "allow_tf32", help="keep input_precision")
    if input_precision is None:
        return "tf32" if allow_tf32 or allow_tf32 is None else "ieee"
    if not isinstance(input_precision, str) or input_precision.lower() not in _PRECISIONS:
        ctx.error(
            f"input_precision is {input_precision!r}; it can be {', '.join(map(repr, _PRECISIONS))}",
            "input_precision",
        )
    return input_precision.lower()


@builtin()
def dot(
    ctx: BuildContext,
    input,
    other,
    acc=None,
    input_precision=None,
    allow_tf32=None,
    max_num_imprecise_acc=None,
    out_dtype=FP32,
):
    """The matrix product of two matrices or batches of them, plus `acc`.  fp32 operands are rounded to tf32 unless
    `input_precision` says "ieee" (exactly), or "tf32x3", "bf16x6" or "bf16x3" (nearly so); fp8e4b15 becomes fp16.
    Accumulates in fp32; int8 in int32.  Sums are over at least 16 elements, or 32 of 8 bits; exact ones of fp32 and
    fp64 over any number."""
    _check_operands(ctx, input, other)
    if FP8E4B15 in (input.dtype, other.dtype):
        input, other = cast_to(ctx, input, FP16), cast_to(ctx, other, FP16)
    precision = _precision(ctx, input_precision, allow_tf32)
    _check_shapes(ctx, input, other, precision)
    dtype = _result_dtype(ctx, input, out_dtype)
    shape = (*input.shape[:-1], other.shape[-1])
    acc = _accumulator(ctx, acc, dtype, shape)
    batched = len(shape) > 3
    if batched:
        input, other, acc = (
            reshape_to(ctx, t, (t.numel // (t.shape[-1] * t.shape[-2]), *t.shape[-2:]))
            for t in (input, other, acc)
        )
    imprecise = MAX_IMPRECISE_FP8 if max_num_imprecise_acc is None else max_num_imprecise_acc
    if imprecise and input.dtype.is_fp8() and imprecise > input.shape[-1]:
        ctx.error(
            f"max_num_imprecise_acc is {imprecise}, the sum has {input.shape[-1]} steps",
            "max_num_imprecise_acc",
        )
    result = ctx.tensor(Dot(input.value, other.value, acc.value, precision, imprecise), dtype, acc.shape)
    return reshape_to(ctx, result, shape) if batched else result


def _accumulator(ctx: BuildContext, acc: Any, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    if acc is None:
        return ctx.constant(0, dtype, shape)
    if not isinstance(acc, Tensor) or acc.shape != shape or acc.dtype != dtype:
        ctx.error(f"{ctx.name('acc')} is {describe(acc)}, the result is {dtype}{shape_text(shape)}", "acc")
    return acc
