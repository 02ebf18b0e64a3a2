"""Tensors that are written where they are consumed, an element or a vector at a time: large ones that a reduction alone
consumes, and those of which several stores in a row are computed.

    %x: tensor<256x1024xf16> = tt.load %p                 1024 registers of a thread
    %y: tensor<256x1024xf32> = arith.extf %x
    %z: tensor<256x1024xf32> = arith.mulf %y, %w
    %s: tensor<256xf32> = tt.reduce %z {axis = 1}         takes them one after the other

Written operation by operation, all of %x would have to be in registers at once.  They can instead be loaded where
the reduction wants them, if nothing writes memory in between.

    %t = math.tanh %x
    %u = arith.mulf %t, %y
    %v = arith.mulf %t, %z
    tt.store %p, %u
    tt.store %q, %v

Written operation by operation, or store by store, all of %t waits for the second store, beside %y or %z, and ptxas
does not find the better order.  A vector of %u and the same vector of %v are computed together instead.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import takes_many, words
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.tensor import Load, Reduce, Store

_MANY_WORDS = 128
"""Registers of a thread that a load takes before it is worth to wait for the reduction: half of what there is."""


def consumed_late(func: Func) -> set[Value]:
    """The values that are to be written where a reduction asks for them."""
    late: set[Value] = set()
    for op in func.body.walk():
        if isinstance(op, Reduce) and len(op.srcs) == 1:
            chain = _chain(op)
            if any(isinstance(value.op, Load) and words([value]) > _MANY_WORDS for value in chain):
                late |= chain
    return late


def _chain(reduce: Reduce) -> set[Value]:
    """The operands of a reduction that nothing else uses, through elementwise operations, up to loads."""
    found: set[Value] = set()
    work = [reduce.srcs[0]]
    while work:
        value = work.pop()
        op = value.op
        if op is None or op.parent is not reduce.parent or sum(value.users.values()) != 1:
            continue
        if isinstance(op, Load):
            if not op.volatile and not _written_between(op, reduce):
                found.add(value)
        elif op.has(Trait.ELEMENTWISE):
            found.add(value)
            work += (operand for operand in op.operands if isinstance(operand.type, TensorType))
    return found


def stored_together(func: Func) -> set[Value]:
    """The values to be written where a store asks for them, as others in the same row of stores do then: what stores
    that share some of it are computed of by elementwise operations, and nothing else uses."""
    late: set[Value] = set()
    for op in func.body.walk():
        if isinstance(op, Store) and not isinstance(op.prev, Store):
            late |= _computed_for(op)
    return late


def _computed_for(first: Store) -> set[Value]:
    """The values computed for a row of stores alone; none where no two stores share one of many registers."""
    stores: dict[Op, set[Op]] = {}
    """The stores that each operation is computed for."""
    last: Op | None = first
    while isinstance(last, Store):
        stores[last] = set[Op]((last,))
        last = last.next
    found: set[Value] = set()
    is_shared = False
    op = first.prev
    while op is not None:
        if op.has(Trait.ELEMENTWISE) and op.operands:
            value = op.results[0]
            if value.users and all(user in stores and _only_stored(value, user) for user in value.users):
                stores[op] = set[Op]().union(*(stores[user] for user in value.users))
                found.add(value)
                is_shared = is_shared or (len(stores[op]) > 1 and takes_many(value))
        op = op.prev
    return found if is_shared else set()


def _only_stored(value: Value, user: Op) -> bool:
    """Whether a store takes a value as what it stores, and not to decide where."""
    return not isinstance(user, Store) or (user.value is value and value.users[user] == 1)


def _written_between(load: Load, reduce: Reduce) -> bool:
    op: Op | None = load.next
    while op is not None and op is not reduce:
        if op.regions and not isinstance(op, Reduce):
            return True
        if not op.has(Trait.PURE) and not isinstance(op, Load):
            return True
        op = op.next
    return False
