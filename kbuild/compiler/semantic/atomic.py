"""Atomic operations on memory."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops.elementwise import AndI, Select, ShRUI
from kbuild.compiler.ops.tensor import AtomicCAS, AtomicRMW
from kbuild.compiler.semantic.arith import logical_not
from kbuild.compiler.semantic.cast import bitcast_to, cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.memory import as_mask, check_pointer, stored_value
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import (
    BF16,
    FP16,
    FP32,
    FP64,
    INT1,
    BlockType,
    DType,
    PointerDtype,
    int_dtype,
)
from kbuild.compiler.semantic.values import Tensor

_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys")


def _ordering(ctx: BuildContext, sem: Any, scope: Any) -> tuple[str, str]:
    for value, name, allowed in ((sem, "sem", _ORDERS), (scope, "scope", _SCOPES)):
        if value is not None and value not in allowed:
            ctx.error(f"{name} is {value!r}; it can be {', '.join(map(repr, allowed))}", name)
    return sem or "acq_rel", scope or "gpu"


def _operands(
    ctx: BuildContext, pointer: Any, val: Any, mask: Any, name: str
) -> tuple[Tensor, Tensor, Tensor | None, DType]:
    pointer = places.settled_by(ctx, check_pointer(ctx, pointer, f"tl.{name}"), val, mask)
    assert isinstance(pointer.dtype, PointerDtype)
    element = pointer.dtype.element_ty
    if isinstance(element, BlockType) or pointer.dtype.const:
        ctx.error(
            f"tl.{name} takes pointers to memory that may be written, {ctx.name('pointer')} is {pointer.dtype}",
            "pointer",
        )
    narrow = element.bits < 16 or (element.is_int() and element.bits < 32)
    if narrow or (element in (FP16, BF16) and name != "atomic_add"):
        ctx.error(f"tl.{name} is not possible on {element}", "pointer")
    value = stored_value(ctx, val, element, pointer, "val")
    return pointer, value, as_mask(ctx, mask, pointer), element


def _update(
    ctx: BuildContext, kind: str, pointer: Tensor, value: Tensor, mask: Tensor | None, order: tuple[str, str]
) -> Tensor:
    op = AtomicRMW(pointer.value, value.value, kind, mask and mask.value, *order)
    return ctx.tensor(op, value.dtype, value.shape)


@builtin(method=True)
def atomic_add(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Adds to memory atomically; returns the previous value."""
    pointer, value, mask, element = _operands(ctx, pointer, val, mask, "atomic_add")
    kind = "fadd" if element.is_floating() else "add"
    return _update(ctx, kind, pointer, value, mask, _ordering(ctx, sem, scope))


def _extreme(
    ctx: BuildContext, name: str, pointer: Any, val: Any, mask: Any, order: tuple[str, str]
) -> Tensor:
    """Maximum or minimum.  Floating-point numbers compare like their bits: as signed integers when positive,
    and the other way round, as unsigned ones, when negative."""
    pointer, value, mask, element = _operands(ctx, pointer, val, mask, f"atomic_{name}")
    opposite = "min" if name == "max" else "max"
    if element.is_int():
        return _update(ctx, name if element.is_int_signed() else f"u{name}", pointer, value, mask, order)
    if element not in (FP32, FP64):
        ctx.error(f"tl.atomic_{name} is not possible on {element}", "pointer")
    signed, unsigned = int_dtype(element.bits, True), int_dtype(element.bits, False)
    bits = bitcast_to(ctx, value, signed)
    address = cast_to(ctx, pointer, PointerDtype(signed))
    sign = ctx.constant_like(element.bits - 1, unsigned, value)
    negative = cast_to(ctx, _shift(ctx, bitcast_to(ctx, value, unsigned), sign), INT1)
    positive = logical_not(ctx, negative)
    above = _update(ctx, name, address, bits, _both(ctx, mask, positive), order)
    below = _update(ctx, f"u{opposite}", address, bits, _both(ctx, mask, negative), order)
    op = Select(positive.value, above.value, below.value)
    return bitcast_to(ctx, ctx.tensor(op, signed, value.shape), element)


def _shift(ctx: BuildContext, x: Tensor, amount: Tensor) -> Tensor:
    return ctx.tensor(ShRUI(x.value, amount.value), x.dtype, x.shape)


def _both(ctx: BuildContext, mask: Tensor | None, condition: Tensor) -> Tensor:
    if mask is None:
        return condition
    return ctx.tensor(AndI(mask.value, condition.value), INT1, condition.shape)


@builtin(method=True)
def atomic_max(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Keeps the greater of memory and value, atomically; returns the previous value."""
    return _extreme(ctx, "max", pointer, val, mask, _ordering(ctx, sem, scope))


@builtin(method=True)
def atomic_min(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Keeps the lesser of memory and value, atomically; returns the previous value."""
    return _extreme(ctx, "min", pointer, val, mask, _ordering(ctx, sem, scope))


def _bitwise(
    ctx: BuildContext, kind: str, pointer: Any, val: Any, mask: Any, order: tuple[str, str]
) -> Tensor:
    pointer, value, mask, element = _operands(ctx, pointer, val, mask, f"atomic_{kind}")
    if not element.is_int():
        ctx.error(f"tl.atomic_{kind} is for integers, {ctx.name('pointer')} is {pointer.dtype}", "pointer")
    return _update(ctx, kind, pointer, value, mask, order)


@builtin(method=True)
def atomic_and(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Bitwise and with memory, atomically; returns the previous value."""
    return _bitwise(ctx, "and", pointer, val, mask, _ordering(ctx, sem, scope))


@builtin(method=True)
def atomic_or(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Bitwise or with memory, atomically; returns the previous value."""
    return _bitwise(ctx, "or", pointer, val, mask, _ordering(ctx, sem, scope))


@builtin(method=True)
def atomic_xor(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Bitwise exclusive or with memory, atomically; returns the previous value."""
    return _bitwise(ctx, "xor", pointer, val, mask, _ordering(ctx, sem, scope))


@builtin(method=True)
def atomic_xchg(ctx: BuildContext, pointer, val, mask=None, sem=None, scope=None):
    """Writes a value atomically; returns the previous value."""
    pointer, value, mask, _ = _operands(ctx, pointer, val, mask, "atomic_xchg")
    return _update(ctx, "xchg", pointer, value, mask, _ordering(ctx, sem, scope))


@builtin(method=True)
def atomic_cas(ctx: BuildContext, pointer, cmp, val, sem=None, scope=None):
    """Writes `val` where memory equals `cmp`, atomically; returns the previous value."""
    pointer = check_pointer(ctx, pointer, "tl.atomic_cas")
    assert isinstance(pointer.dtype, PointerDtype)
    element = pointer.dtype.element_ty
    if isinstance(element, BlockType) or element.bits not in (16, 32, 64):
        ctx.error(
            f"tl.atomic_cas is for elements of 16, 32 or 64 bits, {ctx.name('pointer')} is {pointer.dtype}",
            "pointer",
        )
    compare = stored_value(ctx, to_tensor(ctx, cmp, "cmp"), element, pointer, "cmp")
    value = stored_value(ctx, to_tensor(ctx, val, "val"), element, pointer, "val")
    op = AtomicCAS(pointer.value, compare.value, value.value, *_ordering(ctx, sem, scope))
    return ctx.tensor(op, element, pointer.shape)
