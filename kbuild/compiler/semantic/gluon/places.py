"""Where tensors are, in kernels whose author chooses that: the layouts of operands and results.

The layout in the type of a tensor is always what its author's layout means for its shape; operations whose
result has another one by their own rule are followed by a conversion, which moves registers alone.
"""

from __future__ import annotations

from kbuild.compiler.ir.types import TensorType, layout_of
from kbuild.compiler.layout import LinearLayout, derived
from kbuild.compiler.layout.derived import OPEN, placed, written
from kbuild.compiler.layout.gluon import AutoLayout, DistributedLayout, SliceLayout
from kbuild.compiler.ops.gpu import ConvertLayout, SetAutoLayout
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.types import BlockType
from kbuild.compiler.semantic.values import Tensor, describe, shape_text


def layout_of_tensor(x: Tensor) -> DistributedLayout:
    """The layout of a tensor, as its author wrote it or its operation gives it."""
    layout = layout_of(x.value.type)
    assert layout is not None, f"{x} has no layout"
    return written(layout)


def checked_place(
    ctx: BuildContext, author: object, shape: tuple[int, ...], at: str = "layout"
) -> LinearLayout:
    """The same, once the layout has been found to fit the shape and the program."""
    if author is None:
        author = AutoLayout()
    if not isinstance(author, DistributedLayout):
        ctx.error(
            f"{at} is {describe(author)}, which is not a layout of tensors",
            at,
            help="write, for example, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])",
        )
    if isinstance(author, OPEN):
        return placed(author, shape)
    if author.rank != len(shape):
        ctx.error(
            f"{author} is for tensors of {author.rank} dimension{'s' * (author.rank != 1)}, this one has shape "
            f"{shape_text(shape)}",
            at,
        )
    if author.warps not in (None, ctx.num_warps):
        ctx.error(
            f"{author} is for {author.warps} warps, this program has {ctx.num_warps}",
            at,
            help="let warps_per_cta multiply to num_warps, which gl.num_warps() gives",
        )
    return placed(author, shape)


def named(ctx: BuildContext, x: Tensor, author: DistributedLayout) -> Tensor:
    """The result of an operation, which has this layout."""
    wanted = placed(author, x.shape)
    type_ = x.value.type
    assert isinstance(type_, TensorType)
    if type_.layout == wanted:
        x.value.type = type_.with_layout(wanted)
        return x
    return ctx.tensor(ConvertLayout(x.value, type_.with_layout(wanted)), x.dtype, x.shape)


def is_auto(x: Tensor) -> bool:
    """Whether a tensor's layout is still to be found out."""
    return isinstance(layout_of_tensor(x), AutoLayout)


def settled(ctx: BuildContext, x: Tensor, author: DistributedLayout) -> Tensor:
    """A tensor of `AutoLayout` in the layout that it is found to have."""
    wanted = BlockType(x.dtype, x.shape, placed(author, x.shape)).ir
    return ctx.tensor(SetAutoLayout(x.value, wanted), x.dtype, x.shape)


def settled_like(ctx: BuildContext, x: Tensor, other: Tensor) -> Tensor:
    """A tensor of `AutoLayout` in the layout of another of the same shape, if that has one; others as they are."""
    if not ctx.explicit_layouts or not x.shape or x.shape != other.shape or not is_auto(x) or is_auto(other):
        return x
    return settled(ctx, x, layout_of_tensor(other))


def same_place(
    ctx: BuildContext, x: Tensor, y: Tensor, names: tuple[str, str] = ("x", "y")
) -> tuple[Tensor, Tensor]:
    """Two tensors of one rank in one layout: an `AutoLayout` takes the other's.  Raises CompileError where they
    have different ones."""
    own, other = layout_of_tensor(x), layout_of_tensor(y)
    if own == other:
        return x, y
    if isinstance(own, AutoLayout):
        return settled(ctx, x, other), y
    if isinstance(other, AutoLayout):
        return x, settled(ctx, y, own)
    shape = tuple(map(max, x.shape, y.shape))
    if placed(own, shape) == placed(other, shape):  # Other words for the same places.
        return x, named(ctx, y, own) if y.shape == shape else _renamed(ctx, y, own)
    ctx.error(
        f"{_subject(ctx, names[0])} has the layout {own}, {_subject(ctx, names[1])} has {other}",
        help=f"bring one into the other's layout: gl.convert_layout({_text(ctx, names[1])}, layout)",
    )


def _renamed(ctx: BuildContext, x: Tensor, author: DistributedLayout) -> Tensor:
    type_ = BlockType(x.dtype, x.shape, placed(author, x.shape)).ir
    return x if type_ == x.value.type else ctx.tensor(ConvertLayout(x.value, type_), x.dtype, x.shape)


def _subject(ctx: BuildContext, name: str) -> str:
    """An operand as the author wrote it; an argument with its name."""
    text = ctx.frontend.argument_text(name)
    return f"`{text}`" if text and name in ("x", "y", "a", "b") else ctx.name(name)


def _text(ctx: BuildContext, name: str) -> str:
    text = ctx.frontend.argument_text(name)
    return text if text.replace(".", "").isidentifier() else "…"


def expanded(ctx: BuildContext, x: Tensor, axis: int) -> DistributedLayout:
    """The layout of a tensor after a dimension of size one is inserted; raises CompileError where that is not
    known."""
    own = layout_of_tensor(x)
    found = derived.expanded(own, axis)
    if found is not None:
        return found
    if not isinstance(own, SliceLayout):
        ctx.error(
            f"a dimension is inserted at {axis} into a tensor in {own}, which is no slice of another layout",
            "input",
            help=f"make the tensor with gl.SliceLayout({axis}, parent), or convert it to that",
        )
    ctx.error(
        f"a dimension is inserted at {axis} into a tensor in {own}, which lacks dimension {own.dim}",
        "input",
        help=f"take gl.SliceLayout({axis}, …), or insert the dimension at {own.dim}",
    )


def permuted(x: Tensor, order: tuple[int, ...]) -> DistributedLayout:
    """The layout of a tensor whose dimension i is dimension order[i] of `x`."""
    return derived.permuted(layout_of_tensor(x), x.shape, order)


def reshaped(ctx: BuildContext, x: Tensor, shape: tuple[int, ...], can_reorder: bool) -> LinearLayout:
    """The layout of the same elements in row-major order under another shape."""
    if can_reorder:
        ctx.error("the order of elements in a kernel of Gluon is its author's", help="leave can_reorder out")
    return placed(derived.reshaped(layout_of_tensor(x), x.shape, shape), shape)


def joined(a: Tensor) -> DistributedLayout:
    """The layout of two tensors side by side along a new last dimension."""
    return derived.joined(layout_of_tensor(a), a.shape)


def split(ctx: BuildContext, a: Tensor) -> DistributedLayout:
    """The layout of the halves along the last dimension; raises CompileError where threads do not hold both."""
    own = layout_of_tensor(a)
    half = derived.split(own, a.shape)
    if half is None:
        ctx.error(
            f"gl.split needs both halves in one thread, {ctx.name('a')} has the layout {own}",
            "a",
            help="convert it to a layout with size_per_thread 2, and one thread and warp, along the last dimension",
        )
    return half


def sliced(x: Tensor, axis: int) -> DistributedLayout:
    """The layout that a reduction along an axis leaves."""
    return derived.sliced(layout_of_tensor(x), axis)


def in_one_place(ctx: BuildContext, items: tuple[Tensor, ...], function: str) -> tuple[Tensor, ...]:
    """Tensors of one shape in one layout; raises CompileError where they have different ones."""
    first = next((item for item in items if not is_auto(item)), items[0])
    own = layout_of_tensor(first)
    result = []
    for item in items:
        other = layout_of_tensor(item)
        if other == own:
            result.append(item)
        elif isinstance(other, AutoLayout):
            result.append(settled(ctx, item, own))
        elif placed(own, item.shape) == placed(other, item.shape):
            result.append(named(ctx, item, own))
        else:
            ctx.error(
                f"the inputs of {function} have different layouts: {own} and {other}",
                "input",
                help="convert one of them: gl.convert_layout(x, layout)",
            )
    return tuple(result)


def settled_by(ctx: BuildContext, pointer: Tensor, *others: object) -> Tensor:
    """A tensor of pointers in the layout of what is read or written there, where its own is to be found out."""
    if not ctx.explicit_layouts or not pointer.shape or not is_auto(pointer):
        return pointer
    known = (item for item in others if isinstance(item, Tensor) and item.shape == pointer.shape)
    other = next((item for item in known if not is_auto(item)), None)
    return pointer if other is None else settled(ctx, pointer, layout_of_tensor(other))
