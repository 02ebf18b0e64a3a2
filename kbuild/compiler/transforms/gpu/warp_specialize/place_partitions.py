"""Gives the partitions of `ttg.warp_specialize` their warps, and all warps their registers.

Before:  func attributes {num_warps = 4, max_registers = 128}
         ttg.warp_specialize default() { … } partitions() {
           ttg.warp_partition {num_warps = 1, registers = 24} body() { … }
           ttg.warp_partition {num_warps = 1, registers = 24} body() { … }
         }
After:   func attributes {num_warps = 4, max_registers = 128, extra_warps = 4}
         ttg.warp_specialize {registers_before = [128, 128], registers = [232, 24]} default() { … } partitions() {
           ttg.warp_partition {num_warps = 1, registers = 24, first = 4} body() { … }
           ttg.warp_partition {num_warps = 1, registers = 24, first = 5} body() { … }
         }

The largest partitions come first, so that those of whole warpgroups begin with one.  Registers are given and taken
by whole warpgroups: one keeps the most that a partition in it requests, and the program's warps share the rest.

In loops and branches they have a `number` each, by which the other warps know which of them comes, and at the end
registers are as before; `ttg.warp_dismiss` follows the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module
from kbuild.compiler.ir.nesting import ancestors
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ops.gpu import WarpDismiss, WarpPartition, WarpPartitions
from kbuild.errors import CompileError
from kbuild.targets import Target
from kbuild.targets.wgmma import GROUP_WARPS, MOST_REGISTERS, REGISTER_UNIT

MAX_PARTITIONS = 14
"""Partitions that can meet at barriers of their own: of the hardware's 16, two are for other warps."""
MAX_LAUNCH_WARPS = 32
MAX_NUMBER = 32
"""Numbers that the threads of one warp can count."""
FEWEST_REGISTERS = 24


@gpu_pass
def place_partitions(module: Module, target: Target) -> None:
    """Set `first` of partitions, the registers of warpgroups, and the function's `extra_warps` and, where registers
    are requested, `max_registers`.

    Raises `CompileError` for more warps, partitions or registers than there are, and for one in another.
    """
    for func in module.functions.values():
        found = [op for op in func.body.walk() if isinstance(op, WarpPartitions)]
        if not found:
            continue
        _number(func, found)
        own = _groups(func.attrs["num_warps"])
        total = max(_place(op, own * GROUP_WARPS) for op in found)
        if total > MAX_LAUNCH_WARPS:
            raise CompileError(
                f"{func.name} would have {total} warps, {MAX_LAUNCH_WARPS} are possible",
                found[0].loc,
                "a warpgroup has four warps, and the warps of the default fill whole ones",
            )
        func.attrs["extra_warps"] = total - func.attrs["num_warps"]
        if target.has("wgmma"):
            _share_out(func, found, own, _groups(total), target)


def _number(func: Func, found: Sequence[WarpPartitions]) -> None:
    """Where control flow decides which come, give them numbers, and dismiss the partitions' warps at the end."""
    for op in found:
        if any(isinstance(around, WarpPartition | WarpPartitions) for around in ancestors(op)):
            raise CompileError(
                "gl.warp_specialize is in a partition of another",
                op.loc,
                "give the other one more functions",
            )
    if all(op.parent is func.body for op in found):
        return
    if len(found) > MAX_NUMBER:
        raise CompileError(
            f"{len(found)} times gl.warp_specialize, {MAX_NUMBER} are possible", found[MAX_NUMBER].loc
        )
    for number, op in enumerate(found, 1):
        op.number = number
    Builder.before(func.body.terminator).add(WarpDismiss())


def _groups(warps: int) -> int:
    """The number of warpgroups that warps fill or begin."""
    return -(-warps // GROUP_WARPS)


def _place(op: WarpPartitions, first: int) -> int:
    """Give the partitions their warps, from `first` on; the number of warps with whole warpgroups."""
    if len(op.workers) > MAX_PARTITIONS:
        raise CompileError(f"{len(op.workers)} partitions, {MAX_PARTITIONS} are possible", op.loc)
    for part in sorted(op.workers, key=lambda part: -part.num_warps):
        part.first = first
        first += part.num_warps
    return _groups(first) * GROUP_WARPS


def _share_out(func: Func, found: Sequence[WarpPartitions], own: int, groups: int, target: Target) -> None:
    threads = 32 * GROUP_WARPS * groups
    most = func.attrs.get("max_registers") or target.limits.register_file // threads
    start = min(most, MOST_REGISTERS) // REGISTER_UNIT * REGISTER_UNIT
    before = (start,) * groups
    for op in found:
        if all(part.registers is None for part in op.workers):
            continue
        kept = [_requested(op.workers, group, start) for group in range(own, groups)]
        left = (start * groups - sum(kept)) // own // REGISTER_UNIT * REGISTER_UNIT
        if left < FEWEST_REGISTERS:
            raise CompileError(
                f"the partitions request {', '.join(map(str, kept))} registers of a thread, which leaves {left} "
                f"of {start} to the default's warps",
                op.loc,
                f"request fewer, or compile with a larger maxnreg: {func.name} has {threads} threads",
            )
        op.registers_before, op.registers = before, (min(left, MOST_REGISTERS),) * own + tuple(kept)
        if op.number is None:
            before = op.registers
        # ptxas ignores `setmaxnreg` where it does not know how many registers there are at the entry.
        func.attrs["max_registers"] = min(start, target.limits.registers)


def _requested(parts: Sequence[WarpPartition], group: int, start: int) -> int:
    """The registers of a thread in a warpgroup: the most that a partition with warps in it requests."""
    inside = [
        part
        for part in parts
        if part.first is not None
        and part.first < (group + 1) * GROUP_WARPS
        and part.first + part.num_warps > group * GROUP_WARPS
    ]
    return max((part.registers or start for part in inside), default=FEWEST_REGISTERS)
