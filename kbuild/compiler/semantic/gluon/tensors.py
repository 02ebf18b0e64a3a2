"""Making tensors in a layout, and changing their layout."""

from __future__ import annotations

from kbuild.compiler.layout import PendingLayout
from kbuild.compiler.layout.derived import placed
from kbuild.compiler.layout.gluon import AutoLayout
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import filled, numbers
from kbuild.compiler.semantic.types import BlockType
from kbuild.compiler.semantic.values import Tensor, describe


@builtin("gl")
def arange(ctx: BuildContext, start, end, layout=None):
    """The int32 numbers start, start + 1, …, end - 1 in a layout; end - start is a power of two known while
    compiling."""
    return numbers(ctx, start, end, layout)


@builtin("gl")
def full(ctx: BuildContext, shape, value, dtype, layout=None):
    """A tensor of `shape` in a layout, filled with a scalar."""
    return filled(ctx, shape, value, dtype, layout)


@builtin("gl")
def zeros(ctx: BuildContext, shape, dtype, layout=None):
    """A tensor of `shape` in a layout, filled with zeros."""
    return filled(ctx, shape, 0, dtype, layout)


def _tensor(ctx: BuildContext, value: object, function: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.shape:
        ctx.error(f"{function} takes a tensor, {ctx.name('value')} is {describe(value)}", "value")
    return value


@builtin("gl")
def convert_layout(ctx: BuildContext, value, layout, assert_trivial=False):
    """The tensor in another layout; with `assert_trivial` it is an error if an element has to go to another
    thread."""
    value = _tensor(ctx, value, "gl.convert_layout")
    wanted = places.checked_place(ctx, layout, value.shape)
    own = places.layout_of_tensor(value)
    if isinstance(own, AutoLayout):
        return places.settled(ctx, value, layout)
    if assert_trivial and not _keeps_threads(own, layout, value.shape):
        ctx.error(
            f"the conversion of {ctx.name('value')} from {own} to {layout} moves elements between threads",
            "value",
            help="leave out assert_trivial, or choose a layout with the same elements in each thread",
        )
    type_ = BlockType(value.dtype, value.shape, wanted).ir
    return ctx.tensor(ConvertLayout(value.value, type_), value.dtype, value.shape)


def _keeps_threads(own, layout, shape: tuple[int, ...]) -> bool:
    source, destination = placed(own, shape), placed(layout, shape)
    if isinstance(source, PendingLayout) or isinstance(destination, PendingLayout):
        return source == destination
    return all(source.solve(destination).keeps(dim) for dim in ("lane", "warp"))


@builtin("gl")
def set_auto_layout(ctx: BuildContext, value, layout):
    """The tensor, whose layout is AutoLayout, in this one."""
    value = _tensor(ctx, value, "gl.set_auto_layout")
    own = places.layout_of_tensor(value)
    if not isinstance(own, AutoLayout):
        ctx.error(
            f"{ctx.name('value')} has the layout {own} already; gl.set_auto_layout({layout}) is for AutoLayout",
            "value",
            help="write gl.convert_layout(value, layout)",
        )
    places.checked_place(ctx, layout, value.shape)
    return places.settled(ctx, value, layout)
