"""What follows from a layout: vectors, copies, sectors of global memory, banks of shared memory, occupancy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.ir.core import Func
from kbuild.compiler.layout import (
    LinearLayout,
    SharedAccess,
    all_sums,
    classify,
    describe,
    shared_plan,
    shuffle_plan,
    total_bytes,
    wavefronts,
    wgmma_mode,
)
from kbuild.compiler.layout.shared import BANK_ROW_BYTES, MAX_VECTOR_BITS, LdmatrixPlan, load_plan, store_plan
from kbuild.compiler.ops.gpu import WarpPartition
from kbuild.compiler.views.sources import ShownLayout
from kbuild.targets import Target

SECTOR_BYTES = 32
"""What global memory is transferred in."""
WARP = 32
_DIMS = {"register": "registers of a thread", "lane": "lanes of a warp", "warp": "warps", "block": "programs"}


def facts_of(shown: ShownLayout, target: Target) -> dict[str, str]:
    """The facts of one layout, by their names."""
    layout, bits = shown.layout, shown.element_bits
    found = {"layout": describe(layout), "shape": "x".join(map(str, layout.shape)), "elements": shown.element}
    found |= _shared_facts(layout, bits) if layout.is_shared else _register_facts(layout, bits)
    return found | (_occupancy(shown.func, target) if shown.func is not None else {})


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


# Tensors


def _register_facts(layout: LinearLayout, bits: int) -> dict[str, str]:
    held = 1 << sum(map(bool, layout.bases_of("register")))
    found = {
        "spread": ", ".join(
            f"{layout.size(dim)} {words}" for dim, words in _DIMS.items() if layout.bits(dim)
        ),
        "registers": f"{_counted(held, 'element')} of a thread in {_counted(max(1, held * bits // 32), 'register')} of 32 bits",
    }
    copies = _copies(layout)
    if copies:
        found["copies"] = copies
    for axis in _orders(layout.rank):
        vector = vector_along(layout, axis, bits)
        touched, ideal = sectors(layout, axis, bits, vector)
        where = f"along axis {axis}" if layout.rank > 1 else "in memory"
        found[f"vector {where}"] = (
            f"{_counted(vector, 'element')}, {_counted(vector * bits // 8, 'byte')}; an access of a warp touches "
            f"{_counted(touched, 'sector')} of {SECTOR_BYTES} bytes, where {ideal} would do"
        )
    return found


def _orders(rank: int) -> list[int]:
    """The axes along which memory may be contiguous: the last (row-major) and the first."""
    return [0] if rank == 1 else [rank - 1, 0] if rank else []


def _copies(layout: LinearLayout) -> str:
    """How often each element is held, and by what; "" where it is held once."""
    steps = layout.kernel()
    if not steps:
        return ""
    dims = [
        (
            _DIMS[dim],
            1 << sum(1 for step in steps if max((d for d in step if step[d]), key=layout.dims.index) == dim),
        )
        for dim in layout.dims
    ]
    by = " and ".join(f"{count} {words}" for words, count in dims if count > 1)
    return f"each element is held {1 << len(steps)} times: by {by}"


def vector_along(layout: LinearLayout, axis: int, bits: int) -> int:
    """Neighbours along an axis that a thread accesses at once."""
    return min(layout.contiguous_per_thread(axis), max(1, MAX_VECTOR_BITS // bits))


def sectors(layout: LinearLayout, axis: int, bits: int, vector: int) -> tuple[int, int]:
    """The sectors that one access of a warp touches in a dense tensor that is contiguous along an axis, and the fewest
    that could hold as many bytes."""
    order = [axis, *(other for other in reversed(range(layout.rank)) if other != axis)]
    strides = {one: prod(layout.shape[other] for other in order[: order.index(one)]) for one in order}
    starts = set()
    for flat in all_sums(layout.bases_of("lane")):
        coordinates = layout.unflatten(flat)
        starts.add(sum(coordinate * strides[one] for one, coordinate in enumerate(coordinates)) * bits // 8)
    size = vector * bits // 8
    touched = {byte // SECTOR_BYTES for start in starts for byte in (start, start + size - 1)}
    return len(touched), max(1, -(-len(starts) * size // SECTOR_BYTES))


# Shared memory


def _shared_facts(layout: LinearLayout, bits: int) -> dict[str, str]:
    found = {"bytes": str(total_bytes(layout, bits))}
    mode = wgmma_mode(layout, bits)
    if mode is not None and (mode[0] or layout.shape[-1] * bits == 128):
        order = ", of the transposed matrix" if mode[1] else ""
        found["tensor cores"] = f"wgmma and TMA read it: swizzle of {mode[0]} bytes{order}"
    for axis in reversed(range(layout.rank)):
        lanes = lanes_along(layout.shape, axis)
        count = wavefronts(lanes, layout, bits, bits)
        least = max(1, min(WARP, layout.shape[axis]) * bits // (8 * BANK_ROW_BYTES))
        found[f"{min(WARP, layout.shape[axis])} elements along axis {axis}"] = (
            f"{_counted(count, 'wavefront')} where {least} would do: "
            + ("free of bank conflicts" if count <= least else "bank conflicts")
        )
    return found


def lanes_along(shape: Sequence[int], axis: int) -> LinearLayout:
    """The layout in which the lanes of a warp hold elements that follow each other along an axis, one each."""
    stride = prod(shape[axis + 1 :])
    bases = [1 << bit for bit in range(5) if 1 << bit < shape[axis]]
    part = tuple(2 * bases[-1] if bases and one == axis else 1 for one in range(len(shape)))
    flat = [basis * stride for basis in bases]
    coordinates = [
        tuple(step // prod(shape[one + 1 :]) % shape[one] for one in range(len(shape))) for step in flat
    ]
    return LinearLayout.make(part, lane=[*coordinates, *[0] * (5 - len(bases))])


# Two layouts


def facts_of_both(one: ShownLayout, other: ShownLayout, target: Target) -> dict[str, str]:
    """How a tensor gets from one layout to the other."""
    if one.layout.is_shared and other.layout.is_shared:
        return {"together": "both are layouts of shared memory: nothing goes from one to the other directly"}
    if not one.layout.is_shared and not other.layout.is_shared:
        return {"conversion": conversion(one.layout, other.layout, one.element_bits)}
    tensor, tile = (other, one) if one.layout.is_shared else (one, other)
    bits = tensor.element_bits
    store = store_plan(tensor.layout, tile.layout, bits, target.has("stmatrix"))
    load = load_plan(tensor.layout, tile.layout, bits, target.has("ldmatrix"))
    return {
        "store": accesses("st", store, tensor.layout, tile.layout, bits),
        "load": accesses("ld", load, tensor.layout, tile.layout, bits),
    }


def accesses(
    kind: str, plan: SharedAccess | LdmatrixPlan, tensor: LinearLayout, tile: LinearLayout, bits: int
) -> str:
    """The instructions of a plan, how many of them a warp needs, and the time they take in wavefronts."""
    if isinstance(plan, LdmatrixPlan):
        name = f"{kind}matrix.x{plan.x}{'.trans' if plan.transposed else ''}"
        count, needed = len(plan.groups) * (plan.x + plan.conflicts), len(plan.groups) * plan.x
    else:
        name = vector_name(kind, plan.vector * bits)
        # Of what other lanes hold as well, each bank is read once.
        count = wavefronts(tensor, tile, bits)
        needed = max(1, len(plan.groups) * _distinct_bytes(plan, bits) // BANK_ROW_BYTES)
    return (
        f"{len(plan.groups)} {name} of each warp, {_counted(count, 'wavefront')} where {needed} would do: "
        + ("free of bank conflicts" if count <= needed else "bank conflicts")
    )


def _distinct_bytes(plan: SharedAccess, bits: int) -> int:
    """The bytes that the lanes of one access touch, each counted once."""
    return len(set(all_sums(plan.lane))) * plan.vector * bits // 8


def vector_name(kind: str, bits: int) -> str:
    """The instruction of PTX that moves so many bits of each lane: `ld.shared.v4.b32`."""
    if bits <= 32:
        return f"{kind}.shared.b{bits}"
    return f"{kind}.shared.v{bits // 32}.b32"


def conversion(source: LinearLayout, destination: LinearLayout, bits: int) -> str:
    """How elements go from one layout of tensors to another."""
    kind = classify(source, destination)
    if kind == "same":
        return "nothing moves"
    if kind == "registers":
        return "each thread renames its registers"
    if kind == "shuffle":
        return f"lanes of a warp exchange elements by {shuffle_plan(source, destination).shuffles} shuffles"
    plan = shared_plan(source, destination, bits)
    way = "each warp by itself" if kind == "warp" else "all warps, which meet in between"
    rounds = f", {len(plan.rounds)} times" if len(plan.rounds) > 1 else ""
    return f"through {plan.bytes} bytes of shared memory{rounds}: {way}"


# Kernels


def _further_warps(func: Func) -> int:
    """Warps besides the kernel's own: those of its partitions, or of the producer."""
    partitions = sum(op.num_warps for op in func.body.walk() if isinstance(op, WarpPartition))
    return func.attrs.get("extra_warps", partitions)


def _occupancy(func: Func, target: Target) -> dict[str, str]:
    """How many programs of a kernel a multiprocessor holds, as far as warps and shared memory say."""
    warps = func.attrs["num_warps"] + _further_warps(func)
    shared = func.attrs.get("shared")
    if shared is None:
        shared = place(demands(func))[1]
    programs = target.limits.programs(shared, warps)
    busy = f"{programs * warps} of {target.limits.max_warps} warps"
    return {
        "kernel": f"{func.name}: {warps} warps, {shared} bytes of shared memory",
        "occupancy": f"{programs} programs on a multiprocessor of {target.arch}, {busy}, before registers are counted",
    }
