"""Conversions between types."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.types import like
from kbuild.compiler.ops.elementwise import (
    Bitcast,
    CmpF,
    CmpI,
    Constant,
    ExtF,
    ExtSI,
    ExtUI,
    FPToSI,
    FPToUI,
    IntToPtr,
    PtrToInt,
    SIToFP,
    TruncF,
    TruncI,
    UIToFP,
)
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import (
    BF16,
    FP8E4B15,
    FP16,
    FP32,
    INT1,
    INT64,
    UINT8,
    BlockType,
    DType,
    PointerDtype,
    ScalarType,
    number_dtype,
)
from kbuild.compiler.semantic.values import Tensor, describe


def cast_to(ctx: BuildContext, x: Tensor, dtype: ScalarType, rounding: str | None = None) -> Tensor:
    """A value converted to another element type, by value."""
    if x.dtype == dtype:
        return x
    if rounding not in (None, "rtne", "rtz"):
        ctx.error(f"fp_downcast_rounding is {rounding!r}; it can be 'rtne' or 'rtz'", "fp_downcast_rounding")
    source = x.dtype
    if isinstance(source, PointerDtype) or isinstance(dtype, PointerDtype):
        return _cast_pointer(ctx, x, dtype)
    narrows = source.is_floating() and dtype.is_floating() and dtype.bits < source.bits
    if rounding is not None and not narrows:
        ctx.error(
            f"fp_downcast_rounding is for narrowing floating-point conversions, not for {source} to {dtype}",
            "fp_downcast_rounding",
        )
    if source.is_floating() and dtype.is_floating():
        return _cast_float(ctx, x, source, dtype, rounding or "rtne")
    if dtype.is_bool():
        return _is_nonzero(ctx, x, source)
    if source.is_fp8() or dtype.is_fp8():
        return cast_to(ctx, cast_to(ctx, x, FP32), dtype)
    if source.is_int() and dtype.is_int():
        return _cast_int(ctx, x, source, dtype)
    if source.is_int():
        op = SIToFP if source.is_int_signed() else UIToFP
    else:
        op = FPToSI if dtype.is_int_signed() else FPToUI
    return _cast(ctx, op, x, dtype)


def _cast(ctx: BuildContext, op: Any, x: Tensor, dtype: ScalarType, **attributes: Any) -> Tensor:
    return ctx.tensor(op(x.value, like(x.value.type, dtype.ir), **attributes), dtype, x.shape)


def _cast_float(ctx: BuildContext, x: Tensor, source: DType, dtype: DType, rounding: str) -> Tensor:
    if FP8E4B15 in (source, dtype) and FP16 not in (source, dtype):
        # By way of fp16, in which what is cut off does not change how the rest is rounded.
        return cast_to(ctx, cast_to(ctx, x, FP16, "rtz" if source.bits > 16 else None), dtype)
    if dtype == FP8E4B15:
        return _cast(ctx, TruncF, x, dtype, rounding="rna")
    # Half precision reaches everything but fp32 and fp8 through fp32, and the fp8 types reach each other so.
    half = source in (FP16, BF16) and dtype != FP32 and not dtype.is_fp8()
    if half or (source.is_fp8() and dtype.is_fp8()):
        return _cast_float(ctx, _cast(ctx, ExtF, x, FP32), FP32, dtype, rounding)
    if dtype.bits > source.bits:
        return _cast(ctx, ExtF, x, dtype)
    return _cast(ctx, TruncF, x, dtype, rounding=rounding)


def _cast_int(ctx: BuildContext, x: Tensor, source: DType, dtype: DType) -> Tensor:
    if source.bits == dtype.bits:
        return Tensor(x.value, dtype, x.shape)  # the same bits, read with another sign
    op = TruncI if dtype.bits < source.bits else ExtSI if source.is_int_signed() else ExtUI
    constant = x.value.op
    if isinstance(constant, Constant) and op is not ExtUI and not x.shape:
        return ctx.constant(constant.value, dtype)
    return _cast(ctx, op, x, dtype)


def _is_nonzero(ctx: BuildContext, x: Tensor, source: DType) -> Tensor:
    if source.is_fp8():
        return _is_nonzero(ctx, cast_to(ctx, x, FP32), FP32)
    zero = ctx.constant_like(0, source, x)
    op = CmpF(x.value, zero.value, "une") if source.is_floating() else CmpI(x.value, zero.value, "ne")
    return ctx.tensor(op, INT1, x.shape)


def _cast_pointer(ctx: BuildContext, x: Tensor, dtype: ScalarType) -> Tensor:
    source = x.dtype
    if isinstance(source, PointerDtype) and isinstance(dtype, PointerDtype):
        if source.is_block_pointer() or dtype.is_block_pointer():
            ctx.error(f"{source} does not convert to {dtype}")
        if source.ir == dtype.ir:
            return Tensor(x.value, dtype, x.shape)
        return _cast(ctx, Bitcast, x, dtype)
    if isinstance(dtype, PointerDtype) and isinstance(source, DType) and source.is_int():
        return _cast(ctx, IntToPtr, cast_to(ctx, x, INT64), dtype)
    if isinstance(dtype, DType) and dtype.is_int() and dtype.bits == 64:
        return _cast(ctx, PtrToInt, x, dtype)
    if isinstance(dtype, DType) and dtype.is_bool():
        return _is_nonzero(ctx, _cast(ctx, PtrToInt, x, INT64), INT64)
    ctx.error(
        f"{source} does not convert to {dtype}",
        help="a pointer converts to another pointer type or to tl.int64",
    )


def bitcast_to(ctx: BuildContext, x: Tensor, dtype: ScalarType) -> Tensor:
    """The same bits as another type of the same width."""
    if x.dtype == dtype:
        return x
    if isinstance(x.dtype, PointerDtype) or isinstance(dtype, PointerDtype):
        return _cast_pointer(ctx, x, dtype)
    if x.dtype.bits != dtype.bits:
        ctx.error(
            f"{x.dtype} has {x.dtype.bits} bits, {dtype} has {dtype.bits}: the bits of one are not the other's",
            "dtype",
        )
    if x.dtype.ir == dtype.ir:
        return Tensor(x.value, dtype, x.shape)
    return _cast(ctx, Bitcast, x, dtype)


def with_bits(ctx: BuildContext, op: Any, x: Tensor, bits: int) -> Tensor:
    """A number of 8 bits whose bits an operation has changed: hardware does not compute with such numbers."""
    held = bitcast_to(ctx, x, UINT8)
    changed = ctx.tensor(op(held.value, ctx.constant_like(bits, UINT8, held).value), UINT8, x.shape)
    return bitcast_to(ctx, changed, x.dtype)


@builtin(method=True)
def cast(ctx: BuildContext, input, dtype, fp_downcast_rounding=None, bitcast=False):
    """Converts `input` to `dtype`: by value, or bit for bit with `bitcast`.  Narrowing floating-point
    conversions round to nearest even, or toward zero with `fp_downcast_rounding="rtz"`."""
    if isinstance(dtype, BlockType):
        dtype = dtype.element_ty  # what a block pointer points to
    if not isinstance(dtype, DType | PointerDtype):
        ctx.error(
            f"dtype is {describe(dtype)}, which is not a data type",
            "dtype",
            help="write, for example, tl.float32",
        )
    if isinstance(dtype, DType) and dtype.is_void():
        ctx.error("nothing converts to void", "dtype")
    if isinstance(input, bool | int | float):
        literal = number_dtype(input)
        if literal is None:
            ctx.error(f"{input} fits no integer type", "input")
        input = ctx.constant(input, literal)
    if not isinstance(input, Tensor):
        ctx.error(f"input is {describe(input)}, which is neither a number nor a tensor", "input")
    return bitcast_to(ctx, input, dtype) if bitcast else cast_to(ctx, input, dtype, fp_downcast_rounding)


@builtin(method=True)
def to(ctx: BuildContext, input, dtype, fp_downcast_rounding=None, bitcast=False):
    """The same as `cast`."""
    return cast(ctx, input, dtype, fp_downcast_rounding, bitcast)
