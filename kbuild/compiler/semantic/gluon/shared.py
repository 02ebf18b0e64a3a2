"""Shared memory: tiles allocated, viewed, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.layout.derived import permuted_shared, reshaped_shared
from kbuild.compiler.layout.gluon import SharedLayout
from kbuild.compiler.ops.gpu import (
    LocalAlloc,
    LocalDealloc,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    MemDescReinterpret,
    MemDescReshape,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import static_shape
from kbuild.compiler.semantic.types import INT32, BlockType, DType
from kbuild.compiler.semantic.values import RunTime, Tensor, describe, shape_text


class SharedMemory(RunTime):
    """A tile of shared memory, or several: a view of an allocation."""

    __slots__ = ("dtype", "layout")
    methods = "shared_memory"

    def __init__(self, value: Value, dtype: DType, layout: SharedLayout) -> None:
        super().__init__(value)
        self.dtype = dtype
        self.layout = layout

    @property
    def ir(self) -> MemDescType:
        assert isinstance(self.value.type, MemDescType)
        return self.value.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ir.shape

    def with_value(self, value: Value) -> SharedMemory:
        return SharedMemory(value, self.dtype, self.layout)

    @property
    def form(self) -> Any:
        return (self.dtype, self.layout, self.ir)

    def facts(self) -> Mapping[str, Any]:
        return {
            "dtype": self.dtype,
            "shape": self.shape,
            "rank": len(self.shape),
            "numel": prod(self.shape),
            "layout": self.layout,
            "type": self,
            "element_ty": self.dtype,
        }

    def __str__(self) -> str:
        return f"shared memory {self.dtype}{shape_text(self.shape)} in {self.layout}"


@builtin("gl")
def allocate_shared_memory(ctx: BuildContext, element_ty, shape, layout, value=None):
    """Shared memory for a tile of `shape`, filled with `value` if given; where the layout has one dimension less,
    the first counts tiles, which `index` chooses."""
    if not isinstance(element_ty, DType) or element_ty.is_void():
        ctx.error(f"element_ty is {describe(element_ty)}, which is not a data type", "element_ty")
    type_ = tile_type(ctx, element_ty, shape, layout)
    if value is not None:
        _check_stored(ctx, value, element_ty, type_.shape)
    op = ctx.add(LocalAlloc(type_, None if value is None else value.value))
    return SharedMemory(op.result, element_ty, layout)


def tile_type(ctx: BuildContext, dtype: DType, shape: Any, layout: Any) -> MemDescType:
    """The type of shared memory of a shape in a layout; raises CompileError where they do not fit each other."""
    if not isinstance(layout, SharedLayout):
        ctx.error(
            f"layout is {describe(layout)}, which is not a layout of shared memory",
            "layout",
            help="write, for example, gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0])",
        )
    shape = shape if isinstance(shape, tuple) else (shape,)
    count = shape[: max(len(shape) - layout.rank, 0)]
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in count):
        ctx.error(f"the number of tiles is {describe(count[0])}; it is known while compiling", "shape")
    shape = (*count, *static_shape(ctx, shape[len(count) :]))
    if len(count) > 1 or len(shape) < layout.rank:
        ctx.error(
            f"{layout} is for tiles of {layout.rank} dimension{'s' * (layout.rank != 1)}, the shape is "
            f"{shape_text(shape)}",
            "layout",
            help="one dimension more counts tiles, which .index(i) chooses",
        )
    tile = shape[len(shape) - layout.rank :]
    try:
        return MemDescType(shape, dtype.ir, layout.linear(tile))
    except ValueError as error:
        ctx.error(f"{layout} does not fit tiles of shape {shape_text(tile)}: {error}", "layout")


def _check_stored(ctx: BuildContext, value: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    if not isinstance(value, Tensor) or value.shape != shape:
        ctx.error(
            f"{ctx.name('value')} is {describe(value)}, the shared memory has shape {shape_text(shape)}",
            "value",
        )
    if value.dtype != dtype:
        ctx.error(
            f"{ctx.name('value')} is {value.dtype}, the shared memory {dtype}",
            "value",
            help=f"convert it: value.to({dtype})",
        )


@builtin("shared_memory")
def load(ctx: BuildContext, tile, layout):
    """The tile as a tensor in a layout."""
    wanted = places.checked_place(ctx, layout, tile.shape)
    return ctx.tensor(
        LocalLoad(tile.value, BlockType(tile.dtype, tile.shape, wanted).ir), tile.dtype, tile.shape
    )


@builtin("shared_memory")
def store(ctx: BuildContext, tile, value):
    """Writes a tensor into the tile."""
    _check_stored(ctx, value, tile.dtype, tile.shape)
    ctx.add(LocalStore(value.value, tile.value))


@builtin("shared_memory")
def index(ctx: BuildContext, tile, index):
    """Tile number `index` of several."""
    if tile.ir.buffers is None:
        ctx.error(
            f"index chooses one of several tiles, this is {tile}, one alone",
            help="allocate [count, *shape], with a layout for tiles of that shape",
        )
    if isinstance(index, int) and not 0 <= index < tile.ir.buffers:
        ctx.error(f"index is {index}, there are {tile.ir.buffers} tiles", "index")
    number = to_tensor(ctx, index, "index")
    if number.dtype != INT32 or number.shape:
        ctx.error(f"index is {describe(number)}; it must be an int32 scalar", "index")
    return SharedMemory(ctx.add(MemDescIndex(tile.value, number.value)).result, tile.dtype, tile.layout)


@builtin("shared_memory", "slice")
def slice_(ctx: BuildContext, tile, start, length, dim=0):
    """The part of the tile from `start` on, `length` long, along a dimension; the numbers are known while
    compiling."""
    for value, name in ((start, "start"), (length, "length"), (dim, "dim")):
        if not isinstance(value, int) or isinstance(value, bool):
            ctx.error(f"{name} is {describe(value)}; it must be an integer known while compiling", name)
    type_ = tile.ir
    if type_.buffers is not None:
        ctx.error(f"a slice is taken of one tile, this is {tile}", help="choose one by .index(i) first")
    if not 0 <= dim < len(tile.shape):
        ctx.error(f"dim is {dim}, the tile has {len(tile.shape)} dimensions", "dim")
    size = tile.shape[dim]
    if length < 1 or length & (length - 1) or start < 0 or start % length or start + length > size:
        ctx.error(
            f"a slice of {length} from {start} on is not possible in a dimension of {size}: the length is a power "
            "of two, and divides the start",
            "start",
        )
    offsets = tuple(start if axis == dim else 0 for axis in range(len(tile.shape)))
    shape = tuple(length if axis == dim else size for axis, size in enumerate(tile.shape))
    part = MemDescType(shape, type_.element, type_.layout)
    return SharedMemory(ctx.add(MemDescSubslice(tile.value, offsets, part)).result, tile.dtype, tile.layout)


@builtin("shared_memory")
def permute(ctx: BuildContext, tile, order):
    """The same tile with its dimensions in another order: dimension i is dimension order[i]."""
    _check_single(ctx, tile, "permute")
    if not isinstance(order, tuple) or sorted(map(str, order)) != sorted(map(str, range(len(tile.shape)))):
        ctx.error(
            f"order is {describe(order)}, which is not a permutation of 0 … {len(tile.shape) - 1}", "order"
        )
    op = ctx.add(MemDescTrans(tile.value, order))
    return SharedMemory(op.result, tile.dtype, permuted_shared(tile.layout, tile.ir.layout, order))


@builtin("shared_memory")
def reshape(ctx: BuildContext, tile, shape):
    """The same tile under another shape, its elements in row-major order."""
    _check_single(ctx, tile, "reshape")
    shape = static_shape(ctx, shape)
    if prod(shape) != prod(tile.shape):
        ctx.error(
            f"shape {shape_text(tile.shape)} has {prod(tile.shape)} elements, {shape_text(shape)} has {prod(shape)}",
            "shape",
        )
    op = ctx.add(MemDescReshape(tile.value, shape))
    return SharedMemory(op.result, tile.dtype, reshaped_shared(tile.layout, tile.ir.layout, shape))


@builtin("shared_memory")
def _reinterpret(ctx: BuildContext, tile, dtype, shape, layout):
    """The same memory as a tile of another type, shape and layout, no larger than it is."""
    if not isinstance(dtype, DType) or dtype.is_void():
        ctx.error(f"dtype is {describe(dtype)}, which is not a data type", "dtype")
    type_ = tile_type(ctx, dtype, shape, layout)
    if tile.ir.tile_shape != tile.ir.layout.shape:
        ctx.error(f"{tile} is a part of a larger tile, whose elements lie apart", help="take the whole tile")
    if type_.size_bytes > tile.ir.size_bytes:
        ctx.error(
            f"{dtype}{shape_text(type_.shape)} takes {type_.size_bytes} bytes, {tile} has {tile.ir.size_bytes}",
            "shape",
        )
    return SharedMemory(ctx.add(MemDescReinterpret(tile.value, type_)).result, dtype, layout)


def _check_single(ctx: BuildContext, tile: SharedMemory, what: str) -> None:
    if tile.ir.buffers is not None:
        ctx.error(f"{what} takes one tile, this is {tile}", help="choose one by .index(i) first")
    if what == "reshape" and tile.shape != tile.ir.layout.shape:
        ctx.error(
            f"{tile} is a part of a larger tile, which {what} does not take", help="take the whole tile"
        )


@builtin("shared_memory")
def _keep_alive(ctx: BuildContext, tile):
    """Keeps the memory from being used for something else before here."""
    ctx.add(LocalDealloc(tile.value))
