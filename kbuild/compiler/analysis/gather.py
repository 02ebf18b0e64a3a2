"""Gathers within a warp: whether each lane finds all elements it may ask for in the registers of its own
warp."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.f2 import apply
from kbuild.compiler.layout.linear import axis_bits
from kbuild.compiler.ops.tensor import Gather

MAX_CANDIDATES = 4
"""Registers per element that are worth shuffling; above, shared memory is faster."""


class GatherPlan(NamedTuple):
    """The place of an element of the source: lane and register number, each an XOR of parts.

    One part comes from the bits of the index, one from each bit of the result's thread number, one from the
    register.
    """

    index_lanes: tuple[int, ...]
    """What each bit of the index adds to the lane."""
    index_registers: tuple[int, ...]
    thread_lanes: tuple[int, ...]
    """What each bit of the thread's number (lane bits, then warp bits) adds to the lane."""
    thread_registers: tuple[int, ...]
    lanes: tuple[int, ...]
    """For each register of the result, its part of the lane."""
    registers: tuple[int, ...]
    local: bool
    """Whether the lane is always the asking one."""


def gather_columns(op: Gather) -> LinearLayout:
    """For each place of the result, the element of the source that index 0 would give."""
    source, result = _layout(op.src.type), _layout(op.results[0].type)

    def column(flat: int) -> int:
        coordinates = list(result.unflatten(flat))
        coordinates[op.axis] = 0
        return source.flatten(coordinates)

    return LinearLayout(
        source.shape, tuple((dim, tuple(column(basis) for basis in bases)) for dim, bases in result.bases)
    )


def plan_gather(op: Gather) -> GatherPlan | None:
    """The plan of a gather that needs no shared memory, or None."""
    source, columns = _layout(op.src.type), gather_columns(op)
    owners = _owners(source)
    if owners is None:
        return None
    lane, register, warp = (
        tuple(1 << bit if own == dim else 0 for own, bit in owners) for dim in ("lane", "register", "warp")
    )
    axis = axis_bits(source.shape, op.axis)
    thread = (*columns.bases_of("lane"), *columns.bases_of("warp"))
    if any(warp[bit] for bit in axis) or not _stays_within("warp", columns, warp):
        return None
    plan = GatherPlan(
        index_lanes=tuple(lane[bit] for bit in axis),
        index_registers=tuple(register[bit] for bit in axis),
        thread_lanes=tuple(apply(lane, basis) for basis in thread),
        thread_registers=tuple(apply(register, basis) for basis in thread),
        lanes=tuple(apply(lane, flat) for flat in columns.registers()),
        registers=tuple(apply(register, flat) for flat in columns.registers()),
        local=not any(lane[bit] for bit in axis) and _stays_within("lane", columns, lane),
    )
    varying = 0
    for image in (*plan.index_registers, *plan.thread_registers):
        varying |= image
    return plan if 1 << varying.bit_count() <= MAX_CANDIDATES else None


def _layout(type_: object) -> LinearLayout:
    assert isinstance(type_, TensorType) and type_.layout is not None, f"{type_} has no layout"
    return type_.layout


def _owners(layout: LinearLayout) -> list[tuple[str, int]] | None:
    """For each bit of the flat coordinate, the hardware bit that it is; None when there is none or another
    moves too."""
    owners: dict[int, tuple[str, int]] = {}
    for dim, bases in layout.bases:
        for bit, basis in enumerate(bases):
            if basis & (basis - 1) or basis in owners:
                return None
            if basis:
                owners[basis] = (dim, bit)
    return [owners[1 << position] for position in range(layout.numel.bit_length() - 1)]


def _stays_within(dim: str, columns: LinearLayout, images: tuple[int, ...]) -> bool:
    """Whether the columns of a warp's (or lane's, by `dim`) results lie in the same warp (or lane) of the
    source."""
    own = reduce(or_, images, 0)
    return all(
        apply(images, basis) == (1 << bit & own if name == dim else 0)
        for name, bases in columns.bases
        for bit, basis in enumerate(bases)
    )
