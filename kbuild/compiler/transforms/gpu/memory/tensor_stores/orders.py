"""Which earlier copies from shared memory a copy must wait for, so that memory ends up as in the program's
order.

TMA may finish copies in any order.  The order does not matter between different arrays, between atomics of
one kind, nor between blocks of one descriptor that lie apart by constants; all others may overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.nesting import ancestors
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import AddI, Constant
from kbuild.compiler.transforms.gpu.memory.tensor_stores.choice import CopyableStore


def wait_for(access: CopyableStore, accesses: Sequence[CopyableStore]) -> int | None:
    """How many copies may be unfinished when one starts; None where it need not wait for others.  `accesses`
    are in the order of the text."""
    near = just_before(access, accesses)
    for count, other in enumerate(near):
        if _conflict(access, other) and not _apart(access, other):
            return count
    # Before those the distance is not known.
    earlier = accesses[: accesses.index(access)]
    others = [
        other
        for other in accesses
        if other not in near and (other in earlier or _share_a_loop(other.op, access.op))
    ]
    return len(near) if any(_conflict(access, other) for other in others) else None


def in_loop(op: Op, home: Block) -> bool:
    """Whether an operation may run more than once in a block."""
    return any(
        isinstance(around, For | While)
        for around in takewhile(lambda around: around is not home.parent, ancestors(op))
    )


def just_before(access: CopyableStore, accesses: Sequence[CopyableStore]) -> list[CopyableStore]:
    """The accesses of the same block before one, the last first, as long as no inner block has any."""
    found: list[CopyableStore] = []
    known: dict[Op, CopyableStore] = {other.op: other for other in accesses}
    op = access.op.prev
    while op is not None and not any(inner in known for region in op.regions for inner in region.walk()):
        if op in known:
            found.append(known[op])
        op = op.prev
    return found


def _share_a_loop(first: Op, second: Op) -> bool:
    """Whether each of two operations may run before the other."""
    return any(isinstance(op, For | While) for op in ancestors(first) if op in ancestors(second))


def _conflict(first: CopyableStore, second: CopyableStore) -> bool:
    """Whether the order of two accesses may matter."""
    return first.base == second.base and (not first.kind or first.kind != second.kind)


def _apart(first: CopyableStore, second: CopyableStore) -> bool:
    """Whether two accesses of one iteration are to blocks of one descriptor that lie apart."""
    if first.tensor != second.tensor or first.tile.tile_shape != second.tile.tile_shape:
        return False
    for size, one, other in zip(first.tile.tile_shape, first.indices, second.indices):
        (root, by), (other_root, other_by) = _sum(one), _sum(other)
        if root is other_root and abs(by - other_by) >= size:
            return True
    return False


def _sum(value: Value) -> tuple[Value | None, int]:
    """A value as another one and a constant; None for no other one."""
    total = 0
    while isinstance(value.op, AddI):
        left, right = value.op.lhs, value.op.rhs
        if isinstance(left.op, Constant):
            left, right = right, left
        if not isinstance(right.op, Constant):
            break
        total, value = total + int(right.op.value), left
    return (None, total + int(value.op.value)) if isinstance(value.op, Constant) else (value, total)
