"""Which stores and atomics through descriptors TMA can do, and by what map, from what tile.

Its writes are not ordered with what the threads do to the same array, nor with what they release to other
programs.  So it does those of arrays that the kernel does not access in any other way, in kernels that
release nothing to others.  And it writes whole units of 16 bytes, also those that begin in the tensor and end
beyond: so rows of the tensor and of blocks have to begin and end with one. Blocks that begin at another byte
stop the kernel, and by CUDA's guide those with negative offsets are not possible either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.analysis.bases import base_of, bases_of
from kbuild.compiler.analysis.polynomials import Polynomials
from kbuild.compiler.analysis.signs import Signs
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import FLOATS8, MemDescType, TensorType, bit_width, element_of
from kbuild.compiler.layout import LinearLayout, axis_bits, unswizzled, wgmma_shared
from kbuild.compiler.layout.boxes import MAX_BOX_SIZE
from kbuild.compiler.ops.control import Call
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal, MakeTensorMap
from kbuild.compiler.ops.tensor import (
    Atomic,
    AtomicRMW,
    InlineAsm,
    Load,
    MakeTensorDescriptor,
    PointerWrite,
    Store,
)
from kbuild.compiler.transforms._support.layout_flow import without_conversions
from kbuild.compiler.transforms.gpu.pipeline.own_maps import can_make
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import sources_of, unit_elements
from kbuild.tensor_map import MapSources, number_of

MAX_BOXES = 32
"""The most instructions that one access may take."""
ELEMENTS = frozenset({"i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", *map(str, FLOATS8)})
"""Types that tensor maps have, or copy as bytes."""
PERIOD = 8
"""Rows after which a swizzle repeats."""


@dataclass(frozen=True, eq=False)
class CopyableStore:
    """A store or atomic that can be a copy from shared memory."""

    op: Store | AtomicRMW
    make: MakeTensorDescriptor
    base: Value
    """The argument at whose array, or from whose table of addresses, the tensor is."""
    tensor: MapSources | tuple[Value, ...]
    """What the launcher or the kernel makes its map of."""
    tile: MemDescType
    """The type of the tile that the value is put into."""
    box: TensorType
    """The box that one instruction copies; of rank 2 at least."""
    hints: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> Value:
        """The value that is written, in the layout in which it was computed."""
        return without_conversions(self.op.value)

    @property
    def kind(self) -> str:
        return self.op.kind if isinstance(self.op, AtomicRMW) else ""

    @property
    def indices(self) -> tuple[Value, ...]:
        return self.op.indices


def described(op: Op) -> bool:
    """Whether an operation writes, and names the descriptor of which its pointers are a block."""
    return isinstance(op, Store | AtomicRMW) and op.desc is not None


def clear(op: Op) -> None:
    """Drop the descriptor."""
    assert isinstance(op, Store | AtomicRMW)
    op.desc, op.indices = None, ()


def possible(func: Func) -> list[CopyableStore]:
    """The accesses that TMA can do, in the order of the text."""
    if not any(described(op) for op in func.body.walk()):
        return []
    info, forms = AxisInfo(func), Polynomials()
    accesses = [access for op in func.body.walk() if (access := _access(op, func)) is not None]
    found = {
        access.op: access
        for access in accesses
        if _whole_units(access, info) and _begins_inside(access, forms)
    }
    touched: set[Value | None] = set()
    for op in func.body.walk():
        if isinstance(op, Call) or (isinstance(op, InlineAsm) and not op.pure):
            return []
        if isinstance(op, Atomic) and op not in found and op.sem in ("release", "acq_rel"):
            return []
        if isinstance(op, Load | PointerWrite) and op not in found:
            touched |= bases_of(op.ptr, tables=True) or {None}
        elif isinstance(op, AsyncCopyGlobalToLocal):
            touched |= bases_of(op.src, tables=True) or {None}
        elif isinstance(op, AsyncTmaCopyGlobalToLocal):
            touched.add(_base_of_map(op.desc, func))
    return [access for access in found.values() if not touched & {None, access.base}]


def _base_of_map(map_: Value, func: Func) -> Value | None:
    """The argument at whose array, or from whose table of addresses, the tensor of a map is."""
    if isinstance(map_.op, MakeTensorMap):
        return base_of(map_.op.base, tables=True)
    sources = MapSources.parse(func.argument_hints[map_.index]["tensor_map"])
    return func.arguments[number_of(sources.base)]


def _access(op: Op, func: Func) -> CopyableStore | None:
    """How TMA does an access; None where it cannot."""
    if (
        not isinstance(op, Store | AtomicRMW)
        or op.desc is None
        or not isinstance(op.desc.op, MakeTensorDescriptor)
    ):
        return None
    make, type_ = op.desc.op, op.value.type
    sources, base = sources_of(make, func), base_of(make.base, tables=True)
    assert isinstance(type_, TensorType)
    if (
        base is None
        or not (sources is not None or can_make(op, make))
        or str(type_.element) not in ELEMENTS
        or (isinstance(op, AtomicRMW) and op.result.users)
    ):
        return None
    tile, swizzle, box = tile_for(type_)
    if type_.numel // box.numel > MAX_BOXES:
        return None
    hints: dict[str, Any] = {"swizzle": swizzle}
    if isinstance(op, AtomicRMW) and op.kind in ("max", "min"):
        hints["element"] = f"s{bit_width(type_)}"
    return CopyableStore(op, make, base, sources or tuple(make.operands), tile, box, hints)


def _whole_units(access: CopyableStore, info: AxisInfo) -> bool:
    """Whether rows of the tensor and of the block begin and end with whole units, as far as facts show:
    beyond a row that does not, a copy would write up to the end of its last one."""
    elements = unit_elements(access.box)
    return all(
        info.get(value).divisibility[0] % elements == 0
        for value in (access.make.shape[-1], access.indices[-1])
    )


def _begins_inside(access: CopyableStore, forms: Polynomials) -> bool:
    """Whether facts show that no offset is negative, which blocks that are written must not have."""
    signs = Signs(forms, set(access.make.shape))
    return all(signs.is_non_negative(forms.of(index)) for index in access.indices)


def tile_for(type_: TensorType) -> tuple[MemDescType, int, TensorType]:
    """The tile for a block, the bytes of its swizzle, and the box that one instruction copies.

    Panels as wide as the swizzle hold all rows, and follow one another; a box is a panel, as far as it may be
    so large.  A block of so few rows that no swizzle repeats has none.
    """
    *outer, width = type_.shape
    bits = bit_width(type_)
    rows, row_bytes = math.prod(outer), width * bits // 8
    swizzle = min(128, row_bytes) if rows >= PERIOD and row_bytes >= 32 else 0
    if swizzle:
        bases = wgmma_shared((rows, width), bits, swizzle).bases_of("offset")
        layout = LinearLayout.make(type_.shape, offset=bases)
        box = [swizzle * 8 // bits]
    else:
        layout = unswizzled(type_.shape, tuple(reversed(range(type_.rank))))
        box = [min(width, MAX_BOX_SIZE)]
    # Outer axes, as long as what the box holds lies in one piece.
    whole = bool(swizzle) or box[0] == width
    for size in reversed(outer):
        box.insert(0, min(size, MAX_BOX_SIZE) if whole else 1)
        whole = whole and box[0] == size
    element = element_of(type_)
    return (
        MemDescType(type_.shape, element, layout),
        swizzle,
        TensorType((*[1] * (2 - len(box)), *box), element),
    )


def warp_bits(access: CopyableStore) -> tuple[int, ...]:
    """The bits of flat indices that are those of the number of the warp that holds an element: where each
    warp holds whole rows of a tile.  None where warps hold the same, or other parts."""
    type_ = access.value.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    bases = type_.layout.bases_of("warp")
    others = 0
    for basis in (*type_.layout.bases_of("register"), *type_.layout.bases_of("lane")):
        others |= basis
    single = all(basis and not basis & (basis - 1) for basis in bases) and len(set(bases)) == len(bases)
    if not single or not access.hints["swizzle"] or any(basis & others for basis in bases):
        return ()
    return tuple(basis.bit_length() - 1 for basis in bases)


def box_of_warp(access: CopyableStore, bits: tuple[int, ...]) -> TensorType | None:
    """The box that one instruction copies of a warp's part; None where that is not whole panels of rows."""
    shape, box = access.tile.tile_shape, list(access.box.shape[-len(access.tile.tile_shape) :])
    whole = True
    for axis in reversed(range(len(shape))):
        positions = axis_bits(shape, axis)
        limit = min((1 << (bit - positions.start) for bit in bits if bit in positions), default=shape[axis])
        if axis == len(shape) - 1:
            if limit < box[axis]:
                return None
            continue
        box[axis] = min(box[axis], limit) if whole else 1
        whole = whole and box[axis] == shape[axis]
    if math.prod(box[:-1]) < PERIOD or math.prod(shape) // math.prod(box) > MAX_BOXES << len(bits):
        return None
    return TensorType((*[1] * (2 - len(box)), *box), access.box.element)
