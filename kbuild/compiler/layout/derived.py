"""How the layouts of authors pass through operations, in the authors' words.

Each rule gives None where a layout does not follow.  A layout that is to be found out stays so.
"""

from __future__ import annotations

from kbuild.compiler.layout.gluon import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    SliceLayout,
)
from kbuild.compiler.layout.halves import joined_layout, split_layout
from kbuild.compiler.layout.linear import LinearLayout
from kbuild.compiler.layout.written import PendingLayout, WrittenLayout

Shape = tuple[int, ...]
OPEN = AutoLayout | CoalescedLayout
"""The layouts that are still to be found out."""
_PENDING = {cls.kind: cls() for cls in (AutoLayout, CoalescedLayout)}


def written(layout: LinearLayout) -> DistributedLayout:
    """A layout of tensors in its author's words."""
    if isinstance(layout, PendingLayout):
        return _PENDING[layout.kind]
    author = layout.author if isinstance(layout, WrittenLayout) else None
    return author if isinstance(author, DistributedLayout) else DistributedLinearLayout.of(layout)


def placed(author: DistributedLayout, shape: Shape) -> LinearLayout:
    """What a layout means for a tensor of a shape."""
    if isinstance(author, OPEN):
        return PendingLayout.of(shape, author.kind)
    return WrittenLayout.of(author.linear(shape), author)


def expanded(author: DistributedLayout, axis: int) -> DistributedLayout | None:
    """That of a slice's tensor after a dimension of size one is inserted."""
    if isinstance(author, OPEN):
        return author
    return author.parent if isinstance(author, SliceLayout) and author.dim == axis else None


def sliced(author: DistributedLayout, axis: int) -> DistributedLayout:
    """What a reduction along an axis leaves, and what is expanded to the layout."""
    return author if isinstance(author, OPEN) else SliceLayout(axis, author)


def permuted(author: DistributedLayout, shape: Shape, order: Shape) -> DistributedLayout:
    """That of a tensor whose dimension i is dimension order[i] of one of this shape."""
    if isinstance(author, OPEN):
        return author
    if isinstance(author, BlockedLayout):
        sizes, threads, warps = (
            tuple(along[axis] for axis in order)
            for along in (author.size_per_thread, author.threads_per_warp, author.warps_per_cta)
        )
        return BlockedLayout(sizes, threads, warps, tuple(order.index(axis) for axis in author.order))
    return DistributedLinearLayout.of(author.linear(shape).transpose(order))


def reshaped(author: DistributedLayout, shape: Shape, to: Shape) -> DistributedLayout:
    """That of the same elements, in row-major order, under another shape."""
    if isinstance(author, OPEN):
        return author
    return DistributedLinearLayout.of(author.linear(shape).reshape(to))


def joined(author: DistributedLayout, shape: Shape) -> DistributedLayout:
    """That of two tensors of this shape side by side along a new last dimension."""
    if isinstance(author, OPEN):
        return author
    if isinstance(author, BlockedLayout):
        return BlockedLayout(
            (*author.size_per_thread, 2),
            (*author.threads_per_warp, 1),
            (*author.warps_per_cta, 1),
            (author.rank, *author.order),
        )
    return DistributedLinearLayout.of(joined_layout(author.linear(shape)))


def split(author: DistributedLayout, shape: Shape) -> DistributedLayout | None:
    """That of the halves of a tensor of this shape along its last dimension."""
    if isinstance(author, OPEN):
        return author
    half = split_layout(author.linear(shape))
    if half is None:
        return None
    if isinstance(author, BlockedLayout) and author.order[0] == author.rank - 1:
        sizes, threads = author.size_per_thread[:-1], author.threads_per_warp[:-1]
        return BlockedLayout(sizes, threads, author.warps_per_cta[:-1], author.order[1:])
    return DistributedLinearLayout.of(half.remove_zero_bases("register"))
