"""Mathematical functions: `tl.math`, also reachable as `tl.exp` and so on."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops import elementwise as ops
from kbuild.compiler.semantic.cast import with_bits
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.promote import fitting, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import FP32, FP64, DType
from kbuild.compiler.semantic.values import Tensor


def unary(ctx: BuildContext, op: Any, x: Any, name: str, dtypes: tuple[DType, ...] = (FP32, FP64)) -> Tensor:
    """A function of one argument, which must be of one of the types."""
    x = to_tensor(ctx, x, "x")
    check_dtype(ctx, x, name, dtypes, "x")
    return ctx.tensor(op(x.value), x.dtype, x.shape)


def check_dtype(ctx: BuildContext, x: Tensor, name: str, dtypes: tuple[DType, ...], at: str) -> None:
    if x.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        help = "convert it with .to(tl.float32)" if FP32 in dtypes else ""
        ctx.error(f"{name} takes {wanted}, {ctx.name(at)} is {x.type}", at, help)


@builtin(method=True)
def exp(ctx: BuildContext, x):
    """e to the power x."""
    return unary(ctx, ops.Exp, x, "tl.exp")


@builtin(method=True)
def exp2(ctx: BuildContext, x):
    """2 to the power x."""
    return unary(ctx, ops.Exp2, x, "tl.exp2")


@builtin(method=True)
def log(ctx: BuildContext, x):
    """The natural logarithm."""
    return unary(ctx, ops.Log, x, "tl.log")


@builtin(method=True)
def log2(ctx: BuildContext, x):
    """The logarithm to base 2."""
    return unary(ctx, ops.Log2, x, "tl.log2")


@builtin(method=True)
def cos(ctx: BuildContext, x):
    """The cosine."""
    return unary(ctx, ops.Cos, x, "tl.cos")


@builtin(method=True)
def sin(ctx: BuildContext, x):
    """The sine."""
    return unary(ctx, ops.Sin, x, "tl.sin")


@builtin(method=True)
def sqrt(ctx: BuildContext, x):
    """The fast square root."""
    return unary(ctx, ops.Sqrt, x, "tl.sqrt")


@builtin(method=True)
def sqrt_rn(ctx: BuildContext, x):
    """The square root, correctly rounded."""
    return unary(ctx, ops.PreciseSqrt, x, "tl.sqrt_rn", (FP32,))


@builtin(method=True)
def rsqrt(ctx: BuildContext, x):
    """One over the square root."""
    return unary(ctx, ops.RSqrt, x, "tl.rsqrt")


@builtin(method=True)
def erf(ctx: BuildContext, x):
    """The error function."""
    return unary(ctx, ops.Erf, x, "tl.erf")


@builtin(method=True)
def floor(ctx: BuildContext, x):
    """The greatest whole number that is not greater."""
    return unary(ctx, ops.Floor, x, "tl.floor")


@builtin(method=True)
def ceil(ctx: BuildContext, x):
    """The least whole number that is not less."""
    return unary(ctx, ops.Ceil, x, "tl.ceil")


@builtin(method=True)
def abs(ctx: BuildContext, x):
    """The absolute value; of the most negative integer, itself."""
    x = to_tensor(ctx, x, "x")
    if x.dtype.is_fp8():
        return with_bits(ctx, ops.AndI, x, 0x7F)
    if x.dtype.is_floating():
        return ctx.tensor(ops.AbsF(x.value), x.dtype, x.shape)
    if x.dtype.is_int_signed():
        return ctx.tensor(ops.AbsI(x.value), x.dtype, x.shape)
    if x.dtype.is_int_unsigned():
        return x
    ctx.error(f"tl.abs takes numbers, {ctx.name('x')} is {x.type}", "x")


@builtin()
def umulhi(ctx: BuildContext, x, y):
    """The upper half of the unsigned product of two 32- or 64-bit integers."""
    x, y = fitting(ctx, to_tensor(ctx, x, "x"), to_tensor(ctx, y, "y"))
    if not x.dtype.is_int() or x.dtype.primitive_bitwidth < 32:
        ctx.error(f"tl.umulhi takes 32- or 64-bit integers, not {x.dtype}", "x")
    return ctx.tensor(ops.MulHiUI(x.value, y.value), x.dtype, x.shape)


@builtin()
def fdiv(ctx: BuildContext, x, y, ieee_rounding=False):
    """x / y in floating point: fast, or correctly rounded with `ieee_rounding`."""
    x, y = to_tensor(ctx, x, "x"), to_tensor(ctx, y, "y")
    for value, name in ((x, "x"), (y, "y")):
        if not value.dtype.is_floating():
            ctx.error(f"tl.fdiv takes floating point, {ctx.name(name)} is {value.type}", name)
    x, y = fitting(ctx, x, y, divides=True)
    return ctx.tensor((ops.PreciseDivF if ieee_rounding else ops.DivF)(x.value, y.value), x.dtype, x.shape)


@builtin()
def div_rn(ctx: BuildContext, x, y):
    """x / y in fp32, correctly rounded."""
    x, y = fitting(ctx, to_tensor(ctx, x, "x"), to_tensor(ctx, y, "y"))
    check_dtype(ctx, x, "tl.div_rn", (FP32,), "x")
    return ctx.tensor(ops.PreciseDivF(x.value, y.value), x.dtype, x.shape)


@builtin()
def fma(ctx: BuildContext, x, y, z):
    """x * y + z, rounded once."""
    x, y, z = (to_tensor(ctx, v, n) for v, n in ((x, "x"), (y, "y"), (z, "z")))
    x, y = fitting(ctx, x, y)
    z, x = fitting(ctx, z, x, ("z", "x"))
    z, y = fitting(ctx, z, y, ("z", "y"))
    if not x.dtype.is_floating():
        ctx.error(f"tl.fma takes floating point, {ctx.name('x')} is {x.type}", "x", help="write x * y + z")
    return ctx.tensor(ops.Fma(x.value, y.value, z.value), x.dtype, x.shape)
