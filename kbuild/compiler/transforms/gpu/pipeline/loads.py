"""Which loads of a loop are worth issuing early, and what has to be computed early for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kbuild.compiler.analysis.bases import may_be_written
from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, is_float
from kbuild.compiler.ops.control import Call, For, If, While, Yield
from kbuild.compiler.ops.gpu import (
    TILE_VIEWS,
    AsyncWait,
    ConvertLayout,
    LocalAlloc,
    LocalLoad,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import (
    Atomic,
    Barrier,
    Broadcast,
    Dot,
    ExpandDims,
    GridDependencyWait,
    InlineAsm,
    Join,
    Load,
    Reduce,
    Reshape,
    Split,
    Store,
    Trans,
)

MOVING = (
    ConvertLayout,
    LocalAlloc,
    LocalLoad,
    MemDescSubslice,
    MemDescTrans,
    Broadcast,
    ExpandDims,
    Join,
    Reshape,
    Split,
    Trans,
)
"""Operations that only bring a value into another form."""
EXPENSIVE = (Dot, WarpGroupDot, LocalAlloc, LocalLoad)
"""Operations that are not worth doing twice to know an address early."""

_ORDERED = (For, While, Barrier, GridDependencyWait, Call, AsyncWait)
"""Operations that later loads of the same iteration are not issued before."""


class Slice(NamedTuple):
    """The operations that compute some values of one iteration, and the carried values that they need."""

    ops: tuple[Op, ...]
    """In the order of the body."""
    carried: tuple[int, ...]
    """Numbers of the carried values that take part."""


def pipelined_loads(loop: For, without_dots: bool) -> list[Load]:
    """The loads worth pipelining, in order: those that feed a dot; with `without_dots`, all if no load feeds
    a dot.

    Loops with inner loops, barriers, waits or calls have none, nor do loads from arrays that the loop writes,
    nor those that read the same tile in each iteration.
    """
    if any(isinstance(op, _ORDERED) for op in loop.body.walk()):
        return []
    candidates = [op for op in loop.body if isinstance(op, Load) and _is_candidate(loop, op)]
    feeding = [load for load in candidates if _feeds_dot(load)]
    return feeding or (candidates if without_dots else [])


def recurrent_loads(loop: For) -> list[Load]:
    """The loads that a loop without dots should have an iteration early, where each iteration waits for the one before:
    all that may be, of tensors and of single values.

    Such a loop goes through a sequence that a program keeps to itself, and its programs are few: nothing else hides
    the time that its loads take.
    """
    ops = list(loop.body.walk())
    if any(isinstance(op, (*_ORDERED, *EXPENSIVE)) or _may_wait(op) for op in ops) or not _is_recurrent(
        loop, ops
    ):
        return []
    return [op for op in loop.body if isinstance(op, Load) and _is_plain(op) and _is_apart(loop, op)]


def _may_wait(op: Op) -> bool:
    """Whether what other programs have written may be read behind an operation, and not before."""
    if isinstance(op, InlineAsm):
        return not op.pure
    return isinstance(op, Atomic) and bool(op.result.users)


def _is_recurrent(loop: For, ops: Sequence[Op]) -> bool:
    """Whether iterations reduce, or store what they carry on: sums alone are stored behind the loop."""
    if any(isinstance(op, Reduce) for op in ops):
        return True
    carries = any(is_float(value.type) for value in loop.carried)
    return carries and any(isinstance(op, Store) for op in ops)


def reads_plain_tile(load: Load) -> bool:
    """Whether a load gives a tensor that may be read earlier."""
    type_ = load.result.type
    return _is_plain(load) and isinstance(type_, TensorType) and type_.rank > 0


def _is_plain(load: Load) -> bool:
    """Whether a load is not volatile, and has its bounds in its mask."""
    return not load.volatile and not load.boundary_check


def _is_candidate(loop: For, load: Load) -> bool:
    return reads_plain_tile(load) and _is_apart(loop, load)


def _is_apart(loop: For, load: Load) -> bool:
    """Whether a load's address can be known early, is another one in each iteration, and is not written to."""
    if may_be_written(load.ptr, loop) or (
        load.other is not None and backward_slice(loop, [load.other]) is None
    ):
        return False
    roots = [value for value in (load.ptr, load.mask) if value is not None]
    address = backward_slice(loop, roots)
    return address is not None and _changes(loop, roots, address)


def _changes(loop: For, roots: Sequence[Value], address: Slice) -> bool:
    """Whether an address differs from one iteration to the next: a tile that stays the same comes from the
    cache after the first time, and shared memory serves better for more of the others."""
    used = [*roots, *(value for op in address.ops for value in op.operands)]
    return any(value.op is None and value.block is loop.body for value in used)


def _feeds_dot(load: Load) -> bool:
    """Whether a dot multiplies what the load gives, as it is or after work on single elements."""
    seen: set[Op] = set()
    values = [load.result]
    while values:
        value = values.pop()
        for user in value.users:
            if isinstance(user, Dot | WarpGroupDot) and (value is user.a or value is user.b):
                return True
            if user not in seen and (user.has(Trait.ELEMENTWISE) or isinstance(user, MOVING)):
                seen.add(user)
                values.extend(user.results)
    return False


def feeds_sum_in_place(load: Load, loop: For) -> bool:
    """Whether a dot of warpgroups reads the tile of a load from shared memory, and its result is only passed
    to the next iteration, by itself or by dots that go on summing: then it may be in flight until there, if its other
    tile may be read that long, too."""
    work = [user.result for user in load.result.users if isinstance(user, LocalAlloc)]
    for value in work:
        for user in value.users:
            if isinstance(user, MemDescTrans):
                work.append(user.result)
            elif isinstance(user, WarpGroupDot) and is_only_yielded(_last_of_chain(user), loop):
                return not any(_is_computed_in(tile, loop) for tile in (user.a, user.b))
    return False


def _is_computed_in(tile: Value, loop: For) -> bool:
    """Whether an iteration stores an operand that it has computed into the one place that there is."""
    while isinstance(tile.op, TILE_VIEWS):
        tile = tile.op.src
    return (
        isinstance(tile.op, LocalAlloc)
        and tile.op.src is not None
        and not isinstance(tile.op.src.op, Load)
        and is_within(tile.op.parent_block, loop.body)
    )


def _last_of_chain(dot: WarpGroupDot) -> WarpGroupDot:
    """The dot of the same block that adds to a dot's result last."""
    while True:
        user = next(iter(dot.result.users), None)
        if not isinstance(user, WarpGroupDot) or user.c is not dot.result or user.parent is not dot.parent:
            return dot
        if len(dot.result.users) > 1:
            return dot
        dot = user


def last_sum_in_place(loop: For) -> WarpGroupDot:
    """The last dot of a loop whose result is only passed to the next iteration, where there is one."""
    dots = [op for op in loop.body if isinstance(op, WarpGroupDot) and is_only_yielded(op, loop)]
    return dots[-1]


def has_only_sums_in_place(loop: For) -> bool:
    """Whether the results of all dots of a loop are only passed to the next iteration: one takes as long as they do."""
    dots = [op for op in loop.body if isinstance(op, Dot | WarpGroupDot)]
    return all(isinstance(dot, WarpGroupDot) and is_only_yielded(_last_of_chain(dot), loop) for dot in dots)


def is_only_yielded(dot: WarpGroupDot, loop: For) -> bool:
    """Whether a dot's result is used only by the next iteration, after the loop, or in some iterations alone: in a
    branch, which waits for it."""
    if dot.parent is not loop.body or dot.result.users.get(loop.body.terminator) != 1:
        return False
    others = (user.parent for user in dot.result.users if user is not loop.body.terminator)
    return all(block is not None and _is_in_branch(block, loop) for block in others)


def _is_in_branch(block: Block, loop: For) -> bool:
    """Whether a block is part of a branch of a loop."""
    while isinstance(block.parent, If) and block.parent.parent is not None:
        block = block.parent.parent
        if block is loop.body:
            return True
    return False


def read_with(load: Load) -> list[Value]:
    """The operands with which a load is done.  The descriptor only says what it is a block of, and may
    require more than the load itself."""
    return [value for value in (load.ptr, load.mask, load.other) if value is not None]


def forget_descriptor(load: Load) -> None:
    """Drop a load's descriptor, so that only its pointers are left: once the load has become one that TMA
    cannot do, or nothing needs the descriptor any more."""
    if load.desc is not None:
        load.desc, load.indices, load.axes = None, (), ()


def backward_slice(loop: For, roots: Iterable[Value], known: Collection[Op] = ()) -> Slice | None:
    """The operations that compute `roots` inside an iteration, stopping at those that are `known`.

    None when it has effects, loops, or costs too much to be done a second time, or may do harm in
    iterations that do not exist.  Loads and branches, which are masked there, may be part of it: a loop over the
    tiles of a program and their steps in one finds its next tile in a branch.
    """
    ops: set[Op] = set()
    carried: set[int] = set()
    values = list(roots)
    while values:
        value = values.pop()
        op = value.op
        if op is None:
            if value.block is loop.body and value.index and value.index - 1 not in carried:
                carried.add(value.index - 1)
                values.append(loop.yielded[value.index - 1])
        elif op.parent is loop.body and op not in ops and op not in known:
            if isinstance(op, Load):
                if op.volatile or op.boundary_check:
                    return None
            elif isinstance(op, If):
                inside = [each for block in op.regions for each in block.walk()]
                if not all(isinstance(each, Yield) or _may_be_repeated(each) for each in inside):
                    return None
                values.extend(operand for each in inside for operand in each.operands)
            elif not (_may_be_repeated(op) and op.is_speculatable()):
                return None
            ops.add(op)
            values.extend(read_with(op) if isinstance(op, Load) else op.operands)
    return Slice(tuple(op for op in loop.body if op in ops), tuple(sorted(carried)))


def _may_be_repeated(op: Op) -> bool:
    """Whether an operation can be done a second time, and is worth it."""
    return op.has(Trait.PURE) and not op.regions and not isinstance(op, EXPENSIVE)
