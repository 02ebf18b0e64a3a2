"""How many registers the tensors take that are alive at each operation.

A value is alive in its block from where it is defined to the last operation that uses it, or holds one that does; and
all through the regions of operations between the two.

It follows how many programs a multiprocessor should have: ptxas hopes for many, and puts loads right before what uses
them, one behind the other, to have fewer registers.  Then hardly any is on its way while another is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in, is_within
from kbuild.compiler.ir.types import TensorType, is_pointer
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalStore
from kbuild.compiler.ops.tensor import GetProgramId, Load
from kbuild.targets import Limits

_LOADED = 16
"""Elements that an iteration of a thread loads to compute with from which on their order matters."""
_ALIVE = 48
"""Registers of tensors from which on ptxas delays loads."""
_SHARE, _OTHERS = 0.75, 32
"""What ptxas needs of the registers that are alive in the order of the operations; and registers for addresses and
counters."""
_ON_THE_WAY = 64 << 10
"""Bytes that a multiprocessor has to have asked memory for to be given them as fast as it can: what comes within a
microsecond, and half as much again."""
_MOVES = (ConvertLayout, LocalAlloc, LocalStore)

Count = Callable[[Iterable[Value]], float]
"""The registers of some values."""


def pressure(func: Func, count: Count = words) -> dict[Op, float]:
    """For each operation the 32-bit registers of a thread that tensors take right after it."""
    found: dict[Op, float] = {}
    _visit(func.body, 0.0, found, count)
    return found


def resident_programs(func: Func, warps: int, limits: Limits) -> int | None:
    """How many programs may have a multiprocessor together if each has the registers for all that an iteration of its
    loops loads; None for a function without loops that load much.

    Without loops other programs' loads are on their way meanwhile: there many programs with few registers do better.
    One that does not ask which program it is has no others, as one that ends a reduction.
    """
    regions = [list(op.regions) for op in func.body.walk() if isinstance(op, For | While)]
    if not any(isinstance(op, GetProgramId) for op in func.body.walk()):
        regions.append([func.body])
    loading = [bodies for bodies in regions if _elements(_loaded(bodies)) >= _LOADED]
    within = (
        alive
        for op, alive in pressure(func, _data).items()
        if any(is_within(op.parent_block, body) for bodies in loading for body in bodies)
    )
    alive = max(within, default=0.0)
    if alive < _ALIVE:
        return None
    registers = min(limits.registers_for(32 * warps), int(_SHARE * alive) + _OTHERS)
    registers += -registers % 8
    # One that nearly fits is let in: losing it costs more than a few delayed loads.
    fitting = -(-limits.register_file // (32 * warps * registers))
    if all(_two_suffice(bodies, warps, limits) for bodies in loading):
        fitting = max(2, fitting)
    return max(1, min(fitting, limits.programs(func.attrs.get("shared", 0), warps)))


def _two_suffice(bodies: list[Block], warps: int, limits: Limits) -> bool:
    """Whether two programs, each with half of the registers, have enough loads of a loop on their way.

    A program that is alone has nobody to load while it begins, ends, or waits at a barrier.
    """
    threads = 2 * 32 * warps
    carried = words(value for body in bodies for value in body.arguments)
    room = limits.registers_for(threads) - _OTHERS - carried
    return 4 * threads * min(room, words(_loaded(bodies))) >= _ON_THE_WAY


def _data(values: Iterable[Value]) -> float:
    """The registers of tensors but for those of pointers, which differ by constants mostly."""
    return words(value for value in values if not is_pointer(value.type))


def _loaded(bodies: Iterable[Block]) -> list[Value]:
    """What an iteration loads to compute with, and not only to store it to shared memory, before a barrier that ptxas
    does not pass."""
    loads = (op.results[0] for body in bodies for op in body if isinstance(op, Load))
    return [value for value in loads if not all(isinstance(user, _MOVES) for user in value.users)]


def _elements(values: Iterable[Value]) -> int:
    """How many elements of tensors a thread has."""
    types = (value.type for value in values)
    return sum(
        len(t.layout.unique_registers()) for t in types if isinstance(t, TensorType) and t.layout is not None
    )


def _visit(block: Block, around: float, found: dict[Op, float], count: Count) -> None:
    """The operations of a block, where tensors from outside take some registers all the while."""
    places = {op: number for number, op in enumerate(block)}
    ending: dict[int, list[Value]] = {}
    for value in [*block.arguments, *(result for op in block for result in op.results)]:
        ending.setdefault(_last_use(value, block, places), []).append(value)
    alive = around + count(block.arguments) - count(ending.get(-1, ()))
    for op, number in places.items():
        for region in op.regions:
            _visit(region, alive, found, count)
        # What ends here makes room for the results, of which some may not be used at all.
        alive += count(op.results) - count(ending.get(number, ()))
        found[op] = alive


def _last_use(value: Value, block: Block, places: dict[Op, int]) -> int:
    """The place in a block of the last operation that uses one of its values or holds one that does: the operation
    itself, or -1 for an argument, where nothing uses it."""
    own = places[value.op] if value.op is not None else -1
    return max((places[ancestor_in(block, user)] for user in value.users), default=own)
