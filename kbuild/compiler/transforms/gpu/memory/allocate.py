"""Gives every shared memory allocation and every scratch area its place.

Before:  %a = ttg.local_alloc                          After:  %a = ttg.local_alloc {offset = 0}
         %y = ttg.convert_layout %x                            %y = ttg.convert_layout %x {scratch = 16384}
                                                               func attribute `shared` = 17408

Buffers of the right operands of dots that share their left one lie side by side, so that one instruction can read
them: such allocations have a `pitch`, and so has each `ttg.memdesc_index` of theirs.

Where all is more than there is, operations that can move their data in rounds get less scratch memory, and with it
the attribute `max_scratch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

from kbuild.compiler.analysis.allocation import Demand, demands, joined, place_within
from kbuild.compiler.analysis.dots.side_by_side import neighbours_wanted
from kbuild.compiler.ir.core import Func, Module, Op
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.gpu import LocalAlloc, MemDescIndex
from kbuild.errors import CompileError, Loc
from kbuild.targets.target import Target

LISTED = 5
"""How many of the largest allocations the error message lists."""


@gpu_pass
def allocate(module: Module, target: Target) -> None:
    """Set `offset` of allocations, `scratch` and `max_scratch` of other operations, and the function's `shared` bytes.

    Raises `CompileError` when a function needs more shared memory than the target has.
    """
    for func in module.functions.values():
        separate = demands(func)
        groups = list(neighbours_wanted(func))
        wanted, offsets, total = place_within(reduce(joined, groups, separate), target.limits.shared_bytes)
        if total > target.limits.shared_bytes:
            raise _too_large(func, target, separate, total)
        for group in groups:
            _lay_side_by_side(group, offsets)
        for demand in wanted:
            if demand.bound is not None:
                demand.op.__dict__["max_scratch"] = demand.bound
        for op in func.body.walk():
            if isinstance(op, LocalAlloc):
                op.offset = offsets[op]
            elif "scratch" in op.attribute_fields:
                op.__dict__["scratch"] = offsets.get(op)
        func.attrs["shared"] = total


def _lay_side_by_side(group: Sequence[LocalAlloc], offsets: dict[Op, int]) -> None:
    """Give each allocation of a group its place, the first of which has the offset of all."""
    tiles = [allocation.result.type for allocation in group]
    sizes = [type_.tile_bytes for type_ in tiles if isinstance(type_, MemDescType)]
    for allocation, before in zip(group, accumulate(sizes, initial=0)):
        offsets[allocation] = offsets[group[0]] + before
        allocation.pitch = sum(sizes)
        for user in allocation.result.users:
            if isinstance(user, MemDescIndex):
                user.pitch = allocation.pitch


def _too_large(func: Func, target: Target, wanted: Sequence[Demand], total: int) -> CompileError:
    largest = sorted(wanted, key=lambda demand: -demand.bytes)
    lines = [
        f"{func.name} needs {total} bytes of shared memory, but {target.arch} has {target.limits.shared_bytes} per program:"
    ]
    lines += [
        f"    {demand.bytes:>8} bytes for {_purpose(demand)}{_at(demand.op.loc)}"
        for demand in largest[:LISTED]
    ]
    if len(largest) > LISTED:
        lines.append(
            f"    and {len(largest) - LISTED} smaller ones, of which those not needed at the same time share memory"
        )
    descriptors = [_descriptor(demand) for demand in largest[:LISTED]]
    buffered = any(type_ is not None and type_.buffers for type_ in descriptors)
    advice = "make the block sizes smaller" + (
        ", or num_stages: each stage has a buffer of its own" if buffered else ""
    )
    if "num_ctas" in func.attrs:
        advice += f"; what {func.attrs['num_ctas']} CTAs would share is in the memory of one block"
    return CompileError("\n".join(lines), largest[0].op.loc, advice)


def _descriptor(demand: Demand) -> MemDescType | None:
    type_ = demand.op.results[0].type if isinstance(demand.op, LocalAlloc) else None
    return type_ if isinstance(type_, MemDescType) else None


def _purpose(demand: Demand) -> str:
    type_ = _descriptor(demand)
    if type_ is None:
        return f"moving data between threads in {demand.op.op_name}"
    shape = "x".join(str(size) for size in type_.tile_shape)
    tiles = f"{type_.buffers} tiles" if type_.buffers else "a tile"
    return f"{tiles} of {shape} {type_.element}"


def _at(loc: Loc | None) -> str:
    return f" ({loc})" if loc is not None else ""
