"""Making tensors and changing their shape."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ops.tensor import Cat, Join, MakeRange, Reshape, Split, Trans, Unsplat
from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.promote import broadcast_shape, expand, same_shape, splat, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import INT32, DType
from kbuild.compiler.semantic.values import Tensor, describe, shape_text

MAX_NUMEL = 1 << 20


def static_shape(ctx: BuildContext, shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape known while compiling, of powers of two, not too large."""
    while isinstance(shape, tuple) and len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    if not isinstance(shape, tuple):
        shape = (shape,)
    numel = 1
    for axis, size in enumerate(shape):
        if not isinstance(size, int) or isinstance(size, bool):
            ctx.error(
                f"dimension {axis} of the shape is {describe(size)}; it must be an integer known while compiling",
                name,
                help=_constexpr_hint(ctx, size, name),
            )
        if size <= 0 or size & (size - 1):
            ctx.error(
                f"dimension {axis} of the shape is {size}, which is not a power of two",
                name,
                help=f"take {next_power_of_two(size)} and mask what is too much",
            )
        numel *= size
    if numel > MAX_NUMEL:
        ctx.error(f"shape {shape_text(shape)} has {numel} elements, at most {MAX_NUMEL} are possible", name)
    return shape


def next_power_of_two(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def _constexpr_hint(ctx: BuildContext, value: Any, name: str) -> str:
    if isinstance(value, Tensor):
        text = ctx.frontend.argument_text(name)
        return f"annotate it with tl.constexpr where it comes from, as in {text if text.isidentifier() else 'N'}: tl.constexpr"
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    return ""


@builtin()
def arange(ctx: BuildContext, start, end):
    """The int32 numbers start, start + 1, …, end - 1; end - start is a power of two known while compiling."""
    return numbers(ctx, start, end)


def numbers(ctx: BuildContext, start: Any, end: Any, layout: Any = None) -> Tensor:
    """`arange`, in a layout where the author chooses one."""
    for value, name in ((start, "start"), (end, "end")):
        if not isinstance(value, int) or isinstance(value, bool):
            kind = (
                f"{value!r} of type {type(value).__name__}" if isinstance(value, float) else describe(value)
            )
            ctx.error(
                f"{name} of tl.arange{_named(ctx, name)} is {kind}; it must be an integer known while compiling",
                name,
                help=_constexpr_hint(ctx, value, name),
            )
        if not -(2**31) <= value < 2**31:
            ctx.error(f"{name} of tl.arange is {value}, which does not fit int32", name)
    size = end - start
    if size <= 0:
        ctx.error(f"tl.arange({start}, {end}) is empty: end must be greater than start")
    if size & (size - 1):
        up = next_power_of_two(size)
        ctx.error(
            f"tl.arange({start}, {end}) has {size} elements{_named(ctx, 'end')}, which is not a power of two",
            help=f"take {up} and mask the elements from {size} on",
        )
    if size > MAX_NUMEL:
        ctx.error(f"tl.arange({start}, {end}) has {size} elements, at most {MAX_NUMEL} are possible")
    place = places.checked_place(ctx, layout, (size,)) if ctx.explicit_layouts else None
    return ctx.tensor(MakeRange(start, end, ctx.ir_type(INT32, (size,), place)), INT32, (size,))


def _named(ctx: BuildContext, parameter: str) -> str:
    text = ctx.frontend.argument_text(parameter)
    return (
        f" (`{text}`)"
        if text and not text.replace(".", "").replace("-", "").isdigit() and text != "None"
        else ""
    )


@builtin()
def full(ctx: BuildContext, shape, value, dtype):
    """A tensor of `shape` filled with a scalar."""
    return filled(ctx, shape, value, dtype)


def filled(ctx: BuildContext, shape: Any, value: Any, dtype: Any, layout: Any = None) -> Tensor:
    """`full`, in a layout where the author chooses one."""
    shape = static_shape(ctx, shape)
    place = places.checked_place(ctx, layout, shape) if ctx.explicit_layouts and shape else None
    if not isinstance(dtype, DType):
        ctx.error(
            f"dtype is {describe(dtype)}, which is not a data type",
            "dtype",
            help="write, for example, tl.float32",
        )
    if isinstance(value, Tensor):
        if value.numel != 1:
            ctx.error(f"value has shape {shape_text(value.shape)}, it must be a scalar", "value")
        scalar = ctx.tensor(Unsplat(value.value), value.dtype) if value.shape else value
        return splat(ctx, cast_to(ctx, scalar, dtype), shape, place)
    if not isinstance(value, bool | int | float):
        ctx.error(f"value is {describe(value)}, which is not a number", "value")
    return ctx.constant(value, dtype, shape, place)


@builtin(name="to_tensor")
def as_tensor(ctx: BuildContext, x):
    """A number as a scalar of run time."""
    return to_tensor(ctx, x, "x")


@builtin()
def broadcast(ctx: BuildContext, input, other):
    """Both tensors, spread to a common shape."""
    return same_shape(ctx, to_tensor(ctx, input, "input"), to_tensor(ctx, other, "other"), ("input", "other"))


@builtin(method=True)
def broadcast_to(ctx: BuildContext, input, *shape):
    """The tensor spread to a shape: dimensions of size one are repeated."""
    return broadcast_shape(ctx, to_tensor(ctx, input, "input"), static_shape(ctx, shape), "input")


def wrap_axis(ctx: BuildContext, axis: Any, rank: int, name: str = "axis") -> int:
    """A dimension's number, counted from the end when negative."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        ctx.error(f"{name} is {describe(axis)}; it must be an integer known while compiling", name)
    if not -rank <= axis < rank:
        ctx.error(f"{name} is {axis}, the tensor has {rank} dimension{'s' if rank != 1 else ''}", name)
    return axis % rank


@builtin(method=True)
def expand_dims(ctx: BuildContext, input, axis):
    """Dimensions of size one inserted at `axis`, an index or several."""
    input = to_tensor(ctx, input, "input")
    axes = axis if isinstance(axis, tuple) else (axis,)
    rank = len(input.shape) + len(axes)
    places = sorted(wrap_axis(ctx, item, rank) for item in axes)
    if len(set(places)) != len(places):
        ctx.error(f"axis {axes} names a dimension twice", "axis")
    for place in places:
        input = expand(ctx, input, place)
    return input


def reshape_to(ctx: BuildContext, x: Tensor, shape: tuple[int, ...], can_reorder: bool = False) -> Tensor:
    """The same elements in another shape; () for a tensor of one element."""
    numel = 1
    for size in shape:
        numel *= size
    if numel != x.numel:
        ctx.error(
            f"shape {shape_text(x.shape)} has {x.numel} elements, {shape_text(shape)} has {numel}", "shape"
        )
    if x.shape == shape:
        return x
    if not shape:
        return ctx.tensor(Unsplat(x.value), x.dtype)
    if not x.shape:
        return splat(ctx, x, shape)
    place = places.reshaped(ctx, x, shape, can_reorder) if ctx.explicit_layouts else None
    return ctx.tensor(Reshape(x.value, ctx.ir_type(x.dtype, shape, place), can_reorder), x.dtype, shape)


@builtin(method=True)
def reshape(ctx: BuildContext, input, *shape, can_reorder=False):
    """The same elements, in row-major order, in another shape; in any order with `can_reorder`."""
    return reshape_to(ctx, to_tensor(ctx, input, "input"), static_shape(ctx, shape), bool(can_reorder))


@builtin(method=True)
def view(ctx: BuildContext, input, *shape):
    """The same elements in another shape, in any order."""
    return reshape_to(ctx, to_tensor(ctx, input, "input"), static_shape(ctx, shape), True)


@builtin(method=True)
def item(ctx: BuildContext, input):
    """The only element of a tensor of one element."""
    return reshape_to(ctx, to_tensor(ctx, input, "input"), ())


def permuted(ctx: BuildContext, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    rank = len(x.shape)
    if sorted(dims) != list(range(rank)):
        ctx.error(f"the dimensions {dims} are not a permutation of 0 … {rank - 1}", "dims")
    if dims == tuple(range(rank)):
        return x
    made = ctx.tensor(Trans(x.value, dims), x.dtype, tuple(x.shape[dim] for dim in dims))
    return places.named(ctx, made, places.permuted(x, dims)) if ctx.explicit_layouts else made


def _dims(ctx: BuildContext, dims: tuple[Any, ...]) -> tuple[int, ...]:
    while len(dims) == 1 and isinstance(dims[0], tuple):
        dims = dims[0]
    for dim in dims:
        if not isinstance(dim, int):
            ctx.error(f"the dimensions have {describe(dim)}; they are integers known while compiling", "dims")
    return dims


@builtin(method=True)
def permute(ctx: BuildContext, input, *dims):
    """The dimensions in another order: dimension i of the result is dimension dims[i]."""
    return permuted(ctx, to_tensor(ctx, input, "input"), _dims(ctx, dims))


@builtin(method=True)
def trans(ctx: BuildContext, input, *dims):
    """The dimensions in another order; without `dims`, the last two exchanged."""
    input = to_tensor(ctx, input, "input")
    rank = len(input.shape)
    order = _dims(ctx, dims)
    if not order:
        if rank < 2:
            ctx.error(
                f"tl.trans exchanges the last two dimensions, {ctx.name('input')} has shape {shape_text(input.shape)}",
                "input",
                help="write x[None, :] for a row, x[:, None] for a column",
            )
        order = (*range(rank - 2), rank - 1, rank - 2)
    return permuted(ctx, input, order)


@builtin()
def cat(ctx: BuildContext, input, other, can_reorder=False):
    """Two vectors in one, their elements in any order (`can_reorder` must be true)."""
    input, other = to_tensor(ctx, input, "input"), to_tensor(ctx, other, "other")
    if not can_reorder:
        ctx.error(
            "tl.cat does not keep the order of the elements",
            help="pass can_reorder=True, or use tl.join and reshape",
        )
    if len(input.shape) != 1 or input.shape != other.shape or input.dtype != other.dtype:
        ctx.error(f"tl.cat takes two vectors of one type and size, not {input.type} and {other.type}")
    shape = (input.shape[0] * 2,)
    return ctx.tensor(Cat(input.value, other.value, ctx.ir_type(input.dtype, shape)), input.dtype, shape)


@builtin()
def join(ctx: BuildContext, a, b):
    """Two tensors side by side along a new last dimension of size two."""
    a, b = to_tensor(ctx, a, "a"), to_tensor(ctx, b, "b")
    if a.dtype != b.dtype:
        ctx.error(f"tl.join takes two tensors of one type, not {a.type} and {b.type}", "b")
    a, b = same_shape(ctx, a, b, ("a", "b"))
    scalars = not a.shape
    if scalars and ctx.explicit_layouts:
        ctx.error("gl.join takes tensors, a and b are scalars", "a")
    if scalars:
        a, b = expand(ctx, a, 0), expand(ctx, b, 0)
    joined = ctx.tensor(Join(a.value, b.value), a.dtype, (*a.shape, 2))
    if ctx.explicit_layouts:
        joined = places.named(ctx, joined, places.joined(a))
    return reshape_to(ctx, joined, (2,)) if scalars else joined


@builtin(method=True)
def split(ctx: BuildContext, a):
    """The two halves of a tensor whose last dimension has size two: what `tl.join` joined."""
    a = to_tensor(ctx, a, "a")
    if not a.shape or a.shape[-1] != 2:
        ctx.error(
            f"tl.split needs a last dimension of size 2, {ctx.name('a')} has shape {shape_text(a.shape)}",
            "a",
            help="reshape first, as in x.reshape(…, 2)",
        )
    scalars = len(a.shape) == 1
    if scalars:
        a = reshape_to(ctx, a, (1, 2))
    author = places.split(ctx, a) if ctx.explicit_layouts else None
    op = ctx.add(Split(a.value))
    halves = tuple(Tensor(result, a.dtype, a.shape[:-1]) for result in op.results)
    if author is not None:
        halves = tuple(places.named(ctx, half, author) for half in halves)
    return tuple(reshape_to(ctx, half, ()) for half in halves) if scalars else halves


def subscript(ctx: BuildContext, x: Tensor, index: Any) -> Tensor:
    """`x[:, None]`: dimensions kept with `:` and inserted with `None`; as in Triton, `:` beyond the last one
    keep nothing."""
    items = index if isinstance(index, tuple) else (index,)
    kept = sum(isinstance(entry, slice) for entry in items)
    if items.count(Ellipsis) == 1:
        place = items.index(Ellipsis)
        items = (*items[:place], *(slice(None),) * (len(x.shape) - kept), *items[place + 1 :])
    for axis, entry in enumerate(items):
        if entry is None:
            x = expand(ctx, x, min(axis, len(x.shape)))
        elif entry != slice(None):
            ctx.error(
                f"a tensor is indexed only with `:` and `None`, not with {_index_text(entry)}",
                help="select elements with tl.where and tl.sum, tl.gather, or by loading them",
            )
    return x


def _index_text(entry: Any) -> str:
    if isinstance(entry, slice):
        return "a range of elements"
    return describe(entry)
