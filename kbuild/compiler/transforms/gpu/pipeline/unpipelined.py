"""Which loads through descriptors TMA should do that no pipeline issues early, and into what tiles.

Threads load a block as well as TMA where they load whole vectors, neighbours next to each other, and without making
barriers for it.  In two cases they do not:

* The last size of the tensor is not known to be divisible by a vector's elements.  The mask may end inside of any vector,
  so that each is loaded whole by some threads and element by element by others, with an instruction for each element.
  TMA is exact to the element.
* The values are needed in another layout than that of memory, such as that of a dot's sum.  By threads they would go
  through shared memory after they were loaded; TMA brings them there at once.

So loads that TMA can do may have any layout (`free_loads`), and once layouts are chosen the two cases are told apart
from others (`copyable_loads`).  Loads through pointers TMA does in pipelines alone: each map costs a launch time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.compiler.analysis.access import neighbours
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.analysis.bases import base_of, written_bases
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.nesting import ancestors
from kbuild.compiler.ir.types import BF16, F16, F32, F64, MemDescType, TensorType, bit_width, element_of
from kbuild.compiler.layout import tma_box
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.gpu import LocalAlloc
from kbuild.compiler.ops.tensor import Load, MakeTensorDescriptor
from kbuild.compiler.transforms._support.layout_flow import tensor_type
from kbuild.compiler.transforms.gpu.memory.tensor_stores.choice import ELEMENTS, MAX_BOXES, tile_for
from kbuild.compiler.transforms.gpu.pipeline.loads import reads_plain_tile
from kbuild.compiler.transforms.gpu.pipeline.own_maps import can_make
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import is_read_as_tf32, sources_of, unit_elements

MIN_ELEMENTS = 8
"""Elements of a thread from which on a barrier is worth making."""
MIN_PIECE_BITS = 1024
"""A cache line, which a warp should read whole."""


@dataclass(frozen=True, eq=False)
class CopyableLoad:
    """A load that can be a copy into shared memory."""

    op: Load
    make: MakeTensorDescriptor
    tile: MemDescType
    box: TensorType
    """The box that one instruction copies; of rank 2 at least."""
    hints: dict[str, Any] = field(default_factory=dict)


def copyable_loads(func: Func) -> list[CopyableLoad]:
    """The loads that TMA can do and should, as their layouts are, in the order of the text."""
    large = _large_loads(func)
    if not large:
        return []
    info = AxisInfo(func)
    return [
        load
        for load in _possible(large, func, info)
        if is_cut(load.op, info, _threads(func)) or is_scattered(load.op)
    ]


def free_loads(func: Func) -> set[Load]:
    """Loads that TMA could do, so that it does not matter by which threads they are made: their values may come in the
    layout of their users.  Those that no loop issues early."""
    large = [load for load in _large_loads(func) if not _is_in_innermost_loop(load)]
    return set[Load](load.op for load in _possible(large, func, AxisInfo(func))) if large else set[Load]()


def _is_in_innermost_loop(load: Load) -> bool:
    loop = next((around for around in ancestors(load) if isinstance(around, For | While)), None)
    return loop is not None and not any(isinstance(op, For | While) for op in _inside(loop))


def _inside(loop: For | While) -> Iterator[Op]:
    return (op for region in loop.regions for op in region.walk())


def is_cut(load: Load, info: AxisInfo, threads: int) -> bool:
    """Whether threads would load vectors element by element because the mask may end inside of one."""
    if load.mask is None:
        return False
    type_ = tensor_type(load.result)
    pointers, mask, bits = info.get(load.ptr), info.get(load.mask), bit_width(type_)
    whole, cut = (neighbours(pointers, mask, type_.rank - 1, bits, cut=cut) for cut in (False, True))
    return whole < min(cut, type_.numel // threads, type_.shape[-1])


def is_scattered(load: Load) -> bool:
    """Whether the lanes of a warp, in the layout that the users of a load have chosen, read short pieces of rows."""
    type_ = load.result.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    piece, lanes = type_.layout.contiguous_per_thread(type_.rank - 1), type_.layout.bases_of("lane")
    while piece in lanes:
        piece *= 2
    return piece < type_.shape[-1] and piece * bit_width(type_) < MIN_PIECE_BITS


def _threads(func: Func) -> int:
    return 32 * int(func.attrs["num_warps"])


def _large_loads(func: Func) -> list[Load]:
    """The loads through descriptors of which a thread would do some."""
    least = MIN_ELEMENTS * _threads(func)
    loads = [op for op in func.body.walk() if isinstance(op, Load) and op.desc is not None]
    return [load for load in loads if reads_plain_tile(load) and tensor_type(load.result).numel >= least]


def _possible(loads: Sequence[Load], func: Func, info: AxisInfo) -> list[CopyableLoad]:
    """Those that TMA can do."""
    written = written_bases(func, tables=True)
    if written is None:
        return []
    found = (_copyable(load, func, info, written) for load in loads)
    return [load for load in found if load is not None]


def _copyable(load: Load, func: Func, info: AxisInfo, written: set[Value]) -> CopyableLoad | None:
    """How TMA does a load; None where it cannot.

    It does not see what the kernel itself has written there before, and it stops the kernel where a box does not begin at
    a unit of 16 bytes.
    """
    make, type_ = load.desc.op if load.desc is not None else None, load.result.type
    assert isinstance(type_, TensorType)
    if not isinstance(make, MakeTensorDescriptor) or make.recognised or not _is_in_order(load, make):
        return None
    sources, base = sources_of(make, func), base_of(make.base, tables=True)
    if (
        (sources is None and not can_make(load, make))
        or base is None
        or base in written
        or str(type_.element) not in ELEMENTS
    ):
        return None
    if make.padding == "nan" and type_.element not in (F16, BF16, F32, F64):
        return None
    if info.get(load.indices[-1]).divisibility[0] % unit_elements(type_):
        return None
    tile, swizzle, box = _tile(load, type_)
    if type_.numel // box.numel > MAX_BOXES:
        return None
    hints: dict[str, Any] = {"swizzle": swizzle}
    if make.padding == "nan":
        hints["fill"] = "nan"
    elif element_of(type_) == F32 and is_read_as_tf32(load.result):
        hints["rounding"] = "tf32"
    thin = len(make.shape) - len(box.shape)
    return CopyableLoad(load, make, tile, TensorType((*[1] * thin, *box.shape), box.element), hints)


def _is_in_order(load: Load, make: MakeTensorDescriptor) -> bool:
    """Whether the result has the last axes of the block, in their order."""
    rank, own = len(make.shape), len(load.axes or make.shape)
    return not load.axes or load.axes == tuple(range(rank - own, rank))


def _tile(load: Load, type_: TensorType) -> tuple[MemDescType, int, TensorType]:
    """The tile, its swizzle and its boxes: the tile that the value is put into anyway, where TMA can fill that."""
    for user in load.result.users:
        if isinstance(user, LocalAlloc):
            tile = user.result.type
            assert isinstance(tile, MemDescType)
            found = tma_box(tile.layout, bit_width(tile)) if tile.layout.shape == type_.shape else None
            if found is not None:
                box, swizzle = found
                return tile, swizzle, TensorType((*[1] * (2 - len(box)), *box), tile.element)
    return tile_for(type_)
