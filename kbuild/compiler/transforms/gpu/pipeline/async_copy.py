"""Loads as asynchronous copies into shared memory: which can be, into what tile, and what becomes of their
uses."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.access import access_width
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import MemDescType, TensorType, bit_width, layout_of
from kbuild.compiler.layout import (
    LinearLayout,
    best_swizzle,
    read_cost,
    shared_access,
    swizzled,
    unswizzled,
    wavefronts,
)
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant, Select
from kbuild.compiler.ops.gpu import (
    ConvertLayout,
    LocalAlloc,
    LocalLoad,
    MemDescIndex,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Load, Splat

MIN_COPY_BITS = 32
"""cp.async moves 4, 8 or 16 bytes."""


def tile_of(load: Load) -> MemDescType:
    """The tile to copy a load into: the one that its value is put into anyway, or one that suits its readers."""
    put = [user for user in load.result.users if isinstance(user, LocalAlloc) and _only_read(user)]
    if put:
        # Dots of warpgroups read no other layout.
        tile = next((user for user in put if not _is_loaded(user)), put[0]).type
        assert isinstance(tile, MemDescType)
        return tile
    type_ = load.result.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    readers = [layout_of(user.result.type) for user in load.result.users if isinstance(user, ConvertLayout)]
    layout = _shared_layout(type_, type_.layout, [reader for reader in readers if reader is not None])
    return MemDescType(type_.shape, type_.element, layout)


def _shared_layout(type_: TensorType, layout: LinearLayout, readers: Sequence[LinearLayout]) -> LinearLayout:
    order = sorted(
        range(type_.rank), key=lambda axis: (layout.contiguous_per_thread(axis), axis), reverse=True
    )
    if type_.rank < 2:
        return unswizzled(type_.shape, order)
    swizzle = best_swizzle(type_.shape, order, bit_width(type_), readers, [layout])
    return swizzled(type_.shape, *swizzle, order)


def can_copy(load: Load, tile: MemDescType, info: AxisInfo) -> bool:
    """Whether cp.async can do a load: are enough neighbours in memory neighbours in the tile, under a mask
    that cuts off at most the last of them?"""
    type_ = load.result.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    bits = bit_width(type_)
    if bits < 8:
        return False
    pointers, mask = info.get(load.ptr), info.get(load.mask) if load.mask is not None else None
    width = access_width(type_.layout, pointers, mask, bits, cut=True)
    width = min(width, shared_access(type_.layout, tile.layout, bits).vector)
    return width * bits >= MIN_COPY_BITS


def needs_other(load: Load) -> bool:
    """Whether masked elements must differ from the zeros that asynchronous copies leave."""
    other = load.other
    if other is None:
        return False
    source = other.op.src if isinstance(other.op, Splat) else other
    return not (isinstance(source.op, Constant) and source.op.value == 0)


def replace_uses(loop: For, load: Load, buffer: Value) -> None:
    """Make the users of a load read the buffer that holds this iteration's tile, and erase the load."""
    tile = buffer.type
    assert isinstance(tile, MemDescType)
    fill = needs_other(load)
    for user in list(load.result.users):
        if fill or user.parent is not loop.body:
            continue
        if isinstance(user, LocalAlloc) and user.type == tile and _only_read(user):
            user.replace_by(buffer)
        elif isinstance(user, LocalAlloc) and _is_loaded(user) and _is_cheaper(user, load, tile):
            for reader in list(user.result.users):
                reader.replace_by(Builder.before(reader).add(LocalLoad(buffer, reader.result.type)))
            user.erase()
        elif isinstance(user, ConvertLayout):
            user.replace_by(Builder.before(user).add(LocalLoad(buffer, user.type)))
    if load.result.users:
        builder = Builder.before(load)
        value = builder.add(LocalLoad(buffer, load.result.type)).result
        if fill:
            assert load.mask is not None and load.other is not None, "other goes with a mask"
            value = builder.add(Select(load.mask, value, load.other)).result
        load.result.replace_by(value)
    load.erase()


def _is_loaded(allocation: LocalAlloc) -> bool:
    """Whether a tile is only loaded into registers, as a whole."""
    return all(isinstance(user, LocalLoad) for user in allocation.result.users)


def _is_cheaper(allocation: LocalAlloc, load: Load, tile: MemDescType) -> bool:
    """Whether its readers had better read the tile that a load is copied to than a copy in a layout of their own."""
    own, made = allocation.type, layout_of(load.result.type)
    assert isinstance(own, MemDescType) and made is not None
    bits = bit_width(tile)
    readers = [layout for user in allocation.result.users if (layout := layout_of(user.result.type))]
    here, there = (sum(read_cost(reader, type_.layout, bits) for reader in readers) for type_ in (tile, own))
    return here <= there + read_cost(made, tile.layout, bits) + wavefronts(made, own.layout, bits)


def _only_read(allocation: LocalAlloc) -> bool:
    """Whether an allocation is read in its own block only, and never written again, so that a buffer can
    stand for it."""
    users = list(allocation.result.users)
    while users:
        user: Op = users.pop()
        if isinstance(user, MemDescIndex | MemDescSubslice | MemDescTrans):
            users.extend(user.result.users)
        elif not isinstance(user, LocalLoad | WarpGroupDot):
            return False
    return True
