"""Loads, stores and block pointers."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.ops.tensor import Advance, Load, MakeTensorPtr, Store
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.promote import broadcast_shape, common_shape, splat, spread, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import (
    INT1,
    INT8,
    INT32,
    INT64,
    BlockType,
    DType,
    PointerDtype,
    ScalarType,
)
from kbuild.compiler.semantic.values import Tensor, describe, shape_text

LOAD_CACHES = ("", ".ca", ".cg", ".cv")
_STORE_CACHES = ("", ".wb", ".cg", ".cs", ".wt")
EVICTIONS = ("", "evict_first", "evict_last", "evict_normal")
_PADDINGS = ("", "zero", "nan")


def option(ctx: BuildContext, name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """An argument that is one of some words."""
    value = value or ""
    if value not in allowed:
        listed = ", ".join(repr(item) for item in allowed)
        ctx.error(f"{name} is {value!r}; it can be {listed}", name)
    return "" if value == "evict_normal" else value


def check_pointer(ctx: BuildContext, pointer: Any, function: str) -> Tensor:
    """The pointer argument of a memory operation."""
    if isinstance(pointer, Tensor) and isinstance(pointer.dtype, PointerDtype):
        return pointer
    text = ctx.frontend.argument_text("pointer")
    subject = f"`{text}`" if text else "the pointer"
    ctx.error(
        f"{function} needs a pointer, {subject} is {describe(pointer)}",
        "pointer",
        help='check that the pointer argument of the kernel is a pointer in the signature, as in "*fp32"',
    )


def as_mask(ctx: BuildContext, mask: Any, pointer: Tensor) -> Tensor | None:
    """The mask in the shape of the pointers."""
    if mask is None:
        return None
    mask = to_tensor(ctx, mask, "mask")
    if mask.dtype != INT1:
        ctx.error(
            f"{ctx.name('mask')} is {mask.type}, a mask is int1", "mask", help="compare, as in mask != 0"
        )
    return _like_pointers(ctx, mask, pointer, "mask")


def _like_pointers(ctx: BuildContext, value: Tensor, pointer: Tensor, name: str) -> Tensor:
    """A mask or value spread to the shape of the pointers."""
    if value.shape == pointer.shape and (not ctx.explicit_layouts or not value.shape):
        return value
    if not pointer.shape:
        ctx.error(
            f"{ctx.name(name)} has shape {shape_text(value.shape)}, the pointer is a scalar",
            name,
            help="add a tensor of offsets to the pointer",
        )
    if value.shape and common_shape(value.shape, pointer.shape) != pointer.shape:
        ctx.error(
            f"{name} has shape {shape_text(value.shape)}, the pointers have shape {shape_text(pointer.shape)}",
            name,
            help=_placing(ctx, name, value.shape, pointer.shape),
        )
    if value.shape and ctx.explicit_layouts:
        _, value = places.same_place(ctx, pointer, value, ("pointer", name))
    place = layout_of(pointer.value.type)
    return spread(ctx, value, pointer.shape) if value.shape else splat(ctx, value, pointer.shape, place)


def _spread_pointers(ctx: BuildContext, pointer: Tensor, *others: Any) -> Tensor:
    """The pointers of a load in the shape of a mask, or of what stands in, that has more elements: what stores never do."""
    for other in others:
        if isinstance(other, Tensor) and other.shape and pointer.shape and not ctx.explicit_layouts:
            shape = common_shape(other.shape, pointer.shape)
            pointer = spread(ctx, pointer, shape) if shape else pointer
    return pointer


_ORDINALS = ("first", "second", "third", "fourth")


def _placing(ctx: BuildContext, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Advice for a vector beside pointers of more dimensions."""
    text = ctx.frontend.argument_text(name) or name
    if len(shape) != 1 or not 2 <= len(wanted) <= len(_ORDINALS) or shape[0] not in wanted:
        return ""
    axis = wanted.index(shape[0])
    index = ", ".join(":" if position == axis else "None" for position in range(len(wanted)))
    other = _ORDINALS[1 - axis] if len(wanted) == 2 else "other"
    written = f"{text}[{index}]" if text.replace("_", "").replace(".", "").isalnum() else f"({text})[{index}]"
    return f"write {written} to spread the {name} over the {other} dimension{'s' if len(wanted) > 2 else ''}"


def _bytes_for_bools(ctx: BuildContext, pointer: Tensor) -> tuple[Tensor, ScalarType]:
    """Truth values lie in memory as bytes: a pointer to them, and the type to read or write."""
    assert isinstance(pointer.dtype, PointerDtype)
    element = pointer.dtype.element_ty
    assert not isinstance(element, BlockType)
    if element == INT1:
        return cast_to(ctx, pointer, PointerDtype(INT8, pointer.dtype.const)), INT8
    return pointer, element


@builtin()
def load(
    ctx: BuildContext,
    pointer,
    mask=None,
    other=None,
    boundary_check=(),
    padding_option="",
    cache_modifier="",
    eviction_policy="",
    volatile=False,
):
    """What `pointer` points to: one value, a tensor of pointers, or a block pointer.  Where `mask` is false
    nothing is read and the result is `other` (undefined without it).  Block pointers take `boundary_check`
    (the dimensions in which the block may leave the tensor) and `padding_option` ("zero" or "nan") instead.
    """
    pointer = places.settled_by(ctx, check_pointer(ctx, pointer, "tl.load"), mask, other)
    options: dict[str, Any] = {
        "cache": option(ctx, "cache_modifier", cache_modifier, LOAD_CACHES),
        "eviction": option(ctx, "eviction_policy", eviction_policy, EVICTIONS),
        "volatile": bool(volatile),
    }
    padding = option(ctx, "padding_option", padding_option, _PADDINGS)
    if pointer.is_block_pointer:
        return _load_block(ctx, pointer, mask, other, boundary_check, padding, options)
    if padding or boundary_check:
        ctx.error(
            "boundary_check and padding_option are for block pointers (tl.make_block_ptr)",
            "boundary_check" if boundary_check else "padding_option",
            help="use mask and other",
        )
    if other is not None and mask is None:
        ctx.error(
            "other is given without mask, so it would never be used",
            "other",
            help="say with mask= where it stands in",
        )
    pointer = _spread_pointers(ctx, pointer, mask, other)
    mask = as_mask(ctx, mask, pointer)
    is_bool = isinstance(pointer.dtype, PointerDtype) and pointer.dtype.element_ty == INT1
    pointer, element = _bytes_for_bools(ctx, pointer)
    if other is not None:
        other = _filling(ctx, other, element, pointer)
    op = Load(pointer.value, mask and mask.value, other and other.value, **options)
    loaded = ctx.tensor(op, element, pointer.shape)
    return cast_to(ctx, loaded, INT1) if is_bool else loaded


def _filling(ctx: BuildContext, other: Any, element: ScalarType, pointer: Tensor) -> Tensor:
    whole = isinstance(other, int) or (isinstance(other, float) and other.is_integer())
    if isinstance(element, DType) and (whole or (isinstance(other, float) and element.is_floating())):
        return ctx.constant_like(other, element, pointer)  # at once in the element's type
    other = cast_to(ctx, to_tensor(ctx, other, "other"), element)
    return _like_pointers(ctx, other, pointer, "other")


def _boundary(ctx: BuildContext, boundary_check: Any, rank: int) -> tuple[int, ...]:
    dims = boundary_check if isinstance(boundary_check, tuple) else (boundary_check,)
    for dim in dims:
        if not isinstance(dim, int) or not 0 <= dim < rank:
            ctx.error(
                f"boundary_check has {describe(dim)}; the block has dimensions 0 to {rank - 1}",
                "boundary_check",
            )
    if len(set(dims)) != len(dims):
        ctx.error(f"boundary_check {dims} names a dimension twice", "boundary_check")
    return tuple(sorted(dims))


def _load_block(
    ctx: BuildContext,
    pointer: Tensor,
    mask: Any,
    other: Any,
    boundary_check: Any,
    padding: str,
    options: dict[str, Any],
) -> Tensor:
    for value, name in ((mask, "mask"), (other, "other")):
        if value is not None:
            ctx.error(
                f"{name} is given for a block pointer", name, help="use boundary_check and padding_option"
            )
    assert isinstance(pointer.dtype, PointerDtype) and isinstance(pointer.dtype.element_ty, BlockType)
    block = pointer.dtype.element_ty
    if padding == "nan" and block.is_int():
        ctx.error(f"padding with NaN needs floating point, the block is {block}", "padding_option")
    checked = _boundary(ctx, boundary_check, len(block.shape))
    op = Load(pointer.value, boundary_check=checked, padding=padding, **options)
    return ctx.tensor(op, block.element_ty, block.shape)


@builtin(method=True)
def store(
    ctx: BuildContext, pointer, value, mask=None, boundary_check=(), cache_modifier="", eviction_policy=""
):
    """Writes `value` where `pointer` points, except where `mask` is false.  The value is converted to the
    pointee's type and spread to the pointers' shape."""
    pointer = places.settled_by(ctx, check_pointer(ctx, pointer, "tl.store"), value, mask)
    assert isinstance(pointer.dtype, PointerDtype)
    options: dict[str, Any] = {
        "cache": option(ctx, "cache_modifier", cache_modifier, _STORE_CACHES),
        "eviction": option(ctx, "eviction_policy", eviction_policy, EVICTIONS),
    }
    if pointer.dtype.const:
        ctx.error(
            f"{ctx.name('pointer')} points to constants",
            "pointer",
            help="its type in the signature begins with *k",
        )
    if pointer.is_block_pointer:
        return _store_block(ctx, pointer, value, mask, boundary_check, options)
    if boundary_check:
        ctx.error(
            "boundary_check is for block pointers (tl.make_block_ptr)", "boundary_check", help="use mask"
        )
    pointer, element = _bytes_for_bools(ctx, pointer)
    mask = as_mask(ctx, mask, pointer)
    value = stored_value(ctx, value, element, pointer)
    ctx.add(Store(pointer.value, value.value, mask and mask.value, **options))
    return None


def stored_value(
    ctx: BuildContext, value: Any, element: ScalarType, pointer: Tensor, name: str = "value"
) -> Tensor:
    """A value for memory: of the pointee's type, in the pointers' shape."""
    value = to_tensor(ctx, value, name)
    if value.shape and not pointer.shape:
        ctx.error(
            f"{ctx.name(name)} has shape {shape_text(value.shape)}, the pointer is a scalar",
            name,
            help="add a tensor of offsets to the pointer, or reduce the value first",
        )
    # Spread first: fewer conversions are the compiler's affair, and the text stays Triton's.
    return cast_to(ctx, _like_pointers(ctx, value, pointer, name), element)


def _store_block(
    ctx: BuildContext, pointer: Tensor, value: Any, mask: Any, boundary_check: Any, options: dict[str, Any]
) -> None:
    assert isinstance(pointer.dtype, PointerDtype) and isinstance(pointer.dtype.element_ty, BlockType)
    block = pointer.dtype.element_ty
    if mask is not None:
        ctx.error("mask is given for a block pointer", "mask", help="use boundary_check")
    value = to_tensor(ctx, value, "value")
    if value.shape and value.shape != block.shape:
        ctx.error(
            f"{ctx.name('value')} has shape {shape_text(value.shape)}, the block pointer has shape "
            f"{shape_text(block.shape)}",
            "value",
        )
    if value.dtype != block.element_ty:
        ctx.error(
            f"{ctx.name('value')} is {value.dtype}, the block pointer points to {block.element_ty}",
            "value",
            help="convert it, as in value.to(pointer.type.element_ty.element_ty)",
        )
    value = broadcast_shape(ctx, value, block.shape, "value")
    checked = _boundary(ctx, boundary_check, len(block.shape))
    ctx.add(Store(pointer.value, value.value, boundary_check=checked, **options))


def index_values(ctx: BuildContext, items: Any, name: str, wide: bool) -> tuple[Tensor, ...]:
    """Sizes, strides or offsets as i64 (`wide`) or i32 scalars."""
    target = INT64 if wide else INT32
    values = []
    for item in items if isinstance(items, tuple) else (items,):
        if isinstance(item, int) and not isinstance(item, bool):
            if not target.get_int_min_value() <= item <= target.get_int_max_value():
                ctx.error(f"{name} has {item}, which does not fit {target}", name)
            values.append(ctx.constant(item, target))
            continue
        if not isinstance(item, Tensor) or item.shape or not item.dtype.is_int():
            ctx.error(f"{name} has {describe(item)}; its items are integer scalars", name)
        if not wide and item.dtype.primitive_bitwidth > 32:
            ctx.error(
                f"{name} has an item of {item.dtype}; offsets of block pointers are 32-bit",
                name,
                help="convert it with .to(tl.int32), or use a tensor of pointers for 64-bit offsets",
            )
        values.append(cast_to(ctx, item, target))
    return tuple(values)


def _static_ints(ctx: BuildContext, items: Any, name: str) -> tuple[int, ...]:
    items = items if isinstance(items, tuple) else (items,)
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool):
            ctx.error(
                f"{name} has {describe(item)}; its items are known while compiling",
                name,
                help="pass it as a tl.constexpr argument",
            )
    return items


def check_base(ctx: BuildContext, base) -> None:
    """Raises KbuildError unless `base` is a pointer to one element, as a block's tensor begins at."""
    if (
        not isinstance(base, Tensor)
        or not isinstance(base.dtype, PointerDtype)
        or base.shape
        or base.is_block_pointer
    ):
        ctx.error(f"base is {describe(base)}; it must be a pointer to the first element", "base")


@builtin()
def make_block_ptr(ctx: BuildContext, base, shape, strides, offsets, block_shape, order):
    """A pointer to the block of `block_shape` at `offsets` of the tensor of `shape` and `strides` that begins
    at `base`; `order` lists its dimensions from the fastest."""
    check_base(ctx, base)
    sizes = _static_ints(ctx, block_shape, "block_shape")
    for size in sizes:
        if size <= 0 or size & (size - 1):
            ctx.error(f"block_shape has {size}, which is not a power of two", "block_shape")
    values = [
        index_values(ctx, *item)
        for item in ((shape, "shape", True), (strides, "strides", True), (offsets, "offsets", False))
    ]
    fastest = _static_ints(ctx, order, "order")
    if sorted(fastest) != list(range(len(fastest))):
        ctx.error(f"order {fastest} is not a permutation of 0 … {len(fastest) - 1}", "order")
    lengths = [*(len(items) for items in values), len(sizes), len(fastest)]
    if len(set(lengths)) > 1:
        listed = ", ".join(
            f"{name} {n}" for name, n in zip(("shape", "strides", "offsets", "block_shape", "order"), lengths)
        )
        ctx.error(f"the lengths of the arguments differ: {listed}")
    base, element = _bytes_for_bools(ctx, base)
    dtype = PointerDtype(BlockType(element, sizes), base.dtype.is_const())
    parts = [tuple(item.value for item in items) for items in values]
    return ctx.tensor(MakeTensorPtr(base.value, *parts, order=fastest, type=dtype.ir), dtype)


@builtin(method=True)
def advance(ctx: BuildContext, base, offsets):
    """A block pointer moved by `offsets` elements along each dimension.  The argument itself does not move."""
    if not isinstance(base, Tensor) or not base.is_block_pointer:
        ctx.error(
            f"tl.advance moves block pointers, {ctx.name('base')} is {describe(base)}",
            "base",
            help="add the offset to a plain pointer",
        )
    rank = len(base.dtype.element_ty.shape)  # type: ignore[union-attr]
    values = index_values(ctx, offsets, "offsets", wide=False)
    if len(values) != rank:
        ctx.error(f"offsets has {len(values)} items, the block has {rank} dimensions", "offsets")
    return ctx.tensor(Advance(base.value, tuple(item.value for item in values)), base.dtype)
