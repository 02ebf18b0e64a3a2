"""What kernels ask while they are compiled: layouts as linear layouts, bank conflicts, warps; and the types that
such questions are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.layout import PendingLayout, conflicts_per_wavefront
from kbuild.compiler.layout.derived import OPEN
from kbuild.compiler.layout.gluon import (
    DistributedLayout,
    DistributedLinearLayout,
    SharedLayout,
    SharedLinearLayout,
)
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon.places import checked_place
from kbuild.compiler.semantic.gluon.shared import SharedMemory, tile_type
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import static_shape
from kbuild.compiler.semantic.types import BlockType, DType
from kbuild.compiler.semantic.values import WithFacts, describe, shape_text


@builtin("gl")
def num_warps(ctx: BuildContext):
    """Warps that execute this part of the program."""
    return ctx.num_warps


@builtin("gl")
def num_ctas(ctx: BuildContext):
    """Programs that work on one tensor together: 1."""
    return 1


@dataclass(frozen=True)
class SharedMemoryType(WithFacts):
    """The type of a tile of shared memory, without the memory."""

    dtype: DType
    layout: SharedLayout
    ir: MemDescType

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"shared memory {self.dtype}{shape_text(self.ir.shape)} in {self.layout}"

    def facts(self) -> Mapping[str, Any]:
        """Its attributes."""
        return {"element_ty": self.dtype, "shape": self.ir.shape, "layout": self.layout}


def _dtype(ctx: BuildContext, value: Any) -> DType:
    if not isinstance(value, DType) or value.is_void():
        ctx.error(f"element_ty is {describe(value)}, which is not a data type", "element_ty")
    return value


@builtin("gl")
def distributed_type(ctx: BuildContext, element_ty, shape, layout):
    """The type of a tensor in a layout."""
    shape = static_shape(ctx, shape)
    return BlockType(_dtype(ctx, element_ty), shape, checked_place(ctx, layout, shape))


@builtin("gl")
def shared_memory_descriptor_type(ctx: BuildContext, element_ty, shape, layout, alloc_shape=None):
    """The type of a tile of shared memory in a layout."""
    dtype = _dtype(ctx, element_ty)
    return SharedMemoryType(dtype, layout, tile_type(ctx, dtype, shape, layout))


@builtin("gl")
def to_linear_layout(ctx: BuildContext, layout, shape):
    """A layout for a tensor of `shape` by its bases: a DistributedLinearLayout, or a SharedLinearLayout."""
    shape = static_shape(ctx, shape)
    if isinstance(layout, OPEN | DistributedLinearLayout):
        return layout
    if isinstance(layout, DistributedLayout):
        if layout.rank != len(shape):
            ctx.error(f"{layout} is for {layout.rank} dimensions, the shape is {shape_text(shape)}", "shape")
        return DistributedLinearLayout.of(layout.whole(shape))
    if not isinstance(layout, SharedLayout):
        ctx.error(f"layout is {describe(layout)}, which is not a layout", "layout")
    try:
        return SharedLinearLayout.of(layout.linear(shape))
    except ValueError as error:
        ctx.error(f"{layout} does not fit the shape {shape_text(shape)}: {error}", "shape")


@builtin("gl")
def bank_conflicts(ctx: BuildContext, distr_ty, shared_ty):
    """How many wavefronts more than needed each one takes, when a tensor of one type is moved from or to shared
    memory of the other by plain accesses: 0 where no two threads meet in a bank."""
    if not isinstance(distr_ty, BlockType) or distr_ty.place is None:
        ctx.error(f"distr_ty is {describe(distr_ty)}, which is not the type of a tensor", "distr_ty")
    if not isinstance(shared_ty, SharedMemory | SharedMemoryType):
        ctx.error(f"shared_ty is {describe(shared_ty)}, which is not of shared memory", "shared_ty")
    tile = shared_ty.ir
    if distr_ty.shape != tile.shape or distr_ty.element_ty != shared_ty.dtype:
        ctx.error(
            f"a tensor {distr_ty} does not fit {describe(shared_ty)}",
            "shared_ty",
            help="both have one shape and one data type",
        )
    if tile.tile_shape != tile.layout.shape:
        ctx.error(
            f"{describe(shared_ty)} is a part of a larger tile", "shared_ty", help="ask for the whole tile"
        )
    if isinstance(distr_ty.place, PendingLayout):
        ctx.error(f"the layout {distr_ty.layout} is still to be found out", "distr_ty")
    return conflicts_per_wavefront(distr_ty.place, tile.layout, max(shared_ty.dtype.bits, 8))
