"""Loads that TMA can do, and the tensor maps that describe them: arguments of the kernel that the launcher
makes from others, or `own_maps` where it cannot.

    tt.func @kernel(%x: !tt.ptr<f16>, %m: i32, %k: i32, %stride: i64,
                    %x_map: !tt.tensordesc<tensor<64x64xf16>> {tensor_map = "#0 #1,#2 #3", swizzle = 128})

says that the map is of the tensor at argument 0 whose sizes are arguments 1 and 2, and whose rows are
argument 3 elements apart; that it gives boxes of 64 rows with 64 columns; and that each box lies in shared
memory as the swizzle of 128 bytes has it. Sizes and strides may also be numbers.  A map with `rounding =
"tf32"` has each f32 rounded to the nearest tf32 on its way: tensor cores would cut off the bits that they do
not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.analysis.bases import may_be_written
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import (
    BF16,
    F16,
    F32,
    DescriptorType,
    MemDescType,
    TensorType,
    Type,
    bit_width,
    element_of,
    pointee_of,
)
from kbuild.compiler.layout import wgmma_mode
from kbuild.compiler.layout.boxes import MAX_BOX_SIZE
from kbuild.compiler.ops.elementwise import Constant, ExtSI
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalLoad, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Load, MakeTensorDescriptor, Trans
from kbuild.compiler.transforms.gpu.pipeline.own_maps import ALIGNMENT, can_make, make_map
from kbuild.tensor_map import MapSources, number_of

MADE = ", which the kernel makes"
"""What is noted of maps that the launcher does not make."""
FAR = 1 << 30
"""The stride, in elements, of an axis of one element."""


def tma_obstacle(load: Load, tile: MemDescType, func: Func, info: AxisInfo) -> str:
    """Why TMA cannot bring a load into a tile by a map that the launcher or the kernel can make; empty where it can.

    It does not see what the kernel itself has written there before, short of a fence: so not from arrays that
    are written, of which those from different tables of addresses are taken for different ones.  And it stops the
    kernel where a box does not begin at a unit of 16 bytes.
    """
    unreadable = "no dot of warpgroups reads it as it is in memory"
    if tile.layout.rank != 2 or tile.layout.shape != tile.tile_shape or max(tile.tile_shape) > MAX_BOX_SIZE:
        return unreadable
    mode = wgmma_mode(tile.layout, bit_width(tile))
    if (
        load.desc is None
        or not isinstance(load.desc.op, MakeTensorDescriptor)
        or may_be_written(load.desc.op.base, func, tables=True)
        or not _is_matrix(load)
    ):
        return unreadable
    if mode is None or mode[0] == 0 or mode[1] != is_transposed(load):
        return unreadable
    if not (is_made_outside(load, func) or can_make(load, _made(load))):
        return "neither its launcher can make its map nor the kernel, once for several runs of the loop"
    elements = unit_elements(load.result.type)
    if info.get(load.indices[-1]).divisibility[0] % elements:
        return f"where its rows begin is not known to be divisible by {elements}"
    return ""


def unit_elements(type_: Type) -> int:
    """Elements of a type by whose number boxes begin in their rows, so that they begin at a unit of 16 bytes."""
    return max(ALIGNMENT * 8 // bit_width(type_), 1)


def is_transposed(load: Load) -> bool:
    """Whether the block of a matrix comes with the other axis contiguous."""
    return bool(load.axes) and load.axes[-2] > load.axes[-1]


def is_made_outside(load: Load, func: Func) -> bool:
    """Whether the launcher can make the map of a load of a matrix."""
    return _is_matrix(load) and sources_of(_made(load), func) is not None


def _made(load: Load) -> MakeTensorDescriptor:
    make = load.desc.op if load.desc is not None else None
    assert isinstance(make, MakeTensorDescriptor), "the load was chosen by it"
    return make


def _is_matrix(load: Load) -> bool:
    """Whether a load is of the last two axes of a tensor, beyond which TMA can fill what it should."""
    make, rank = _made(load), len(_made(load).shape)
    return _can_pad(make) and rank > 1 and sorted(load.axes or range(rank)) == [rank - 2, rank - 1]


def _can_pad(make: MakeTensorDescriptor) -> bool:
    """Whether TMA can fill what lies beyond the tensor: it has NaN for floats; f8 is bytes to it, and f32 may
    be copied as tf32."""
    return make.padding == "zero" or pointee_of(make.base.type) in (F16, BF16)


def sources_of(make: MakeTensorDescriptor, func: Func) -> MapSources | None:
    """The sources from which the launcher makes a descriptor's map; a vector becomes a matrix of one row."""
    assert isinstance(make.type, DescriptorType)
    last = make.strides[-1].op
    if not isinstance(last, Constant) or last.value != 1:
        return None
    words = [_source(value, func) for value in (make.base, *make.shape, *make.strides[:-1])]
    known = [word for word in words if word is not None]
    if len(known) < len(words):
        return None
    base, sizes, strides = known[0], known[1 : 1 + len(make.shape)], known[1 + len(make.shape) :]
    size = bit_width(make.type.block) // 8
    if any(stride.isdigit() and int(stride) * size % ALIGNMENT for stride in strides):
        return None
    if len(sizes) == 1:
        sizes, strides = ["1", *sizes], [str(FAR)]
    return MapSources(base, tuple(sizes), tuple(strides))


def _source(value: Value, func: Func) -> str | None:
    if isinstance(value.op, Constant):
        return str(value.op.value)
    source = value.op.src if isinstance(value.op, ExtSI) else value
    return f"#{source.index}" if source.op is None and source.block is func.body else None


def add_tensor_map(func: Func, load: Load, tile: MemDescType, parts: int = 1) -> Value:
    """The map of a load, an argument or made by the kernel; one for all loads that go by the same one.  Its boxes
    have all rows of the tile, or so many `parts` of them each."""
    make, mode = _made(load), wgmma_mode(tile.layout, bit_width(tile))
    assert mode is not None, "the load was chosen by it"
    *outer, rows, columns = block_shape(load)
    box = TensorType((*outer, rows // parts, min(columns, mode[0] * 8 // bit_width(tile))), tile.element)
    hints: dict[str, Any] = {"swizzle": mode[0]}
    if make.padding == "nan":
        hints["fill"] = "nan"
    if element_of(load.result.type) == F32 and is_read_as_tf32(load.result):
        hints["rounding"] = "tf32"
    return map_of(func, load, make, box, hints)


def map_of(
    func: Func, access: Op, make: MakeTensorDescriptor, box: TensorType, hints: Mapping[str, Any]
) -> Value:
    """The map of boxes for an access by a descriptor: an argument where the launcher can make it."""
    sources = sources_of(make, func)
    if sources is not None:
        return map_argument(func, sources, box, hints)
    element = hints.get("rounding") or hints.get("element") or str(box.element)
    return make_map(func, access, make, box, hints["swizzle"], element)


def block_shape(load: Load) -> tuple[int, ...]:
    """The sizes of the block that a load brings, as it lies in memory: the last axis is contiguous."""
    assert load.desc is not None and isinstance(load.desc.type, DescriptorType)
    return load.desc.type.block.shape


def map_argument(func: Func, sources: MapSources, box: TensorType, hints: Mapping[str, Any]) -> Value:
    """The argument that is a map of boxes, made from other arguments; one for all that are the same."""
    hints = {"tensor_map": str(sources), **hints}
    known = [*func.argument_hints, *[{}] * (len(func.arguments) - len(func.argument_hints))]
    for argument, other in zip(func.arguments, known):
        if other == hints and argument.type == DescriptorType(box):
            return argument
    func.argument_hints = (*known, hints)
    base = func.arguments[number_of(sources.base)]
    name, taken = f"{base.name or 'tensor'}_map", {argument.name for argument in func.arguments}
    while name in taken:
        name += "_"
    return func.body.add_argument(DescriptorType(box), name)


def is_read_as_tf32(value: Value) -> bool:
    """Whether nothing but tensor cores, which take f32 for tf32, reads a value or the tile that it lies in."""
    for op in value.users:
        if isinstance(op, ConvertLayout | LocalAlloc | LocalLoad | MemDescTrans | Trans):
            if not is_read_as_tf32(op.result):
                return False
        elif (
            not isinstance(op, Dot | WarpGroupDot)
            or not op.atom
            or op.input_precision != "tf32"
            or value is op.c
        ):
            return False
    return True


def note_of(load: Load, map_: Value) -> str:
    """By which map TMA does a load."""
    return f"{load.result.name or 'a load'}: by {map_.name}" + MADE * (map_.op is not None)


def note_maps(
    func: Func,
    loads: Sequence[Load],
    maps: Mapping[Load, Value],
    obstacles: Mapping[Load, str],
    together: Sequence[Load] = (),
) -> None:
    """Record in the function's attribute `tma` which loads use which map, and why blocks of tensors use none:
    TMA brings all loads of a loop, or none; `obstacles` are those of loads that it cannot bring, `together`
    are the loads that a cluster's programs do together."""
    notes = []
    for load in loads:
        name = load.result.name or "a load"
        if load in maps:
            notes.append(
                note_of(load, maps[load]) + ", by all programs of a cluster together" * (load in together)
            )
        elif load.desc is not None and load in obstacles:
            notes.append(f"{name}: {obstacles[load]}")
        elif load.desc is not None:
            other = next(iter(obstacles)).result.name or "another load"
            notes.append(f"{name}: {other} of the same loop is not by TMA")
    if notes:
        func.attrs["tma"] = (*func.attrs.get("tma", ()), *notes)
