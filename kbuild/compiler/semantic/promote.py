"""Numbers made values, types made equal, shapes made equal: what happens to operands before every operation."""

from __future__ import annotations

import struct
from typing import Any

from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.derived import placed
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Splat
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    BlockType,
    DType,
    PointerDtype,
    ScalarType,
    number_dtype,
)
from kbuild.compiler.semantic.values import Tensor, describe, shape_text

_RANK = {"bool": 0, "int": 1, "float": 2}
Operand = Tensor | bool | int | float


def to_tensor(ctx: BuildContext, value: Any, what: str = "") -> Tensor:
    """A value of run time: itself, or a literal as a constant of the literal's type."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, bool | int | float):
        ctx.error(
            f"{ctx.name(what) if what else 'an operand'} is {describe(value)}, "
            "which is neither a number nor a tensor",
            what,
        )
    return ctx.constant(value, literal_dtype(ctx, value))


def literal_dtype(ctx: BuildContext, value: bool | int | float) -> DType:
    dtype = number_dtype(value)
    if dtype is None:
        ctx.error(f"{value} fits no integer type")
    return dtype


def integer_promote(a: DType, b: DType) -> DType:
    """C's usual conversions: the wider one; of equal width, the unsigned one."""
    if a.signed == b.signed:
        return a if a.bits > b.bits else b
    if not a.signed:
        return a if a.bits >= b.bits else b
    return b if b.bits >= a.bits else a


def computation_dtype(
    ctx: BuildContext, a: DType, a_weak: bool, b: DType, b_weak: bool, divides: bool
) -> DType:
    """The type in which an operation is done.  A weak operand (a Python number beside a tensor) does not take
    part unless its kind is higher: bool < int < float.  Half precision divides in fp32."""
    if a_weak != b_weak:
        weak, strong = (a, b) if a_weak else (b, a)
        if _RANK[weak.kind] <= _RANK[strong.kind]:
            return FP32 if divides and strong in (FP16, BF16) else strong
    if FP64 in (a, b):
        return FP64
    if FP32 in (a, b):
        return FP32
    if FP16 in (a, b):
        return FP32 if divides else FP16
    if a == b == BF16:
        return FP32 if divides else BF16
    if BF16 in (a, b):
        return FP32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else FP16
    if not a.is_int() or not b.is_int():
        ctx.error(
            f"{a} and {b} have no common type", help=f"convert one of them, as in x.to(tl.{_tl_name(FP32)})"
        )
    if divides and a.signed != b.signed:
        ctx.error(
            f"{a} and {b} differ in sign, so neither `/`, `//` nor `%` has a useful meaning for them",
            help="convert one of them to the type of the other with .to(...)",
        )
    return integer_promote(a, b)


def _tl_name(dtype: DType) -> str:
    return {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}.get(
        dtype.name, dtype.name
    )


def fitting(
    ctx: BuildContext,
    x: Any,
    y: Any,
    names: tuple[str, str] = ("x", "y"),
    weak: bool = True,
    divides: bool = False,
    pointers: tuple[bool, bool] = (False, False),
    arithmetic: bool = True,
) -> tuple[Tensor, Tensor]:
    """Two operands in one type and shape.  With `weak`, Python numbers take the tensor's type where their
    kind allows; `pointers` says which operand may be a pointer; without `arithmetic`, types stay as they are.
    """
    for value, name in ((x, names[0]), (y, names[1])):
        if not isinstance(value, Tensor | bool | int | float):
            ctx.error(
                f"operand {_written(ctx, name)} is {describe(value)}, which is neither a number nor a tensor",
                name,
            )
    x_dtype, y_dtype = _dtype(ctx, x), _dtype(ctx, y)
    _check_pointers(ctx, x_dtype, y_dtype, names, pointers)
    if arithmetic and isinstance(x_dtype, DType) and isinstance(y_dtype, DType):
        x_weak, y_weak = (weak and not isinstance(value, Tensor) for value in (x, y))
        dtype = computation_dtype(ctx, x_dtype, x_weak, y_dtype, y_weak, divides)
        for value, name, own in ((x, names[0], x_weak), (y, names[1], y_weak)):
            if own:
                _check_literal(ctx, value, dtype, name)
        x, y = _converted(ctx, x, dtype, y, weak), _converted(ctx, y, dtype, x, weak)
    return same_shape(ctx, to_tensor(ctx, x), to_tensor(ctx, y), names)


def _dtype(ctx: BuildContext, value: Any) -> ScalarType:
    return value.dtype if isinstance(value, Tensor) else literal_dtype(ctx, value)


def _converted(ctx: BuildContext, value: Any, dtype: DType, other: Any, weak: bool) -> Tensor:
    """A value in a type; a number at once in the shape of the other operand, and without `weak` by way of its
    own type."""
    if isinstance(value, Tensor):
        return cast_to(ctx, value, dtype)
    if not weak and isinstance(value, float) and dtype == FP64 and number_dtype(value) == FP32:
        value = struct.unpack("f", struct.pack("f", value))[0]
    return ctx.constant_like(value, dtype, other) if isinstance(other, Tensor) else ctx.constant(value, dtype)


def _check_pointers(
    ctx: BuildContext, x: ScalarType, y: ScalarType, names: tuple[str, str], allowed: tuple[bool, bool]
) -> None:
    for own, other, name, other_name, may in (
        (x, y, *names, allowed[0]),
        (y, x, *reversed(names), allowed[1]),
    ):
        if not isinstance(own, PointerDtype):
            continue
        if isinstance(own.element_ty, BlockType):
            ctx.error(
                f"operand {_written(ctx, name)} is a block pointer, which cannot take part in arithmetic",
                name,
                help="move it with tl.advance(pointer, offsets)",
            )
        if not may:
            ctx.error(
                f"operand {_written(ctx, name)} is {own}, the other operand {_written(ctx, other_name)} is {other}: "
                "this operation takes no pointers",
                name,
                help="load the value with tl.load, or check the order of the kernel's arguments",
            )
        if other.is_floating() or (isinstance(other, PointerDtype) and other != own):
            ctx.error(
                f"operand {_written(ctx, name)} is {own}, the other operand {_written(ctx, other_name)} is {other}",
                other_name,
                help="offsets of pointers are integers",
            )


def _written(ctx: BuildContext, name: str) -> str:
    """An operand as the author wrote it."""
    text = ctx.frontend.argument_text(name)
    return f"`{text}`" if text else name


def _check_literal(ctx: BuildContext, value: Any, dtype: DType, name: str) -> None:
    if not dtype.is_int():
        return
    if value < 0 and dtype.is_int_unsigned():
        ctx.error(
            f"the number {value} is negative, the other operand is {dtype}",
            name,
            help="convert one of them explicitly",
        )
    if not dtype.get_int_min_value() <= value <= dtype.get_int_max_value():
        ctx.error(
            f"the number {value} does not fit {dtype}, the type of the other operand",
            name,
            help="widen the other operand, as in x.to(tl.int64)",
        )


def splat(
    ctx: BuildContext, scalar: Tensor, shape: tuple[int, ...], place: LinearLayout | None = None
) -> Tensor:
    """A tensor filled with a scalar, in the layout `place`; a constant becomes a constant tensor."""
    if not shape:
        return scalar
    target = ctx.ir_type(scalar.dtype, shape, place)
    op = scalar.value.op
    if isinstance(op, Constant):  # Which stays, used or not: a name, a parameter or a tuple may hold it.
        return ctx.tensor(Constant(op.value, target), scalar.dtype, shape)
    return ctx.tensor(Splat(scalar.value, target), scalar.dtype, shape)


def expand(ctx: BuildContext, x: Tensor, axis: int) -> Tensor:
    """A dimension of size one inserted."""
    if not x.shape:
        return splat(ctx, x, (1,))
    author = places.expanded(ctx, x, axis) if ctx.explicit_layouts else None
    made = ctx.tensor(ExpandDims(x.value, axis), x.dtype, (*x.shape[:axis], 1, *x.shape[axis:]))
    return made if author is None else places.named(ctx, made, author)


def broadcast_shape(ctx: BuildContext, x: Tensor, shape: tuple[int, ...], at: str = "") -> Tensor:
    """A tensor of the same rank, or a scalar, spread to a shape."""
    if x.shape == shape:
        return x
    if not x.shape:
        return splat(ctx, x, shape)
    if len(x.shape) != len(shape):
        ctx.error(
            f"shape {shape_text(x.shape)} does not spread to {shape_text(shape)}: the ranks differ",
            at,
            help=_rank_hint(ctx, at or "input", x.shape, shape),
        )
    for axis, (own, wanted) in enumerate(zip(x.shape, shape)):
        if own not in (wanted, 1):
            ctx.error(
                f"shape {shape_text(x.shape)} does not spread to {shape_text(shape)}: "
                f"dimension {axis} is {own}, not 1 or {wanted}",
                at,
            )
    place = placed(places.layout_of_tensor(x), shape) if ctx.explicit_layouts else None
    return ctx.tensor(Broadcast(x.value, BlockType(x.dtype, shape, place).ir), x.dtype, shape)


def common_shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to which both spread, aligned at the last dimension; None when there is none."""
    rank = max(len(x), len(y))
    x, y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
    if any(a != b and 1 not in (a, b) for a, b in zip(x, y)):
        return None
    return tuple(b if a == 1 else a for a, b in zip(x, y))


def same_shape(
    ctx: BuildContext, x: Tensor, y: Tensor, names: tuple[str, str] = ("x", "y")
) -> tuple[Tensor, Tensor]:
    """Two values spread to one shape; a missing leading dimension counts as one of size one."""
    if not x.shape and not y.shape:
        return x, y
    if not x.shape:
        return splat(ctx, x, y.shape, layout_of(y.value.type)), y
    if not y.shape:
        return x, splat(ctx, y, x.shape, layout_of(x.value.type))
    shape = common_shape(x.shape, y.shape)
    if shape is None or (ctx.explicit_layouts and len(x.shape) != len(y.shape)):
        shorter = names[0] if len(x.shape) < len(y.shape) else names[1]
        small, large = sorted((x.shape, y.shape), key=len)
        help = _rank_hint(ctx, shorter, small, large) if len(small) < len(large) else ""
        ctx.error(
            f"operands {_written(ctx, names[0])} of shape {shape_text(x.shape)} and {_written(ctx, names[1])} of shape "
            f"{shape_text(y.shape)} do not fit each other",
            help=help,
        )
    if ctx.explicit_layouts:
        x, y = places.same_place(ctx, x, y, names)
    return spread(ctx, x, shape), spread(ctx, y, shape)


def spread(ctx: BuildContext, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value in a shape known to fit, leading dimensions added."""
    if x.shape:
        for _ in range(len(shape) - len(x.shape)):
            x = expand(ctx, x, 0)
    return broadcast_shape(ctx, x, shape)


def _rank_hint(ctx: BuildContext, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Which `[:, None]` makes a shape fit a longer one; empty when none does."""
    if not 0 < len(wanted) - len(shape) <= 2 or len(shape) != 1:
        return ""
    if ctx.explicit_layouts:
        return (
            f"insert dimensions into {_written(ctx, name)} where its SliceLayout lacks them, as in x[:, None]"
        )
    text = ctx.frontend.argument_text(name) or name
    for axis, size in enumerate(wanted):
        if size == shape[0]:
            index = ", ".join(":" if position == axis else "None" for position in range(len(wanted)))
            return f"write {text}[{index}] to place it along dimension {axis}"
    return ""
