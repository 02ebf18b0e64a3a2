"""What conversions and repeated operations cost, in instructions of one thread."""

from __future__ import annotations

from functools import lru_cache

from kbuild.compiler.ir.core import Block, Op
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import LinearLayout, classify
from kbuild.compiler.layout.linear import axis_bits
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS
from kbuild.compiler.layout.shuffles import shuffle_instructions
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import (
    AddPtr,
    Binary,
    Cast,
    Compare,
    DivF,
    DivSI,
    PreciseDivF,
    RemF,
    RemSI,
    Select,
)
from kbuild.compiler.ops.tensor import AxisAttributes, Broadcast, ExpandDims, Load, Reshape, Scan, Trans
from kbuild.compiler.transforms._support.layout_flow import FREE

LOOP_WEIGHT = 8
"""How often a loop is assumed to run."""
_BARRIER = 40
"""A trip through shared memory: its latency and its barrier."""
_SHUFFLE = 4
"""The latency of shuffles, besides their number."""
_WARP_TRIP = 20
"""A trip through shared memory of each warp's own."""
_RENAMING = (Broadcast, ExpandDims, Reshape, Trans, AxisAttributes)
_SLOW = (DivF, PreciseDivF, DivSI, RemF, RemSI)
_SECTOR_BITS = 256
"""The smallest unit of a cache line that is fetched."""
_MAX_LOADED_AGAIN = 8
"""Registers per thread up to which a vector may be loaded a second time."""


@lru_cache(maxsize=4096)
def conversion_cost(source: LinearLayout, destination: LinearLayout, bits: int) -> float:
    """Instructions of a conversion: register moves are nearly free, shuffles and shared memory are not."""
    kind = classify(source, destination)
    if kind == "same":
        return 0
    registers, share = max(source.size("register"), destination.size("register")), max(bits, 8) / 32
    if kind == "shuffle":  # Predicates become bytes, and these predicates again.
        packing = 2 * registers if bits == 1 else 0
        return _SHUFFLE + share * shuffle_instructions(source, destination) + packing
    starts = {"registers": 0, "warp": _WARP_TRIP, "shared": _BARRIER}
    return starts[kind] + (0.125 if kind == "registers" else 2) * max(1, registers * share)


def scan_cost(op: Scan, layout: LinearLayout) -> float:
    """Instructions of a scan in a layout: what neighbouring registers cost is the same in all of them."""
    along = axis_bits(layout.shape, op.axis)
    mask = sum(1 << bit for bit in along)
    lanes, warps = (sum(bool(basis & mask) for basis in layout.bases_of(dim)) for dim in ("lane", "warp"))
    chunks = len(op.srcs) * layout.size("register") // layout.contiguous_per_thread(op.axis)
    return (4 * lanes + (2 if warps else 0)) * chunks + (_BARRIER if warps else 0)


def loop_weight(block: Block | None) -> float:
    """How often a block is assumed to run."""
    weight = 1.0
    while block is not None and block.parent is not None:
        if isinstance(block.parent, For | While):
            weight *= LOOP_WEIGHT
        block = block.parent.parent
    return weight


def repeat_cost(op: Op, layout: LinearLayout) -> float | None:
    """Instructions of an operation made again with results in `layout`; None when it must not be made again."""
    registers = layout.size("register")
    if isinstance(op, (*FREE, *_RENAMING)):
        return 0
    if isinstance(op, Load):
        again = (
            not op.volatile
            and layout.rank == 1
            and registers <= _MAX_LOADED_AGAIN
            and _fills_sectors(op, layout)
        )
        vector = min(layout.contiguous_per_thread(), MAX_VECTOR_BITS // bit_width(op.result.type))
        return 4 * registers // vector if again else None
    if not op.has(Trait.ELEMENTWISE):
        return None
    if isinstance(op, Cast):
        narrow = min(bit_width(op.src.type), bit_width(op.results[0].type))
        return registers * (4 if narrow == 8 else 1)
    if isinstance(op, AddPtr):  # Of the neighbours in a vector, one has an address.
        return 2 * registers // layout.contiguous_per_thread()
    simple = isinstance(op, Binary | Compare | Select) and not isinstance(op, _SLOW)
    return registers * (1 if simple else 8)


def _fills_sectors(op: Load, layout: LinearLayout) -> bool:
    """Whether the lanes of a warp use all of every sector that they fetch from contiguous memory."""
    lanes, element = layout.bases_of("lane"), layout.contiguous_per_thread()
    while element in lanes:
        element *= 2
    return min(element, layout.numel) * bit_width(op.result.type) >= _SECTOR_BITS
