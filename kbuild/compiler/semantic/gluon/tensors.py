"""Making tensors in a layout, and changing their layout."""

from __future__ import annotations

from kbuild.compiler.layout import PendingLayout
from kbuild.compiler.layout.derived import placed
from kbuild.compiler.layout.gluon import AutoLayout, BlockedLayout, DistributedLayout, DotOperandLayout
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Barrier, Dot
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.reduce import counted
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import filled, numbers
from kbuild.compiler.semantic.types import BlockType
from kbuild.compiler.semantic.values import Tensor, describe, shape_text


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


def _tensor(ctx: BuildContext, value: object, function: str, name: str = "value") -> Tensor:
    if not isinstance(value, Tensor) or not value.shape:
        ctx.error(f"{function} takes a tensor, {ctx.name(name)} is {describe(value)}", name)
    return value


@builtin("gl")
def convert_layout(ctx: BuildContext, value, layout, assert_trivial=False):
    """The tensor in another layout; with `assert_trivial` it is an error if an element has to go to another
    thread."""
    value = _tensor(ctx, value, "gl.convert_layout")
    wanted = places.checked_place(ctx, layout, value.shape)
    own = places.layout_of_tensor(value)
    if assert_trivial:
        _check_trivial(ctx, own, layout, value.shape)
    type_ = BlockType(value.dtype, value.shape, wanted).ir
    return ctx.tensor(ConvertLayout(value.value, type_), value.dtype, value.shape)


def _check_trivial(ctx: BuildContext, own: DistributedLayout, layout, shape: tuple[int, ...]) -> None:
    source, destination = placed(own, shape), placed(layout, shape)
    if source == destination:
        return
    if isinstance(source, PendingLayout) or isinstance(destination, PendingLayout):
        ctx.error(
            f"whether the conversion of {ctx.name('value')} from {own} to {layout} moves elements is not known here",
            "value",
            help="leave out assert_trivial, or name both layouts",
        )
    if not all(source.solve(destination).keeps(dim) for dim in ("lane", "warp")):
        ctx.error(
            f"the conversion of {ctx.name('value')} from {own} to {layout} moves elements between threads",
            "value",
            help="leave out assert_trivial, or choose a layout with the same elements in each thread",
        )


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


@builtin("gl")
def full_like(ctx: BuildContext, input, value, shape=None, dtype=None, layout=None):
    """A tensor filled with a scalar, of the shape, data type and layout of `input` where no other is given."""
    input = _tensor(ctx, input, "gl.full_like", "input")
    return filled(
        ctx,
        input.shape if shape is None else shape,
        value,
        input.dtype if dtype is None else dtype,
        places.layout_of_tensor(input) if layout is None else layout,
    )


@builtin("gl")
def zeros_like(ctx: BuildContext, input, shape=None, dtype=None, layout=None):
    """A tensor filled with zeros, of the shape, data type and layout of `input` where no other is given."""
    return full_like(ctx, input, 0, shape, dtype, layout)


@builtin("gl")
def histogram(ctx: BuildContext, input, num_bins, mask=None, layout=None):
    """How often each of 0 … num_bins - 1 occurs, elements with a false mask not counted; int32 in a layout."""
    if layout is None:
        ctx.error("gl.histogram needs the layout of its result", "layout", help="pass layout=…")
    counts = counted(ctx, input, num_bins, mask)
    place = places.checked_place(ctx, layout, counts.shape)
    counts.value.type = BlockType(counts.dtype, counts.shape, place).ir
    return counts


@builtin("gl")
def thread_barrier(ctx: BuildContext):
    """All threads of the program wait for each other."""
    ctx.add(Barrier())


@builtin("gl")
def dot_fma(ctx: BuildContext, a, b, acc):
    """a·b + acc by scalar multiply-adds: `acc` in a BlockedLayout, `a` and `b` in DotOperandLayouts of it."""
    for value, name in ((a, "a"), (b, "b"), (acc, "acc")):
        _tensor(ctx, value, "gl.dot_fma", name)
    result = places.layout_of_tensor(acc)
    if not isinstance(result, BlockedLayout):
        ctx.error(f"{ctx.name('acc')} has the layout {result}; gl.dot_fma takes a BlockedLayout", "acc")
    for operand, index, name in ((a, 0, "a"), (b, 1, "b")):
        check_dot_operand(ctx, operand, index, result, name)
    if len(acc.shape) != 2 or a.shape != (acc.shape[0], b.shape[0]) or b.shape[1] != acc.shape[1]:
        shapes = ", ".join(f"{name} {shape_text(x.shape)}" for x, name in ((a, "a"), (b, "b"), (acc, "acc")))
        ctx.error(f"the shapes of gl.dot_fma do not fit each other: {shapes}")
    if a.dtype != b.dtype:
        ctx.error(f"a is {a.dtype}, b is {b.dtype}; gl.dot_fma takes one data type", "b")
    return ctx.tensor(Dot(a.value, b.value, acc.value, "ieee"), acc.dtype, acc.shape)


def check_dot_operand(
    ctx: BuildContext, operand: Tensor, index: int, result: DistributedLayout, name: str
) -> None:
    """Raise CompileError unless an operand of a dot has the layout for operand `index` of its result."""
    own = places.layout_of_tensor(operand)
    if not isinstance(own, DotOperandLayout) or own.operand_index != index or own.parent != result:
        ctx.error(
            f"{ctx.name(name)} has the layout {own}, the result has {result}",
            name,
            help=f"convert it to gl.DotOperandLayout({index}, acc.type.layout, k_width)",
        )
