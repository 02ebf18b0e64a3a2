"""Operators: arithmetic, bits, comparison, logic; and the named functions that mean the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kbuild.compiler.ops import elementwise as ops
from kbuild.compiler.ops.tensor import Assert
from kbuild.compiler.semantic.cast import cast_to, with_bits
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.promote import fitting, integer_promote, same_shape, splat, spread, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import BF16, FP32, INT1, INT64, DType, PointerDtype
from kbuild.compiler.semantic.values import Tensor, describe


def _made(ctx: BuildContext, op: Any, x: Tensor, y: Tensor) -> Tensor:
    return ctx.tensor(op(x.value, y.value), x.dtype, x.shape)


def _assert_fits(ctx: BuildContext, op: Any, x: Tensor, y: Tensor, name: str) -> None:
    """When debugging, let the kernel stop where a result of fewer than 64 bits is not that of whole numbers,
    as in Triton."""
    dtype = x.dtype
    if not ctx.debug or not isinstance(dtype, DType) or not dtype.is_int() or dtype.bits >= 64:
        return
    low, high = (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
        if dtype.is_int_signed()
        else (0, (1 << dtype.bits) - 1)
    )
    wide = ctx.tensor(op(cast_to(ctx, x, INT64).value, cast_to(ctx, y, INT64).value), INT64, x.shape)
    fits = bit_and(ctx, compare(ctx, "<=", wide, high), compare(ctx, ">=", wide, low))
    ctx.add(Assert(fits.value, f"int{dtype.bits} overflow detected for operation {name}"))


def _no_operator(ctx: BuildContext, symbol: str, dtype: Any, help: str = "") -> Any:
    ctx.error(f"`{symbol}` is not defined for {dtype}", help=help)


def add_values(ctx: BuildContext, x: Any, y: Any, sanitize: bool = False) -> Tensor:
    """x + y, where one may be a pointer and the other then an offset in elements.  This and the two that
    follow check for overflow with `sanitize`."""
    x, y = fitting(ctx, x, y, pointers=(True, True))
    if isinstance(x.dtype, PointerDtype) and isinstance(y.dtype, PointerDtype):
        ctx.error(
            f"two pointers ({x.dtype} and {y.dtype}) cannot be added",
            help="add an offset in elements to one pointer",
        )
    if isinstance(y.dtype, PointerDtype):
        x, y = y, x
    if isinstance(x.dtype, PointerDtype):
        return _move_pointer(ctx, x, y)
    if x.dtype.is_fp8():
        _no_operator(ctx, "+", x.dtype, "convert to tl.float16 or tl.float32 first")
    if sanitize:
        _assert_fits(ctx, ops.AddI, x, y, "add")
    return _made(ctx, ops.AddF if x.dtype.is_floating() else ops.AddI, x, y)


def _move_pointer(ctx: BuildContext, pointer: Tensor, offset: Tensor) -> Tensor:
    assert isinstance(offset.dtype, DType)
    # Offsets are sign-extended, so a narrow unsigned one is widened here.
    if offset.dtype.is_int_unsigned() and offset.dtype.bits < 64:
        offset = cast_to(ctx, offset, INT64)
    return ctx.tensor(ops.AddPtr(pointer.value, offset.value), pointer.dtype, pointer.shape)


def subtract(ctx: BuildContext, x: Any, y: Any, sanitize: bool = False) -> Tensor:
    """x - y, where x may be a pointer."""
    x, y = fitting(ctx, x, y, pointers=(True, False))
    if isinstance(x.dtype, PointerDtype):
        return _move_pointer(ctx, x, negate(ctx, y))
    if sanitize:
        _assert_fits(ctx, ops.SubI, x, y, "sub")
    return _made(ctx, ops.SubF if x.dtype.is_floating() else ops.SubI, x, y)


def multiply(ctx: BuildContext, x: Any, y: Any, sanitize: bool = False) -> Tensor:
    x, y = fitting(ctx, x, y)
    if sanitize:
        _assert_fits(ctx, ops.MulI, x, y, "mul")
    return _made(ctx, ops.MulF if x.dtype.is_floating() else ops.MulI, x, y)


def divide(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    """x / y: in floating point, integers as fp32."""
    x, y = fitting(ctx, x, y, divides=True)
    if x.dtype.is_int():
        x, y = cast_to(ctx, x, FP32), cast_to(ctx, y, FP32)
    return _made(ctx, ops.DivF, x, y)


def floor_divide(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    """x // y of integers, rounded toward zero as in C."""
    x, y = fitting(ctx, x, y, divides=True)
    if not isinstance(x.dtype, DType) or not x.dtype.is_int():
        _no_operator(ctx, "//", x.dtype, "write tl.floor(x / y)")
    return _made(ctx, ops.DivSI if x.dtype.is_int_signed() else ops.DivUI, x, y)


def remainder(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    """x % y with the sign of x, as in C."""
    x, y = fitting(ctx, x, y, divides=True)
    op = ops.RemF if x.dtype.is_floating() else ops.RemSI if x.dtype.is_int_signed() else ops.RemUI
    return _made(ctx, op, x, y)


def _bits(ctx: BuildContext, x: Any, y: Any, symbol: str) -> tuple[Tensor, Tensor]:
    x, y = fitting(ctx, x, y)
    if not (
        isinstance(x.dtype, DType) and isinstance(y.dtype, DType) and x.dtype.is_int() and y.dtype.is_int()
    ):
        _no_operator(
            ctx, symbol, x.dtype, "bits belong to integers: compare first, or use .to(tl.int32, bitcast=True)"
        )
    dtype = integer_promote(x.dtype, y.dtype)  # type: ignore[arg-type]
    return cast_to(ctx, x, dtype), cast_to(ctx, y, dtype)


def bit_and(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    return _made(ctx, ops.AndI, *_bits(ctx, x, y, "&"))


def bit_or(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    return _made(ctx, ops.OrI, *_bits(ctx, x, y, "|"))


def bit_xor(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    return _made(ctx, ops.XOrI, *_bits(ctx, x, y, "^"))


def shift_left(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    return _made(ctx, ops.ShLI, *_bits(ctx, x, y, "<<"))


def shift_right(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    """x >> y, filling with the sign where the tensor's type has one."""
    signed = next(value.dtype.is_int_signed() for value in (x, y) if isinstance(value, Tensor))
    return _made(ctx, ops.ShRSI if signed else ops.ShRUI, *_bits(ctx, x, y, ">>"))


def negate(ctx: BuildContext, x: Tensor, sanitize: bool = False) -> Tensor:
    if isinstance(x.dtype, PointerDtype):
        _no_operator(ctx, "-", x.dtype)
    if x.dtype.is_fp8():
        return with_bits(ctx, ops.XOrI, x, 0x80)
    return subtract(ctx, ctx.constant_like(0, x.dtype, x), x, sanitize)  # type: ignore[arg-type]


def invert(ctx: BuildContext, x: Tensor) -> Tensor:
    if not isinstance(x.dtype, DType) or not x.dtype.is_int():
        _no_operator(ctx, "~", x.dtype)
    return bit_xor(ctx, x, ctx.constant_like(-1, x.dtype, x))  # type: ignore[arg-type]


def power(ctx: BuildContext, x: Any, y: Any) -> Tensor:
    """x ** y for a small whole exponent known while compiling, by repeated squaring."""
    if not isinstance(y, int) or isinstance(y, bool) or not 0 <= y <= 64:
        ctx.error(
            f"`**` takes an exponent known while compiling, from 0 to 64; this one is {describe(y)}",
            help="use tl.exp2(y * tl.log2(x)), or libdevice.pow(x, y)",
        )
    x = to_tensor(ctx, x)
    result: Tensor | None = None
    while y:
        if y & 1:
            result = x if result is None else multiply(ctx, result, x, sanitize=True)
        y >>= 1
        if y:
            x = multiply(ctx, x, x, sanitize=True)
    return ctx.constant_like(1, x.dtype, x) if result is None else result  # type: ignore[arg-type]


_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}
_FLOATING = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_EQUALITY = {"==": "eq", "!=": "ne"}


def compare(ctx: BuildContext, symbol: str, x: Any, y: Any) -> Tensor:
    """A comparison, where numbers take part in the promotion with their own type."""
    x, y = fitting(ctx, x, y, weak=False)
    if x.dtype.is_floating():
        op = ops.CmpF(x.value, y.value, _FLOATING[symbol])
    else:
        table = _SIGNED if x.dtype.is_int_signed() else _UNSIGNED
        op = ops.CmpI(x.value, y.value, _EQUALITY.get(symbol) or table[symbol])
    return ctx.tensor(op, INT1, x.shape)


def as_condition(ctx: BuildContext, x: Any) -> Tensor:
    """A truth value per element."""
    x = to_tensor(ctx, x)
    return x if x.dtype == INT1 else cast_to(ctx, x, INT1)


@builtin(method=True)
def logical_and(ctx: BuildContext, input, other):
    """Whether both hold, element by element."""
    return bit_and(ctx, as_condition(ctx, input), as_condition(ctx, other))


@builtin(method=True)
def logical_or(ctx: BuildContext, input, other):
    """Whether one holds, element by element."""
    return bit_or(ctx, as_condition(ctx, input), as_condition(ctx, other))


def logical_not(ctx: BuildContext, x: Tensor) -> Tensor:
    return invert(ctx, as_condition(ctx, x))


BINARY: dict[str, Callable[[BuildContext, Any, Any], Tensor]] = {
    "+": partial(add_values, sanitize=True),
    "-": partial(subtract, sanitize=True),
    "*": partial(multiply, sanitize=True),
    "/": divide,
    "//": floor_divide,
    "%": remainder,
    "**": power,
    "&": bit_and,
    "|": bit_or,
    "^": bit_xor,
    "<<": shift_left,
    ">>": shift_right,
}


@builtin()
def add(ctx: BuildContext, x, y, sanitize_overflow=True):
    """x + y; when debugging, the kernel stops where integers overflow, unless `sanitize_overflow` is false."""
    return add_values(ctx, x, y, bool(sanitize_overflow))


@builtin()
def sub(ctx: BuildContext, x, y, sanitize_overflow=True):
    """x - y; overflow as for `add`."""
    return subtract(ctx, x, y, bool(sanitize_overflow))


@builtin()
def mul(ctx: BuildContext, x, y, sanitize_overflow=True):
    """x * y; overflow as for `add`."""
    return multiply(ctx, x, y, bool(sanitize_overflow))


def promote_bf16(ctx: BuildContext, x: Tensor) -> Tensor:
    """bf16 as fp32: it has no comparisons of its own."""
    return cast_to(ctx, x, FP32) if x.dtype == BF16 else x


@builtin()
def _promote_bfloat16_to_float32(ctx: BuildContext, t):
    """`t`, or its fp32 form when it is bf16."""
    return promote_bf16(ctx, to_tensor(ctx, t, "t"))


def _choose(
    ctx: BuildContext, x: Any, y: Any, propagate_nan: str, kinds: tuple[Any, Any, Any, Any]
) -> Tensor:
    x, y = promote_bf16(ctx, to_tensor(ctx, x, "x")), promote_bf16(ctx, to_tensor(ctx, y, "y"))
    x, y = fitting(ctx, x, y)
    nan, number, signed, unsigned = kinds
    if x.dtype.is_floating():
        return _made(ctx, nan if propagate_nan == "all" else number, x, y)
    return _made(ctx, signed if x.dtype.is_int_signed() else unsigned, x, y)


@builtin()
def maximum(ctx: BuildContext, x, y, propagate_nan="none"):
    """The greater of the two; with `tl.PropagateNan.ALL` NaN when one is, else the number."""
    return _choose(ctx, x, y, propagate_nan, (ops.MaximumF, ops.MaxNumF, ops.MaxSI, ops.MaxUI))


@builtin()
def minimum(ctx: BuildContext, x, y, propagate_nan="none"):
    """The lesser of the two; with `tl.PropagateNan.ALL` NaN when one is, else the number."""
    return _choose(ctx, x, y, propagate_nan, (ops.MinimumF, ops.MinNumF, ops.MinSI, ops.MinUI))


@builtin()
def clamp(ctx: BuildContext, x, min, max, propagate_nan="none"):
    """x clamped to min … max; a NaN stays NaN with `tl.PropagateNan.ALL`."""
    x, low, high = (
        promote_bf16(ctx, to_tensor(ctx, v, n)) for v, n in ((x, "x"), (min, "min"), (max, "max"))
    )
    low, high = fitting(ctx, low, high, ("min", "max"))
    x, low = fitting(ctx, x, low, ("x", "min"))
    x, high = fitting(ctx, x, high, ("x", "max"))
    low = spread(ctx, cast_to(ctx, low, x.dtype), x.shape)
    if not x.dtype.is_floating():
        ctx.error(
            f"tl.clamp is for floating point, x is {x.dtype}",
            "x",
            help="write tl.minimum(tl.maximum(x, low), high)",
        )
    op = ops.ClampF(x.value, low.value, high.value, propagate_nan=propagate_nan == "all")
    return ctx.tensor(op, x.dtype, x.shape)


@builtin()
def where(ctx: BuildContext, condition, x, y):
    """x where the condition holds, else y.  Both are evaluated: use the mask of `tl.load` to keep from
    reading."""
    condition = as_condition(ctx, to_tensor(ctx, condition, "condition"))
    x, y = fitting(ctx, x, y, pointers=(True, True))
    if condition.shape:
        condition, x = same_shape(ctx, condition, x, ("condition", "x"))
        x, y = same_shape(ctx, x, y)
    elif x.shape:
        condition = splat(ctx, condition, x.shape)
    return ctx.tensor(ops.Select(condition.value, x.value, y.value), x.dtype, x.shape)
