"""Which operation of kbuild's each of Triton's is, where their parts correspond.

Elementwise operations of the same name need no row, as long as their attributes change nothing.  Those that need more
than a row are in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbuild.compiler.ops import elementwise as ew
from kbuild.compiler.ops import gpu, nvidia, tensor
from kbuild.compiler.upstream.building import Row

_EVICTIONS = {"evict_normal": "", "evict_first": "evict_first", "evict_last": "evict_last"}


def cache_of(value: str) -> str:
    return f".{value}" if value != "none" else ""


def eviction_of(value: str) -> str:
    return _EVICTIONS[value]


def _order(values: list[int]) -> tuple[int, ...]:
    return tuple(values)


MEMORY_ATTRIBUTES: dict[str, str | tuple[str, Callable[[Any], Any]]] = {
    "cacheModifier": ("cache", cache_of),
    "evictionPolicy": ("eviction", eviction_of),
    "boundaryCheck": ("boundary_check", _order),
}
_KEEPS_NAN = {"propagateNan": ("propagate_nan", lambda word: word == "all")}
"""The other word is `none`: a number wins over NaN."""

ROWS: dict[str, Row] = {
    # Arithmetic whose attributes or words count.
    "arith.cmpi": Row(ew.CmpI, words=("predicate",)),
    "tt.clampf": Row(ew.ClampF, attributes=_KEEPS_NAN),
    "tt.precise_divf": Row(ew.PreciseDivF),
    "math.round": Row(ew.Round),
    # Making and shaping.
    "tt.make_range": Row(tensor.MakeRange, attributes={"start": "start", "end": "end"}),
    "tt.unsplat": Row(tensor.Unsplat),
    "tt.expand_dims": Row(tensor.ExpandDims, attributes={"axis": "axis"}),
    "tt.trans": Row(tensor.Trans, attributes={"order": ("order", _order)}),
    "tt.join": Row(tensor.Join),
    "tt.cat": Row(tensor.Cat),
    "tt.gather": Row(
        tensor.Gather,
        lists=("indices",),
        attributes={"axis": "axis"},
        ignored=frozenset({"efficient_layout"}),
    ),
    "tt.histogram": Row(tensor.Histogram),
    # Global memory.
    "tt.store": Row(tensor.Store, operands=("ptr", "value", "mask"), attributes=MEMORY_ATTRIBUTES),
    "tt.advance": Row(tensor.Advance, operands=("ptr",), lists=("offsets",)),
    # Shared memory.
    "ttg.convert_layout": Row(gpu.ConvertLayout),
    "ttg.local_dealloc": Row(gpu.LocalDealloc),
    "ttg.local_load": Row(gpu.LocalLoad, groups={"token": ""}),
    "ttg.local_store": Row(gpu.LocalStore),
    "ttg.memdesc_reinterpret": Row(gpu.MemDescReinterpret),
    # Programs and their threads.
    "gpu.barrier": Row(tensor.Barrier),
    "ttg.barrier": Row(tensor.Barrier),
    "ttng.fence_async_shared": Row(nvidia.FenceAsyncShared, ignored=frozenset({"bCluster"})),
    "ttng.async_copy_mbarrier_arrive": Row(
        nvidia.AsyncCopyMbarrierArrive, attributes={"noIncrement": "no_increment"}
    ),
}
