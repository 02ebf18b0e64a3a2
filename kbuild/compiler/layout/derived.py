"""How the layouts of authors pass through operations, in the authors' words.

Each rule gives None where a layout does not follow.  A layout that is to be found out stays so.
"""

from __future__ import annotations

from dataclasses import replace

from kbuild.compiler.layout.gluon import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from kbuild.compiler.layout.halves import joined_layout, split_layout
from kbuild.compiler.layout.linear import LinearLayout
from kbuild.compiler.layout.padded import PaddedLayout
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
    layout = author.linear(shape).reshape(to)
    if isinstance(author, BlockedLayout) and author.order == tuple(reversed(range(author.rank))):
        named = blocked_of(layout)
        if named is not None:
            return named
    return DistributedLinearLayout.of(layout)


def blocked_of(layout: LinearLayout) -> BlockedLayout | None:
    """The blocked layout in row-major order that a linear one is; None if there is none without copies."""
    threads, warps = (
        tuple(1 << sum(step > 0 for step in layout.bases_along(dim, axis)) for axis in range(layout.rank))
        for dim in ("lane", "warp")
    )
    sizes = []
    for axis in range(layout.rank):
        steps = [step for dim in ("lane", "warp") for step in layout.bases_along(dim, axis) if step]
        sizes.append(min(steps, default=layout.shape[axis]))
    try:
        named = BlockedLayout(tuple(sizes), threads, warps, tuple(reversed(range(layout.rank))))
    except ValueError:  # Some lanes hold copies.
        return None
    return named if named.linear(layout.shape) == layout else None


def joined(author: DistributedLayout, shape: Shape) -> DistributedLayout:
    """That of two tensors of this shape side by side along a new last dimension."""
    if isinstance(author, OPEN):
        return author
    layout = joined_layout(author.linear(shape))
    if isinstance(author, BlockedLayout):
        return BlockedLayout(
            (*author.size_per_thread, 2),
            (*author.threads_per_warp, 1),
            (*author.warps_per_cta, 1),
            (author.rank, *author.order),
        )
    if isinstance(author, SliceLayout) and author.dim == author.rank:  # What a split leaves.
        parent = author.parent.linear((*shape, 2))
        if split_layout(parent) == author.linear(shape):
            return author.parent
    return DistributedLinearLayout.of(layout)


def split(author: DistributedLayout, shape: Shape) -> DistributedLayout | None:
    """That of the halves of a tensor of this shape along its last dimension."""
    if isinstance(author, OPEN):
        return author
    half = split_layout(author.linear(shape))
    if half is None:
        return None
    return SliceLayout(author.rank - 1, author)


def permuted_shared(author: SharedLayout, layout: LinearLayout, order: Shape) -> SharedLayout:
    """The words for a tile whose dimension i is dimension order[i] of one with this layout."""
    wanted = layout.transpose(order)
    if isinstance(author, SwizzledSharedLayout):
        fastest = tuple(order.index(axis) for axis in author.order)
        return SwizzledSharedLayout(author.vec, author.per_phase, author.max_phase, fastest)
    if isinstance(author, NVMMASharedLayout) and author.rank == 2:
        turned = not author.transposed if order == (1, 0) else author.transposed
        return replace(author, transposed=turned)
    return _in_words(wanted, author)


def reshaped_shared(author: SharedLayout, layout: LinearLayout, shape: Shape) -> SharedLayout:
    """The words for the same elements, in row-major order, under another shape."""
    fastest = tuple(reversed(range(len(shape))))
    dense = SwizzledSharedLayout(1, 1, 1, fastest)
    if isinstance(author, NVMMASharedLayout):
        return _in_words(layout.reshape(shape), replace(author, rank=len(shape)), dense)
    return _in_words(layout.reshape(shape), dense)


def _in_words(layout: LinearLayout, *tried: SharedLayout) -> SharedLayout:
    """The first of some layouts that means a linear one; that by its bases if none does."""
    for author in tried:
        try:
            if author.rank == layout.rank and author.linear(layout.shape) == layout:
                return author
        except ValueError:  # It does not fit the shape.
            continue
    return (
        PaddedSharedLayout.of(layout) if isinstance(layout, PaddedLayout) else SharedLinearLayout.of(layout)
    )
