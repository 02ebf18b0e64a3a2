"""Moves conversions and loads from shared memory down to their uses, and stores down to others whose values are
computed of the same, so that fewer registers are taken at a time.

Before:
    %q: tensor<128x128xf16, #dot_operand> = ttg.local_load %tile
    scf.for … {
      %qk: tensor<128x64xf32, #mma> = tt.dot %q, …
After (where the registers of the loop would not suffice):
    scf.for … {
      %q: tensor<128x128xf16, #dot_operand> = ttg.local_load %tile
      %qk: tensor<128x64xf32, #mma> = tt.dot %q, …

A load does not move to where shared memory has no room for its tile.  Into a branch both always move if nothing else
needs them, into a loop only then: a load there is repeated.  Of several loops that use the same load each gets its
own.  Of stores in a row the lowering computes each vector of all together.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.analysis.allocation import demands, fits_at_once, fits_until, place
from kbuild.compiler.analysis.liveness import Interval, Liveness
from kbuild.compiler.analysis.tensor_registers import loop_words, takes_many, words
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in, ancestors, is_within
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.gpu import (
    TILE_VIEWS,
    ConvertLayout,
    LocalAlloc,
    LocalDot,
    LocalLoad,
)
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal, WaitBarrier, WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Store
from kbuild.targets import Target

_SHARE = 0.7
"""The part of a thread's registers that a loop's tensors may take; addresses and fragments need the rest."""
_Copy = AsyncTmaCopyGlobalToLocal


@gpu_pass
def reorder(module: Module, target: Target) -> None:
    """Sink conversions, loads from shared memory and stores, and move into branches what only one of them uses."""
    for func in module.functions.values():
        _sink_into_branches(func.body)
        for op in reversed([op for op in func.body.walk() if isinstance(op, Store)]):
            _join_next(op)
        for op in list(func.body.walk()):
            if isinstance(op, LocalLoad):
                _repeat_for_loops(op, target)
        movable = [op for op in func.body.walk() if isinstance(op, ConvertLayout | LocalLoad)]
        sunk: set[Op] = set()
        limit = target.limits.shared_bytes
        roomy = fits_at_once(func, limit)
        for op in reversed(movable):
            place = _place(op.parent_block, op, list(op.results[0].users), target)
            if place is not None and (
                not isinstance(op, LocalLoad)
                or (may_move(op, place) and (roomy or fits_until(func, [_root(op).op], place, limit)))
            ):
                # Those for the same use stay in their order.
                while place.prev in sunk:
                    place = place.prev
                if place is not op:
                    op.move_before(place)
                sunk.add(op)


def _sink_into_branches(block: Block) -> None:
    """Move pure operations to where only one branch needs them, users before what they use."""
    op = block.last
    while op is not None:
        previous = op.prev
        users = [user for result in op.results for user in result.users]
        if op.has(Trait.PURE) and users and all(user.parent is not block for user in users):
            tops = {ancestor_in(block, user) for user in users}
            top = tops.pop()
            if not tops and isinstance(top, If):
                branch = _branch_with(users, top)
                if branch is not None and branch.first is not None:
                    op.move_before(branch.first)
        for region in op.regions:
            _sink_into_branches(region)
        op = previous


def _join_next(store: Store) -> None:
    """Move a store to the next one, if their values share one of many registers and nothing between has an effect."""
    op = store.next
    while op is not None and op.has(Trait.PURE):
        op = op.next
    if (
        isinstance(op, Store)
        and op is not store.next
        and any(map(takes_many, _sources(op) & _sources(store)))
    ):
        store.move_before(op)


def _sources(store: Store) -> set[Value]:
    """The values of which elementwise operations of its block compute what is stored."""
    found: set[Value] = set()
    work = [store.value]
    while work:
        value = work.pop()
        op = value.op
        if value in found or op is None or op.parent_block is not store.parent_block:
            continue
        if op.has(Trait.ELEMENTWISE) and op.operands:
            found.add(value)
            work += op.operands
    return found


def _repeat_for_loops(load: LocalLoad, target: Target) -> None:
    """Give each of several loops that use a load one of its own, if it should move into it and there is
    memory for its tile."""
    users = list(load.result.users)
    loops = {ancestor_in(load.parent_block, user): None for user in users}
    if len(loops) < 2 or not all(isinstance(loop, For) for loop in loops):
        return
    for loop in loops:
        own = [user for user in users if ancestor_in(load.parent_block, user) is loop]
        if _entered(loop, load, own, target) is not None and _fits(loop, load, target):
            copy = load.clone({})
            Builder.before(loop).add(copy)
            for user in own:
                user.replace_operand(load.result, copy.results[0])
    if not load.result.users:
        load.erase()


def _fits(loop: Op, load: LocalLoad, target: Target) -> bool:
    """Whether there is enough shared memory for the tile of a load to be kept through a loop."""
    tile, func = _root(load), next(around for around in ancestors(loop) if isinstance(around, Func))
    if not isinstance(tile.op, LocalAlloc):
        return False
    liveness = Liveness(func)
    if liveness.intervals[tile.op].overlaps(Interval(liveness.start[loop], liveness.end[loop])):
        return True
    assert isinstance(tile.type, MemDescType)
    _, taken = place(demands(func))
    return taken + tile.type.size_bytes <= target.limits.shared_bytes


def _root(load: LocalLoad) -> Value:
    """The shared memory of which a load reads a view."""
    root = load.src
    while root.op is not None and isinstance(root.op, TILE_VIEWS):
        root = root.op.operands[0]
    return root


def _place(block: Block, op: Op, users: list[Op], target: Target) -> Op | None:
    """The operation before which `op` is needed first."""
    tops = {ancestor_in(block, user): None for user in users}
    if not tops:
        return None
    if len(tops) == 1:
        (top,) = tops
        inner = _entered(top, op, users, target)
        if inner is not None:
            return _place(inner, op, users, target)
    following = op.next if block is op.parent else block.first
    while following is not None and following not in tops:
        following = following.next
    return following


def _entered(top: Op, op: Op, users: list[Op], target: Target) -> Block | None:
    """The region of an operation into which another should move, when all users are there."""
    if isinstance(top, If):
        return _branch_with(users, top)
    if isinstance(top, For) and _are_within(users, top.body) and isinstance(op, LocalLoad):
        fed = all(isinstance(user, Dot | WarpGroupDot) for user in users)
        crowded = loop_words(top) + words(op.results) > _SHARE * target.limits.registers
        return top.body if fed and crowded else None
    return None


def _branch_with(users: list[Op], choice: If) -> Block | None:
    """The branch in which all users are."""
    return next((branch for branch in choice.regions if _are_within(users, branch)), None)


def _are_within(users: list[Op], block: Block) -> bool:
    return all(is_within(user.parent_block, block) for user in users)


def may_move(load: LocalLoad, place: Op, past_tiles: bool = False) -> bool:
    """Whether the memory still holds the same at another place: nothing writes it after it was allocated, or
    nothing with an effect on shared memory lies between; with `past_tiles`, none but that other tiles are made
    there, beside which this one then has to stay."""
    if is_kept(_root(load)):
        return True
    if place.parent is not load.parent:
        return False
    harmless = (Store, LocalAlloc) if past_tiles else Store
    op = load.next
    while op is not None and op is not place:
        if any(inner.has(Trait.WRITES) and not isinstance(inner, harmless) for inner in op.walk()):
            return False
        op = op.next
    return True


def is_kept(memory: Value) -> bool:
    """Whether shared memory holds for good what it was allocated with, or what one copy by TMA has brought right there."""
    if not isinstance(memory.op, LocalAlloc):
        return False
    users = list(_users(memory))
    if any(not isinstance(user, LocalDot | LocalLoad | WarpGroupDot | WaitBarrier | _Copy) for user in users):
        return False
    copies = [user for user in users if isinstance(user, _Copy)]
    if memory.op.src is not None:
        return not copies
    return len(copies) == 1 and copies[0].parent is memory.op.parent


def _users(memory: Value) -> Iterator[Op]:
    """What uses memory or a view of it, but for the views."""
    for user in memory.users:
        if isinstance(user, TILE_VIEWS):
            yield from _users(user.results[0])
        else:
            yield user
