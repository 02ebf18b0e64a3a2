"""The meaning of the operations of the GPU level in a program of one thread.

Layouts have no effect here.  Asynchronous copies land as late as possible: until a wait covers it, the
destination of a copy shows NaN, so that a missing wait, or a buffer used too early, changes the results.
"""

from __future__ import annotations

import numpy as np

from kbuild.compiler.interp.formats import Array, value_dtype
from kbuild.compiler.interp.machine import Machine, PendingCopy, means
from kbuild.compiler.interp.memory import MissingTile, SharedTile
from kbuild.compiler.interp.tensor import masked_load, matmul_add
from kbuild.compiler.ir.types import MemDescType, bit_width, like
from kbuild.compiler.ops.gpu import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    ConvertLayout,
    LocalAlloc,
    LocalDealloc,
    LocalDot,
    LocalLoad,
    LocalStore,
    MemDescIndex,
    MemDescReinterpret,
    MemDescReshape,
    MemDescSubslice,
    MemDescTrans,
    OpaqueCopy,
    SetAutoLayout,
    WarpIf,
)
from kbuild.errors import InterpretError


@means(OpaqueCopy, ConvertLayout, SetAutoLayout)
def same_elements(machine: Machine, op: OpaqueCopy | ConvertLayout | SetAutoLayout) -> Array:
    return machine[op.src]


@means(LocalAlloc)
def local_alloc(machine: Machine, op: LocalAlloc) -> SharedTile:
    """Memory of its own, or once the pass `allocate` ran, its place in the program's shared memory."""
    type_ = op.results[0].type
    assert isinstance(type_, MemDescType)
    if op.offset is None:
        tile = SharedTile.allocate(type_, np.full(type_.size_bytes, 0xFF, np.uint8), 0)
    else:
        if op.offset + op.size_bytes > len(machine.shared):
            raise InterpretError(
                f"ttg.local_alloc ends beyond the {len(machine.shared)} bytes of shared memory", op.loc
            )
        tile = SharedTile.allocate(type_, machine.shared, op.offset, op.distance)
    if op.src is not None:
        tile.write(machine[op.src])
    return tile


@means(LocalDealloc)
def local_dealloc(machine: Machine, op: LocalDealloc) -> None:
    machine[op.src].spoil()


@means(LocalLoad)
def local_load(machine: Machine, op: LocalLoad) -> Array:
    return machine[op.src].read()


@means(LocalStore)
def local_store(machine: Machine, op: LocalStore) -> None:
    machine[op.dst].write(machine[op.value])


@means(LocalDot)
def local_dot(machine: Machine, op: LocalDot) -> Array:
    return matmul_add(machine[op.a].read(), machine[op.b].read(), machine[op.c], op.c.type)


@means(MemDescIndex)
def memdesc_index(machine: Machine, op: MemDescIndex) -> SharedTile:
    tile: SharedTile = machine[op.src]
    index = int(machine[op.index])
    if not 0 <= index < tile.offsets.shape[0]:
        type_ = op.results[0].type
        assert isinstance(type_, MemDescType)
        return MissingTile(type_, f"buffer {index} of {tile.offsets.shape[0]}", op.loc)
    return _view(tile, tile.offsets[index], op.results[0].type)


@means(MemDescSubslice)
def memdesc_subslice(machine: Machine, op: MemDescSubslice) -> SharedTile:
    tile: SharedTile = machine[op.src]
    type_ = op.results[0].type
    assert isinstance(type_, MemDescType)
    part = tuple(slice(start, start + size) for start, size in zip(op.offsets, type_.tile_shape))
    return _view(tile, tile.offsets[part], type_)


@means(MemDescTrans)
def memdesc_trans(machine: Machine, op: MemDescTrans) -> SharedTile:
    tile: SharedTile = machine[op.src]
    return _view(tile, tile.offsets.transpose(op.order), op.results[0].type)


@means(MemDescReshape)
def memdesc_reshape(machine: Machine, op: MemDescReshape) -> SharedTile:
    tile: SharedTile = machine[op.src]
    return _view(tile, tile.offsets.reshape(op.shape), op.results[0].type)


@means(MemDescReinterpret)
def memdesc_reinterpret(machine: Machine, op: MemDescReinterpret) -> SharedTile:
    tile: SharedTile = machine[op.src]
    type_ = op.results[0].type
    assert isinstance(type_, MemDescType) and isinstance(op.src.type, MemDescType)
    first = int(tile.offsets.min()) * bit_width(op.src.type.element) // 8
    return SharedTile.allocate(type_, tile.data, tile.start + first)


def _view(tile: SharedTile, offsets: Array, type_: object) -> SharedTile:
    assert isinstance(type_, MemDescType)
    return tile.view(offsets, type_)


@means(AsyncCopyGlobalToLocal)
def async_copy_global_to_local(machine: Machine, op: AsyncCopyGlobalToLocal) -> None:
    tile: SharedTile = machine[op.dst]
    mask = machine[op.mask] if op.mask is not None else None
    other = (
        machine[op.other]
        if op.other is not None
        else np.zeros(op.src_type.shape, value_dtype(tile.type.element))
    )
    values = masked_load(machine, machine[op.src], mask, other, like(op.src_type, tile.type.element), op.loc)
    tile.spoil()
    machine.copies.append(PendingCopy(tile, values))


@means(AsyncCommitGroup)
def async_commit_group(machine: Machine, op: AsyncCommitGroup) -> None:
    machine.groups.append(machine.copies)
    machine.copies = []


@means(AsyncWait)
def async_wait(machine: Machine, op: AsyncWait) -> None:
    """All groups but the last `num` land now."""
    finished = len(machine.groups) - op.num
    for group in machine.groups[: max(finished, 0)]:
        for one in group:
            one.land()
    del machine.groups[: max(finished, 0)]


@means(WarpIf)
def warp_if(machine: Machine, op: WarpIf) -> tuple[Array, ...]:
    if machine[op.condition].any():
        return machine.run(op.body)
    return tuple(machine[value] for value in op.otherwise)
